//! The free nodes of a client.

use alloc::vec::Vec;

use crate::layout::Layout;

/// Offsets of the free nodes of a shard. Clients reserve nodes in the region's order, several at a
/// time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodePool {
    free: Vec<u64>,
    pub is_reserving: bool,
}

impl NodePool {
    /// Takes a free node.
    pub fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// Adds a node that no list has.
    pub fn put(&mut self, node: u64) {
        debug_assert!(!self.free.contains(&node), "a free node was not in use");
        self.free.push(node);
    }

    /// Adds the nodes from the index `first` on, as many as were reserved and the shard has.
    pub fn add_reserved(&mut self, layout: &Layout, first: u64, count: u64) {
        self.is_reserving = false;
        let end = first.saturating_add(count).min(layout.nodes.into());
        // The first node is taken first.
        self.free.extend((first..end).rev().map(|index| layout.node(index)));
    }

    /// Returns whether there is no free node.
    pub fn is_empty(&self) -> bool {
        self.free.is_empty()
    }
}
