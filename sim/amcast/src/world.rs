//! A network of members, replicas, clients and coordinators that lives through virtual time.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_amcast::{Group, Member};
use onepipe_base::{ProcessId, SwitchId};
use onepipe_sim_check::Agreed;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Config, Fault, LinkId, Network, NodeId, Stats};
use onepipe_topology::{Node as Vertex, Topology};

use crate::application::{Delivered, Workload};
use crate::fault::FaultEvent;
use crate::layout::Layout;
use crate::node::Node;
use crate::routes::{Unavailable, compute_routes, distances, vertex_of};
use crate::setup::Setup;

/// The tier of top-of-rack switches (`Topology::tier`).
const TOR: u8 = 2;
/// So often it is looked whether everybody has everything, in ns.
const CHECK_NS: u64 = 500_000;
/// A history ends after so many steps, whatever its machines do.
const STEPS_MAX: u64 = 200_000_000;

/// What has become of leaders, followers and majorities (design: testing.md, row 33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quorums {
    /// Members that died while they led.
    pub leaders: u64,
    /// Members that died and did not lead.
    pub followers: u64,
    /// Times that other members of a group could reach each other than before, still a majority.
    pub changed: u64,
    /// Times that those who could were no majority.
    pub lost: u64,
    /// Times that a group was found with two who think that they lead.
    pub split_brain: u64,
}

