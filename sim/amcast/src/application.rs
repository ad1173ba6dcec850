//! Builds the machines, sends the clients' messages, and checks deliveries.

use std::collections::BTreeSet;

use onepipe_amcast::{
    Client, Config, Coordinator, CoordinatorConfig, DeliveryPoint, GroupId, GroupSet, Member,
    MemberEvent, MessageId, Replica, ReplicaEvent,
};
use onepipe_base::{Incarnation, ProcessId};
use onepipe_rivals::{self as rivals, Method, Rival, To};
use onepipe_sim_check::{AgreedChecker, Membership, digest};
use onepipe_sim_engine::{Instant, NANOSECOND, Random};
use onepipe_sim_network::{Application, LinkId, NodeContext, NodeId};
use onepipe_topology::Topology;
use onepipe_wire::{Amcast, Frame, LogicalTime};

use crate::layout::Layout;
use crate::node::{HostRole, Node, NodeEvent};
use crate::routes::Routes;
use crate::setup::{SendPattern, Setup};
use crate::store::CoordinatorStore;
use crate::switch::SwitchNode;

const SEND: u32 = 0;
const CAMPAIGN: u32 = 1;
const WRITE: u32 = 2;
/// Length of the message id at the start of each message, in bytes.
const ID_LEN: usize = 8;

/// Sending state of a client.
#[derive(Clone, Debug)]
struct Sender {
    left: u32,
    /// Time in ns and destination groups of each message sent.
    sent: Vec<(u64, GroupSet)>,
    refused: u64,
}

/// Delivery at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Time of the delivery in ns.
    pub at_ns: u64,
    /// Time in ns when the client sent the message.
    pub sent_ns: u64,
    /// Index of the replica, counted over all groups; of the member if members deliver.
    pub replica: usize,
}

/// Application of the simulated network: drives the clients and observes all nodes.
#[derive(Debug)]
pub(crate) struct Workload {
    pub setup: Setup,
    pub layout: Layout,
    topology: Topology,
    pub routes: Vec<Routes>,
    pub checker: AgreedChecker,
    pub store: CoordinatorStore,
    pub deliveries: Vec<Delivered>,
    /// Node that each link starts at.
    pub link_from: Vec<NodeId>,
    /// Whether each process is up, by process id.
    pub alive: Vec<bool>,
    /// Crashed members whose incarnation all others of the group knew: they may restart.
    pub restartable: BTreeSet<ProcessId>,
    /// Number of restarted members that were refused.
    pub refused_members: u64,
    /// Coordinators that cannot reach the store any more.
    pub without_store: Vec<ProcessId>,
    senders: Vec<Sender>,
    points: Vec<Option<DeliveryPoint>>,
    random: Random,
    bytes: Vec<u8>,
}

impl Workload {
    pub fn new(setup: Setup, topology: Topology) -> Self {
        let layout = Layout::new(&setup, &topology);
        let groups = &layout.groups;
        let delivers = |group: &onepipe_amcast::Group| match setup.is_rival {
            true => group.members.len(),
            false => group.replicas.len(),
        };
        let of = |process: ProcessId| {
            let is_of = |group: &GroupId| {
                let group = &groups.groups[group.index()];
                group.members.contains(&process) || group.replicas.contains(&process)
            };
            let all = (0..groups.groups.len() as u16).map(GroupId);
            all.filter(is_of).fold(GroupSet::EMPTY, GroupSet::with)
        };
        let membership = Membership {
            of: (0..layout.len() as u32).map(|id| of(ProcessId(id))).collect(),
            clients: groups.clients.clone(),
            coordinators: layout.coordinators.clone(),
        };
        let replicas: Vec<GroupId> = (0u16..)
            .zip(&groups.groups)
            .flat_map(|(at, group)| vec![GroupId(at); delivers(group)])
            .collect();
        let sender = Sender { left: setup.load.messages, sent: Vec::new(), refused: 0 };
        Self {
            routes: crate::routes::compute_routes(
                &topology,
                &layout,
                &crate::reachability::Unavailable::default(),
            ),
            points: vec![None; replicas.len()],
            checker: AgreedChecker::new(membership, replicas),
            store: CoordinatorStore::new(
                setup.coordinators,
                (setup.lease_ns, setup.store_ns),
                setup.seed,
            ),
            deliveries: Vec::new(),
            link_from: Vec::new(),
            alive: vec![true; layout.len()],
            restartable: BTreeSet::new(),
            refused_members: 0,
            without_store: Vec::new(),
            senders: vec![sender; groups.clients.len()],
            random: Random::named(setup.seed, "clients", 0),
            bytes: Vec::new(),
            setup,
            layout,
            topology,
        }
    }

