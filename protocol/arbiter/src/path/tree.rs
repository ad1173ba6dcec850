//! Paths through three tiers: racks, pods of racks, and cores above the pods.
//!
//! Colouring twice makes a permutation of the endpoints pass without two packets on a link. First
//! the racks: a packet that leaves its rack takes an upper link of its ToR switch, and arrives by
//! the link of the same number. Then the spines: seen from above, each has as many ends as links
//! below it, of which no two packets share one in a timeslot; so what leaves the pod is a matching
//! of these ends, and is coloured as that of the racks was.

use alloc::vec::Vec;

use super::{Fabric, FabricError, PathStats, Paths};
use crate::timeslot::{BATCH_SLOTS_MAX, NO_DESTINATION, Schedule};
use crate::{Grant, Timeslot};

/// A tree of three tiers of switches that is nowhere oversubscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    /// Endpoints, numbered rack by rack and pod by pod.
    pub nodes: u32,
    /// Endpoints of a rack, 1 to 64.
    pub rack_nodes: u32,
    /// Racks of a pod.
    pub pod_racks: u32,
    /// Upper links of a rack's switch, as many as it has endpoints at least.
    pub rack_links: u32,
    /// Spines of a pod: each has the same number of links to each rack.
    pub spines: u32,
    /// Upper links of a spine, as many as it has lower ones at least.
    pub spine_links: u32,
}

/// Gives every packet its path through a [`Tree`]: the number of the upper link that it takes at
/// its rack's switch, and, times [`Tree::rack_links`], that of the one at the spine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreePaths {
    tree: Tree,
    racks: Paths,
    spines: Paths,
    /// What leaves its pod, as the ends of spines see it.
    above: Schedule,
    grants: Vec<Grant>,
    /// A row for each source.
    routes: Vec<[u8; BATCH_SLOTS_MAX as usize]>,
}

impl TreePaths {
    /// Of a tree in which everything works.
    ///
    /// # Errors
    /// When there can be no such tree, or it has more paths than a number of eight bits.
    pub fn new(tree: Tree) -> Result<Self, FabricError> {
        let Tree { nodes, rack_nodes, pod_racks, rack_links, spines, spine_links } = tree;
        let check = |is_right, name, value| match is_right {
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

    /// From now on the upper link `link` of `rack` is used by nobody, or again.
    ///
    /// # Errors
    /// When there is no such rack or link.
    pub fn set_cut(&mut self, rack: u32, link: u32, is_cut: bool) -> Result<(), FabricError> {
        self.racks.set_cut(rack, link, is_cut)
    }

    /// From now on the upper link `link` of a spine, counted pod by pod, is used by nobody, or
    /// again.
    ///
    /// # Errors
    /// When there is no such spine or link.
    pub fn set_spine_cut(
        &mut self,
        spine: u32,
        link: u32,
        is_cut: bool,
    ) -> Result<(), FabricError> {
        self.spines.set_cut(spine, link, is_cut)
    }

    /// Gives a path to every packet of the first `slots` timeslots of the batch that begins at
    /// `start`. Answers how many have none: they must not be sent.
    pub fn assign(&mut self, schedule: &Schedule, start: Timeslot, slots: u32) -> u32 {
        let slots = slots.min(BATCH_SLOTS_MAX);
        let unplaced = self.racks.assign(schedule, start, slots);
        self.gather_pod_exits(schedule, slots);
        let unplaced = unplaced + self.spines.assign(&self.above, start, slots);
        self.merge(schedule, slots);
        unplaced
    }

    /// The end of a spine that a packet passes that takes upper link `link` of `rack`'s switch.
    fn end(&self, rack: u32, link: u8) -> u32 {
        let Tree { pod_racks, rack_links, spines, .. } = self.tree;
        let parallel = rack_links / spines;
        let spine = rack / pod_racks * spines + u32::from(link) / parallel;
        (spine * pod_racks + rack % pod_racks) * parallel + u32::from(link) % parallel
    }

    /// Where a packet leaves its rack, if it does: the racks, and the link.
    fn rack_exit(&self, schedule: &Schedule, src: u32, slot: usize) -> Option<(u32, u32, u8)> {
        let (dst, link) = (schedule.of(src)[slot], self.racks.of(src)[slot]);
        let is_one = dst != NO_DESTINATION && link != Paths::NONE;
        let [from, to] = [src, dst.into()].map(|node| node / self.tree.rack_nodes);
        is_one.then_some((from, to, link))
    }

    /// Collects what leaves its pod.
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

    /// Puts both choices together.
    fn merge(&mut self, schedule: &Schedule, slots: u32) {
        for src in 0..self.tree.nodes.min(schedule.nodes()) {
            for slot in 0..slots as usize {
                let path = self.rack_exit(schedule, src, slot).and_then(|(from, to, link)| {
                    if from / self.tree.pod_racks == to / self.tree.pod_racks {
                        return Some(link);
                    }
                    let above = self.spines.of(self.end(from, link))[slot];
                    let is_one = above != Paths::NONE;
                    is_one.then(|| link + above * self.tree.rack_links as u8)
                });
                self.routes[src as usize][slot] = path.unwrap_or(Paths::NONE);
            }
        }
    }

    /// The path of each packet of `src` in the batch assigned last, [`Paths::NONE`] where it has
    /// none or does not leave its rack.
    ///
    /// # Panics
    /// When there is no endpoint `src`.
    pub fn of(&self, src: u32) -> &[u8; BATCH_SLOTS_MAX as usize] {
        &self.routes[src as usize]
    }

    /// As it was set up.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What it has done: for racks, and for spines.
    pub fn stats(&self) -> (&PathStats, &PathStats) {
        (self.racks.stats(), self.spines.stats())
    }
}
