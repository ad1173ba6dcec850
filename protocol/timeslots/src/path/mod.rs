//! Path selection: the path through the core of each packet of a timeslot.
//!
//! The packets of a timeslot that leave their rack are the edges of a bipartite multigraph from
//! racks to racks. Its edges are coloured so that no two of one colour meet at a rack, which takes
//! no more colours than a rack has packets (D. König, 1916). The colour modulo the number of paths
//! is the path, so a link between a rack and the core carries at most its share of the rack's
//! packets (`docs/design/arbiter.md`, "What does a path cost?").
//!
//! All timeslots of a batch are coloured side by side, source by source: consecutive packets of one
//! rack depend on each other, packets of different timeslots do not. The few that find no colour
//! free at both ends are coloured last.
//!
//! The path of each colour is drawn for each timeslot. Low colours are used most, so with a fixed
//! mapping a pair alone in the network would always take the same path; if that path is dead no
//! packet arrives, and the receiver detects no loss (`docs/design/arbiter.md`, "Why is the path of
//! a colour drawn at random?").

mod colouring;
mod routes;
mod tree;

use alloc::vec::Vec;

use crate::Timeslot;
use crate::timeslot::{BATCH_SLOTS_MAX, Schedule};
use colouring::{Colouring, Edge};

pub use routes::Routes;
pub use tree::{Tree, TreePaths};

/// Maximum number of colours: one bit each in a word.
const COLOURS_MAX: u32 = 64;
const SLOTS: usize = BATCH_SLOTS_MAX as usize;

/// The path of each colour, or [`Paths::NONE`].
type PathOf = [u8; COLOURS_MAX as usize];

/// A fabric of racks with several paths between any two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fabric {
    /// Endpoints, numbered rack by rack.
    pub nodes: u32,
    /// Endpoints per rack, 1 to 64.
    pub rack_nodes: u32,
    /// Paths between any two racks, 1 to 64: the core links of a rack.
    pub paths: u32,
    /// Whether a timeslot uses no more colours than its busiest rack has packets, so that each link
    /// of every rack carries at most that number divided by the paths. Otherwise a link may carry
    /// what it would if all endpoints of the rack sent, which is its capacity, and is faster.
    pub is_strict: bool,
}

/// A fabric with an invalid number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{name} cannot be {value}")]
pub struct FabricError {
    /// The setting.
    pub name: &'static str,
    /// The rejected value.
    pub value: u32,
}

/// Counters of path selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathStats {
    /// Packets with a path.
    pub packets: u64,
    /// Times that other packets were recoloured for one.
    pub flips: u64,
    /// Packets without a path, because links have failed.
    pub without_path: u64,
}

/// Entries per timeslot in the edge table: one per endpoint and a cache line more. The rows of all
/// timeslots are written in turn; a stride of a power of two would map them to the same cache sets.
const fn edges_stride(nodes: usize) -> usize {
    nodes + 8
}

/// Returns the mask of the first `colours` colours.
const fn first_colours(colours: u32) -> u64 {
    u64::MAX.unbounded_shr(COLOURS_MAX - colours)
}

/// Returns the colours that a rack can use in a timeslot: those whose path it has a link to.
#[inline]
fn usable(cut: u64, colours: u32, path_of: &PathOf) -> u64 {
    let all_paths = path_of.iter().enumerate().take(colours as usize);
    let is_cut = all_paths.filter(|(_, path)| cut.unbounded_shr(u32::from(**path)) & 1 == 1);
    is_cut.fold(first_colours(colours), |usable, (colour, _)| usable & !(1 << colour))
}

/// Mixes a number into an unrelated one (G. Steele et al., 2014, SplitMix64).
const fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Calls `action` for each timeslot of a mask, in order.
#[inline]
fn for_each(mut slots: u64, mut action: impl FnMut(usize)) {
    while slots != 0 {
        action(slots.trailing_zeros() as usize);
        slots &= slots - 1;
    }
}