    /// Returns the process of the replica (or of the member that delivers) with this index.
    pub fn replica(&self, at: usize) -> ProcessId {
        let processes =
            self.layout.groups.groups.iter().flat_map(|group| match self.setup.is_rival {
                true => group.members.iter(),
                false => group.replicas.iter(),
            });
        processes.copied().nth(at).expect("an existing replica")
    }

    fn replica_of(&self, process: ProcessId) -> Option<usize> {
        (0..self.points.len()).find(|at| self.replica(*at) == process)
    }

    fn index_of(list: &[ProcessId], process: ProcessId) -> Option<usize> {
        list.iter().position(|one| *one == process)
    }

    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.alive[process.index()]
    }

    /// Returns the number of messages not sent because the client's window was full.
    pub fn refused(&self) -> u64 {
        self.senders.iter().map(|sender| sender.refused).sum()
    }

    /// Returns whether all clients that satisfy `of` have sent all their messages.
    pub fn has_sent_all(&self, of: impl Fn(ProcessId) -> bool) -> bool {
        let mut clients = self.layout.groups.clients.iter().zip(&self.senders);
        clients.all(|(client, sender)| sender.left == 0 || !of(*client))
    }

    /// Stops all clients.
    pub fn stop(&mut self) {
        self.senders.iter_mut().for_each(|sender| sender.left = 0);
    }

    /// Builds a member with an empty memory.
    pub fn build_member(&self, process: ProcessId, restarts: u32) -> Member {
        Member::new(self.config(process, restarts)).expect("a valid configuration")
    }

    fn config(&self, process: ProcessId, restarts: u32) -> Config {
        Config {
            incarnation: Incarnation(restarts + 1),
            coordinators: self.layout.coordinators.clone(),
            rto_min_ns: self.setup.rto_min_ns,
            busy_threshold: self.setup.busy_threshold,
            history: self.setup.history,
            announces: self.setup.announces,
            ..Config::new(process, self.layout.groups.clone())
        }
    }

    /// Builds a replica: a new one, or a restarted one with the state of another replica.
    fn build_replica(&mut self, process: ProcessId, restarts: u32) -> Replica {
        let config = self.config(process, restarts);
        let at = self.replica_of(process).expect("a replica");
        if restarts > 0 {
            let group =
                self.layout.groups.groups.iter().find(|one| one.replicas.contains(&process));
            let peers = group.into_iter().flat_map(|group| &group.replicas);
            let live = peers.filter(|peer| **peer != process && self.is_alive(**peer));
            let from = live.filter_map(|peer| self.replica_of(*peer));
            let from = from.filter_map(|from| Some((from, self.points[from]?))).next();
            self.checker.on_joined(at, from.map(|(from, _)| from));
            self.points[at] = from.map(|(_, point)| point);
        }
        let replica = match self.points[at] {
            Some(point) => Replica::join(config, point),
            None => Replica::new(config),
        };
        replica.expect("a valid configuration")
    }

    fn build_rival(&self, process: ProcessId) -> Rival {
        let (groups, group_members) = (self.setup.groups, self.setup.members);
        let method = Method::Primcast { groups, group_members };
        let members = self.layout.len() as u32;
        let config = rivals::Config {
            frame_len_max: self.setup.frame_len_max,
            pending_max: self.setup.window as usize,
            ..rivals::Config::new(method, process, members)
        };
        Rival::new(config).expect("a valid configuration")
    }

    fn build_host(&mut self, process: ProcessId, restarts: u32) -> HostRole {
        if self.setup.is_rival {
            return HostRole::Rival(self.build_rival(process));
        }
        if self.layout.coordinators.contains(&process) {
            let config = CoordinatorConfig {
                incarnation: Incarnation(restarts + 1),
                probe_interval_ns: self.setup.probe_interval_ns,
                leader_timeout_ns: self.setup.leader_timeout_ns,
                ..CoordinatorConfig::new(process, self.layout.groups.clone())
            };
            let coordinator = Coordinator::new(config);
            return HostRole::Coordinator(coordinator.expect("a valid configuration"));
        }
        if self.layout.groups.clients.contains(&process) {
            // A client that has lost its state must not return under the same id.
            let client = Client::new(self.config(process, restarts));
            return HostRole::Client(client.expect("a valid configuration"));
        }
        HostRole::Replica(self.build_replica(process, restarts))
    }

    /// Sends what the client may send now, and sets an alarm for the next attempt.
    fn send(&mut self, at: &mut NodeContext<'_>, role: &mut HostRole, number: usize) {
        while self.senders[number].left > 0 {
            let is_sent = self.send_one(at, role, number);
            match self.setup.load.pattern {
                SendPattern::Every(ps) => {
                    self.senders[number].refused += u64::from(!is_sent);
                    return at.alarm(ps, SEND);
                }
                // A client is notified when its window opens; a rival member must poll.
                SendPattern::Eager { .. } if !is_sent && !self.setup.is_rival => return,
                SendPattern::Eager { pause_ns_max } if !is_sent => {
                    return at.alarm((1 + self.random.below(pause_ns_max)) * NANOSECOND, SEND);
                }
                SendPattern::Eager { pause_ns_max } if self.random.happens(300_000) => {
                    return at.alarm(self.random.below(pause_ns_max) * NANOSECOND, SEND);
                }
                SendPattern::Eager { .. } => {}
            }
        }
    }

    fn send_one(&mut self, at: &mut NodeContext<'_>, role: &mut HostRole, number: usize) -> bool {
        let all = u64::MAX >> (64 - self.setup.groups);
        let (least, most) = self.setup.load.bytes;
        let sequence = self.senders[number].sent.len() as u32;
        let id = MessageId { client: number as u32, sequence };
        // Draw in any case, so that a full window does not change later draws.
        let some = GroupSet::from_bits(1 + self.random.below(all));
        let all = GroupSet::from_bits(all);
        let groups = if self.setup.load.is_subset { some } else { all };
        let groups = match self.setup.load.shift {
            Some(shift) => shift.of(at.instant.as_ns(), groups, all),
            None => groups,
        };
        let bytes = self.random.between(least as u64, most as u64) as usize;
        self.bytes.clear();
        self.bytes.extend_from_slice(&id.client.to_be_bytes());
        self.bytes.extend_from_slice(&id.sequence.to_be_bytes());
        self.bytes.resize(bytes.max(ID_LEN), sequence as u8);
        let is_sent = match role {
            HostRole::Client(client) => {
                let sent = client.amcast(at.now, groups, &self.bytes);
                assert!(sent.is_err() || sent == Ok(id), "numbers of messages are dense");
                sent.is_ok()
            }
            HostRole::Rival(rival) => rival.send(at.now, To::Groups(groups), &self.bytes).is_ok(),
            _ => false,
        };
        if is_sent {
            self.checker.on_sent(id, groups, digest(&self.bytes));
            let sender = &mut self.senders[number];
            sender.sent.push((at.instant.as_ns(), groups));
            sender.left -= 1;
        }
        is_sent
    }

    fn on_delivered(
        &mut self,
        at_ns: u64,
        replica: usize,
        (timestamp, id): (LogicalTime, MessageId),
        groups: Option<GroupSet>,
        message: &[u8],
    ) {
        let sender = self.senders.get(id.client as usize);
        let sent = sender.and_then(|sender| sender.sent.get(id.sequence as usize));
        let (sent_ns, sent_to) = sent.copied().unwrap_or_default();
        // A rival member does not report the destination groups.
        let groups = groups.unwrap_or(sent_to);
        self.checker.on_delivered(replica, (timestamp, id), groups, digest(message));
        self.deliveries.push(Delivered { at_ns, sent_ns, replica });
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map_or(u32::MAX, u32::from_be_bytes)
}

