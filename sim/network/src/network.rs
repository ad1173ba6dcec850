//! The network: nodes and links, in parts, and the loop over their events.

use std::collections::VecDeque;

use onepipe_base::{Machine, Mono, Port};
use onepipe_sim_engine::{Instant, Queue, Random, Span, Trace};
use onepipe_topology::{Node as Vertex, Topology};

use crate::link::Link;
use crate::lookahead::Lookahead;
use crate::part::{Event, LinkEnds, NO_LINK, Node, Part, Shared};
use crate::pool::Pool;
use crate::run::{Run, Scratch};
use crate::{Application, Clock, ClockError, Config, LinkId, NodeContext, NodeId, Stats};

/// A network of machines under one application.
#[derive(Debug)]
pub struct Network<M, A> {
    /// The application that commands and observes the machines.
    pub application: A,
    pub(crate) topology: Topology,
    pub(crate) shared: Shared,
    /// One part; with [`Config::uses_lookahead`] one for each node.
    pub(crate) parts: Vec<Part<M>>,
    /// Lookahead windows of the nodes, if enabled.
    pub(crate) lookahead: Option<Lookahead>,
    pub(crate) trace: Trace,
    pub(crate) scratch: Scratch,
    pub(crate) now: Instant,
    /// Runs the network on several threads, if it may.
    pub(crate) run_divided: Option<fn(&mut Self, Instant)>,
}

impl<M: Machine, A: Application<M>> Network<M, A> {
    /// Builds the network and starts every node.
    pub fn new(topology: Topology, config: Config, seed: u64, application: A) -> Self {
        let trace = Trace::new(config.trace_lines_max);
        let scratch = Scratch::new(config.frame_len_max, config.steps_max);
        let mut shared = Shared::new(config, seed, &topology);
        let nodes = build_nodes(&mut shared, &topology);
        let links = build_links(&mut shared, &topology, &nodes);
        let lookahead = match shared.config.uses_lookahead {
            true => Lookahead::new(nodes.len(), &mut shared.ends, &links),
            false => None,
        };
        shared.is_divided = lookahead.is_some();
        let parts = match &lookahead {
            None => vec![part(&shared, (0, nodes), (0, links), shared.config.queue_span, 0, 1)],
            Some(lookahead) => divide(&shared, lookahead, nodes, links),
        };
        let mut network = Self {
            application,
            topology,
            shared,
            parts,
            lookahead,
            trace,
            scratch,
            now: Instant::START,
            run_divided: None,
        };
        for node in 0..network.nodes() {
            let node = NodeId(node);
            network.with_part(node, |run| run.start(run.index(node)));
        }
        network
    }

    /// Returns the node of a vertex of the topology.
    pub fn node(&self, vertex: Vertex) -> NodeId {
        node_of(&self.topology, vertex)
    }

    /// Returns the link that leaves `node` at `port`, if there is one.
    pub fn link(&self, node: NodeId, port: Port) -> Option<LinkId> {
        let link = *self.shared.ports.get(self.state(node).first_port + port.index())?;
        (link != NO_LINK).then_some(LinkId(link))
    }

    /// Returns every link with the nodes at its ends.
    pub fn links(&self) -> impl Iterator<Item = (LinkId, NodeId, NodeId)> {
        (0u32..).zip(&self.shared.ends).map(|(id, link)| (LinkId(id), link.from, link.to))
    }

    /// Returns the number of nodes: hosts, then switches.
    pub fn nodes(&self) -> u32 {
        self.shared.nodes as u32
    }

    /// Returns the topology of the network.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the machine of a node, if the node is up.
    pub fn machine(&self, node: NodeId) -> Option<&M> {
        self.state(node).machine.as_ref()
    }

    /// Returns virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the clocks of a node.
    pub fn clock(&self, node: NodeId) -> &Clock {
        &self.state(node).clock
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.scratch.stats
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
        let from = self.shared.ends[link.index()].from;
        let part = &self.parts[self.shared.part_of(from)];
        part.links[(link.0 - part.first_link) as usize].backlog_bytes(self.now)
    }

    /// Returns the number of frames in flight, queued ones included.
    pub fn in_flight(&self) -> usize {
        self.parts.iter().map(|part| part.pool.in_flight()).sum()
    }

