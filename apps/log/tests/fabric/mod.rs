//! A model of the fabric: best effort that loses messages and delivers the others in the order of
//! timestamps, a reliable service with one total order, failures with their timestamps, and disks
//! that lose what was not synchronised.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod check;
pub mod leave;
pub mod node;
pub mod run;
pub mod state;
pub mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use node::Node;
use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_log::{
    ClientOptions, Committed, Executor, Founding, LogClient, LogReplica, LogStart, OwnLog, Record,
    ReplicaOptions, Scattering, Stored, View,
};
use state::TestState;
use store::{ListStore, Store};

/// Replicas are the processes from 0 on, clients those from here on.
pub const FIRST_CLIENT: u32 = 10;

/// A best-effort message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub at: Timestamp,
    pub from: ProcessId,
    pub payload: Vec<u8>,
}

/// An event in the total order of the reliable service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ordered {
    Message(Message, Vec<ProcessId>),
    Ended(ProcessId, Timestamp),
}

/// What one client is and has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    pub client: Option<LogClient>,
    pub process: ProcessId,
    pub session: u64,
    pub queue: VecDeque<Message>,
    pub appended: u64,
    pub committed: Vec<Committed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fabric<S = ListStore> {
    pub now: Mono,
    pub clock: u64,
    /// All that is sent has the same timestamp.
    pub is_instant: bool,
    pub ordered: Vec<Ordered>,
    pub nodes: Vec<Node<S>>,
    /// Whether replicas have a state, and logs are trimmed.
    pub has_states: bool,
    /// Whether replicas that start meet by messages.
    pub has_starts: bool,
    /// Whether states are made durable at random steps only.
    pub has_slow_states: bool,
    /// Whether the fabric has no controller: then nothing reports the end of a process.
    pub lacks_controller: bool,
    /// Whether a replica that starts is notified, at some time, of ends before its start.
    pub has_late_ends: bool,
    /// All ends.
    pub ends: Vec<(ProcessId, Timestamp)>,
    pub users: Vec<User>,
    pub client_options: ClientOptions,
    pub replica_options: ReplicaOptions,
}

pub fn process(index: usize) -> ProcessId {
    ProcessId(index as u32)
}

impl<S: Store> Fabric<S> {
    pub fn new(
        replicas: usize,
        clients: usize,
        client_options: ClientOptions,
        replica_options: ReplicaOptions,
    ) -> Self {
        let all: BTreeSet<_> = (0..replicas).map(process).collect();
        let node = |index| Node {
            replica: Some(LogReplica::new(process(index), all.clone(), replica_options)),
            start: None,
            executor: None,
            queue: VecDeque::new(),
            answers: Vec::new(),
            late_ends: Vec::new(),
            cursor: 0,
            is_excluded: false,
            is_replaced: false,
            store: S::default(),
            state_disk: TestState::default(),
        };
        let nodes = (0..replicas).map(node).collect();
        let mut fabric = Self {
            now: Mono::from_ns(0),
            clock: 1_000,
            is_instant: false,
            ordered: Vec::new(),
            nodes,
            has_states: false,
            has_starts: false,
            lacks_controller: false,
            has_late_ends: false,
            ends: Vec::new(),
            has_slow_states: false,
            users: Vec::new(),
            client_options,
            replica_options,
        };
        for index in 0..clients {
            fabric.start_client(ProcessId(FIRST_CLIENT + index as u32), 1 + index as u64);
        }
        fabric
    }

    /// Gives each replica a state.
    pub fn with_states(mut self) -> Self {
        self.has_states = true;
        for node in &mut self.nodes {
            node.executor = Some(Executor::new(TestState::default()));
        }
        self
    }

    pub fn all_replicas(&self) -> BTreeSet<ProcessId> {
        (0..self.nodes.len()).map(process).collect()
    }

    pub fn start_client(&mut self, process: ProcessId, session: u64) {
        let view = View::first(self.all_replicas());
        let client = LogClient::new(session, view, self.client_options);
        self.users.push(User {
            client: Some(client),
            process,
            session,
            queue: VecDeque::new(),
            appended: 0,
            committed: Vec::new(),
        });
    }

