//! Test harness: clients, members and replicas on a network that loses, duplicates and reorders
//! frames, with crashes and elections. One seed defines one history. Properties are checked during
//! the history and at its end.

#![allow(dead_code)]

mod check;
mod plan;

use std::collections::{BTreeMap, BTreeSet};

use onepipe_amcast::{
    Client, Config, Delivery, DeliveryPoint, Group, GroupId, GroupSet, Groups, LogicalTime, Member,
    MemberEvent, MessageId, Replica, ReplicaEvent,
};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{AMCAST_LEN, Amcast, Frame, Header, Opcode, SHORT_HEADER_LEN, seal};

pub use plan::{FrameFault, Plan, Rng, Step};

pub const DELAY_NS: u64 = 5_000;
/// Delay of a delayed frame, ns.
const LATE_NS: u64 = 160_000;
/// Duration of the fault phase, and time by which all must have recovered.
const FAULTS_NS: u64 = 8_000_000;
const END_NS: u64 = 400_000_000;

/// Packet sent by a machine, whether or not it arrives.
#[derive(Clone, Copy, Debug)]
pub struct SentPacket {
    pub src: ProcessId,
    pub dst: ProcessId,
    pub opcode: Opcode,
    pub body: Amcast,
}

enum SimEvent {
    Arrive(ProcessId, Vec<u8>),
    Step(Step),
    None,
}

pub struct Harness {
    pub plan: Plan,
    pub groups: Groups,
    pub now: u64,
    rng: Rng,
    pub members: Vec<Option<Member>>,
    /// Whether all members of its group knew each member's incarnation when the member crashed.
    was_known: Vec<bool>,
    pub clients: Vec<Option<Client>>,
    pub replicas: Vec<Option<Replica>>,
    queue: BTreeMap<(u64, u64), SimEvent>,
    number: u64,
    epochs: Vec<u32>,
    /// Messages sent by clients.
    pub sent: BTreeMap<MessageId, (GroupSet, Vec<u8>)>,
    pub over: BTreeSet<MessageId>,
    /// Deliveries of each replica, in order.
    pub delivered: Vec<Vec<(LogicalTime, MessageId)>>,
    left: Vec<u32>,
    pub frames: u64,
    pub leads: u64,
    pub wrong: Option<String>,
    /// Selects frames to drop, in addition to random loss.
    pub drop_filter: fn(&Harness, &Frame<'_>) -> bool,
    /// Links, as sender and receiver, that drop everything until `blocked_until`.
    pub blocked_links: BTreeSet<(ProcessId, ProcessId)>,
    pub blocked_until: u64,
    /// Whether the controller replaces crashed leaders.
    pub is_controlled: bool,
    /// Faults of particular frames, by frame number.
    pub frame_faults: BTreeMap<u64, FrameFault>,
    /// Log of the packets sent, if enabled.
    pub sent_log: Option<Vec<SentPacket>>,
}

impl Harness {
    pub fn new(plan: Plan) -> Self {
        let mut next = 0;
        let mut ids = |count: usize| -> Vec<ProcessId> {
            next += count as u32;
            (next - count as u32..next).map(ProcessId).collect()
        };
        let members: Vec<Vec<ProcessId>> = plan.members.iter().map(|count| ids(*count)).collect();
        let all = members.concat();
        let of_groups: Vec<Group> = members
            .into_iter()
            .map(|members| Group { members, replicas: ids(plan.replicas) })
            .collect();
        let clients = ids(plan.clients);
        let groups = Groups {
            groups: of_groups,
            clients: clients.clone(),
            window: plan.window,
            message_groups_max: 3,
            frame_len_max: 256,
        };
        let config = |process| Config {
            rto_min_ns: 50_000,
            busy_threshold: plan.busy_threshold,
            history: plan.history,
            announces: plan.announces,
            ..Config::new(process, groups.clone())
        };
        let replicas: Vec<ProcessId> =
            groups.groups.iter().flat_map(|group| group.replicas.clone()).collect();
        let mut harness = Self {
            now: 0,
            rng: Rng(plan.seed ^ 0x5eed),
            members: all.iter().map(|id| Some(Member::new(config(*id)).expect("right"))).collect(),
            was_known: vec![false; all.len()],
            clients: clients.iter().map(|id| Client::new(config(*id)).ok()).collect(),
            replicas: replicas.iter().map(|id| Replica::new(config(*id)).ok()).collect(),
            queue: BTreeMap::new(),
            number: 0,
            epochs: vec![1; plan.members.len()],
            sent: BTreeMap::new(),
            over: BTreeSet::new(),
            delivered: vec![Vec::new(); replicas.len()],
            left: vec![plan.messages; plan.clients],
            frames: 0,
            leads: 0,
            wrong: None,
            drop_filter: |_, _| false,
            blocked_links: BTreeSet::new(),
            blocked_until: 0,
            is_controlled: true,
            frame_faults: BTreeMap::new(),
            sent_log: None,
            groups,
            plan,
        };
        harness.schedule();
        harness
    }

