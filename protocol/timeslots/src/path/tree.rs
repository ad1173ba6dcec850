//! Paths through three tiers: racks, pods of racks, and cores above the pods.
//!
//! Two colourings route a permutation of the endpoints without two packets on a link. The first one
//! is that of the racks: a packet that leaves its rack takes an upper link of its ToR switch, and
//! arrives through the link of the same number. The second is that of the spines: seen from the
//! core, each spine has as many ends as links below it, of which no two packets share one in a
//! timeslot. So the packets that leave their pod are a matching of these ends, and are coloured
//! like those of the racks.

use alloc::vec::Vec;

use super::{Fabric, FabricError, PathStats, Paths};
use crate::timeslot::{BATCH_SLOTS_MAX, NO_DESTINATION, Schedule};
use crate::{Grant, Timeslot};

/// A tree of three tiers of switches without oversubscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    /// Endpoints, numbered rack by rack and pod by pod.
    pub nodes: u32,
    /// Endpoints per rack, 1 to 64.
    pub rack_nodes: u32,
    /// Racks per pod.
    pub pod_racks: u32,
    /// Upper links of a ToR switch, at least as many as its endpoints.
    pub rack_links: u32,
    /// Spines per pod, each with the same number of links to each rack.
    pub spines: u32,
    /// Upper links of a spine, at least as many as its lower links.
    pub spine_links: u32,
}

/// Assigns a path through a [`Tree`] to every packet: the number of the upper link at its ToR
/// switch plus [`Tree::rack_links`] times that of the upper link at the spine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreePaths {
    tree: Tree,
    racks: Paths,
    spines: Paths,
    /// The packets that leave their pod, by the ends of spines.
    above: Schedule,
    grants: Vec<Grant>,
    /// A row for each source.
    routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
}

impl TreePaths {
    /// Creates the path selection of a tree without faults.
    ///
    /// # Errors
    /// When the tree is invalid, or has more paths than fit eight bits.
    pub fn new(tree: Tree) -> Result<Self, FabricError> {
        let Tree { nodes, rack_nodes, pod_racks, rack_links, spines, spine_links } = tree;
        let check = |is_valid, name, value| match is_valid {
            true => Ok(()),
            false => Err(FabricError { name, value }),
        };
        let racks = Fabric { nodes, rack_nodes, paths: rack_links, is_strict: false };
        check(rack_links >= rack_nodes, "rack_links", rack_links)?;
        let racks = Paths::new(racks)?;
        check((1..=rack_links).contains(&spines), "spines", spines)?;
        check(rack_links % spines == 0, "spines", spines)?;
        check((1..=64).contains(&pod_racks), "pod_racks", pod_racks)?;
        let below = pod_racks * (rack_links / spines);
        check((below..=64).contains(&spine_links), "spine_links", spine_links)?;
        check(rack_links * spine_links < Paths::NONE.into(), "spine_links", spine_links)?;
        let ends = nodes.div_ceil(rack_nodes * pod_racks) * spines * below;
        let fabric =
            Fabric { nodes: ends, rack_nodes: below, paths: spine_links, is_strict: false };
        Ok(Self {
            racks,
            spines: Paths::new(fabric)?.above(),
            above: Schedule::new(ends),
            grants: Vec::with_capacity((nodes * BATCH_SLOTS_MAX) as usize),
            routes: alloc::vec![[Paths::NONE; BATCH_SLOTS_MAX as usize]; nodes as usize],
            tree,
        })
    }

    /// Sets whether the upper link `link` of `rack` has failed, so that no packet uses it.
    ///
    /// # Errors
    /// When the rack or the link does not exist.
    pub fn set_cut(&mut self, rack: u32, link: u32, is_cut: bool) -> Result<(), FabricError> {
        self.racks.set_cut(rack, link, is_cut)
    }

    /// Sets whether the upper link `link` of a spine, counted pod by pod, has failed, so that no
    /// packet uses it.
    ///
    /// # Errors
    /// When the spine or the link does not exist.
    pub fn set_spine_cut(
        &mut self,
        spine: u32,
        link: u32,
        is_cut: bool,
    ) -> Result<(), FabricError> {
        self.spines.set_cut(spine, link, is_cut)
    }

    //= spec/arbiter.md#R16
    /// Assigns a path to every packet of the first `slots` timeslots of the batch that begins at
    /// `start`. Returns the number of packets without one, which must not be sent.
    pub fn assign(&mut self, schedule: &Schedule, start: Timeslot, slots: u32) -> u32 {
        let slots = slots.min(BATCH_SLOTS_MAX);
        let without_path = self.racks.assign(schedule, start, slots);
        self.gather_pod_exits(schedule, slots);
        let without_path = without_path + self.spines.assign(&self.above, start, slots);
        self.merge(schedule, slots);
        without_path
    }

    /// Returns the end of a spine that a packet passes through upper link `link` of `rack`.
    fn end(&self, rack: u32, link: u8) -> u32 {
        let Tree { pod_racks, rack_links, spines, .. } = self.tree;
        let parallel = rack_links / spines;
        let spine = rack / pod_racks * spines + u32::from(link) / parallel;
        (spine * pod_racks + rack % pod_racks) * parallel + u32::from(link) % parallel
    }

    /// Returns the racks of a packet that leaves its rack, and the upper link that it takes.
    fn rack_exit(&self, schedule: &Schedule, src: u32, slot: usize) -> Option<(u32, u32, u8)> {
        let (dst, link) = (schedule.of(src)[slot], self.racks.of(src)[slot]);
        let has_path = dst != NO_DESTINATION && link != Paths::NONE;
        let [from, to] = [src, dst.into()].map(|node| node / self.tree.rack_nodes);
        has_path.then_some((from, to, link))
    }

    /// Collects the packets that leave their pod.
    fn gather_pod_exits(&mut self, schedule: &Schedule, slots: u32) {
        self.grants.clear();
        for src in 0..self.tree.nodes.min(schedule.nodes()) {
            for slot in 0..slots as usize {
                let Some((from, to, link)) = self.rack_exit(schedule, src, slot) else { continue };
                if from / self.tree.pod_racks != to / self.tree.pod_racks {
                    let [src, dst] = [from, to].map(|rack| self.end(rack, link) as u16);
                    self.grants.push(Grant { src, dst, slots: 1 << slot });
                }
            }
        }
        self.above.fill(&self.grants);
    }

    /// Combines the choices of both tiers.
    fn merge(&mut self, schedule: &Schedule, slots: u32) {
        for src in 0..self.tree.nodes.min(schedule.nodes()) {
            for slot in 0..slots as usize {
                let path = self.rack_exit(schedule, src, slot).and_then(|(from, to, link)| {
                    if from / self.tree.pod_racks == to / self.tree.pod_racks {
                        return Some(link);
                    }
                    let above = self.spines.of(self.end(from, link))[slot];
                    let has_path = above != Paths::NONE;
                    has_path.then(|| link + above * self.tree.rack_links as u8)
                });
                self.routes[src as usize][slot] = path.unwrap_or(Paths::NONE);
            }
        }
    }

    /// Returns the path of `src` in each timeslot of the last batch, or [`Paths::NONE`] where it
    /// has none or stays in its rack.
    ///
    /// # Panics
    /// When `src` does not exist.
    pub fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        &self.routes[src as usize]
    }

    /// Returns the tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the counters of racks and of spines.
    pub fn stats(&self) -> (&PathStats, &PathStats) {
        (self.racks.stats(), self.spines.stats())
    }
}
