//! Routes: the next hop to a process.

use onepipe_base::{Port, ProcessId};

use crate::{ForwardingTable, NextHop, PortRange};

/// The routing state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// A node of a regular tree.
    Tree(Tree),
    /// A node that learns the port of each process.
    ForwardingTable(ForwardingTable),
}

impl Route {
    /// Returns the next hop to `dst`; `None` if there is no such process, or no route to it.
    #[inline]
    pub fn next(&self, dst: ProcessId) -> Option<NextHop> {
        match self {
            Self::Tree(tree) => tree.next(dst),
            Self::ForwardingTable(forwarding_table) => forwarding_table.next(dst),
        }
    }

    /// Returns the first process of the host of `dst`. Frames to the processes of a host take one
    /// path, so that one copy of a frame for several of them serves all. In a learned route each
    /// process stands for itself.
    #[inline]
    pub fn first_of_host(&self, dst: ProcessId) -> ProcessId {
        match self {
            Self::Tree(tree) => ProcessId(dst.0 - dst.0 % tree.host_span),
            Self::ForwardingTable(_) => dst,
        }
    }

    /// Returns the number of the host of `dst`; `None` in a learned route.
    #[inline]
    pub fn host_of(&self, dst: ProcessId) -> Option<u32> {
        match self {
            Self::Tree(tree) => Some(dst.0 / tree.host_span),
            Self::ForwardingTable(_) => None,
        }
    }

    /// Returns whether the port of a process is unknown until the process joins.
    pub const fn is_learned(&self) -> bool {
        matches!(self, Self::ForwardingTable(_))
    }
}

/// The route of a node in a regular tree: consecutive process ids lie below the node, equally
/// divided among its children. Uses arithmetic only: no table grows with the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    /// The lowest process id below this node.
    pub base: u32,
    /// Number of processes below this node.
    pub span: u32,
    /// Number of processes below each child, at least 1.
    pub child_span: u32,
    /// Number of consecutive lower ports to each child, at least 1.
    pub links_per_child: u16,
    /// Number of processes of a host, at least 1.
    pub host_span: u32,
    /// Number of processes that are reachable at all; equal to `span` for a root.
    pub processes: u32,
}

impl Tree {
    #[inline]
    fn next(&self, dst: ProcessId) -> Option<NextHop> {
        let offset = dst.0.wrapping_sub(self.base);
        if offset < self.span {
            let child = (offset / self.child_span) as u16;
            Some(NextHop::Down(PortRange::new(
                Port(child * self.links_per_child),
                self.links_per_child,
            )))
        } else if dst.0 < self.processes && self.span < self.processes {
            Some(NextHop::Up)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPINE: Tree = Tree {
        base: 32,
        span: 32,
        child_span: 16,
        links_per_child: 4,
        host_span: 4,
        processes: 64,
    };

    #[test]
    fn processes_of_a_host_have_one_path() {
        let route = Route::Tree(SPINE);
        let firsts = [31, 32, 35, 36].map(|dst| route.first_of_host(ProcessId(dst)).0);
        assert_eq!(firsts, [28, 32, 32, 36]);
        let learned = Route::ForwardingTable(ForwardingTable::new(8, true));
        assert_eq!(learned.first_of_host(ProcessId(5)), ProcessId(5));
        assert_eq!((route.host_of(ProcessId(35)), learned.host_of(ProcessId(5))), (Some(8), None));
    }

    #[test]
    fn routes_down_to_owning_child_else_up() {
        let route = Route::Tree(SPINE);
        let below = |first| Some(NextHop::Down(PortRange::new(Port(first), 4)));
        assert_eq!(route.next(ProcessId(31)), Some(NextHop::Up));
        assert_eq!(route.next(ProcessId(32)), below(0));
        assert_eq!(route.next(ProcessId(47)), below(0));
        assert_eq!(route.next(ProcessId(48)), below(4));
        assert_eq!(route.next(ProcessId(0)), Some(NextHop::Up));
    }

    #[test]
    fn no_route_to_unknown_process() {
        let route = Route::Tree(SPINE);
        assert_eq!(route.next(ProcessId(64)), None);
        assert_eq!(route.next(ProcessId(u32::MAX)), None);
    }
}