    fn schedule(&mut self) {
        let plan = self.plan.clone();
        let mut first = 0;
        for count in &plan.members {
            let mut indices: Vec<usize> = (0..*count).collect();
            if self.rng.percent(30) {
                indices.reverse();
            }
            for index in indices.into_iter().take(plan.crash) {
                let at = self.rng.below(FAULTS_NS / 2);
                self.schedule_event(at, SimEvent::Step(Step::CrashMember(first + index)));
            }
            for _ in 0..plan.elections {
                let (at, index) = (self.rng.below(FAULTS_NS), self.rng.below(*count as u64));
                self.schedule_event(at, SimEvent::Step(Step::Elect(first + index as usize)));
            }
            first += count;
        }
        if plan.crash_others {
            let at = self.rng.below(FAULTS_NS / 2);
            let client = self.rng.below(plan.clients as u64) as usize;
            self.schedule_event(at, SimEvent::Step(Step::CrashClient(client)));
            let replica = self.rng.below((plan.replicas * plan.members.len()) as u64) as usize;
            let at = self.rng.below(FAULTS_NS / 2);
            self.schedule_event(at, SimEvent::Step(Step::CrashReplica(replica)));
        }
        (0..plan.clients)
            .for_each(|client| self.schedule_event(0, SimEvent::Step(Step::Send(client))));
        self.schedule_event(0, SimEvent::Step(Step::Control));
    }

    /// Schedules a step.
    pub fn plan(&mut self, at: u64, step: Step) {
        self.schedule_event(at, SimEvent::Step(step));
    }

    fn schedule_event(&mut self, at: u64, what: SimEvent) {
        self.number += 1;
        self.queue.insert((at.max(self.now), self.number), what);
    }

    fn wrong(&mut self, what: String) {
        if self.wrong.is_none() {
            self.wrong = Some(format!("{what} at {} ns", self.now));
        }
    }

    pub fn time(&self) -> Now {
        let sync = Timestamp::from_ns((1 << 50) + self.now);
        Now { mono: Mono::from_ns(self.now), sync }
    }

    fn group_of_member(&self, member: usize) -> usize {
        let id = ProcessId(member as u32);
        let has = |group: &Group| group.members.contains(&id);
        self.groups.groups.iter().position(has).expect("every process is in a group")
    }

    pub fn group_of_replica(&self, replica: usize) -> usize {
        replica / self.plan.replicas
    }

    /// Collects the output and the events of all machines.
    fn drain(&mut self) {
        let now = self.time();
        let mut slot = [0; 256];
        for at in 0..self.members.len() {
            while let Some(member) = self.members[at].as_mut() {
                if let Some(sent) = member.poll_transmit(now, &mut slot) {
                    self.send(&slot[..sent.bytes]);
                    continue;
                }
                match member.poll_event() {
                    Some(MemberEvent::Leads(_)) => self.leads += 1,
                    Some(MemberEvent::Behind) => self.wrong("a member is behind".into()),
                    Some(MemberEvent::Refused) => self.members[at] = None,
                    None => break,
                }
            }
        }
        for at in 0..self.clients.len() {
            while let Some(client) = self.clients[at].as_mut() {
                if let Some(sent) = client.poll_transmit(now, &mut slot) {
                    self.send(&slot[..sent.bytes]);
                    continue;
                }
                let Some(over) = client.poll_event() else { break };
                self.over.insert(over.id);
                let pause = self.rng.below(100_000);
                self.schedule_event(self.now + pause, SimEvent::Step(Step::Send(at)));
            }
        }
        for at in 0..self.replicas.len() {
            while let Some(replica) = self.replicas[at].as_mut() {
                if let Some(sent) = replica.poll_transmit(now, &mut slot) {
                    self.send(&slot[..sent.bytes]);
                    continue;
                }
                match replica.poll_event() {
                    Some(ReplicaEvent::Delivered(delivery)) => {
                        let message = replica.message(&delivery).to_vec();
                        self.on_delivered(at, &delivery, &message);
                    }
                    Some(ReplicaEvent::Behind) => self.wrong("a replica is behind".into()),
                    None => break,
                }
            }
        }
    }

