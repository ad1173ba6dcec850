//! A network of members, replicas, clients and coordinators that lives through virtual time.

use std::collections::BTreeMap;

use onepipe_amcast::Member;
use onepipe_base::{ProcessId, SwitchId};
use onepipe_sim_check::Agreed;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Config, Fault, LinkId, Network, NodeId, Stats};
use onepipe_topology::{Node as Vertex, Topology};

use crate::application::{Bench, Delivered};
use crate::mishap::Mishap;
use crate::node::Node;
use crate::seats::Seats;
use crate::setup::Setup;
use crate::ways::{Dead, ways};

/// The tier of top-of-rack switches (`Topology::tier`).
const TOR: u8 = 2;
/// So often it is looked whether everybody has everything, in ns.
const LOOK_NS: u64 = 500_000;
/// A history ends after so many steps, whatever its machines do.
const STEPS_MAX: u64 = 200_000_000;

/// A network at some point of virtual time.
#[derive(Debug)]
pub struct World {
    network: Network<Node, Bench>,
    dead: Dead,
    /// What is still to happen, by the time in ns.
    timeline: BTreeMap<(u64, usize), Mishap>,
    number: usize,
}

impl World {
    /// Laid out as `setup` says, at the start of time.
    ///
    /// # Panics
    /// When the fabric has too few hosts or switches, or a setting makes no sense.
    pub fn new(setup: &Setup) -> Self {
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        let config = Config {
            host_link: setup.host_link,
            switch_link: setup.switch_link,
            cpu: setup.cpu,
            frame_octets_max: setup.frame_octets_max,
            steps_max: STEPS_MAX,
            trace_lines_max: setup.trace_lines_max,
            ..Config::default()
        };
        let bench = Bench::new(setup.clone(), topology.clone());
        let mut network = Network::new(topology, config, setup.seed, bench);
        network.application.link_from = network.links().map(|(_, from, _)| from).collect();
        Self { network, dead: Dead::default(), timeline: BTreeMap::new(), number: 0 }
    }

    /// Who sits where.
    pub fn seats(&self) -> &Seats {
        &self.network.application.seats
    }

    /// What was checked so far.
    pub fn checker(&self) -> &Agreed {
        &self.network.application.checker
    }

    /// All deliveries, in the order of time.
    pub fn deliveries(&self) -> &[Delivered] {
        &self.network.application.deliveries
    }

    /// Messages that clients could not send, because their window was full.
    pub fn refused(&self) -> u64 {
        self.network.application.refused()
    }

    /// What the network has counted.
    pub fn stats(&self) -> &Stats {
        self.network.stats()
    }

    /// A digest of everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }

    /// The last events as text, as many as the setup says.
    pub fn trace_lines(&self) -> impl Iterator<Item = &str> {
        self.network.trace_lines()
    }

    /// Virtual time, in ns.
    pub fn now_ns(&self) -> u64 {
        self.network.now().as_ns()
    }