    /// Returns the next timestamp.
    pub fn tick(&mut self) -> Timestamp {
        self.clock += u64::from(!self.is_instant);
        Timestamp::from_ns(self.clock)
    }

    pub fn payload(session: u64, number: u64) -> Vec<u8> {
        format!("{session}/{number}").into_bytes()
    }

    pub fn append(&mut self, user: usize) {
        let user = &mut self.users[user];
        let Some(client) = &mut user.client else { return };
        let payload = Self::payload(user.session, user.appended + 1);
        if client.append(self.now, payload).is_ok() {
            user.appended += 1;
        }
        self.drain();
    }

    /// Appends an entry of each client, all at one timestamp: messages with equal timestamps are
    /// delivered in the order of their senders.
    pub fn append_together(&mut self) {
        self.tick();
        self.is_instant = true;
        (0..self.users.len()).for_each(|user| self.append(user));
        self.is_instant = false;
    }

    /// Delivers the next best-effort message of a replica.
    pub fn deliver(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let Some(message) = node.queue.pop_front() else { return };
        node.on_message(false, &message, self.now);
        self.drain();
    }

    /// Delivers the next message of a client.
    pub fn deliver_to_client(&mut self, user: usize) {
        let user = &mut self.users[user];
        let Some(message) = user.queue.pop_front() else { return };
        if let Some(client) = &mut user.client {
            client.on_message(self.now, message.from, &message.payload);
        }
        self.drain();
    }

    /// Returns whether a replica has an undelivered event of the reliable service.
    pub fn has_ordered(&self, node: usize) -> bool {
        let node_ref = &self.nodes[node];
        let own_end =
            |event: &Ordered| matches!(event, Ordered::Ended(of, _) if *of == process(node));
        let next = self.ordered.get(node_ref.cursor);
        node_ref.replica.is_some() && next.is_some_and(|next| !own_end(next))
    }

    /// Delivers the next event of the reliable service to a replica.
    pub fn deliver_ordered(&mut self, index: usize) {
        if !self.has_ordered(index) {
            return;
        }
        let node = &mut self.nodes[index];
        match &self.ordered[node.cursor] {
            Ordered::Message(message, receivers) => {
                if receivers.contains(&process(index)) {
                    node.on_message(true, message, self.now);
                }
            }
            Ordered::Ended(ended, at) => {
                node.on_ended(*ended, *at);
                if let (Some(replica), None) = (&mut node.replica, &node.start) {
                    replica.on_barrier(*at);
                }
            }
        }
        node.cursor += 1;
        self.drain();
    }

    /// Stores what a replica has recorded, or a part of it.
    pub fn store(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let Some(number) = node.store.store()
            && let Some(replica) = &mut node.replica
        {
            replica.on_stored(number);
        }
        self.drain();
    }

    /// Replaces the records of a replica by a checkpoint.
    pub fn checkpoint(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let Some((number, bytes)) = node.replica.as_ref().and_then(|one| one.checkpoint(0)) {
            let stored = node.store.checkpoint(number, &bytes);
            node.replica.as_mut().expect("it has a checkpoint").on_stored(stored);
        }
        self.drain();
    }

    /// Begins to store the state of a replica.
    pub fn begin_sync(&mut self, node: usize) {
        if let Some(executor) = &mut self.nodes[node].executor {
            executor.begin_sync();
        }
    }

    /// Ends that.
    pub fn finish_sync(&mut self, node: usize) {
        if let Some(executor) = &mut self.nodes[node].executor {
            executor.state_mut().finish_sync();
        }
        self.drain();
    }

    pub fn time_out_replica(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let (Some(replica), None) = (&mut node.replica, &node.start) {
            replica.handle_timeout(self.now);
        }
        self.drain();
    }

    pub fn time_out_client(&mut self, user: usize) {
        if let Some(client) = &mut self.users[user].client {
            client.handle_timeout(self.now);
        }
        self.drain();
    }

