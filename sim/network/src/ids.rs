//! Identifiers of nodes and links.

/// A host or a switch. Hosts are numbered from 0 as in the topology; switches follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Returns the number as an index into a flat array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A directed link, numbered in the order of `Topology::links`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// Returns the number as an index into a flat array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
