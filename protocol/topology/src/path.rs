//! The path of a frame, node by node.

use onepipe_base::{Port, ProcessId};

use crate::{End, NextHop, Node, PortRange, Topology};

/// Iterator over the ends through which a frame leaves each node from `src` to `dst`; see
/// [`Topology::path`].
#[derive(Clone, Debug)]
pub struct Path<'a, Choose> {
    topology: &'a Topology,
    current: Node,
    dst: ProcessId,
    choose: Choose,
}

impl Topology {
    /// Returns the path from `src` to `dst`: each item is the end through which the frame leaves a
    /// node, beginning with that of `src`. `choose` picks one of several equal-cost ports.
    ///
    /// Empty if the two are the same; ends early if there is no route.
    pub fn path<Choose>(&self, src: ProcessId, dst: ProcessId, choose: Choose) -> Path<'_, Choose>
    where
        Choose: FnMut(Node, PortRange) -> Port,
    {
        Path { topology: self, current: Node::Process(src), dst, choose }
    }
}

impl<Choose: FnMut(Node, PortRange) -> Port> Iterator for Path<'_, Choose> {
    type Item = End;

    fn next(&mut self) -> Option<End> {
        if self.current == Node::Process(self.dst) {
            return None;
        }
        let counts = self.topology.ports(self.current);
        let next = match self.current {
            Node::Process(_) => NextHop::Up,
            node => self.topology.route(node).next(self.dst)?,
        };
        let ports = match next {
            NextHop::Down(ports) => ports,
            NextHop::Up => PortRange::new(Port(counts.lower), counts.upper),
        };
        let end = End { node: self.current, port: (self.choose)(self.current, ports) };
        debug_assert!(ports.contains(end.port), "a path follows the route");
        self.current = self.topology.peer(end)?.node;
        Some(end)
    }
}
