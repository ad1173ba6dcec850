//! The parts of a network: sets of nodes that share an event queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use onepipe_base::{Mono, Port};
use onepipe_sim_engine::{Instant, Queue};
use onepipe_topology::Topology;

use crate::link::Link;
use crate::pool::{Buffer, FrameRef, Pool};
use crate::{Clock, Config, Fault, LinkId, NodeId};

/// Marks a port without a link.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// An entry of the event queue. 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A frame arrives at the end of a link.
    Arrive { link: u32, frame: FrameRef, epoch: u32 },
    /// A machine's timer expires.
    Wake { node: u32 },
    /// A host's CPU or NIC may be free again.
    Run { node: u32 },
    /// An alarm of the application fires.
    Alarm { node: u32, incarnation: u32, token: u32 },
    /// A link with priorities has finished transmitting a frame.
    Sent { link: u32, epoch: u32 },
    /// The off-chip CPU of a switch has received and processed a frame.
    CpuArrival { node: u32, frame: FrameRef, port: u16, incarnation: u16 },
    /// A frame written by an off-chip CPU arrives at the chip.
    ChipArrival { node: u32, frame: FrameRef, port: u16, incarnation: u16 },
    /// An entry of the fault schedule is due.
    Fault { index: u32 },
}

/// State of a node.
#[derive(Debug)]
pub(crate) struct Node<M> {
    /// `None` while the node is down.
    pub machine: Option<M>,
    /// Number of crashes so far.
    pub incarnation: u32,
    pub clock: Clock,
    /// Index of its first port in [`Shared::ports`].
    pub first_port: usize,
    /// Number of its ports.
    pub ports: usize,
    pub is_host: bool,
    /// Instant of the earliest scheduled timer.
    pub wake_at: Instant,
    /// The machine's last deadline, and its instant: the local clock never changes its course.
    pub deadline: (Mono, Instant),
    /// Instant at which the host is scheduled to be polled again, or `Instant::END`.
    pub run_at: Instant,
    /// End of the CPU's current work.
    pub free_at: Instant,
    /// End of the node's last pause.
    pub paused_until: Instant,
    /// End of the off-chip CPU's current work, if the switch has one.
    pub off_chip_free_at: Instant,
    /// Remaining frames before the node crashes, if a crash point is set.
    pub frames_left: Option<u32>,
    /// Received frames that wait for the CPU.
    pub ring: VecDeque<(Port, FrameRef)>,
}

impl<M> Node<M> {
    /// Returns whether the node is not paused, and no frame waits in its ring.
    #[inline]
    pub fn is_current(&self, now: Instant) -> bool {
        self.paused_until <= now && self.ring.is_empty()
    }
}

/// A frame on its way to a node of another part.
#[derive(Debug)]
pub(crate) struct Departure {
    pub arrival: Instant,
    pub link: u32,
    pub epoch: u32,
    pub frame: Buffer,
}

/// A set of nodes with everything that only they change: their queue, frames and outgoing links.
/// One part holds all nodes, unless the nodes run in lookahead windows: then each is a part.
#[derive(Debug)]
pub(crate) struct Part<M> {
    /// Id of the first node; the others follow.
    pub first_node: u32,
    pub nodes: Vec<Node<M>>,
    /// Id of the first link that leaves the nodes; the others follow.
    pub first_link: u32,
    pub links: Vec<Link>,
    pub queue: Queue<Event>,
    pub pool: Pool,
    pub now: Instant,
    /// Number of events since virtual time last advanced.
    pub events_at_instant: u32,
    /// Frames to each neighbour, if the part is one node.
    pub outboxes: Vec<Vec<Departure>>,
}

impl<M> Part<M> {
    /// Accepts frames that another part has sent, in the order in which they were sent.
    pub fn receive(&mut self, frames: &mut Vec<Departure>) {
        for Departure { arrival, link, epoch, frame } in frames.drain(..) {
            let frame = self.pool.attach(frame);
            self.queue.schedule(arrival, Event::Arrive { link, frame, epoch });
        }
    }
}

/// The ends of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnds {
    pub from: NodeId,
    pub to: NodeId,
    pub to_port: Port,
    /// Index of the receiving part among the neighbours of the sending one.
    pub neighbour: u16,
}

/// What all parts of a network read while they run.
#[derive(Debug)]
pub(crate) struct Shared {
    pub config: Config,
    pub seed: u64,
    /// Number of nodes, and of the hosts, which are the first of them.
    pub nodes: usize,
    pub hosts: usize,
    /// Whether each node is a part.
    pub is_divided: bool,
    /// The link at each port, node by node.
    pub ports: Vec<u32>,
    pub ends: Vec<LinkEnds>,
    /// The epoch of each link, incremented by its sending node when it is cut or that node crashes:
    /// frames of an earlier epoch are lost. The receiving node reads it in a later window.
    epochs: Vec<AtomicU32>,
    /// The fault schedule, in the order of its creation.
    pub faults: Vec<Fault>,
}

impl Shared {
    pub fn new(config: Config, seed: u64, topology: &Topology) -> Self {
        let (ports, ends, epochs, faults) = Default::default();
        let (nodes, hosts) = (topology.nodes().count(), topology.hosts() as usize);
        Self { config, seed, nodes, hosts, is_divided: false, ports, ends, epochs, faults }
    }

    /// Adds the link that leaves through the port at `port_index` of all ports.
    pub fn add_link(&mut self, port_index: usize, ends: LinkEnds) {
        self.ports[port_index] = self.ends.len() as u32;
        self.ends.push(ends);
        self.epochs.push(AtomicU32::new(0));
    }

    /// Returns the index of the part that has a node.
    #[inline]
    pub fn part_of(&self, node: NodeId) -> usize {
        if self.is_divided { node.index() } else { 0 }
    }

    /// Returns the node whose state a fault changes.
    pub fn node_of(&self, fault: Fault) -> NodeId {
        match fault {
            Fault::Crash(node)
            | Fault::CrashAfter(node, _)
            | Fault::Restart(node)
            | Fault::StepClock(node, _)
            | Fault::Pause(node, _) => node,
            Fault::Cut(link) | Fault::Repair(link) | Fault::SetLinkFaults(link, _) => {
                self.ends[link.index()].from
            }
        }
    }

    #[inline]
    pub fn epoch(&self, link: u32) -> u32 {
        self.epochs[link as usize].load(Ordering::Relaxed)
    }

    /// Begins a new epoch of a link: every frame that is on it is lost.
    pub fn begin_epoch(&self, link: LinkId) {
        self.epochs[link.index()].fetch_add(1, Ordering::Relaxed);
    }
}
