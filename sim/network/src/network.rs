//! The network: nodes, links, and the loop over their events.

use std::collections::VecDeque;
use std::hint::black_box;

use onepipe_base::{Machine, Mono, Port};
use onepipe_sim_engine::{Instant, NANOSECOND, Queue, Random, Span, Trace};
use onepipe_topology::{Node as Vertex, Topology};

use crate::link::Link;
use crate::lookahead::Lookahead;
use crate::pool::{FrameRef, Pool};
use crate::{Application, Clock, ClockError, Config, Fault, LinkId, NodeContext, NodeId, Stats};

/// Limit on consecutive events at one instant; more indicate a machine whose deadline stays in the
/// past. A million nodes may start at once.
const EVENTS_AT_INSTANT_MAX: u32 = 20_000_000;
/// Largest network, in nodes, whose data are not prefetched.
const CACHED_NODES_MAX: usize = 16;
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
    /// Index of the event queue that holds the node's events.
    pub queue_index: usize,
    pub clock: Clock,
    /// Index of its first port in `Network::ports`.
    pub first_port: usize,
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

/// A network of machines under one application.
#[derive(Debug)]
pub struct Network<M, A> {
    /// The application that commands and observes the machines.
    pub application: A,
    pub(crate) config: Config,
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) nodes: Vec<Node<M>>,
    pub(crate) links: Vec<Link>,
    /// The link at each port, node by node.
    pub(crate) ports: Vec<u32>,
    /// One queue; with [`Config::uses_lookahead`] one for each node and a last one for the fault
    /// schedule.
    pub(crate) queues: Vec<Queue<Event>>,
    /// Lookahead windows of the nodes, if enabled.
    lookahead: Option<Lookahead>,
    pub(crate) pool: Pool,
    pub(crate) trace: Trace,
    pub(crate) stats: Stats,
    pub(crate) now: Instant,
    /// Number of events since virtual time last advanced.
    events_at_instant: u32,
    /// Remaining steps of the run.
    steps_left: u64,
    /// Buffer into which machines write their frames.
    pub(crate) slot: Vec<u8>,
    /// Alarms that the application has requested and that are not yet scheduled.
    pub(crate) alarms: Vec<(Instant, NodeId, u32)>,
    /// The fault schedule, in the order of its creation.
    pub(crate) faults: Vec<Fault>,
}

impl<M: Machine, A: Application<M>> Network<M, A> {
    /// Builds the network and starts every node.
    pub fn new(topology: Topology, config: Config, seed: u64, application: A) -> Self {
        let mut network = Self {
            application,
            seed,
            nodes: Vec::new(),
            links: Vec::new(),
            ports: Vec::new(),
            queues: Vec::new(),
            lookahead: None,
            pool: Pool::new(config.frame_len_max),
            trace: Trace::new(config.trace_lines_max),
            stats: Stats::default(),
            now: Instant::START,
            events_at_instant: 0,
            steps_left: config.steps_max,
            slot: vec![0; config.frame_len_max],
            alarms: Vec::new(),
            faults: Vec::new(),
            topology,
            config,
        };
        network.build_nodes();
        network.build_links();
        network.build_queues();
        for node in 0..network.nodes.len() {
            network.start(NodeId(node as u32));
        }
        network
    }

    /// Returns the node of a vertex of the topology.
    pub fn node(&self, vertex: Vertex) -> NodeId {
        node_of(&self.topology, vertex)
    }

    /// Returns the link that leaves `node` at `port`, if there is one.
    pub fn link(&self, node: NodeId, port: Port) -> Option<LinkId> {
        let link = *self.ports.get(self.nodes[node.index()].first_port + port.index())?;
        (link != NO_LINK).then_some(LinkId(link))
    }

