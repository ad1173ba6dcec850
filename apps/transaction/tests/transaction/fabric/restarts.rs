//! Runs of a store: all processes lose power at any time, and start again from their disks.

use std::collections::BTreeMap;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{Phase, Replica, Request, RequestKind, Role};

use super::clients::Sent;
use super::disk::Disk;
use super::registers::Registers;
use super::starting::Starting;
use super::{CLIENTS, FIRST_CLIENT, Fabric, SHARDS, placement, shard_of};

/// How often a process that starts repeats what it has to state.
const START_INTERVAL_NS: u64 = 100;

impl Fabric {
    /// Lets processes fail and return, and the power be lost, at random.
    pub(super) fn disturb(&mut self, step: u64, steps: u64) {
        let next = self.next_loss.unwrap_or_else(|| self.draw_loss(step, steps));
        self.next_loss = Some(next);
        if next == step {
            self.lose_power();
            self.next_loss = Some(self.draw_loss(step, steps));
        }
        if self.faults.fails && self.failure_random.percent(2) {
            self.fail_any();
        }
        let failed = self.failed.first().copied();
        if let Some(process) = failed.filter(|_| self.faults.returns)
            && self.failure_random.percent(4)
        {
            self.return_with_disk(process);
        }
        if self.failure_random.percent(1) {
            self.start_client();
        }
        self.restart_lost();
    }

    /// Lets replicas start again that cannot catch up, while others start that may have their
    /// state.
    pub(super) fn restart_lost(&mut self) {
        let lost = self.replicas.iter().find(|(_, replica)| replica.is_lost());
        if let Some(process) = lost.map(|(process, _)| *process) {
            let at = Timestamp::from_ns(self.stamp());
            self.end(process, at);
            self.lose_unstored(process);
            self.return_with_disk(process);
        }
    }

    /// Returns when the power is lost next: often while processes still start.
    fn draw_loss(&mut self, step: u64, steps: u64) -> u64 {
        if self.losses >= self.faults.restarts {
            return u64::MAX;
        }
        let limit = if self.failure_random.percent(40) { 40 } else { steps / 2 };
        step + 1 + self.failure_random.below(limit)
    }

    /// Lets a replica fail; seldom the last one of its shard that serves.
    fn fail_any(&mut self) {
        let running = self.running();
        let Some(index) = (running.len() as u64).checked_sub(1) else { return };
        let process = running[self.failure_random.below(index + 1) as usize];
        let others = self.replicas.iter().filter(|(other, _)| **other != process);
        let mut others = others.filter(|(other, _)| shard_of(**other) == shard_of(process));
        let is_outage = !others.any(|(_, replica)| replica.is_serving());
        if is_outage && self.failure_random.percent(75) {
            return;
        }
        self.has_outage |= is_outage;
        let has_served = self.replicas.get(&process).is_some_and(Replica::is_serving);
        let has_void = has_served && self.failure_random.percent(60);
        if has_void {
            self.deliver_all(process);
        }
        let at = Timestamp::from_ns(self.stamp());
        if has_void {
            self.execute_alone(process, at);
        }
        self.end(process, at);
        self.lose_unstored(process);
    }

    fn lose_unstored(&mut self, process: ProcessId) {
        let disk = self.disks.entry(process).or_insert_with(Disk::empty);
        *disk = std::mem::take(disk).after_loss(&mut self.failure_random);
    }

    /// Lets a replica execute writes that are delivered to it alone, at its end or later: it is cut
    /// off from the others, together with the client, and both are declared failed.
    fn execute_alone(&mut self, process: ProcessId, mut at: Timestamp) {
        for number in 0..=self.failure_random.below(2) {
            let (from, session) = (ProcessId(FIRST_CLIENT), at.as_ns());
            let mut parts = BTreeMap::new();
            parts.insert(shard_of(process), vec![self.failure_random.below(2) as u8, 201]);
            let other = self.failure_random.below(2 * u64::from(SHARDS)) as u16;
            if other < SHARDS {
                parts.insert(other, vec![0, 202]);
            }
            let replica = self.replicas.get_mut(&process).expect("it serves");
            let (kind, view) = (RequestKind::Write, replica.members().view());
            let of_request = parts.iter().map(|(shard, part)| (*shard, part.as_slice())).collect();
            let (attempt, finished) = (0, 0);
            let mut payload = Vec::new();
            Request { kind, session, number, attempt, finished, view, parts: of_request }
                .write(&mut payload);
            replica.on_message(true, at, from, &payload);
            let effective = Timestamp::from_ns(u64::MAX);
            self.sent.insert(at, Sent { from, session, number, parts, effective });
            at = Timestamp::from_ns(self.stamp());
        }
        self.write(process);
    }

    fn return_with_disk(&mut self, process: ProcessId) {
        self.failed.remove(&process);
        self.begin_start(process);
    }