/// Assigns a path to every packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Paths {
    fabric: Fabric,
    racks: u32,
    rack_of: Vec<u16>,
    /// Tier in a tree. Tiers draw their paths independently.
    tier: u64,
    has_failed: Vec<bool>,
    /// Number of colours: the same number for each working path.
    colours: u32,
    /// By rack: the paths whose link to it has failed.
    cut: Vec<u64>,
    /// The path of each colour, for each rotation of the working paths.
    rotations: Vec<PathOf>,
    /// The path of each colour in each timeslot.
    path_of: Vec<PathOf>,
    /// By rack and timeslot: the colours that no outgoing, or incoming, packet has yet.
    leaving: Vec<[u64; SLOTS]>,
    entering: Vec<[u64; SLOTS]>,
    colouring: Colouring,
    /// The packets that leave their rack, [`edges_stride`] entries for each timeslot: coloured ones
    /// from the front, uncoloured ones from the back; and the number of either.
    edges: Vec<Edge>,
    counts: [usize; SLOTS],
    uncoloured: [usize; SLOTS],
    /// By rack: the number of coloured packets before its own.
    begins: Vec<[usize; SLOTS]>,
    /// A row for each source.
    routes: Vec<[u8; SLOTS]>,
    stats: PathStats,
}

impl Paths {
    /// In [`Paths::of`]: no path, because the packet stays in its rack, or none is left.
    pub const NONE: u8 = u8::MAX;

    /// Creates the path selection of a fabric without faults.
    ///
    /// # Errors
    /// When the fabric is invalid.
    pub fn new(fabric: Fabric) -> Result<Self, FabricError> {
        let check = |is_valid, name, value| match is_valid {
            true => Ok(()),
            false => Err(FabricError { name, value }),
        };
        let colours = 1..=COLOURS_MAX;
        check((1..=4096).contains(&fabric.nodes), "nodes", fabric.nodes)?;
        check(colours.contains(&fabric.rack_nodes), "rack_nodes", fabric.rack_nodes)?;
        check(colours.contains(&fabric.paths), "paths", fabric.paths)?;
        let racks = fabric.nodes.div_ceil(fabric.rack_nodes);
        let rack_of = (0..fabric.nodes).map(|node| (node / fabric.rack_nodes) as u16).collect();
        let row = [Self::NONE; SLOTS];
        let mut paths = Self {
            racks,
            rack_of,
            tier: 0,
            has_failed: alloc::vec![false; fabric.paths as usize],
            colours: 0,
            cut: alloc::vec![0; racks as usize],
            rotations: Vec::with_capacity(fabric.paths as usize),
            path_of: alloc::vec![[Self::NONE; COLOURS_MAX as usize]; SLOTS],
            leaving: alloc::vec![[0; SLOTS]; racks as usize],
            entering: alloc::vec![[0; SLOTS]; racks as usize],
            colouring: Colouring::new(racks as usize),
            edges: alloc::vec![Edge::default(); edges_stride(fabric.nodes as usize) * SLOTS],
            counts: [0; SLOTS],
            uncoloured: [0; SLOTS],
            begins: alloc::vec![[0; SLOTS]; racks as usize],
            routes: alloc::vec![row; fabric.nodes as usize],
            stats: PathStats::default(),
            fabric,
        };
        paths.assign_colours();
        Ok(paths)
    }

    //= spec/arbiter.md#R17
    /// Sets whether `path` has failed, so that no packet uses it.
    ///
    /// # Errors
    /// When the path does not exist.
    pub fn set_failed(&mut self, path: u32, has_failed: bool) -> Result<(), FabricError> {
        let known = self.has_failed.get_mut(path as usize);
        *known.ok_or(FabricError { name: "path", value: path })? = has_failed;
        self.assign_colours();
        Ok(())
    }

    //= spec/arbiter.md#R17
    /// Sets whether the link between `rack` and `path` has failed, so that no packet uses it.
    ///
    /// # Errors
    /// When the rack or the path does not exist.
    pub fn set_cut(&mut self, rack: u32, path: u32, is_cut: bool) -> Result<(), FabricError> {
        if path >= self.fabric.paths {
            return Err(FabricError { name: "path", value: path });
        }
        let known = self.cut.get_mut(rack as usize);
        let known = known.ok_or(FabricError { name: "rack", value: rack })?;
        *known = (*known & !(1 << path)) | (u64::from(is_cut) << path);
        self.assign_colours();
        Ok(())
    }