    fn ended(&mut self, ended: ProcessId) {
        if self.lacks_controller {
            return;
        }
        let at = self.tick();
        self.ends.push((ended, at));
        self.ordered.push(Ordered::Ended(ended, at));
        // Some replicas know of the end before the barrier has reached it.
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let is_other = process(index) != ended && !node.is_excluded;
            if is_other && index % 2 == 0 {
                node.on_ended(ended, at);
            }
        }
        self.drain();
    }

    /// Ends a replica, with what it has not stored.
    pub fn crash(&mut self, index: usize) {
        let random = self.clock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7;
        let node = &mut self.nodes[index];
        node.start = None;
        if node.replica.take().is_some() {
            node.store.crash(random);
            if let Some(executor) = node.executor.take() {
                node.state_disk = executor.state().after_crash(random);
            }
            node.queue.clear();
            if !std::mem::take(&mut node.is_excluded) {
                self.ended(process(index));
            }
        }
    }

    /// Ends a replica, and loses its disk, if another one has all that was committed.
    pub fn lose_disk(&mut self, index: usize) {
        let is_other = |(other, node): (usize, &Node<S>)| {
            let replica = node.replica.as_ref().filter(|_| !node.is_excluded);
            other != index && replica.is_some_and(LogReplica::is_whole)
        };
        if self.nodes.iter().enumerate().any(is_other) {
            self.crash(index);
            let node = &mut self.nodes[index];
            (node.store, node.state_disk) = (S::default(), TestState::default());
            node.is_replaced = true;
        }
    }

    pub fn crash_client(&mut self, user: usize) {
        if self.users[user].client.take().is_some() {
            self.ended(self.users[user].process);
        }
    }

    /// Starts a replica that has ended, with what is on its disk.
    pub fn restart(&mut self, index: usize) {
        if self.nodes[index].replica.is_some() {
            return;
        }
        let mut replica = self.restore(index);
        if self.has_starts {
            return self.start(index, replica);
        }
        replica.rejoin(self.now);
        let node = &mut self.nodes[index];
        (node.replica, node.cursor) = (Some(replica), self.ordered.len());
        node.late_ends = if self.has_late_ends { self.ends.clone() } else { Vec::new() };
        self.drain();
    }

    fn restore(&mut self, index: usize) -> LogReplica {
        let all = self.all_replicas();
        let node = &mut self.nodes[index];
        let found = node.store.open();
        let executor = self.has_states.then(|| Executor::new(node.state_disk.clone()));
        let applied = executor.as_ref().map_or(0, Executor::applied);
        node.executor = executor;
        let checkpoint = found.checkpoint.as_ref().map(|(number, bytes)| (*number, &bytes[..]));
        let stored = Stored { checkpoint, records: &found.records, applied };
        LogReplica::restore(process(index), all, self.replica_options, stored)
            .expect("the records fit together")
    }

    /// Notifies replicas of the ends before their start.
    pub fn report_ends(&mut self) {
        for node in &mut self.nodes {
            for (ended, at) in std::mem::take(&mut node.late_ends) {
                node.on_ended(ended, at);
            }
        }
    }

    /// Lets a restored replica meet the others.
    fn start(&mut self, index: usize, replica: LogReplica) {
        let session = self.tick().as_ns();
        let own = self.nodes[index].own_log(&replica);
        let all = self.all_replicas();
        let node = &mut self.nodes[index];
        node.start = Some(LogStart::new((process(index), session), &all, own, 300));
        (node.replica, node.cursor) = (Some(replica), self.ordered.len());
        node.late_ends = if self.has_late_ends { self.ends.clone() } else { Vec::new() };
        self.drain();
    }

    /// Declares a replica failed that goes on: what it sends by the reliable service from now on
    /// is void, and it delivers that itself.
    pub fn exclude(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let can_be = !self.lacks_controller && node.start.is_none() && !node.is_excluded;
        if node.replica.is_some() && can_be {
            node.is_excluded = true;
            self.ended(process(index));
        }
    }

    /// An excluded replica notices that.
    pub fn rejoin(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.is_excluded
            && let Some(replica) = &mut node.replica
        {
            node.is_excluded = false;
            node.cursor = self.ordered.len();
            replica.rejoin(self.now);
        }
        self.drain();
    }

    /// Ends all replicas, with all that is not stored, and starts them again.
    pub fn power_loss(&mut self) {
        for index in 0..self.nodes.len() {
            self.crash(index);
        }
        let restored: Vec<_> = (0..self.nodes.len()).map(|index| self.restore(index)).collect();
        if self.has_starts {
            let restored = restored.into_iter().enumerate();
            return restored.for_each(|(index, replica)| self.start(index, replica));
        }
        let (mut logs, mut replaced) = (BTreeMap::new(), BTreeSet::new());
        for (index, replica) in restored.iter().enumerate() {
            // All have begun in the first view, which none has stored.
            match self.nodes[index].own_log(replica) {
                OwnLog::Replaced => drop(replaced.insert(process(index))),
                _ => drop(logs.insert(process(index), replica.stored_log())),
            }
        }
        let founding = Founding::of(&logs, &replaced).expect("all replicas have started");
        let at = self.tick();
        for (index, mut replica) in restored.into_iter().enumerate() {
            if !replica.found(at, &founding) {
                assert!(!founding.view.members.contains(&process(index)), "{index} has lost data");
                replica.rejoin(self.now);
            }
            let node = &mut self.nodes[index];
            (node.replica, node.cursor) = (Some(replica), self.ordered.len());
            node.late_ends = if self.has_late_ends { self.ends.clone() } else { Vec::new() };
        }
        self.drain();
    }

    /// Takes what the machines have to send, to store, and to report.
    pub fn drain(&mut self) {
        loop {
            let mut sent = Vec::new();
            for (index, node) in self.nodes.iter_mut().enumerate() {
                let Some(replica) = &mut node.replica else { continue };
                while let Some(answer) = node.answers.pop() {
                    sent.push((process(index), answer));
                }
                if let Some(start) = &mut node.start {
                    while let Some(scattering) = start.poll_scattering(self.now) {
                        sent.push((process(index), scattering));
                    }
                    continue;
                }
                if let Some(executor) = &mut node.executor {
                    while executor.advance(replica) {}
                }
                while let Some(record) = replica.poll_record() {
                    let encoded = Record::parse(record.number, &record.to_bytes());
                    assert_eq!(encoded.as_ref(), Some(&record), "does not survive its encoding");
                    node.store.append(record);
                }
                while let Some(scattering) = replica.poll_scattering() {
                    sent.push((process(index), scattering));
                }
            }
            for user in &mut self.users {
                let Some(client) = &mut user.client else { continue };
                user.committed.extend(std::iter::from_fn(|| client.poll_committed()));
                while let Some(scattering) = client.poll_scattering() {
                    sent.push((user.process, scattering));
                }
            }
            if sent.is_empty() {
                return;
            }
            for (from, scattering) in sent {
                self.send(from, scattering);
            }
        }
    }

    pub fn send(&mut self, from: ProcessId, scattering: Scattering) {
        let Scattering { kind, receivers, payload } = scattering;
        // Clients ignore timestamps. Without new ones for replies a model has fewer states.
        let is_reply = receivers.iter().all(|receiver| receiver.0 >= FIRST_CLIENT);
        let at = if is_reply { Timestamp::from_ns(self.clock) } else { self.tick() };
        let message = Message { at, from, payload };
        if !kind.is_reliable() {
            for receiver in receivers {
                for user in self.users.iter_mut().filter(|user| user.process == receiver) {
                    user.queue.push_back(message.clone());
                }
                if let Some(node) = self.nodes.get_mut(receiver.index())
                    && node.replica.is_some()
                {
                    node.queue.push_back(message.clone());
                }
            }
            return;
        }
        let sender = self.nodes.get(from.index());
        if sender.is_some_and(|node| node.is_excluded) {
            // Void: nobody but the sender itself delivers it.
            if receivers.contains(&from) {
                let replica = self.nodes[from.index()].replica.as_mut().expect("it has sent");
                replica.on_message(true, message.at, from, &message.payload);
            }
            return;
        }
        let is_up = |receiver: &ProcessId| {
            let node = &self.nodes[receiver.index()];
            node.replica.is_some() && !node.is_excluded
        };
        if receivers.iter().all(is_up) {
            self.ordered.push(Ordered::Message(message, receivers));
        } else if let Some(node) = self.nodes.get_mut(from.index()) {
            match (&mut node.start, &mut node.replica) {
                (Some(start), _) => start.on_send_failed(),
                (None, Some(replica)) => replica.on_send_failed(kind),
                (None, None) => {}
            }
        }
    }
}