    /// Checks integrity and order of a delivery.
    fn on_delivered(&mut self, at: usize, delivery: &Delivery, message: &[u8]) {
        let group = GroupId(self.group_of_replica(at) as u16);
        let key = (delivery.timestamp, delivery.id);
        match self.sent.get(&delivery.id) {
            None => self.wrong(format!("{:?} was never sent", delivery.id)),
            Some((groups, bytes)) => {
                if !groups.contains(group) || *groups != delivery.groups {
                    self.wrong(format!("{:?} is not for {group:?}", delivery.id));
                } else if bytes != message {
                    self.wrong(format!("{:?} is another message", delivery.id));
                }
            }
        }
        if self.delivered[at].last().is_some_and(|last| *last >= key) {
            let last = self.delivered[at].last().copied();
            self.wrong(format!("replica {at} delivers {key:?} behind {last:?}"));
        }
        self.delivered[at].push(key);
    }

    /// Checks genuineness: only the processes concerned may learn of a message.
    fn check_genuine(&mut self, frame: &Frame<'_>, body: &Amcast) {
        let is_concerned = |process: ProcessId, groups: GroupSet| {
            let is_of = |group: GroupId| {
                let group = self.groups.get(group).expect("an existing group");
                group.members.contains(&process) || group.replicas.contains(&process)
            };
            groups.iter().any(is_of)
        };
        let (src, dst) = (frame.header.src(), frame.header.dst());
        let groups =
            if body.has(Amcast::MESSAGE) { body.groups } else { GroupSet::EMPTY.with(body.group) };
        let client = self.groups.clients.get(body.id.client as usize).copied();
        let is_client = |process| body.has(Amcast::MESSAGE) && client == Some(process);
        let is_right = |process| is_client(process) || is_concerned(process, groups);
        if !is_right(src) || !is_right(dst) {
            self.wrong(format!("{src:?} must not send to {dst:?}: {body:?}"));
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        let frame = Frame::parse(bytes).expect("valid output of a machine");
        for packet in Amcast::packets(frame.opcode, frame.payload) {
            let (body, _) = packet.expect("valid output of a machine");
            self.check_genuine(&frame, &body);
            if let Some(said) = &mut self.sent_log {
                let (src, dst) = (frame.header.src(), frame.header.dst());
                said.push(SentPacket { src, dst, opcode: frame.opcode, body });
            }
        }
        self.frames += 1;
        let (src, dst) = (frame.header.src(), frame.header.dst());
        let is_silent = self.now < self.blocked_until && self.blocked_links.contains(&(src, dst));
        let is_cut = is_silent || (self.drop_filter)(self, &frame);
        let is_troubled = self.now < FAULTS_NS;
        if is_cut || (is_troubled && self.rng.percent(self.plan.lose_percent)) {
            return;
        }
        match self.frame_faults.get(&self.frames).copied() {
            Some(FrameFault::Lost) => return,
            Some(frame_fault) => {
                let at = self.now + LATE_NS;
                self.schedule_event(at, SimEvent::Arrive(dst, bytes.to_vec()));
                if frame_fault == FrameFault::Late {
                    return;
                }
            }
            None => {}
        }
        let copies = 1 + u64::from(is_troubled && self.rng.percent(self.plan.repeat_percent));
        for copy in 0..copies {
            let late = if copy > 0 { self.rng.below(400_000) } else { 0 };
            let at = self.now + DELAY_NS + late + self.rng.below(self.plan.jitter_ns);
            self.schedule_event(at, SimEvent::Arrive(dst, bytes.to_vec()));
        }
    }

    /// Returns a crafted frame.
    pub fn frame(&self, src: ProcessId, dst: ProcessId, opcode: Opcode, body: &Amcast) -> Vec<u8> {
        let now = self.time().sync;
        let mut frame = vec![0; SHORT_HEADER_LEN + AMCAST_LEN];
        body.write(&mut frame[SHORT_HEADER_LEN..]).expect("the buffer fits the frame");
        let header = Header::new(opcode, src, dst, Incarnation(1));
        seal(&mut frame, header.stamped(now, Promises::both(now), Psn(0)), AMCAST_LEN);
        frame
    }

    fn arrive(&mut self, to: ProcessId, mut bytes: Vec<u8>) {
        let (now, port) = (self.time(), Port(0));
        let at = to.index();
        let replicas = self.members.len();
        let clients = replicas + self.replicas.len();
        if at < replicas {
            if let Some(member) = self.members[at].as_mut() {
                member.handle_frame(now, port, &mut bytes);
                if member.open() > (self.groups.open_max() + self.plan.history) as u64 {
                    self.wrong("more is open than the window has space for".into());
                }
            }
        } else if at < clients {
            if let Some(replica) = self.replicas[at - replicas].as_mut() {
                replica.handle_frame(now, port, &mut bytes);
            }
        } else if let Some(client) = self.clients[at - clients].as_mut() {
            client.handle_frame(now, port, &mut bytes);
        }
    }

    pub fn send_one(&mut self, client: usize, groups: GroupSet) -> bool {
        let now = self.time();
        let bytes = format!("message {} of client {client}", self.left[client]).into_bytes();
        let Some(sender) = self.clients[client].as_mut() else { return false };
        let Ok(id) = sender.amcast(now, groups, &bytes) else { return false };
        self.sent.insert(id, (groups, bytes));
        true
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::CrashMember(at) => {
                let crashed = self.members[at].take();
                self.was_known[at] = crashed.is_some_and(|member| member.is_known_by_all());
            }
            Step::RestartMember(at) => self.restart_member(at),
            Step::CrashClient(client) => self.clients[client] = None,
            Step::CrashReplica(replica) => self.replicas[replica] = None,
            Step::Elect(member) => self.elect(member),
            Step::Control if !self.is_controlled => {}
            Step::Control => {
                self.control();
                self.schedule_event(self.now + 3_000_000, SimEvent::Step(Step::Control));
            }
            Step::SendOne(client, groups) => {
                if !self.send_one(client, groups) {
                    self.plan(self.now + 100_000, step);
                }
            }
            Step::Send(client) => {
                while self.left[client] > 0 {
                    let all = self.plan.members.len() as u64;
                    let bits = 1 + self.rng.below((1 << all) - 1);
                    if !self.send_one(client, GroupSet::from_bits(bits)) {
                        break;
                    }
                    self.left[client] -= 1;
                    if self.rng.percent(30) {
                        let pause = self.rng.below(300_000);
                        self.schedule_event(self.now + pause, SimEvent::Step(Step::Send(client)));
                        break;
                    }
                }
            }
        }
    }

