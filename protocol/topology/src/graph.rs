//! Nodes, ports and the links between them.

use alloc::vec::Vec;
use core::ops::Range;

use onepipe_base::{HostId, Port, ProcessId, SwitchId};

use crate::shape::at_most;
use crate::{PROCESSES_MAX, Route, Shape, ShapeError, Tree};

/// A vertex of the topology graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A process, tier 0. Its only port, 0, is its link to its host.
    Process(ProcessId),
    /// A host, tier 1: lower ports are its processes, the one upper port is its network card.
    Host(HostId),
    /// A switch, tier 2 (ToR, leaf), 3 (spine) or 4 (core).
    Switch(SwitchId),
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// The node.
    pub node: Node,
    /// The node's own number for the link.
    pub port: Port,
}

/// A directed link: what leaves `from` arrives at `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The end that frames leave.
    pub from: End,
    /// The end at which they arrive.
    pub to: End,
}

/// Number of ports of a node: `0..lower` are the lower ports, the upper ones follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortCounts {
    /// Ports towards the processes.
    pub lower: u16,
    /// Ports towards the root.
    pub upper: u16,
}

impl PortCounts {
    /// Returns the number of all ports.
    pub const fn total(self) -> u16 {
        self.lower + self.upper
    }
}

/// Hosts, switches and the links between them, laid out from a [`Shape`].
///
/// Ids are dense. Host h runs the processes `h * p .. (h + 1) * p`; ToR t holds the hosts
/// `t * n .. (t + 1) * n`. Switches count ToRs first, pod by pod, then spines, pod by pod, then
/// cores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    pub(crate) shape: Shape,
    processes_per_host: u16,
    pub(crate) switches: Vec<SwitchPorts>,
    /// The other end of each switch port, switch by switch.
    pub(crate) peers: Vec<End>,
}

/// A switch with its ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SwitchPorts {
    /// Index of its first port in `peers`.
    pub(crate) first: usize,
    pub(crate) ports: PortCounts,
    pub(crate) tier: u8,
}

impl Topology {
    /// Builds `shape` with `processes_per_host` processes on each host.
    ///
    /// # Errors
    /// If there are no processes, or more than [`PROCESSES_MAX`].
    pub fn new(shape: Shape, processes_per_host: u16) -> Result<Self, ShapeError> {
        if processes_per_host == 0 {
            return Err(ShapeError::Zero { field: "processes of a host" });
        }
        // The network card is a port as well.
        at_most("processes of a host", processes_per_host.into(), u64::from(u16::MAX) - 1)?;
        let processes = u64::from(shape.host_count()) * u64::from(processes_per_host);
        at_most("processes", processes, PROCESSES_MAX.into())?;

        let mut topology =
            Self { shape, processes_per_host, switches: Vec::new(), peers: Vec::new() };
        let counts = [shape.tor_count(), shape.pods * shape.spines, shape.cores];
        let tiers = counts.into_iter().zip(shape.port_counts());
        for (tier, (count, (lower, upper))) in (2..).zip(tiers) {
            topology.add_switches(count, tier, lower, upper);
        }
        topology.link_hosts();
        topology.link_spines();
        topology.link_cores();
        if cfg!(debug_assertions) {
            topology.check_invariants();
        }
        Ok(topology)
    }

    /// Asserts that each port is one end of one link, and that each link joins adjacent tiers.
    ///
    /// # Panics
    /// When an invariant is broken, which is a bug.
    pub fn check_invariants(&self) {
        assert_eq!(self.switches.len(), self.switches() as usize);
        let ports: usize = self.switches.iter().map(|node| usize::from(node.ports.total())).sum();
        assert_eq!(self.peers.len(), ports, "each port has a peer");
        assert!(self.processes() > 0 && self.processes() <= PROCESSES_MAX);
        assert!(self.switches.iter().all(|node| (2..=4).contains(&node.tier)), "no such tier");
        for Link { from, to } in self.links() {
            assert_eq!(self.peer(to), Some(from), "a link has two ends");
            let (tier, other) = (self.tier(from.node), self.tier(to.node));
            let is_upper = from.port.0 >= self.ports(from.node).lower;
            assert_eq!(tier < other, is_upper, "upper ports lead up");
            assert_eq!(tier.abs_diff(other), 1, "no tier is left out");
        }
    }

    /// Returns the shape it was built from.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of hosts.
    pub fn hosts(&self) -> u32 {
        self.shape.host_count()
    }

    /// Returns the number of switches, without hosts.
    pub fn switches(&self) -> u32 {
        self.shape.switch_count()
    }

    /// Returns the number of processes.
    pub fn processes(&self) -> u32 {
        self.hosts() * u32::from(self.processes_per_host)
    }

    /// Returns the number of processes on each host.
    pub fn processes_per_host(&self) -> u16 {
        self.processes_per_host
    }

