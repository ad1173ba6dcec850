//! Simulated network of members, replicas, clients and coordinators.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_amcast::{Group, Member};
use onepipe_base::{ProcessId, SwitchId};
use onepipe_sim_check::AgreedChecker;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{Config, Fault, LinkId, Network, NodeId, Stats};
use onepipe_topology::{Node as Vertex, Topology};

use crate::application::{Delivered, Workload};
use crate::fault::FaultEvent;
use crate::layout::Layout;
use crate::node::Node;
use crate::reachability::{Unavailable, distances, vertex_of};
use crate::routes::compute_routes;
use crate::setup::Setup;

/// Tier of top-of-rack switches (`Topology::tier`).
const TOR: u8 = 2;
/// Interval of the checks for completion, in ns.
const CHECK_NS: u64 = 500_000;
/// Limit of the number of simulation steps.
const STEPS_MAX: u64 = 200_000_000;

/// Counts of failed leaders and followers, and of changed and lost quorums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quorums {
    /// Leaders crashed.
    pub leaders: u64,
    /// Followers crashed.
    pub followers: u64,
    /// Changes of the set of connected members that left a majority connected.
    pub changed: u64,
    /// Changes that left no majority connected.
    pub lost: u64,
    /// Checks that found two members of a group that believed to lead.
    pub split_brain: u64,
}

/// Simulated network at some virtual time.
#[derive(Debug)]
pub struct SimEnv {
    network: Network<Node, Workload>,
    unavailable: Unavailable,
    /// Switches that are isolated at present.
    isolated: BTreeSet<NodeId>,
    quorums: Quorums,
    /// Scheduled faults by time in ns and sequence number.
    timeline: BTreeMap<(u64, usize), FaultEvent>,
    number: usize,
}

impl SimEnv {
    /// Creates the network at virtual time zero.
    ///
    /// # Panics
    /// If the fabric has too few hosts or switches, or a setting is invalid.
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

    /// Returns the assignment of processes to nodes.
    pub fn layout(&self) -> &Layout {
        &self.network.application.layout
    }

    /// Returns the checker with its results so far.
    pub fn checker(&self) -> &AgreedChecker {
        &self.network.application.checker
    }

    /// Returns all deliveries in the order of time.
    pub fn deliveries(&self) -> &[Delivered] {
        &self.network.application.deliveries
    }

    /// Returns the number of messages not sent because the client's window was full.
    pub fn refused(&self) -> u64 {
        self.network.application.refused()
    }

    /// Returns the counters of the network.
    pub fn stats(&self) -> &Stats {
        self.network.stats()
    }