    /// Ends all replicas at once, and mostly all clients, and starts them again.
    fn lose_power(&mut self) {
        self.losses += 1;
        for process in self.running() {
            self.lose_unstored(process);
        }
        let has_clients = self.failure_random.percent(30);
        for process in self.running().into_iter().filter(|_| has_clients) {
            let at = Timestamp::from_ns(self.stamp());
            self.end(process, at);
        }
        self.replicas.clear();
        self.starting.clear();
        self.messages.retain(|_, message| message.to.0 >= FIRST_CLIENT && has_clients);
        self.reports.retain(|(_, from, ..)| from.0 >= FIRST_CLIENT && has_clients);
        self.lags.clear();
        self.failed.clear();
        self.ended.clear();
        self.returned.clear();
        self.has_outage = has_clients;
        if !has_clients {
            self.started.clear();
            (0..CLIENTS as usize).for_each(|client| self.replace_client(client));
        }
        (0..FIRST_CLIENT).for_each(|process| self.begin_start(ProcessId(process)));
    }

    /// Starts a process with what its disk holds.
    pub(super) fn begin_start(&mut self, process: ProcessId) {
        let session = self.stamp();
        let disk = self.disks.entry(process).or_insert_with(Disk::empty);
        let of = (process, shard_of(process));
        let starting = Starting::new(of, session, &placement(), disk, START_INTERVAL_NS);
        self.starting.insert(process, starting);
    }

    /// Starts all that have failed.
    pub(super) fn start_all_again(&mut self) {
        while let Some(process) = self.failed.first().copied() {
            self.return_with_disk(process);
        }
    }

    /// Lets all lose power if some shards are served, and another one is not: no replica of that
    /// can catch up.
    pub(super) fn restart_unserved(&mut self) {
        let serves = |shard: &u16| {
            let mut of_shard = self.replicas.values().filter(|replica| replica.shard() == *shard);
            of_shard.any(Replica::is_serving)
        };
        let served = (0..SHARDS).filter(serves).count() as u16;
        if self.starting.is_empty() && served != 0 && served != SHARDS {
            self.lose_power();
        }
    }

    /// Does what a process that starts has to do, and lets it go on as a replica.
    pub(super) fn advance_start(&mut self, process: ProcessId) {
        let Some(starting) = self.starting.get_mut(&process) else { return };
        let disk = self.disks.get_mut(&process).expect("it has started");
        starting.advance(disk, &mut self.failure_random);
        let (opened, role) = match starting.start.phase() {
            Phase::Lost(lost) => {
                self.violations.push(lost.to_string());
                return;
            }
            Phase::Opened(at, role) => (Some(at), role),
            Phase::Joins => (None, Role::CatchUp),
            Phase::Unknown | Phase::Founds(_) => return,
        };
        let Starting { start, replica, .. } = self.starting.remove(&process).expect("it starts");
        let mut members = start.roles().map(|roles| roles.members.clone()).unwrap_or_default();
        opened.into_iter().for_each(|at| members.on_opened(at));
        let mut replica = match role {
            Role::Complete { .. } => {
                let mut replica = replica;
                replica.begin_run(members);
                self.check_founder(process, &replica);
                replica.with_placement(process, placement())
            }
            Role::CatchUp => {
                self.disks.get_mut(&process).expect("it has started").replace(None, Vec::new());
                self.returned.insert(process);
                let catch_up = self.catch_up_options(start.session());
                replica.into_returning(process, placement(), &members, catch_up)
            }
        };
        replica.set_founders(start.session(), start.founders());
        for (ended, at) in self.ended.iter().filter(|(_, at)| Some(*at) >= opened) {
            if *ended != process {
                replica.on_process_ended(*ended, *at);
            }
        }
        self.replicas.insert(process, replica);
    }

    /// Checks that the founders of a shard begin alike, with all that was acknowledged, and that
    /// all shards have the same writes.
    fn check_founder(&mut self, process: ProcessId, replica: &Replica<Registers>) {
        let (shard, history) = (replica.shard(), replica.state().history().to_vec());
        let opened = replica.members().view();
        if self.opened < opened {
            self.opened = opened;
            self.observed_before = self.observed.len();
            self.founded.clear();
            for sent in self.sent.values_mut() {
                sent.effective = sent.effective.min(opened.expect("it was opened"));
            }
        }
        if let Some(other) = self.founded.get(&shard) {
            if *other != history {
                let differ = format!("{process:?} has {history:?}, another founder {other:?}");
                self.violations.push(differ);
            }
            return;
        }
        let mut observed = self.observed[..self.observed_before].iter();
        let is_lost = |at: Timestamp| !history.iter().any(|(executed, _)| *executed == at);
        let lost =
            observed.find(|observed| observed.is_write_to(shard) && is_lost(observed.committed.at));
        if let Some(lost) = lost {
            self.violations.push(format!("{process:?} has lost {lost:?}"));
        }
        self.founded.insert(shard, history);
        if self.founded.len() == usize::from(SHARDS) {
            let histories: Vec<_> = self.founded.iter().map(|(s, h)| (*s, h.as_slice())).collect();
            let violation = super::check::merge(&self.sent, &histories).err();
            self.violations.extend(violation);
        }
    }
}