impl Application<Node> for Workload {
    fn build(&mut self, node: NodeId, restarts: u32) -> Node {
        let here: Vec<ProcessId> = self.layout.at(node).collect();
        if let Some(switch) = node.0.checked_sub(self.topology.hosts()) {
            // A restarted switch comes back without its members.
            let members = here.into_iter().filter(|_| restarts == 0);
            let members = members.map(|process| self.build_member(process, restarts));
            return Node::Switch(SwitchNode::new(
                self.routes[switch as usize].clone(),
                members.collect(),
            ));
        }
        let nic = self.topology.network_card();
        let role = here.first().map_or(HostRole::None, |process| {
            self.alive[process.index()] = true;
            self.build_host(*process, restarts)
        });
        Node::Host { role, nic, ignored: None }
    }

    fn on_start(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        let Node::Host { role, .. } = machine else { return };
        match role {
            HostRole::Coordinator(_) => at.alarm(NANOSECOND, CAMPAIGN),
            HostRole::Client(_) | HostRole::Rival(_) => {
                let ns = self.random.below(2_000);
                at.alarm(ns * NANOSECOND, SEND);
            }
            _ => {}
        }
    }

    fn on_event(&mut self, mut at: NodeContext<'_>, machine: &mut Node, event: NodeEvent) {
        let at_ns = at.instant.as_ns();
        match (event, machine) {
            (NodeEvent::Member(process, MemberEvent::Leads(epoch)), _) => {
                let groups = &self.layout.groups.groups;
                let group = groups.iter().position(|group| group.members.contains(&process));
                let group = GroupId(group.expect("a member") as u16);
                self.checker.on_leader(group, epoch, process);
            }
            (NodeEvent::Member(process, MemberEvent::Behind), _) => {
                self.checker.add_violation(format!("member {process:?} is behind at {at_ns} ns"));
            }
            (NodeEvent::Member(process, MemberEvent::Refused), Node::Switch(switch)) => {
                switch.kill(process);
                self.refused_members += 1;
            }
            (NodeEvent::Completed(completed), _) => {
                self.checker.on_completed(completed.id, completed.timestamp);
                if let SendPattern::Eager { pause_ns_max } = self.setup.load.pattern {
                    at.alarm(self.random.below(pause_ns_max) * NANOSECOND, SEND);
                }
            }
            (
                NodeEvent::Replica(ReplicaEvent::Delivered(delivery)),
                Node::Host { role: HostRole::Replica(replica), .. },
            ) => {
                let number = self.replica_of(replica.config().process).expect("a known process");
                let position = (delivery.timestamp, delivery.id);
                let message = replica.message(&delivery);
                self.on_delivered(at_ns, number, position, Some(delivery.groups), message);
                self.points[number] = replica.point();
            }
            (
                NodeEvent::Replica(ReplicaEvent::Behind),
                Node::Host { role: HostRole::Replica(replica), .. },
            ) => {
                let config = replica.config();
                let (process, restarts) = (config.process, config.incarnation.0);
                *replica = self.build_replica(process, restarts);
            }
            (NodeEvent::Rival(delivery), Node::Host { role: HostRole::Rival(rival), .. }) => {
                let number = self.replica_of(rival.config().process).expect("a known process");
                let message = &delivery.payload[..];
                let id = MessageId { client: word(message, 0), sequence: word(message, 4) };
                let position = (LogicalTime(delivery.number), id);
                self.on_delivered(at_ns, number, position, None, message);
            }
            _ => {}
        }
    }