    /// Whether the run has reached its step limit, so that nothing more happens.
    pub fn is_out_of_steps(&self) -> bool {
        self.scratch.steps_left == 0
    }

    /// Handles all events up to and including `limit`.
    pub fn run_until(&mut self, limit: Instant) {
        match self.run_divided {
            Some(run) => run(self, limit),
            None => self.run_in_order(limit),
        }
        self.now = self.now.max(limit);
    }

    /// Runs the network for `ps` of virtual time.
    pub fn run_for(&mut self, ps: u64) {
        self.run_until(self.now.after(ps));
    }

    /// Calls `command` with the machine of a node and drains the machine. Does nothing if the node
    /// is down.
    pub fn command(&mut self, node: NodeId, command: impl FnOnce(NodeContext<'_>, &mut M, &mut A)) {
        self.with_part(node, |run| run.command(run.index(node), command));
    }

    /// Handles all events up to and including `limit`, one part after the other.
    pub(crate) fn run_in_order(&mut self, limit: Instant) {
        match self.lookahead.take() {
            None => self.run(0).run_until(limit),
            Some(mut lookahead) => {
                while self.run_round(&mut lookahead, limit) {}
                self.lookahead = Some(lookahead);
            }
        }
    }

    /// Runs every node for one lookahead window, up to `limit` or the next fault, whichever comes
    /// first. A fault that is due before all other events is handled first. Returns false when
    /// nothing is due.
    fn run_round(&mut self, lookahead: &mut Lookahead, limit: Instant) -> bool {
        let fault_at = lookahead.faults.earliest();
        let firsts = self.parts.iter().filter_map(|part| part.queue.earliest());
        let Some(first) = firsts.chain(fault_at).min() else {
            return false;
        };
        if first > limit {
            return false;
        }
        let mut end = limit.after(1);
        if let Some(fault_at) = fault_at {
            if fault_at == first {
                self.run_faults(lookahead, first);
                return true;
            }
            end = end.min(fault_at);
        }
        for position in 0..lookahead.len() {
            let node = lookahead.order()[position] as usize;
            let window_end = lookahead.window(node, first, end);
            if window_end > first {
                self.run(node).run_until(Instant::from_ps(window_end.as_ps() - 1));
                self.hand_over(lookahead, node);
            }
        }
        true
    }

    /// Handles the faults that are due up to and including `limit`.
    pub(crate) fn run_faults(&mut self, lookahead: &mut Lookahead, limit: Instant) {
        while let Some((instant, event)) = lookahead.faults.next_until(limit) {
            if self.scratch.steps_left == 0 {
                return;
            }
            self.scratch.steps_left -= 1;
            self.scratch.stats.events += 1;
            let Event::Fault { index } = event else { continue };
            let fault = self.shared.faults[index as usize];
            let part = self.shared.part_of(self.shared.node_of(fault));
            self.parts[part].now = instant;
            self.run(part).inject(fault);
            self.hand_over(lookahead, part);
        }
    }

    /// Calls `act` with the part of a node at the present instant.
    pub(crate) fn with_part(&mut self, node: NodeId, act: impl FnOnce(&mut Run<'_, M, A>)) {
        let part = self.shared.part_of(node);
        self.parts[part].now = self.now;
        act(&mut self.run(part));
        if let Some(lookahead) = self.lookahead.take() {
            self.hand_over(&lookahead, part);
            self.lookahead = Some(lookahead);
        }
    }

    /// Passes the frames that a part has sent on to its neighbours.
    fn hand_over(&mut self, lookahead: &Lookahead, part: usize) {
        for (index, &neighbour) in lookahead.neighbours(part).iter().enumerate() {
            if self.parts[part].outboxes[index].is_empty() {
                continue;
            }
            let mut frames = std::mem::take(&mut self.parts[part].outboxes[index]);
            self.parts[neighbour as usize].receive(&mut frames);
            self.parts[part].outboxes[index] = frames;
        }
    }

    /// Returns a part with what it needs to run.
    #[inline]
    fn run(&mut self, part: usize) -> Run<'_, M, A> {
        Run {
            part: &mut self.parts[part],
            shared: &self.shared,
            application: &mut self.application,
            trace: &mut self.trace,
            scratch: &mut self.scratch,
        }
    }

    fn state(&self, node: NodeId) -> &Node<M> {
        let part = &self.parts[self.shared.part_of(node)];
        &part.nodes[(node.0 - part.first_node) as usize]
    }
}

fn build_nodes<M>(shared: &mut Shared, topology: &Topology) -> Vec<Node<M>> {
    let mut nodes = Vec::new();
    for (id, vertex) in (0u32..).zip(topology.nodes()) {
        let mut random = Random::named(shared.seed, "clock", u64::from(id));
        let clocks = shared.config.clocks;
        let mut tail_random = Random::named(shared.seed, "clock tail", u64::from(id));
        let tail = shared.config.clock_tail;
        let tail = tail.filter(|tail| tail_random.below(1_000) < u64::from(tail.permille));
        let offset_ns_max = tail.map_or(clocks.offset_ns_max, |tail| tail.offset_ns_max);
        let mut draw = |max: u64| random.between(0, 2 * max) as i64 - max as i64;
        let error = ClockError {
            offset_ns: draw(offset_ns_max),
            drift_ppb: draw(clocks.drift_ppb_max.into()) as i32,
        };
        let mono_origin_ns = random.below(1 << 40);
        let first_port = shared.ports.len();
        let ports = usize::from(topology.ports(vertex).total());
        shared.ports.resize(first_port + ports, NO_LINK);
        nodes.push(Node {
            machine: None,
            incarnation: 0,
            clock: Clock::new(mono_origin_ns, shared.config.sync_origin, error),
            first_port,
            ports,
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
    nodes
}

fn build_links<M>(shared: &mut Shared, topology: &Topology, nodes: &[Node<M>]) -> Vec<Link> {
    let build = |link: onepipe_topology::Link| {
        let (from, to) = (link.from.node, link.to.node);
        let touches_host = matches!(from, Vertex::Host(_)) || matches!(to, Vertex::Host(_));
        let config = if touches_host { shared.config.host_link } else { shared.config.switch_link };
        let (from, to) = (node_of(topology, from), node_of(topology, to));
        let port_index = nodes[from.index()].first_port + link.from.port.index();
        shared.add_link(port_index, LinkEnds { from, to, to_port: link.to.port, neighbour: 0 });
        Link::new(config)
    };
    topology.links().map(build).collect()
}

/// Makes each node a part, with the links that leave it: those of one node follow each other.
fn divide<M>(
    shared: &Shared,
    lookahead: &Lookahead,
    nodes: Vec<Node<M>>,
    links: Vec<Link>,
) -> Vec<Part<M>> {
    let (mut links, mut first_link) = (links.into_iter(), 0);
    let pools = nodes.len();
    let mut parts = Vec::with_capacity(pools);
    for (id, node) in (0u32..).zip(nodes) {
        let ends = &shared.ends[first_link as usize..];
        let count = ends.iter().take_while(|ends| ends.from.0 == id).count();
        let outgoing = (first_link, links.by_ref().take(count).collect());
        let neighbours = lookahead.neighbours(id as usize).len();
        parts.push(part(shared, (id, vec![node]), outgoing, Span::NODE, neighbours, pools));
        first_link += count as u32;
    }
    assert!(links.next().is_none(), "the links are in the order of their sending nodes");
    parts
}

fn part<M>(
    shared: &Shared,
    (first_node, nodes): (u32, Vec<Node<M>>),
    (first_link, links): (u32, Vec<Link>),
    span: Span,
    neighbours: usize,
    pools: usize,
) -> Part<M> {
    Part {
        first_node,
        nodes,
        first_link,
        links,
        queue: Queue::new(span),
        pool: Pool::new(shared.config.frame_len_max, pools),
        now: Instant::START,
        events_at_instant: 0,
        outboxes: (0..neighbours).map(|_| Vec::new()).collect(),
    }
}

fn node_of(topology: &Topology, vertex: Vertex) -> NodeId {
    match vertex {
        Vertex::Host(host) => NodeId(host.0),
        Vertex::Switch(switch) => NodeId(topology.hosts() + switch.0),
        Vertex::Process(process) => NodeId(topology.host_of(process).0),
    }
}
