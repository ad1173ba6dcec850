//! What one node may make a controller remember.

use alloc::vec::Vec;

use onepipe_base::{Address, Instance};
use onepipe_wire::Link;

use super::Graph;

/// Limits of what one node announces. They are per node: a limit on the instances of an address,
/// whoever names them, would let one node shut out another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// Past and present neighbours of a process whose failures are unresolved.
    pub process_neighbours_max: usize,
    /// The same of a switch.
    pub switch_neighbours_max: usize,
    /// Incarnations of one address among the neighbours of a node.
    pub incarnations_max: usize,
}

impl Graph {
    /// Returns how many neighbours `instance` may have.
    fn neighbours_max(&self, instance: Instance) -> usize {
        match instance.address {
            Address::Process(_) => self.limits.process_neighbours_max,
            Address::Switch(_) => self.limits.switch_neighbours_max,
        }
    }

    //= spec/ordering.md#R82
    /// Returns whether an announcement of `instance` with this number of links is within limits.
    pub(super) fn has_space_for(&self, instance: Instance, links: usize) -> bool {
        links <= self.neighbours_max(instance)
    }

    //= spec/ordering.md#R82
    /// Returns whether the links of the node at `index` and its past neighbours are within limits.
    pub(super) fn has_space(&self, instance: Instance, index: usize, links: &[Link]) -> bool {
        let edges = &self.nodes[index].edges;
        let is_known = |peer: &Instance| {
            edges.get(edges.partition_point(|edge| edge.instance < *peer)).map(|edge| edge.instance)
                == Some(*peer)
        };
        let mut new: Vec<Instance> = links.iter().filter_map(|link| link.instance).collect();
        new.retain(|peer| !is_known(peer));
        if new.is_empty() {
            return true;
        }
        let mut all: Vec<Instance> = edges.iter().map(|edge| edge.instance).chain(new).collect();
        all.sort_unstable();
        all.dedup();
        let is_same = |one: &Instance, other: &Instance| one.address == other.address;
        all.len() <= self.neighbours_max(instance)
            && all.chunk_by(is_same).all(|one| one.len() <= self.limits.incarnations_max)
    }
}