    /// Returns this selection as that of the upper tier of a tree.
    pub(super) fn above(self) -> Self {
        Self { tier: 1, ..self }
    }

    /// Assigns colours to the working paths.
    fn assign_colours(&mut self) {
        let Fabric { rack_nodes, paths, .. } = self.fabric;
        let alive = (0..paths).filter(|path| !self.has_failed[*path as usize]);
        let rotation_count = alive.clone().count();
        self.colours = (rack_nodes.div_ceil(paths) * rotation_count as u32).min(COLOURS_MAX);
        self.rotations.clear();
        for rotation in 0..rotation_count {
            let mut path_of = [Self::NONE; COLOURS_MAX as usize];
            let colours = path_of.iter_mut().take(self.colours as usize);
            let rotations = alive.clone().cycle().skip(rotation);
            colours.zip(rotations).for_each(|(colour, path)| *colour = path as u8);
            self.rotations.push(path_of);
        }
    }

    //= spec/arbiter.md#R18
    /// Draws the path of each colour for each timeslot. A rotation leaves colours as evenly spread
    /// as they were.
    fn rotate(&mut self, start: Timeslot, slots: u32) {
        let Self { rotations, path_of, tier, .. } = self;
        for (nth, path_of) in (0..).zip(path_of.iter_mut().take(slots as usize)) {
            let drawn = mix(*tier << 63 ^ start.0.wrapping_add(nth)) >> 32;
            let rotation = (drawn * rotations.len() as u64) >> 32;
            // There is none if no path works.
            if let Some(rotations) = rotations.get(rotation as usize) {
                *path_of = *rotations;
            }
        }
    }

    //= spec/arbiter.md#R16
    /// Assigns a path to every packet of the first `slots` timeslots of the batch that begins at
    /// `start`. Returns the number of packets without one, which must not be sent.
    pub fn assign(&mut self, schedule: &Schedule, start: Timeslot, slots: u32) -> u32 {
        let slots = slots.min(BATCH_SLOTS_MAX);
        self.rotate(start, slots);
        let all = u64::MAX.unbounded_shr(BATCH_SLOTS_MAX - slots);
        let masks = match self.fabric.is_strict {
            true => self.least_colours(schedule, all),
            false => [u64::MAX; SLOTS],
        };
        let colours = first_colours(self.colours);
        for (rack, cut) in self.cut.iter().enumerate() {
            self.leaving[rack] = match cut {
                0 => masks.map(|mask| colours & mask),
                _ => core::array::from_fn(|slot| {
                    usable(*cut, self.colours, &self.path_of[slot]) & masks[slot]
                }),
            };
            self.entering[rack] = self.leaving[rack];
        }
        self.counts = [0; SLOTS];
        self.uncoloured = [0; SLOTS];
        let rack_nodes = self.fabric.rack_nodes as usize;
        for src in 0..self.rack_of.len() {
            if src.is_multiple_of(rack_nodes) {
                self.begins[src / rack_nodes] = self.counts;
            }
            if src < schedule.nodes() as usize {
                self.assign_row(src, schedule.of(src as u32), schedule.busy(src as u32) & all);
            }
        }
        let mut without_path = 0;
        for (slot, mask) in masks.into_iter().enumerate() {
            if self.uncoloured[slot] > 0 {
                without_path += self.assign_uncoloured(slot, mask);
            }
        }
        self.stats.packets += self.counts.iter().sum::<usize>() as u64 - u64::from(without_path);
        self.stats.without_path += u64::from(without_path);
        without_path
    }

    fn nodes(&self, schedule: &Schedule) -> usize {
        self.rack_of.len().min(schedule.nodes() as usize)
    }

