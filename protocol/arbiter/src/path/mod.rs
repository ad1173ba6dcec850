//! Which way through the core each packet of a timeslot takes.
//!
//! The packets of a timeslot that leave their rack are the edges of a bipartite multigraph, from
//! racks to racks. Its edges are coloured so that no two of one colour meet at a rack, which takes
//! no more colours than a rack has packets (D. König, 1916); colour modulo paths is the path. So a
//! link between a rack and the core bears its share of the rack's packets and never more (design:
//! arbiter.md section 3).

mod colouring;
mod tree;

use alloc::vec::Vec;

use crate::timeslot::{BATCH_SLOTS_MAX, Schedule};
use colouring::{Colouring, Edge};

pub use tree::{Tree, TreePaths};

/// The colours of a word.
const COLOURS_MAX: u32 = 64;

/// A fabric of racks with several paths from each to each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fabric {
    /// Endpoints, numbered rack by rack.
    pub nodes: u32,
    /// Endpoints of a rack, 1 to 64.
    pub rack_nodes: u32,
    /// Ways from a rack to any other: core links of a rack, 1 to 64.
    pub paths: u32,
    /// Whether a timeslot takes no more colours than its busiest rack has packets: each link of
    /// every rack then bears that many, divided by the paths, at most. Otherwise a link may bear
    /// what it would if all endpoints of the rack sent, which is its capacity, and that is quicker.
    pub is_strict: bool,
}

/// A fabric that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{name} cannot be {value}")]
pub struct FabricError {
    /// Which number.
    pub name: &'static str,
    /// What it was.
    pub value: u32,
}

/// What path selection has done since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathStats {
    /// Packets that were given a path.
    pub packets: u64,
    /// Times that others had to change their paths for one.
    pub flips: u64,
    /// Packets for which there was no path, because links have failed.
    pub unplaced: u64,
}

/// Gives every packet its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Paths {
    fabric: Fabric,
    racks: u32,
    rack_of: Vec<u16>,
    /// The path of each colour, where there is one.
    path_of: Vec<u8>,
    has_failed: Vec<bool>,
    /// By rack: the paths whose link to it has failed.
    cut: Vec<u64>,
    /// By rack: the colours that it can use.
    usable: Vec<u64>,
    colouring: Colouring,
    /// The packets that leave their rack, as many places for each timeslot as there are endpoints;
    /// and how many there are.
    edges: Vec<Edge>,
    counts: [usize; BATCH_SLOTS_MAX as usize],
    /// A row for each source.
    routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
    stats: PathStats,
}

impl Paths {
    /// In [`Paths::of`]: no path, because the packet does not leave its rack, or there is none.
    pub const NONE: u8 = u8::MAX;

    /// Of a fabric in which everything works.
    ///
    /// # Errors
    /// When there can be no such fabric.
    pub fn new(fabric: Fabric) -> Result<Self, FabricError> {
        let check = |is_right, name, value| match is_right {
            true => Ok(()),
            false => Err(FabricError { name, value }),
        };
        let colours = 1..=COLOURS_MAX;
        check((1..=4096).contains(&fabric.nodes), "nodes", fabric.nodes)?;
        check(colours.contains(&fabric.rack_nodes), "rack_nodes", fabric.rack_nodes)?;
        check(colours.contains(&fabric.paths), "paths", fabric.paths)?;
        let racks = fabric.nodes.div_ceil(fabric.rack_nodes);
        let rack_of = (0..fabric.nodes).map(|node| (node / fabric.rack_nodes) as u16).collect();
        let row = [Self::NONE; BATCH_SLOTS_MAX as usize];
        let mut paths = Self {
            racks,
            rack_of,
            path_of: Vec::with_capacity(COLOURS_MAX as usize),
            has_failed: alloc::vec![false; fabric.paths as usize],
            cut: alloc::vec![0; racks as usize],
            usable: alloc::vec![0; racks as usize],
            colouring: Colouring::new(racks as usize),
            edges: alloc::vec![Edge::default(); (fabric.nodes * BATCH_SLOTS_MAX) as usize],
            counts: [0; BATCH_SLOTS_MAX as usize],
            routes: alloc::vec![row; fabric.nodes as usize],
            stats: PathStats::default(),
            fabric,
        };
        paths.number();
        Ok(paths)
    }

