//! A simulated network of hosts and switches in virtual time.

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

/// A simulation at some point of virtual time.
#[derive(Debug)]
pub struct SimEnv {
    pub(crate) network: Network<Node, Workload>,
}

impl SimEnv {
    /// Creates the network of `setup` at time 0.
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
        let workload = Workload::new(setup.clone(), topology.clone());
        Self { network: Network::new(topology, config, setup.seed, workload) }
    }

    /// Advances virtual time by `ns`.
    pub fn run_for_ns(&mut self, ns: u64) {
        self.network.run_for(ns * NANOSECOND);
    }

    /// Returns the link from the rack's switch to a host.
    ///
    /// # Panics
    /// When the host does not exist.
    pub fn down_link(&self, host: u32) -> LinkId {
        let mut links = self.network.links();
        links.find(|(_, _, to)| *to == NodeId(host)).expect("every host has one").0
    }

    /// Returns the link from a host to its switch.
    ///
    /// # Panics
    /// When the host does not exist.
    pub fn card_link(&self, host: u32) -> LinkId {
        let mut links = self.network.links();
        links.find(|(_, from, _)| *from == NodeId(host)).expect("every host has one").0
    }

    /// Returns upper link `nth` of a host's switch.
    ///
    /// # Panics
    /// When the host or the link does not exist.
    pub fn up_link(&self, host: u32, nth: u16) -> LinkId {
        self.link(self.up(self.rack_switch(host), nth))
    }

    /// Returns upper link `above` of the switch that upper link `nth` of a host's switch leads to.
    ///
    /// # Panics
    /// When the host or the link does not exist.
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

    /// Returns upper port `nth` of a switch.
    fn up(&self, node: Vertex, nth: u16) -> End {
        End { node, port: Port(self.network.topology().ports(node).lower + nth) }
    }

    fn link(&self, end: End) -> LinkId {
        let node = self.network.node(end.node);
        self.network.link(node, end.port).expect("there is such a link")
    }

    /// Returns all links.
    pub fn links(&self) -> Vec<LinkId> {
        self.network.links().map(|(link, ..)| link).collect()
    }

    /// Returns the slot frames that have entered a link.
    pub fn slots_on(&self, link: LinkId) -> u64 {
        self.network.application.slots[link.index()]
    }

    /// Schedules a fault `ns` from now.
    pub fn schedule(&mut self, ns: u64, fault: Fault) {
        self.network.schedule(self.network.now().after(ns * NANOSECOND), fault);
    }

    /// Returns the bytes before a link, with the frame in transmission and link overhead.
    pub fn backlog_bytes(&self, link: LinkId) -> u64 {
        self.network.backlog_bytes(link)
    }

    /// Returns the maximum backlog before any link between switches, or to an endpoint, since
    /// [`begin`](Self::begin).
    pub fn peak(&self) -> QueuePeak {
        let egresses = self.network.application.egresses.iter().flatten();
        egresses.map(|(_, egress)| egress.peak()).fold(QueuePeak::default(), QueuePeak::max)
    }

    /// Resets the measurements.
    pub fn begin(&mut self) {
        self.network.application.begin();
    }

    fn traffic(&self, host: u32) -> Option<&HostTraffic> {
        self.network.machine(NodeId(host))?.traffic()
    }

    /// Returns the bytes delivered of each flow.
    pub fn received_bytes(&self) -> Vec<u64> {
        let workload = &self.network.application;
        let of = |(flow, opened): (&crate::Flow, &Option<_>)| {
            let (from, opened) = (ProcessId(flow.spec.from), (*opened)?);
            Some(self.traffic(flow.spec.to)?.stack.received_bytes(from, opened))
        };
        let flows = workload.setup().flows.iter().zip(&workload.opened);
        flows.map(|pair| of(pair).unwrap_or(0)).collect()
    }

    /// Returns the segments that TCP has sent, and those found to be lost.
    pub fn segments(&self) -> (u64, u64) {
        let hosts = 0..self.network.topology().hosts();
        let stats = hosts.filter_map(|host| Some(*self.traffic(host)?.stack.stats()));
        stats.fold((0, 0), |(sent, lost), one| (sent + one.data_sent, lost + one.lost))
    }

    /// Returns the raw frames of all hosts: offered and not sent, sent, and received.
    pub fn raw_frames(&self) -> (u64, u64, u64) {
        let hosts = 0..self.network.topology().hosts();
        let raw = hosts.filter_map(|host| Some(&self.traffic(host)?.raw));
        raw.fold((0, 0, 0), |(waiting, sent, received), one| {
            (waiting + one.waiting(), sent + one.sent(), received + one.received())
        })
    }

    /// Returns the client of a scheduled endpoint.
    pub fn client(&self, host: u32) -> Option<&Client> {
        self.network.machine(NodeId(host))?.client()
    }

    /// Returns the clients of all endpoints.
    pub fn clients(&self) -> impl Iterator<Item = &Client> {
        let hosts = 0..self.network.topology().hosts();
        hosts.filter_map(|host| self.client(host))
    }

    /// Returns the arbiter at a host, if there is one.
    pub fn arbiter(&self, host: u32) -> Option<&Arbiter> {
        self.network.machine(NodeId(host))?.arbiter()
    }

    /// Returns the grant checker ([`Setup::checks_grants`]).
    pub fn grant_checker(&self) -> &GrantChecker {
        &self.network.application.grant_checker
    }

    /// Returns the bytes of control packets sent by endpoints and arbiters, with link overhead.
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

    /// Returns the counters of control packets that left hosts.
    pub const fn control(&self) -> &Control {
        &self.network.application.control
    }

    /// Returns the raw frames that were offered and not sent, in timeslots' worth.
    pub fn raw_waiting(&self) -> u64 {
        let backlog: u64 = self.clients().map(|client| u64::from(client.backlog())).sum();
        self.raw_frames().0 + backlog
    }

    /// Returns the slot frames sent.
    pub fn slots_sent(&self) -> u64 {
        self.clients().map(|client| client.stats().slots_sent).sum()
    }

    /// Returns the frames dropped at full queues.
    pub fn overflowed(&self) -> u64 {
        self.network.stats().drops.queue_full
    }

    /// Returns the hash of the history so far.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }
}
