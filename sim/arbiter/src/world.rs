//! A network of hosts and switches that lives through virtual time.

use onepipe_base::{Port, ProcessId};
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Config, LinkId, Network, NodeId};
use onepipe_topology::Topology;

use crate::application::Bench;
use crate::node::Node;
use crate::setup::Setup;
use crate::tenants::Tenants;

/// Octets of the longest frame: a full segment.
const FRAME_OCTETS_MAX: usize = 1_472;

/// A network at some point of virtual time.
#[derive(Debug)]
pub struct World {
    pub(crate) network: Network<Node, Bench>,
}

impl World {
    /// Laid out as `setup` says, at the start of time.
    pub fn new(setup: &Setup) -> Self {
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        let config = Config {
            host_link: setup.host_link,
            switch_link: setup.switch_link,
            clocks: setup.clocks,
            frame_octets_max: FRAME_OCTETS_MAX,
            ..Config::default()
        };
        let bench = Bench::new(setup.clone(), topology.clone());
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

    /// Octets that wait before a link, the frame being sent included, with what each costs on the
    /// wire.
    pub fn backlog_octets(&self, link: LinkId) -> u64 {
        self.network.backlog_octets(link)
    }

    /// The most frames that were before any link of a switch at one time since
    /// [`begin`](Self::begin), the one being sent included.
    pub fn frames_queued_max(&self) -> usize {
        let egresses = self.network.application.egresses.iter().flatten();
        egresses.map(|(_, egress)| egress.frames_max()).max().unwrap_or(0)
    }

    /// What was noted so far does not count.
    pub fn begin(&mut self) {
        self.network.application.begin();
    }

    fn tenants(&self, host: u32) -> Option<&Tenants> {
        self.network.machine(NodeId(host))?.tenants()
    }

    /// Octets that have come of each flow, each once and in its turn.
    pub fn received_octets(&self) -> Vec<u64> {
        let bench = &self.network.application;
        let of = |(flow, opened): (&crate::Flow, &Option<_>)| {
            let (from, opened) = (ProcessId(flow.demand.from), (*opened)?);
            Some(self.tenants(flow.demand.to)?.stack.received_octets(from, opened))
        };
        let flows = bench.setup().flows.iter().zip(&bench.opened);
        flows.map(|pair| of(pair).unwrap_or(0)).collect()
    }

    /// Segments that TCP has sent, and those that it has found to be lost and sent again.
    pub fn segments(&self) -> (u64, u64) {
        let hosts = 0..self.network.topology().hosts();
        let stats = hosts.filter_map(|host| Some(*self.tenants(host)?.stack.stats()));
        stats.fold((0, 0), |(sent, lost), one| (sent + one.data_sent, lost + one.lost))
    }

    /// Frames that met a full queue.
    pub fn overflowed(&self) -> u64 {
        self.network.stats().drops.queue_full
    }

    /// The hash of the history so far.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }

    /// The port of a host's network card.
    pub fn card(&self) -> Port {
        self.network.topology().network_card()
    }
}