    /// Returns the hash of the history so far.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace_hash()
    }

    /// Returns the last events as text, as many as the setup keeps.
    pub fn trace_lines(&self) -> impl Iterator<Item = &str> {
        self.network.trace_lines()
    }

    /// Returns the virtual time in ns.
    pub fn now_ns(&self) -> u64 {
        self.network.now().as_ns()
    }

    /// Returns all live members.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        let nodes = (0..self.network.nodes()).filter_map(|node| self.network.machine(NodeId(node)));
        nodes.flat_map(|node| match node {
            Node::Switch(switch) => switch.members(),
            Node::Host { .. } => &[],
        })
    }

    /// Checks the invariants of all machines, and that members of a group agree.
    ///
    /// # Panics
    /// If one is broken.
    pub fn check_invariants(&self) {
        let nodes = (0..self.network.nodes()).filter_map(|node| self.network.machine(NodeId(node)));
        nodes.for_each(Node::check_invariants);
        let members: Vec<&Member> = self.members().collect();
        for (at, member) in members.iter().enumerate() {
            let others = members[..at].iter().filter(|other| other.group() == member.group());
            others.for_each(|other| member.check_agreement(other));
        }
    }

    /// Schedules a fault for `at_ns`.
    pub fn schedule(&mut self, at_ns: u64, event: FaultEvent) {
        self.number += 1;
        self.timeline.insert((at_ns, self.number), event);
    }

    /// Runs until `end_ns`.
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

    /// Runs until all live processes have everything, at most until `end_ns`. Returns a violation,
    /// if any.
    pub fn run_to_completion(&mut self, end_ns: u64) -> Option<String> {
        let is_over = |env: &Self| env.now_ns() >= end_ns || env.checker().violations() > 0;
        loop {
            while !is_over(self) && self.incomplete().is_some() {
                self.run_until(self.now_ns() + CHECK_NS);
                self.check_invariants();
            }
            // Late packets must not change the outcome permanently: a message of a crashed client
            // may still be decided, and then all must deliver it.
            self.run_until(self.now_ns() + 4 * CHECK_NS);
            if is_over(self) || self.incomplete().is_none() {
                break;
            }
        }
        let texts = self.checker().descriptions();
        texts.first().cloned().or_else(|| self.incomplete())
    }

    /// Returns the part of the fabric that must make progress: it has a majority of every group,
    /// and a coordinator if there are any. At most one part qualifies, as majorities intersect. If
    /// crashed switches leave no such part, no group can proceed, and only safety is checked.
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

    /// Returns what is still missing in the part of the fabric that can make progress. Processes
    /// outside of it count as crashed.
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
        // A rival member does not report which messages are complete, only how many are open.
        let is_client_up = |number: u32| {
            let client = clients.get(number as usize);
            !workload.setup.is_rival && client.is_some_and(|client| is_in_core(*client))
        };
        let undelivered = || workload.checker.undelivered(is_client_up, is_replica_up);
        match is_any_open {
            true => Some("a message is not complete".to_owned()),
            false => workload.checker.disagreement(is_replica_up).or_else(undelivered),
        }
    }

    /// Returns the number of members that restarted with an empty memory and were refused.
    pub fn refused_members(&self) -> u64 {
        self.network.application.refused_members
    }

    /// Returns the quorum counts so far.
    pub fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// Returns the members of each group that are up and connected.
    fn present(&self) -> Vec<Vec<ProcessId>> {
        let workload = &self.network.application;
        let is_present = |member: &ProcessId| {
            let node = workload.layout.node(*member);
            workload.is_alive(*member) && !self.isolated.contains(&node)
        };
        let groups = workload.layout.groups.groups.iter();
        groups.map(|group| group.members.iter().copied().filter(is_present).collect()).collect()
    }

    /// Counts how a fault has changed the groups, which were led by `led` before.
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

    /// Counts groups in which two members believe that they lead.
    pub fn count_split_brain(&mut self) {
        let mut leaders = vec![0u32; self.layout().groups.groups.len()];
        for member in self.members().filter(|member| member.is_leader()) {
            leaders[member.group().index()] += 1;
        }
        self.quorums.split_brain += leaders.into_iter().filter(|count| *count > 1).count() as u64;
    }

    fn apply_fault(&mut self, event: FaultEvent) {
        self.check_invariants();
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
                self.network.command(node, |_, machine, workload| {
                    if let Node::Switch(switch) = machine
                        && switch.kill(process)
                    {
                        workload.restartable.insert(process);
                    }
                });
            }
            // The restarted one still counts as dead.
            FaultEvent::RestartMember(process) => {
                let node = self.layout().node(process);
                self.network.command(node, |_, machine, workload| {
                    if let Node::Switch(switch) = machine
                        && workload.restartable.remove(&process)
                    {
                        switch.start(workload.build_member(process, 1));
                    }
                });
            }
            FaultEvent::Host(node) => self.network.inject(Fault::Crash(node)),
            FaultEvent::Restart(node) => {
                if !self.unavailable.nodes.contains(&node) {
                    self.network.inject(Fault::Restart(node));
                }
            }
            FaultEvent::Pause(node, ns) => self.network.inject(Fault::Pause(node, ns)),
            FaultEvent::Links(faults) => {
                let links: Vec<LinkId> = self.network.links().map(|(link, ..)| link).collect();
                links.into_iter().for_each(|link| {
                    self.network.inject(Fault::SetLinkFaults(link, faults));
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
        self.network.inject(Fault::Crash(node));
        self.unavailable.nodes.insert(node);
        if self.network.topology().tier(Vertex::Switch(switch)) == TOR {
            let rack = self.network.topology().shape().hosts_per_tor();
            for host in switch.0 * rack..(switch.0 + 1) * rack {
                self.unavailable.nodes.insert(NodeId(host));
                self.network.inject(Fault::Crash(NodeId(host)));
            }
        }
        // The store is reachable from the part that makes progress only.
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
            self.for_links(node, Fault::Repair);
        }
    }

    /// Injects a fault into the links between a switch and other switches.
    fn for_links(&mut self, node: NodeId, fault: impl Fn(LinkId) -> Fault) {
        let hosts = self.network.topology().hosts();
        let border = self.network.links().filter(|(_, from, to)| {
            (*from == node && to.0 >= hosts) || (*to == node && from.0 >= hosts)
        });
        let links: Vec<LinkId> = border.map(|(link, ..)| link).collect();
        links.into_iter().for_each(|link| self.network.inject(fault(link)));
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

    /// Returns whether `process` is up.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.network.application.is_alive(process)
    }

    /// Stops all clients.
    pub fn stop(&mut self) {
        self.network.application.stop();
    }

    /// Returns the leader of `group` with the highest epoch, if any.
    pub fn leader(&self, group: usize) -> Option<ProcessId> {
        let members = self.members().filter(|member| member.group().index() == group);
        let leads = members.filter(|member| member.is_leader());
        leads.max_by_key(|member| member.epoch()).map(|member| member.config().process)
    }
}