    fn on_drained(&mut self, mut at: NodeContext<'_>, machine: &mut Node) {
        let Node::Host { role: HostRole::Coordinator(coordinator), .. } = machine else {
            return;
        };
        let process = self.layout.at(at.node).next().expect("the node's process");
        let index = Self::index_of(&self.layout.coordinators, process).expect("a known process");
        for ns in self.store.submit(index, coordinator) {
            at.alarm(ns * NANOSECOND, WRITE);
        }
    }

    fn on_alarm(&mut self, mut at: NodeContext<'_>, machine: &mut Node, token: u32) {
        let (Node::Host { role, .. }, Some(process)) = (machine, self.layout.at(at.node).next())
        else {
            return;
        };
        if token == SEND {
            if let Some(number) = Self::index_of(&self.layout.groups.clients, process) {
                self.send(&mut at, role, number);
            }
            return;
        }
        let HostRole::Coordinator(coordinator) = role else { return };
        let index = Self::index_of(&self.layout.coordinators, process).expect("a known process");
        if self.without_store.contains(&process) {
            return;
        }
        if token == WRITE {
            return self.store.write(at.now, index, coordinator);
        }
        self.store.campaign(at.instant.as_ns(), at.now, (index, process), coordinator);
        at.alarm(self.store.renew_ns() * NANOSECOND, CAMPAIGN);
    }

    fn on_crash(&mut self, _: Instant, node: NodeId) {
        for process in self.layout.at(node).collect::<Vec<_>>() {
            self.alive[process.index()] = false;
            if let Some(index) = Self::index_of(&self.layout.coordinators, process) {
                self.store.on_crash(index);
            }
        }
    }

    fn cpu_ns(&self, _: NodeId, frame: &[u8]) -> u64 {
        match self.setup.entry_ns {
            0 => 0,
            ns => ns * rivals::entries(frame),
        }
    }

    fn on_departure(&mut self, _: Instant, link: LinkId, frame: &[u8]) {
        if !self.setup.checks_frames || self.setup.is_rival {
            return;
        }
        let (Some(from), Ok(frame)) = (self.link_from.get(link.index()), Frame::parse(frame))
        else {
            return;
        };
        // Check each frame once, at its first link.
        let (src, dst) = (frame.header.src(), frame.header.dst());
        if self.layout.node(src) == *from {
            let packets = Amcast::packets(frame.opcode, frame.payload).map_while(Result::ok);
            packets.for_each(|(body, _)| self.checker.on_frame(src, dst, &body));
        }
    }
}