    /// All members that live.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let nodes = (0..self.network.nodes()).filter_map(|node| self.network.machine(NodeId(node)));
        nodes.flat_map(|node| match node {
            Node::Switch(element) => element.members(),
            Node::Host { .. } => &[],
        })
    }

    /// Lets something happen at `at_ns`.
    pub fn plan(&mut self, at_ns: u64, mishap: Mishap) {
        self.number += 1;
        self.timeline.insert((at_ns, self.number), mishap);
    }

    /// Lets time pass up to `end_ns`.
    pub fn run_until(&mut self, end_ns: u64) {
        while let Some(next) = self.timeline.first_entry()
            && next.key().0 <= end_ns
        {
            let ((at_ns, _), mishap) = next.remove_entry();
            self.network.run_until(Instant::from_ps(at_ns * NANOSECOND));
            self.inflict(mishap);
        }
        self.network.run_until(Instant::from_ps(end_ns * NANOSECOND));
    }

    /// Lets time pass until everybody who lives has everything, up to `end_ns`. Answers what is
    /// wrong then, if anything.
    pub fn settle(&mut self, end_ns: u64) -> Option<String> {
        while self.now_ns() < end_ns && self.checker().wrong() == 0 && self.unsettled().is_some() {
            self.run_until(self.now_ns() + LOOK_NS);
        }
        // What comes late must change nothing.
        self.run_until(self.now_ns() + 4 * LOOK_NS);
        let texts = self.checker().texts();
        texts.first().cloned().or_else(|| self.unsettled())
    }

    /// What is not yet as it must be in the end.
    fn unsettled(&self) -> Option<String> {
        let bench = &self.network.application;
        if !bench.has_sent_all() {
            return Some("a client has not sent everything".to_owned());
        }
        let is_alive = |replica: usize| bench.is_alive(bench.replica(replica));
        let clients = &bench.seats.groups.clients;
        let is_client_alive = |number: u32| {
            clients.get(number as usize).is_some_and(|client| bench.is_alive(*client))
        };
        let nodes = clients.iter().map(|client| bench.seats.node(*client));
        let mut machines = nodes.filter_map(|node| self.network.machine(node));
        let is_any_open = machines.any(|node| node.open() > 0);
        // The rival does not say what is over, only how much is not.
        let is_client_alive = |number| !bench.setup.is_rival && is_client_alive(number);
        let unheard = || bench.checker.unheard(is_client_alive, is_alive);
        match is_any_open {
            true => Some("a message is not over".to_owned()),
            false => bench.checker.disagreement(is_alive).or_else(unheard),
        }
    }

    fn inflict(&mut self, mishap: Mishap) {
        match mishap {
            Mishap::Switch(node) => self.lose_switch(node),
            Mishap::Member(process) => {
                let node = self.seats().node(process);
                self.network.application.alive[process.index()] = false;
                self.network.command(node, |_, machine, _| {
                    if let Node::Switch(element) = machine {
                        element.kill(process);
                    }
                });
            }
            Mishap::Host(node) => self.network.inflict(Fault::Crash(node)),
            Mishap::Restart(node) => {
                if !self.dead.nodes.contains(&node) {
                    self.network.inflict(Fault::Restart(node));
                }
            }
            Mishap::Pause(node, ns) => self.network.inflict(Fault::Pause(node, ns)),
            Mishap::Links(faults) => {
                let links: Vec<LinkId> = self.network.links().map(|(link, ..)| link).collect();
                links.into_iter().for_each(|link| {
                    self.network.inflict(Fault::Switches(link, faults));
                });
            }
            Mishap::CutOff(node) => self.for_links(node, Fault::Cut),
            Mishap::Mend(node) => self.for_links(node, Fault::Mend),
            Mishap::Deaf(coordinator, whom) => {
                let node = self.seats().node(coordinator);
                self.network.command(node, |_, machine, _| {
                    if let Node::Host { deaf_to, .. } = machine {
                        *deaf_to = whom;
                    }
                });
            }
            Mishap::Lapse => self.network.application.court.lapse(),
            Mishap::Reroute => self.reroute(),
        }
    }

    fn lose_switch(&mut self, node: NodeId) {
        let (hosts, at_ns) = (self.network.topology().hosts(), self.now_ns());
        let switch = SwitchId(node.0 - hosts);
        self.network.inflict(Fault::Crash(node));
        self.dead.nodes.insert(node);
        if self.network.topology().tier(Vertex::Switch(switch)) == TOR {
            let rack = self.network.topology().shape().hosts_per_tor();
            for host in switch.0 * rack..(switch.0 + 1) * rack {
                self.dead.nodes.insert(NodeId(host));
                self.network.inflict(Fault::Crash(NodeId(host)));
            }
        }
        let reroute_ns = self.network.application.setup.reroute_ns;
        self.plan(at_ns + reroute_ns, Mishap::Reroute);
    }

    /// The links between a switch and other switches.
    fn for_links(&mut self, node: NodeId, fault: impl Fn(LinkId) -> Fault) {
        let hosts = self.network.topology().hosts();
        let border = self.network.links().filter(|(_, from, to)| {
            (*from == node && to.0 >= hosts) || (*to == node && from.0 >= hosts)
        });
        let links: Vec<LinkId> = border.map(|(link, ..)| link).collect();
        links.into_iter().for_each(|link| self.network.inflict(fault(link)));
    }

    fn reroute(&mut self) {
        let topology = self.network.topology().clone();
        let tables = ways(&topology, self.seats(), &self.dead);
        self.network.application.ways.clone_from(&tables);
        for (at, table) in tables.into_iter().enumerate() {
            self.network.command(NodeId(topology.hosts() + at as u32), |_, machine, _| {
                if let Node::Switch(element) = machine {
                    element.ways = table;
                }
            });
        }
    }

    /// Whether `process` lives.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.network.application.is_alive(process)
    }

    /// Nobody sends anything more.
    pub fn stop(&mut self) {
        self.network.application.stop();
    }

    /// Who leads `group` now, if anybody does, in the last epoch.
    pub fn leader(&self, group: usize) -> Option<ProcessId> {
        let members = self.members().filter(|member| member.group().index() == group);
        let leads = members.filter(|member| member.is_leader());
        leads.max_by_key(|member| member.epoch()).map(|member| member.config().process)
    }
}
