//! A network of hosts and switches that lives through virtual time.

use onepipe_arbiter::{Arbiter, Client};
use onepipe_base::{HostId, Port, ProcessId};
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Config, Fault, LinkConfig, LinkId, Network, NodeId};
use onepipe_topology::{End, Node as Vertex, Topology};

use crate::control::Control;
use crate::egress::{QueuePeak, is_in_slot};
use crate::grant_checker::GrantChecker;
use crate::host_traffic::HostTraffic;
use crate::node::Node;
use crate::setup::{FRAME_LEN_MAX, Setup};
use crate::workload::Workload;

/// A network at some point of virtual time.
#[derive(Debug)]
pub struct SimEnv {
    pub(crate) network: Network<Node, Workload>,
}

impl SimEnv {
    /// Laid out as `setup` says, at the start of time.
    pub fn new(setup: &Setup) -> Self {
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        let classes = if setup.prioritizes_slots { 2 } else { 1 };
        let config = Config {
            host_link: LinkConfig { classes, ..setup.host_link },
            switch_link: LinkConfig { classes, ..setup.switch_link },
            class: |frame| !is_in_slot(frame) as u8,
            clocks: setup.clocks,
            frame_len_max: FRAME_LEN_MAX,
            ..Config::default()
        };
        let bench = Workload::new(setup.clone(), topology.clone());
        Self { network: Network::new(topology, config, setup.seed, bench) }
    }