    /// Returns for each timeslot as many colours as its busiest rack has packets, in or out.
    fn least_colours(&mut self, schedule: &Schedule, all: u64) -> [u64; SLOTS] {
        self.leaving.fill([0; SLOTS]);
        self.entering.fill([0; SLOTS]);
        for src in 0..self.nodes(schedule) {
            let from = self.rack_of[src];
            for_each(schedule.busy(src as u32) & all, |slot| {
                let dst = schedule.of(src as u32)[slot];
                let to = self.rack_of.get(usize::from(dst)).filter(|to| **to != from);
                if let Some(&to) = to {
                    self.leaving[usize::from(from)][slot] += 1;
                    self.entering[usize::from(to)][slot] += 1;
                }
            });
        }
        let mut masks = [0; SLOTS];
        for counts in self.leaving.iter().chain(&self.entering) {
            for (mask, count) in masks.iter_mut().zip(counts) {
                *mask |= u64::MAX.unbounded_shr(COLOURS_MAX - *count as u32);
            }
        }
        masks
    }

    /// Assigns paths to the packets of `src` in the timeslots `busy`, as far as a colour is free.
    fn assign_row(&mut self, src: usize, row: &[u16; SLOTS], busy: u64) {
        let Self { rack_of, entering, counts, uncoloured, edges, path_of, .. } = self;
        let (stride, from) = (edges_stride(rack_of.len()), rack_of[src]);
        let (leaving, routes) = (&mut self.leaving[usize::from(from)], &mut self.routes[src]);
        *routes = [Self::NONE; SLOTS];
        for_each(busy, |slot| {
            let Some(&to) = rack_of.get(usize::from(row[slot])) else { return };
            if from == to {
                return;
            }
            let entering = &mut entering[usize::from(to)][slot];
            let free = leaving[slot] & *entering;
            let edge = Edge::new(src as u16, from, to, free.trailing_zeros() as u8);
            if free == 0 {
                uncoloured[slot] += 1;
                edges[(slot + 1) * stride - uncoloured[slot]] = edge;
                return;
            }
            let colour = free & free.wrapping_neg();
            leaving[slot] ^= colour;
            *entering ^= colour;
            edges[slot * stride + counts[slot]] = edge;
            counts[slot] += 1;
            routes[slot] = path_of[slot][usize::from(edge.colour())];
        });
    }

    /// Assigns paths to the uncoloured packets of a timeslot, recolouring others. Returns the
    /// number of packets without a path.
    fn assign_uncoloured(&mut self, slot: usize, mask: u64) -> u32 {
        let Self { cut, colours, path_of, leaving, entering, begins, colouring, .. } = self;
        let stride = edges_stride(self.rack_of.len());
        let edges = &mut self.edges[slot * stride..][..stride];
        let (first, uncoloured) = (self.counts[slot], self.uncoloured[slot]);
        edges.copy_within(stride - uncoloured.., first);
        let edges = &mut edges[..first + uncoloured];
        let of = |rack: usize| {
            let usable = usable(cut[rack], *colours, &path_of[slot]) & mask;
            ([usable, leaving[rack][slot], entering[rack][slot]], begins[rack][slot] as u16)
        };
        colouring.begin(of, &edges[..first]);
        let mut without_path = 0;
        for at in first..first + uncoloured {
            if !colouring.colour_edge(edges, at, &mut self.stats.flips) {
                without_path += 1;
                continue;
            }
            for &at in colouring.changed().iter().chain([&(at as u16)]) {
                let edge = edges[usize::from(at)];
                self.routes[edge.src()][slot] = path_of[slot][usize::from(edge.colour())];
            }
        }
        self.counts[slot] += uncoloured;
        without_path
    }

    /// Returns the path of `src` in each timeslot of the last batch.
    ///
    /// # Panics
    /// When `src` does not exist.
    pub fn of(&self, src: u32) -> &[u8; SLOTS] {
        &self.routes[src as usize]
    }

    /// Returns the number of racks.
    pub fn racks(&self) -> u32 {
        self.racks
    }

    /// Returns the fabric.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Returns the counters.
    pub fn stats(&self) -> &PathStats {
        &self.stats
    }
}