    /// Restarts a crashed member with an empty memory, if every other member had received its first
    /// incarnation.
    fn restart_member(&mut self, at: usize) {
        if self.members[at].is_none() && self.was_known[at] {
            let config = Config {
                incarnation: Incarnation(2),
                rto_min_ns: 50_000,
                history: self.plan.history,
                announces: true,
                ..Config::new(ProcessId(at as u32), self.groups.clone())
            };
            self.members[at] = Some(Member::new(config).expect("right"));
        }
    }

    pub fn elect(&mut self, member: usize) {
        let (now, group) = (self.time(), self.group_of_member(member));
        if let Some(member) = self.members[member].as_mut() {
            self.epochs[group] += 1;
            member.lead(now, self.epochs[group]);
        }
    }

    /// Acts as the controller: elects another member where the leader of the last epoch is down.
    fn control(&mut self) {
        for group in 0..self.groups.groups.len() {
            let indices = self.groups.groups[group].members.clone();
            let epoch = self.epochs[group];
            let leads = |member: &Member| member.is_leader() && member.epoch() == epoch;
            let member = |id: &ProcessId| self.members[id.index()].as_ref();
            if indices.iter().filter_map(member).any(leads) {
                continue;
            }
            let live: Vec<&ProcessId> = indices.iter().filter(|id| member(id).is_some()).collect();
            let next = live[self.rng.below(live.len() as u64) as usize].index();
            self.elect(next);
        }
    }