    /// From now on `path` is used by nobody, or again.
    ///
    /// # Errors
    /// When there is no such path.
    pub fn set_failed(&mut self, path: u32, has_failed: bool) -> Result<(), FabricError> {
        let known = self.has_failed.get_mut(path as usize);
        *known.ok_or(FabricError { name: "path", value: path })? = has_failed;
        self.number();
        Ok(())
    }

    /// From now on the link between `rack` and `path` is used by nobody, or again.
    ///
    /// # Errors
    /// When there is no such rack or path.
    pub fn set_cut(&mut self, rack: u32, path: u32, is_cut: bool) -> Result<(), FabricError> {
        if path >= self.fabric.paths {
            return Err(FabricError { name: "path", value: path });
        }
        let known = self.cut.get_mut(rack as usize);
        let known = known.ok_or(FabricError { name: "rack", value: rack })?;
        *known = (*known & !(1 << path)) | (u64::from(is_cut) << path);
        self.number();
        Ok(())
    }

    /// Gives colours to the paths that work, so many to each as it may bear packets of a rack.
    fn number(&mut self) {
        let Fabric { rack_nodes, paths, .. } = self.fabric;
        let each = rack_nodes.div_ceil(paths);
        self.path_of.clear();
        for _ in 0..each {
            let alive = (0..paths).filter(|path| !self.has_failed[*path as usize]);
            self.path_of.extend(alive.map(|path| path as u8));
        }
        self.path_of.truncate(COLOURS_MAX as usize);
        for (rack, cut) in self.cut.iter().enumerate() {
            let colours = self.path_of.iter().enumerate();
            let usable = colours.filter(|(_, path)| cut >> **path & 1 == 0);
            self.usable[rack] = usable.fold(0, |all, (colour, _)| all | 1 << colour);
        }
    }

    /// Gives a path to every packet of the first `slots` timeslots of a batch. Answers how many
    /// have none: they must not be sent.
    pub fn assign(&mut self, schedule: &Schedule, slots: u32) -> u32 {
        let slots = slots.min(BATCH_SLOTS_MAX);
        self.gather(schedule, u64::MAX.unbounded_shr(BATCH_SLOTS_MAX - slots));
        (0..slots as usize).map(|slot| self.assign_one(slot)).sum()
    }

    /// Sorts the packets of the timeslots in `all` that leave their rack by timeslot, row by row.
    fn gather(&mut self, schedule: &Schedule, all: u64) {
        self.counts = [0; BATCH_SLOTS_MAX as usize];
        let nodes = self.rack_of.len();
        for src in 0..nodes.min(schedule.nodes() as usize) {
            self.routes[src] = [Self::NONE; BATCH_SLOTS_MAX as usize];
            let (row, from) = (schedule.of(src as u32), self.rack_of[src]);
            let mut busy = schedule.busy(src as u32) & all;
            while busy != 0 {
                let slot = busy.trailing_zeros() as usize;
                busy &= busy - 1;
                let Some(&to) = self.rack_of.get(usize::from(row[slot])) else { continue };
                if from != to {
                    let count = &mut self.counts[slot];
                    self.edges[slot * nodes + *count] =
                        Edge { src: src as u16, from, to, colour: 0 };
                    *count += 1;
                }
            }
        }
    }

    fn assign_one(&mut self, slot: usize) -> u32 {
        let first = slot * self.rack_of.len();
        let edges = &mut self.edges[first..first + self.counts[slot]];
        let limit = match self.fabric.is_strict {
            true => self.colouring.count(edges),
            false => COLOURS_MAX,
        };
        self.colouring.begin(&self.usable, limit);
        let mut unplaced = 0;
        for at in 0..edges.len() {
            if !self.colouring.place(edges, at, &mut self.stats.flips) {
                unplaced += 1;
            }
        }
        for edge in &*edges {
            if let Some(path) = self.path_of.get(usize::from(edge.colour)) {
                self.routes[usize::from(edge.src)][slot] = *path;
            }
        }
        self.stats.packets += edges.len() as u64 - u64::from(unplaced);
        self.stats.unplaced += u64::from(unplaced);
        unplaced
    }

    /// The path of each packet of `src` in the batch assigned last.
    ///
    /// # Panics
    /// When there is no endpoint `src`.
    pub fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        &self.routes[src as usize]
    }

    /// Racks.
    pub fn racks(&self) -> u32 {
        self.racks
    }

    /// As it was set up.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// What it has done.
    pub fn stats(&self) -> &PathStats {
        &self.stats
    }
}