/// A network at some point of virtual time.
#[derive(Debug)]
pub struct World {
    network: Network<Node, Workload>,
    unavailable: Unavailable,
    /// Switches without links to others, for now.
    isolated: BTreeSet<NodeId>,
    quorums: Quorums,
    /// What is still to happen, by the time in ns.
    timeline: BTreeMap<(u64, usize), FaultEvent>,
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
            frame_len_max: setup.frame_len_max,
            steps_max: STEPS_MAX,
            trace_lines_max: setup.trace_lines_max,
            ..Config::default()
        };
        let workload = Workload::new(setup.clone(), topology.clone());
        let mut network = Network::new(topology, config, setup.seed, workload);
        network.application.link_from = network.links().map(|(_, from, _)| from).collect();
        Self {
            network,
            unavailable: Unavailable::default(),
            isolated: BTreeSet::new(),
            quorums: Quorums::default(),
            timeline: BTreeMap::new(),
            number: 0,
        }
    }

    /// Who sits where.
    pub fn layout(&self) -> &Layout {
        &self.network.application.layout
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
            Node::Switch(switch) => switch.members(),
            Node::Host { .. } => &[],
        })
    }

    /// Lets something happen at `at_ns`.
    pub fn schedule(&mut self, at_ns: u64, event: FaultEvent) {
        self.number += 1;
        self.timeline.insert((at_ns, self.number), event);
    }

    /// Lets time pass up to `end_ns`.
    pub fn run_until(&mut self, end_ns: u64) {
        while let Some(next) = self.timeline.first_entry()
            && next.key().0 <= end_ns
        {
            let ((at_ns, _), event) = next.remove_entry();
            self.network.run_until(Instant::from_ps(at_ns * NANOSECOND));
            self.apply_fault(event);
        }
        self.network.run_until(Instant::from_ps(end_ns * NANOSECOND));
    }

    /// Lets time pass until everybody who lives has everything, up to `end_ns`. Answers what is
    /// wrong then, if anything.
    pub fn run_to_completion(&mut self, end_ns: u64) -> Option<String> {
        let is_over = |world: &Self| world.now_ns() >= end_ns || world.checker().wrong() > 0;
        loop {
            while !is_over(self) && self.incomplete().is_some() {
                self.run_until(self.now_ns() + CHECK_NS);
            }
            // What comes late must change nothing for good: what a client has sent that is dead may
            // still be decided, and then all deliver it.
            self.run_until(self.now_ns() + 4 * CHECK_NS);
            if is_over(self) || self.incomplete().is_none() {
                break;
            }
        }
        let texts = self.checker().texts();
        texts.first().cloned().or_else(|| self.incomplete())
    }

    /// The part of the fabric that must come to an end: where a majority of every group lives, and
    /// a coordinator, if there are any. Of such parts there is one at most, for majorities meet.
    /// Where there is none, because switches have died between those who live, nobody could go on,
    /// and only what must never happen is checked.
    pub fn core(&self) -> Option<BTreeSet<NodeId>> {
        let workload = &self.network.application;
        let (groups, coordinators) =
            (&workload.layout.groups.groups, &workload.layout.coordinators);
        let part = |from: &ProcessId| {
            let from = vertex_of(self.network.topology(), workload.layout.node(*from));
            let found = distances(self.network.topology(), from, &self.unavailable);
            let nodes = (0..).map(NodeId).zip(found);
            nodes.filter_map(|(node, at)| at.map(|_| node)).collect::<BTreeSet<NodeId>>()
        };
        let is_in_core = |part: &BTreeSet<NodeId>| {
            let is_up = |process: &ProcessId| {
                workload.is_alive(*process) && part.contains(&workload.layout.node(*process))
            };
            let has_majority = |group: &Group| {
                2 * group.members.iter().filter(|member| is_up(member)).count()
                    > group.members.len()
            };
            groups.iter().all(has_majority)
                && (coordinators.is_empty() || coordinators.iter().any(is_up))
        };
        let is_available =
            |member: &&ProcessId| !self.unavailable.nodes.contains(&workload.layout.node(**member));
        groups[0].members.iter().filter(is_available).map(part).find(is_in_core)
    }

    /// What is not yet as it must be in the end, in the part of the fabric that can go on. Who is
    /// cut off from that for good counts as dead.
    fn incomplete(&self) -> Option<String> {
        let core = self.core()?;
        let workload = &self.network.application;
        let is_in_core = |process: ProcessId| {
            workload.is_alive(process) && core.contains(&workload.layout.node(process))
        };
        if !workload.has_sent_all(is_in_core) {
            return Some("a client has not sent everything".to_owned());
        }
        let is_replica_up = |replica: usize| is_in_core(workload.replica(replica));
        let clients = &workload.layout.groups.clients;
        let nodes = clients.iter().filter(|client| is_in_core(**client));
        let nodes = nodes.map(|client| workload.layout.node(*client));
        let mut machines = nodes.filter_map(|node| self.network.machine(node));
        let is_any_open = machines.any(|node| node.open() > 0);
        // The rival does not say what is over, only how much is not.
        let is_client_up = |number: u32| {
            let client = clients.get(number as usize);
            !workload.setup.is_rival && client.is_some_and(|client| is_in_core(*client))
        };
        let undelivered = || workload.checker.unheard(is_client_up, is_replica_up);
        match is_any_open {
            true => Some("a message is not over".to_owned()),
            false => workload.checker.disagreement(is_replica_up).or_else(undelivered),
        }
    }

    /// What has become of leaders, followers and majorities so far.
    pub fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// The members of each group that live and have links.
    fn present(&self) -> Vec<Vec<ProcessId>> {
        let workload = &self.network.application;
        let is_present = |member: &ProcessId| {
            let node = workload.layout.node(*member);
            workload.is_alive(*member) && !self.isolated.contains(&node)
        };
        let groups = workload.layout.groups.groups.iter();
        groups.map(|group| group.members.iter().copied().filter(is_present).collect()).collect()
    }

    /// Counts what a mishap has changed for the groups, who were led by `led`.
    fn count(&mut self, before: &[Vec<ProcessId>], led: &[Option<ProcessId>]) {
        for (group, present) in self.present().into_iter().enumerate() {
            let is_dead = |member: &&ProcessId| !self.is_alive(**member);
            let (leaders, followers): (Vec<ProcessId>, Vec<ProcessId>) =
                before[group].iter().filter(is_dead).partition(|gone| led[group] == Some(**gone));
            self.quorums.leaders += leaders.len() as u64;
            self.quorums.followers += followers.len() as u64;
            if present == before[group] {
                continue;
            }
            match 2 * present.len() > self.layout().groups.groups[group].members.len() {
                true => self.quorums.changed += 1,
                false => self.quorums.lost += 1,
            }
        }
    }

    /// Looks whether two members of a group think that they lead.
    pub fn count_split_brain(&mut self) {
        let mut leaders = vec![0u32; self.layout().groups.groups.len()];
        for member in self.members().filter(|member| member.is_leader()) {
            leaders[member.group().index()] += 1;
        }
        self.quorums.split_brain += leaders.into_iter().filter(|count| *count > 1).count() as u64;
    }

    fn apply_fault(&mut self, event: FaultEvent) {
        let before = self.present();
        let led: Vec<_> = (0..before.len()).map(|group| self.leader(group)).collect();
        self.apply(event);
        self.count(&before, &led);
    }

    fn apply(&mut self, event: FaultEvent) {
        match event {
            FaultEvent::Switch(node) => self.crash_switch(node),
            FaultEvent::Member(process) => {
                let node = self.layout().node(process);
                self.network.application.alive[process.index()] = false;
                self.network.command(node, |_, machine, _| {
                    if let Node::Switch(switch) = machine {
                        switch.kill(process);
                    }
                });
            }
            FaultEvent::Host(node) => self.network.inflict(Fault::Crash(node)),
            FaultEvent::Restart(node) => {
                if !self.unavailable.nodes.contains(&node) {
                    self.network.inflict(Fault::Restart(node));
                }
            }
            FaultEvent::Pause(node, ns) => self.network.inflict(Fault::Pause(node, ns)),
            FaultEvent::Links(faults) => {
                let links: Vec<LinkId> = self.network.links().map(|(link, ..)| link).collect();
                links.into_iter().for_each(|link| {
                    self.network.inflict(Fault::Switches(link, faults));
                });
            }
            FaultEvent::Isolate(node) => self.disconnect([node]),
            FaultEvent::Reconnect(node) => self.reconnect([node]),
            FaultEvent::IsolateMany(nodes) => self.disconnect(nodes),
            FaultEvent::ReconnectMany(nodes) => self.reconnect(nodes),
            FaultEvent::CoordinatorLoss(coordinator, member) => {
                let node = self.layout().node(coordinator);
                self.network.command(node, |_, machine, _| {
                    if let Node::Host { ignored, .. } = machine {
                        *ignored = member;
                    }
                });
            }
            FaultEvent::MemberLoss(pairs, filter) => {
                for pair in pairs {
                    let node = self.layout().node(pair.1);
                    self.network.command(node, |_, machine, _| {
                        if let Node::Switch(switch) = machine {
                            switch.set_drop_rule(pair, filter);
                        }
                    });
                }
            }
            FaultEvent::LeaseExpiry => self.network.application.store.expire_lease(),
            FaultEvent::Reroute => self.reroute(),
        }
    }

    fn crash_switch(&mut self, node: NodeId) {
        let (hosts, at_ns) = (self.network.topology().hosts(), self.now_ns());
        let switch = SwitchId(node.0 - hosts);
        self.network.inflict(Fault::Crash(node));
        self.unavailable.nodes.insert(node);
        if self.network.topology().tier(Vertex::Switch(switch)) == TOR {
            let rack = self.network.topology().shape().hosts_per_tor();
            for host in switch.0 * rack..(switch.0 + 1) * rack {
                self.unavailable.nodes.insert(NodeId(host));
                self.network.inflict(Fault::Crash(NodeId(host)));
            }
        }
        // Their store is where groups go on.
        if let Some(core) = self.core() {
            let workload = &mut self.network.application;
            let is_out = |process: &ProcessId| !core.contains(&workload.layout.node(*process));
            let coordinators = workload.layout.coordinators.iter().copied();
            workload.without_store = coordinators.filter(is_out).collect();
        }
        let reroute_ns = self.network.application.setup.reroute_ns;
        self.schedule(at_ns + reroute_ns, FaultEvent::Reroute);
    }

    fn disconnect(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            self.isolated.insert(node);
            self.for_links(node, Fault::Cut);
        }
    }

    fn reconnect(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            self.isolated.remove(&node);
            self.for_links(node, Fault::Mend);
        }
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
        let tables = compute_routes(&topology, self.layout(), &self.unavailable);
        self.network.application.routes.clone_from(&tables);
        for (at, table) in tables.into_iter().enumerate() {
            self.network.command(NodeId(topology.hosts() + at as u32), |_, machine, _| {
                if let Node::Switch(switch) = machine {
                    switch.routes = table;
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