    /// Lets so many ns pass.
    pub fn run_for_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    /// The link that leads from the rack's switch to a host.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn down_link(&self, host: u32) -> LinkId {
        let mut links = self.network.links();
        links.find(|(_, _, to)| *to == NodeId(host)).expect("every host has one").0
    }

    /// The link that leads from a host to its switch.
    ///
    /// # Panics
    /// When there is no such host.
    pub fn card_link(&self, host: u32) -> LinkId {
        let mut links = self.network.links();
        links.find(|(_, from, _)| *from == NodeId(host)).expect("every host has one").0
    }

    /// The link from a host's first switch up, the `nth` of them.
    ///
    /// # Panics
    /// When there is no such host or link.
    pub fn up_link(&self, host: u32, nth: u16) -> LinkId {
        self.link(self.up(self.rack_switch(host), nth))
    }

    /// The link further up from the switch that this one leads to, the `above`th of them.
    ///
    /// # Panics
    /// When there is no such host or link.
    pub fn core_link(&self, host: u32, nth: u16, above: u16) -> LinkId {
        let up = self.up(self.rack_switch(host), nth);
        let spine = self.network.topology().peer(up).expect("there is such a link").node;
        self.link(self.up(spine, above))
    }

    fn rack_switch(&self, host: u32) -> Vertex {
        let topology = self.network.topology();
        let card = End { node: Vertex::Host(HostId(host)), port: topology.network_card() };
        topology.peer(card).expect("every host has one").node
    }

    /// The `nth` upper port of a switch.
    fn up(&self, node: Vertex, nth: u16) -> End {
        End { node, port: Port(self.network.topology().ports(node).lower + nth) }
    }

    fn link(&self, end: End) -> LinkId {
        let node = self.network.node(end.node);
        self.network.link(node, end.port).expect("there is such a link")
    }

    /// All links, with the nodes at their ends.
    pub fn links(&self) -> Vec<LinkId> {
        self.network.links().map(|(link, ..)| link).collect()
    }

    /// Frames in timeslots that have entered a link.
    pub fn slots_on(&self, link: LinkId) -> u64 {
        self.network.application.slots[link.index()]
    }

    /// Lets something happen so many ns from now.
    pub fn schedule(&mut self, ns: u64, fault: Fault) {
        self.network.schedule(self.network.now().after(ns * NANOSECOND), fault);
    }

    /// Bytes that wait before a link, the frame being sent included, with what each costs on the
    /// wire.
    pub fn backlog_bytes(&self, link: LinkId) -> u64 {
        self.network.backlog_bytes(link)
    }

    /// The most that was at one time before any link between switches, or to an endpoint, since
    /// [`begin`](Self::begin).
    pub fn peak(&self) -> QueuePeak {
        let egresses = self.network.application.egresses.iter().flatten();
        egresses.map(|(_, egress)| egress.peak()).fold(QueuePeak::default(), QueuePeak::max)
    }

    /// What was noted so far does not count.
    pub fn begin(&mut self) {
        self.network.application.begin();
    }

    fn traffic(&self, host: u32) -> Option<&HostTraffic> {
        self.network.machine(NodeId(host))?.traffic()
    }

    /// Bytes that have come of each flow, each once and in its turn.
    pub fn received_bytes(&self) -> Vec<u64> {
        let bench = &self.network.application;
        let of = |(flow, opened): (&crate::Flow, &Option<_>)| {
            let (from, opened) = (ProcessId(flow.spec.from), (*opened)?);
            Some(self.traffic(flow.spec.to)?.stack.received_bytes(from, opened))
        };
        let flows = bench.setup().flows.iter().zip(&bench.opened);
        flows.map(|pair| of(pair).unwrap_or(0)).collect()
    }

    /// Segments that TCP has sent, and those that it has found to be lost and sent again.
    pub fn segments(&self) -> (u64, u64) {
        let hosts = 0..self.network.topology().hosts();
        let stats = hosts.filter_map(|host| Some(*self.traffic(host)?.stack.stats()));
        stats.fold((0, 0), |(sent, lost), one| (sent + one.data_sent, lost + one.lost))
    }

    /// Frames without a protocol: offered and not sent yet, sent, and received, by all hosts.
    pub fn plain_frames(&self) -> (u64, u64, u64) {
        let hosts = 0..self.network.topology().hosts();
        let raw = hosts.filter_map(|host| Some(&self.traffic(host)?.raw));
        raw.fold((0, 0, 0), |(waiting, sent, received), one| {
            (waiting + one.waiting(), sent + one.sent(), received + one.received())
        })
    }

    /// The client of an endpoint that is scheduled.
    pub fn client(&self, host: u32) -> Option<&Client> {
        self.network.machine(NodeId(host))?.client()
    }

    /// The clients of all endpoints.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        let hosts = 0..self.network.topology().hosts();
        hosts.filter_map(|host| self.client(host))
    }

    /// An arbiter, if there is one at this host.
    pub fn arbiter(&self, host: u32) -> Option<&Arbiter> {
        self.network.machine(NodeId(host))?.arbiter()
    }

    /// What was seen of grants, if they are looked at ([`Setup::checks_grants`]).
    pub fn grant_checker(&self) -> &GrantChecker {
        &self.network.application.grant_checker
    }

    /// Bytes of control packets that endpoints and arbiters have sent, with what each costs on
    /// the wire.
    pub fn control_bytes(&self) -> u64 {
        let overhead = self.network.application.setup().host_link.overhead_bytes;
        let hosts = 0..self.network.topology().hosts();
        let arbiters = hosts.filter_map(|host| Some(*self.arbiter(host)?.comm_stats()));
        let arbiters = arbiters.map(|stats| stats.sent_bytes + stats.sent * overhead);
        let clients = self.clients().map(|client| {
            let stats = client.stats();
            stats.control_bytes + stats.control_sent * overhead
        });
        arbiters.chain(clients).sum()
    }

    /// Control packets that have left hosts.
    pub const fn control(&self) -> &Control {
        &self.network.application.control
    }

    /// Frames without a protocol that were offered and have not been sent, in timeslots' worth.
    pub fn plain_waiting(&self) -> u64 {
        let backlog: u64 = self.clients().map(|client| u64::from(client.backlog())).sum();
        self.plain_frames().0 + backlog
    }

    /// Frames that were sent in granted timeslots.
    pub fn slots_sent(&self) -> u64 {
        self.clients().map(|client| client.stats().slots_sent).sum()
    }

    /// Frames that met a full queue.
    pub fn overflowed(&self) -> u64 {
        self.network.stats().drops.queue_full
    }

    /// The hash of the history so far.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }
}