    /// Returns the host that runs `process`, which must exist.
    pub fn host_of(&self, process: ProcessId) -> HostId {
        debug_assert!(process.0 < self.processes());
        HostId(process.0 / u32::from(self.processes_per_host))
    }

    /// Returns the ids of the processes of `host`.
    pub fn processes_of(&self, host: HostId) -> Range<u32> {
        let first = host.0 * u32::from(self.processes_per_host);
        first..first + u32::from(self.processes_per_host)
    }

    /// Returns the host's port to the network: its one upper port.
    pub fn network_card(&self) -> Port {
        Port(self.processes_per_host)
    }

    /// Returns the tier of a node: process 0, host 1, ToR 2, spine 3, core 4.
    ///
    /// # Panics
    /// If there is no such switch.
    pub fn tier(&self, node: Node) -> u8 {
        match node {
            Node::Process(_) => 0,
            Node::Host(_) => 1,
            Node::Switch(id) => self.switches[id.index()].tier,
        }
    }

    /// Returns the number of ports of a node.
    ///
    /// # Panics
    /// If there is no such switch.
    pub fn ports(&self, node: Node) -> PortCounts {
        match node {
            Node::Process(_) => PortCounts { lower: 0, upper: 1 },
            Node::Host(_) => PortCounts { lower: self.processes_per_host, upper: 1 },
            Node::Switch(id) => self.switches[id.index()].ports,
        }
    }

    /// Returns the other end of the link at `end`; `None` if there is no such node or port.
    pub fn peer(&self, end: End) -> Option<End> {
        match end.node {
            Node::Process(id) => (id.0 < self.processes() && end.port == Port(0)).then(|| {
                let host = self.host_of(id);
                let port = Port((id.0 - self.processes_of(host).start) as u16);
                End { node: Node::Host(host), port }
            }),
            Node::Host(id) if id.0 >= self.hosts() => None,
            Node::Host(id) if end.port == self.network_card() => {
                let tor = SwitchId(id.0 / self.shape.hosts);
                let port = Port((id.0 % self.shape.hosts) as u16);
                Some(End { node: Node::Switch(tor), port })
            }
            Node::Host(id) => (end.port < self.network_card()).then(|| {
                let process = ProcessId(self.processes_of(id).start + u32::from(end.port.0));
                End { node: Node::Process(process), port: Port(0) }
            }),
            Node::Switch(id) => {
                let switch = self.switches.get(id.index())?;
                let has_port = end.port.0 < switch.ports.total();
                has_port.then(|| self.peers[switch.first + end.port.index()])
            }
        }
    }

    /// Iterates over all hosts, then all switches.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        let hosts = (0..self.hosts()).map(|id| Node::Host(HostId(id)));
        hosts.chain((0..self.switches()).map(|id| Node::Switch(SwitchId(id))))
    }

    /// Iterates over the links between hosts and switches, in both directions, without the links
    /// between a host and its own processes.
    pub fn links(&self) -> impl Iterator<Item = Link> {
        self.nodes().flat_map(move |node| {
            let inner = if matches!(node, Node::Host(_)) { self.processes_per_host } else { 0 };
            (inner..self.ports(node).total()).map(move |port| {
                let from = End { node, port: Port(port) };
                let to = self.peer(from).expect("every port of a laid-out node is linked");
                Link { from, to }
            })
        })
    }

    /// Returns the route of `node`.
    ///
    /// # Panics
    /// If there is no such switch, or `node` is a process: it has only one link.
    pub fn route(&self, node: Node) -> Route {
        let Shape { tors, hosts, tor_links, core_links, .. } = self.shape;
        let host_span = u32::from(self.processes_per_host);
        let (tor_span, pod_span) = (hosts * host_span, tors * hosts * host_span);
        let (index, span, child_span, links_per_child) = match (node, self.tier(node)) {
            (Node::Host(id), _) => (id.0, host_span, 1, 1),
            (Node::Switch(id), 2) => (id.0, tor_span, host_span, 1),
            (Node::Switch(id), 3) => {
                let pod = (id.0 - self.shape.tor_count()) / self.shape.spines;
                (pod, pod_span, tor_span, tor_links)
            }
            (Node::Switch(_), _) => {
                (0, self.processes(), pod_span, self.shape.plane_spines() * core_links)
            }
            (Node::Process(_), _) => panic!("a process has but one link"),
        };
        let links_per_child = links_per_child as u16;
        Route::Tree(Tree {
            base: index * span,
            span,
            child_span,
            links_per_child,
            host_span,
            processes: self.processes(),
        })
    }

    /// Returns the number of switches on a shortest path between two hosts: 0, 1, 3 or 5.
    pub fn switches_between(&self, one: HostId, other: HostId) -> u32 {
        let Shape { tors, hosts, .. } = self.shape;
        match one.0 {
            id if id == other.0 => 0,
            id if id / hosts == other.0 / hosts => 1,
            id if id / (hosts * tors) == other.0 / (hosts * tors) => 3,
            _ => 5,
        }
    }
}