    fn next_timeout(&self) -> Option<u64> {
        let members = self.members.iter().flatten().filter_map(|one| one.poll_timeout());
        let clients = self.clients.iter().flatten().filter_map(|one| one.poll_timeout());
        let replicas = self.replicas.iter().flatten().filter_map(|one| one.poll_timeout());
        members.chain(clients).chain(replicas).min().map(|due| due.as_ns())
    }

    fn time_out(&mut self) {
        let now = self.time();
        let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
        let members = self.members.iter_mut().flatten();
        members.filter(|one| is_due(one.poll_timeout())).for_each(|one| one.handle_timeout(now));
        let clients = self.clients.iter_mut().flatten();
        clients.filter(|one| is_due(one.poll_timeout())).for_each(|one| one.handle_timeout(now));
        let replicas = self.replicas.iter_mut().flatten();
        replicas.filter(|one| is_due(one.poll_timeout())).for_each(|one| one.handle_timeout(now));
    }

    /// Processes the next event before `end`. Returns whether there was one.
    pub fn advance(&mut self, end: u64) -> bool {
        let arrival = self.queue.first_key_value().map(|(key, _)| key.0);
        let timeout = self.next_timeout().map(|due| due.max(self.now));
        let next = arrival.into_iter().chain(timeout).min();
        let Some(next) = next.filter(|next| *next < end) else { return false };
        self.now = next;
        if arrival == Some(next) {
            match self.queue.pop_first().map(|(_, what)| what).unwrap_or(SimEvent::None) {
                SimEvent::Arrive(to, bytes) => self.arrive(to, bytes),
                SimEvent::Step(step) => self.step(step),
                SimEvent::None => {}
            }
        } else {
            self.time_out();
        }
        self.drain();
        true
    }

    pub fn run_until(&mut self, end: u64) {
        self.check_invariants();
        while self.wrong.is_none() && self.advance(end) {}
        self.now = self.now.max(end);
    }

    fn check_invariants(&self) {
        self.clients.iter().flatten().for_each(Client::check_invariants);
        self.replicas.iter().flatten().for_each(Replica::check_invariants);
        self.members.iter().flatten().for_each(Member::check_invariants);
        for group in &self.groups.groups {
            let members = group.members.iter().filter_map(|id| self.members[id.index()].as_ref());
            let members: Vec<&Member> = members.collect();
            for (at, member) in members.iter().enumerate() {
                members[..at].iter().for_each(|other| member.check_agreement(other));
            }
        }
    }

    fn is_quiet(&self) -> bool {
        let has_sent = self.clients.iter().zip(&self.left).all(|(client, left)| match client {
            Some(client) => client.open() == 0 && *left == 0,
            None => true,
        });
        has_sent && self.disagreement().is_none()
    }

    /// Runs the whole history. Returns a violation, if any.
    pub fn run(&mut self) -> Option<String> {
        self.run_until(FAULTS_NS);
        while self.wrong.is_none() && !self.is_quiet() && self.now < END_NS {
            self.run_until(self.now + 1_000_000);
        }
        self.run_until(self.now + 2_000_000);
        if self.wrong.is_none() {
            self.wrong = self.disagreement().or_else(|| self.undelivered());
        }
        self.wrong.clone()
    }

    /// Replaces a crashed replica by a new one with the state of another.
    pub fn join(&mut self, replica: usize, point: DeliveryPoint, from: usize) {
        let first = self.members.len() + replica;
        let id = self.groups.groups.iter().flat_map(|group| &group.replicas).nth(replica);
        assert_eq!(id, Some(&ProcessId(first as u32)));
        let config = self.replicas[from].as_ref().expect("a live replica").config().clone();
        let config = Config { process: ProcessId(first as u32), ..config };
        self.delivered[replica] = self.delivered[from].clone();
        self.replicas[replica] = Replica::join(config, point).ok();
    }
}