    /// Returns every link with the nodes at its ends.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, NodeId, NodeId)> {
        (0u32..).zip(&self.links).map(|(id, link)| (LinkId(id), link.from, link.to))
    }

    /// Returns the number of nodes: hosts, then switches.
    pub fn nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Returns the topology of the network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the machine of a node, if the node is up.
    pub fn machine(&self, node: NodeId) -> Option<&M> {
        self.nodes[node.index()].machine.as_ref()
    }

    /// Returns virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the clocks of a node.
    pub fn clock(&self, node: NodeId) -> &Clock {
        &self.nodes[node.index()].clock
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the hash of all events so far.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Returns the most recent events as text, up to [`Config::trace_lines_max`].
    pub fn trace_lines(&self) -> impl Iterator<Item = &str> {
        self.trace.lines()
    }

    /// Returns the bytes that are queued before a link or in transmission, including the overhead
    /// of each frame on the wire. On a link with several classes: the bytes of the queued frames
    /// only.
    pub fn backlog_bytes(&self, link: LinkId) -> u64 {
        self.links[link.index()].backlog_bytes(self.now)
    }

    /// Returns the number of frames in flight, queued ones included.
    pub fn in_flight(&self) -> usize {
        self.pool.in_flight()
    }

    /// Whether the run has reached its step limit, so that nothing more happens.
    pub fn is_out_of_steps(&self) -> bool {
        self.steps_left == 0
    }

    /// Takes one step. Returns false at the step limit.
    #[inline]
    pub(crate) fn step(&mut self) -> bool {
        let is_out_of_steps = self.steps_left == 0;
        self.steps_left -= u64::from(!is_out_of_steps);
        !is_out_of_steps
    }

    /// Handles all events up to and including `limit`.
    pub fn run_until(&mut self, limit: Instant) {
        match self.lookahead.take() {
            None => self.run_queue(0, limit),
            Some(mut lookahead) => {
                while self.run_round(&mut lookahead, limit) {}
                self.lookahead = Some(lookahead);
            }
        }
        self.now = self.now.max(limit);
    }

    /// Runs every node for one lookahead window, up to `limit` or the next fault, whichever comes
    /// first. A fault that is due before all other events is handled first. Returns false when
    /// nothing is due.
    fn run_round(&mut self, lookahead: &mut Lookahead, limit: Instant) -> bool {
        let Some(first) = self.queues.iter().filter_map(Queue::earliest).min() else {
            return false;
        };
        if first > limit {
            return false;
        }
        let fault_queue = lookahead.len();
        let mut end = limit.after(1);
        if let Some(fault_at) = self.queues[fault_queue].earliest() {
            if fault_at == first {
                self.run_queue(fault_queue, first);
                return true;
            }
            end = end.min(fault_at);
        }
        for position in 0..lookahead.len() {
            let (node, window_end) = lookahead.window(position, first, end);
            if window_end > first {
                self.run_queue(node, Instant::from_ps(window_end.as_ps() - 1));
            }
        }
        true
    }

    /// Handles the events of one queue up to and including `limit`.
    fn run_queue(&mut self, queue_index: usize, limit: Instant) {
        // The state of a small fabric is in the cache anyway.
        let prefetches = self.nodes.len() > CACHED_NODES_MAX;
        while let Some((instant, event)) = self.queues[queue_index].next_until(limit) {
            if prefetches {
                self.prefetch(queue_index);
            }
            self.check_progress(instant);
            self.now = instant;
            if !self.step() {
                return;
            }
            self.stats.events += 1;
            match event {
                Event::Arrive { link, frame, epoch } => self.on_arrive(link, frame, epoch),
                Event::Wake { node } => self.on_wake(node as usize),
                Event::Run { node } => self.on_run(node as usize),
                Event::Alarm { node, incarnation, token } => {
                    self.on_alarm(node as usize, incarnation, token)
                }
                Event::Sent { link, epoch } => self.on_sent(link, epoch),
                Event::CpuArrival { node, frame, port, incarnation } => {
                    self.on_cpu_arrival(node as usize, Port(port), frame, incarnation);
                }
                Event::ChipArrival { node, frame, port, incarnation } => {
                    self.on_chip_arrival(node as usize, Port(port), frame, incarnation);
                }
                Event::Fault { index } => self.on_fault(index as usize),
            }
        }
    }

    /// Returns the queue that holds the events of a node.
    #[inline]
    pub(crate) fn queue(&mut self, node: usize) -> &mut Queue<Event> {
        let queue_index = self.nodes[node].queue_index;
        &mut self.queues[queue_index]
    }

    /// Prefetches the data of the events of the next few nanoseconds, so that the cache misses
    /// overlap. Taken one after the other they would cost more than the events themselves.
    #[inline]
    fn prefetch(&mut self, queue_index: usize) {
        let Some(events) = self.queues[queue_index].take_fresh() else { return };
        let mut loaded = 0;
        for event in events.clone() {
            if let Event::Arrive { frame, .. } = event {
                loaded ^= self.pool.prefetch_header(*frame);
            }
        }
        for event in events {
            if let Event::Arrive { frame, link, .. } = event {
                let to = self.links[*link as usize].to;
                let node = &self.nodes[to.index()];
                if node.is_host
                    && let Some(machine) = &node.machine
                {
                    loaded ^= self.pool.prefetch_payload(*frame);
                    loaded ^= self.application.prefetch(to, machine, self.pool.bytes(*frame));
                }
            }
        }
        black_box(loaded);
    }

    /// Panics if virtual time does not advance: the deadline of some machine stays in the past.
    #[inline]
    fn check_progress(&mut self, instant: Instant) {
        self.events_at_instant = if instant == self.now { self.events_at_instant + 1 } else { 0 };
        assert!(
            self.events_at_instant < EVENTS_AT_INSTANT_MAX,
            "virtual time does not advance beyond {} ps",
            instant.as_ps()
        );
    }

    /// Runs the network for `ps` of virtual time.
    pub fn run_for(&mut self, ps: u64) {
        self.run_until(self.now.after(ps));
    }

    /// Calls `command` with the machine of a node and drains the machine. Does nothing if the node
    /// is down.
    pub fn command(&mut self, node: NodeId, command: impl FnOnce(NodeContext<'_>, &mut M, &mut A)) {
        let index = node.index();
        let now = self.nodes[index].clock.read(self.now);
        let is_current = self.nodes[index].is_current(self.now);
        let Some(machine) = &mut self.nodes[index].machine else { return };
        let (mut busy_ps, mut crash_requested) = (0, false);
        let at = NodeContext {
            instant: self.now,
            node,
            now,
            is_current,
            alarms: &mut self.alarms,
            busy_ps: &mut busy_ps,
            crash_requested: &mut crash_requested,
        };
        command(at, machine, &mut self.application);
        self.apply_requests(index, busy_ps, crash_requested);
        self.drain(index);
    }

    /// Applies the requests that the application made during a call.
    #[inline]
    pub(crate) fn apply_requests(&mut self, index: usize, busy_ps: u64, crash_requested: bool) {
        self.charge_cpu(index, busy_ps);
        if crash_requested {
            self.crash(NodeId(index as u32));
        }
    }

    /// Builds and starts the machine of a node.
    pub(crate) fn start(&mut self, node: NodeId) {
        let index = node.index();
        let machine = self.application.build(node, self.nodes[index].incarnation);
        self.nodes[index].machine = Some(machine);
        self.command(node, |at, machine, application| application.on_start(at, machine));
    }

    /// Returns an independent random stream.
    pub(crate) fn random(&self, name: &str, number: u32) -> Random {
        Random::named(self.seed, name, u64::from(number))
    }

    fn build_nodes(&mut self) {
        let vertices: Vec<Vertex> = self.topology.nodes().collect();
        for (id, vertex) in (0u32..).zip(vertices) {
            let mut random = self.random("clock", id);
            let clocks = self.config.clocks;
            let mut tail_random = self.random("clock tail", id);
            let tail = self.config.clock_tail;
            let tail = tail.filter(|tail| tail_random.below(1_000) < u64::from(tail.permille));
            let offset_ns_max = tail.map_or(clocks.offset_ns_max, |tail| tail.offset_ns_max);
            let mut draw = |max: u64| random.between(0, 2 * max) as i64 - max as i64;
            let error = ClockError {
                offset_ns: draw(offset_ns_max),
                drift_ppb: draw(clocks.drift_ppb_max.into()) as i32,
            };
            let mono_origin_ns = random.below(1 << 40);
            let first_port = self.ports.len();
            let ports = usize::from(self.topology.ports(vertex).total());
            self.ports.resize(first_port + ports, NO_LINK);
            self.nodes.push(Node {
                machine: None,
                incarnation: 0,
                queue_index: 0,
                clock: Clock::new(mono_origin_ns, self.config.sync_origin, error),
                first_port,
                is_host: matches!(vertex, Vertex::Host(_)),
                wake_at: Instant::END,
                deadline: (Mono::from_ns(0), Instant::START),
                run_at: Instant::END,
                free_at: Instant::START,
                paused_until: Instant::START,
                off_chip_free_at: Instant::START,
                frames_left: None,
                ring: VecDeque::new(),
            });
        }
    }

    fn build_links(&mut self) {
        for (id, link) in (0u32..).zip(self.topology.links()) {
            let (from, to) = (link.from.node, link.to.node);
            let touches_host = matches!(from, Vertex::Host(_)) || matches!(to, Vertex::Host(_));
            let config = if touches_host { self.config.host_link } else { self.config.switch_link };
            let (from, to) = (node_of(&self.topology, from), node_of(&self.topology, to));
            let port_index = self.nodes[from.index()].first_port + link.from.port.index();
            self.ports[port_index] = id;
            self.links.push(Link::new(config, from, to, link.to.port));
        }
    }

    /// Creates one event queue, or one for each node if lookahead is enabled and every link has a
    /// delay.
    fn build_queues(&mut self) {
        if self.config.uses_lookahead {
            self.lookahead = Lookahead::new(self.nodes.len(), &self.links);
        }
        if self.lookahead.is_none() {
            self.queues.push(Queue::new(self.config.queue_span));
            return;
        }
        for (queue_index, node) in self.nodes.iter_mut().enumerate() {
            node.queue_index = queue_index;
            self.queues.push(Queue::new(Span::NODE));
        }
        self.queues.push(Queue::new(Span::NODE));
    }

    /// Keeps a CPU busy for another `ps`.
    #[inline]
    pub(crate) fn charge_cpu(&mut self, node: usize, ps: u64) {
        if ps > 0 {
            let node = &mut self.nodes[node];
            node.free_at = node.free_at.max(self.now).after(ps);
        }
    }

    /// Returns the NIC backlog above which a host is not polled for frames, in ps.
    pub(crate) fn nic_backlog_ps(&self) -> u64 {
        self.config.nic_backlog_ns * NANOSECOND
    }
}

fn node_of(topology: &Topology, vertex: Vertex) -> NodeId {
    match vertex {
        Vertex::Host(host) => NodeId(host.0),
        Vertex::Switch(switch) => NodeId(topology.hosts() + switch.0),
        Vertex::Process(process) => NodeId(topology.host_of(process).0),
    }
}
