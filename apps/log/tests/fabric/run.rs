//! Runs drawn by a seed, and their end: faults cease, and everything completes.

use std::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId};
use onepipe_log::{ClientOptions, ReplicaOptions, State};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::node::Node;
use super::store::{JournalStore, Store};
use super::{FIRST_CLIENT, Fabric};

/// Steps of a run before the faults cease.
const STEPS: usize = 500;
/// Limit on the steps until everything is complete. Only a run that never ends reaches it.
const END_STEPS: usize = 200_000;

/// Faults of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Best-effort messages lost, in percent.
    pub lost: u32,
    /// Replicas end, are excluded and return.
    pub replicas: bool,
    /// Clients end.
    pub clients: bool,
    /// All replicas lose power at once.
    pub power: bool,
    /// The disk of a replica is lost: when all lose power, or when it ends alone.
    pub disks: bool,
    /// Replicas that end alone say so last.
    pub leaves: bool,
}

impl Faults {
    pub fn of_seed(seed: u64) -> Self {
        Self {
            lost: [0, 2, 10, 25][(seed % 4) as usize],
            replicas: seed / 4 % 2 == 1,
            clients: seed / 8 % 2 == 1,
            power: seed / 16 % 2 == 1,
            disks: seed % 5 == 2,
            leaves: seed % 7 == 3,
        }
    }
}

pub fn fabric<S: Store>() -> Fabric<S> {
    let client = ClientOptions {
        timeout_ns: 400,
        timeout_min_ns: 200,
        idle_ns: 300,
        ..ClientOptions::default()
    };
    let replica = ReplicaOptions {
        timeout_ns: 400,
        read_bytes_max: 12,
        committed_interval: 4,
        ..ReplicaOptions::default()
    };
    Fabric::new(3, 2, client, replica)
}

/// Returns whether a state has applied more than its disk has.
fn is_behind<S>(node: &Node<S>) -> bool {
    let executor = node.executor.as_ref().filter(|_| node.replica.is_some());
    executor.is_some_and(|one| one.state().durable_len() < one.applied())
}

impl<S: Store> Fabric<S> {
    fn earliest(&self) -> Option<Mono> {
        let replicas = self.nodes.iter().filter_map(|node| match &node.start {
            Some(start) => start.poll_timeout(),
            None => node.replica.as_ref()?.poll_timeout(),
        });
        let clients = self.users.iter().filter_map(|user| user.client.as_ref()?.poll_timeout());
        replicas.chain(clients).min()
    }

    /// Returns whether any replica may end: then at least one has the log.
    fn has_spare(&self) -> bool {
        let is_starting = |node: &Node<S>| node.replica.is_none() || node.start.is_some();
        self.members().filter(|one| one.is_whole()).count() > 1
            || self.nodes.iter().all(is_starting)
    }

    /// Lets the time pass until the next deadline. Returns false if there is none.
    pub fn advance(&mut self) -> bool {
        let earliest = self.earliest();
        if let Some(earliest) = earliest {
            self.now = earliest.max(self.now);
            self.time_out();
        }
        earliest.is_some()
    }

    fn time_out(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.time_out_replica(node));
        (0..self.users.len()).for_each(|user| self.time_out_client(user));
    }

    /// Delivers and stores whatever is pending, in a fixed order. Returns whether there was any.
    pub fn step(&mut self) -> bool {
        for index in 0..self.nodes.len() {
            if self.has_ordered(index) {
                self.deliver_ordered(index);
                return true;
            }
            if !self.nodes[index].queue.is_empty() {
                self.deliver(index);
                return true;
            }
            if self.nodes[index].store.is_pending() {
                self.store(index);
                return true;
            }
            if is_behind(&self.nodes[index]) && !self.has_slow_states {
                self.begin_sync(index);
                self.finish_sync(index);
                return true;
            }
        }
        let user = self.users.iter().position(|user| !user.queue.is_empty());
        user.inspect(|user| self.deliver_to_client(*user)).is_some()
    }

    /// Whether all entries of clients that go on are committed, and all replicas have equal logs.
    fn is_complete(&self) -> bool {
        self.is_complete_of(&self.all_replicas())
    }

    /// The same, if only these replicas run.
    pub fn is_complete_of(&self, running: &BTreeSet<ProcessId>) -> bool {
        let is_done = |user: &super::User| {
            user.client.is_none() || user.committed.len() as u64 == user.appended
        };
        let replicas: Vec<_> = self.members().collect();
        let end = |replica: &onepipe_log::LogReplica| {
            let len = replica.len();
            (replica.view().clone(), len, replica.checksum(len))
        };
        self.users.iter().all(is_done)
            && replicas.len() == running.len()
            && replicas.iter().all(|one| one.is_serving() && one.view().members == *running)
            && replicas.iter().all(|one| end(one) == end(replicas[0]))
            && self.nodes.iter().all(Node::is_current)
    }

    /// Lets all replicas start with empty disks, until all have stored their first view.
    fn open_log(&mut self) {
        self.power_loss();
        while self.step() || (self.nodes.iter().any(|node| node.start.is_some()) && self.advance())
        {
        }
    }

    /// Whether all that clients have appended is committed, and applied by all replicas that run.
    fn has_applied_all(&self) -> bool {
        let appended: u64 = self.users.iter().map(|user| user.appended).sum();
        let has_all = |node: &Node<S>| {
            node.replica.is_none()
                || node.executor.as_ref().is_none_or(|one| one.applied() == appended)
        };
        self.nodes.iter().all(has_all)
    }

    /// Ends the faults: all replicas return, and everything completes.
    pub fn finish(&mut self) -> Result<(), String> {
        self.has_slow_states = false;
        self.report_ends();
        for index in 0..self.nodes.len() {
            self.rejoin(index);
            self.restart(index);
        }
        for user in 0..self.users.len() {
            self.append(user);
        }
        for _ in 0..END_STEPS {
            if self.step() {
                self.check()?;
                continue;
            }
            if self.is_complete() {
                return self.check_payloads();
            }
            if !self.advance() {
                return Err("nothing is pending, and not all is complete".into());
            }
        }
        let replicas: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|node| Some((node.executor.as_ref()?.applied(), node.replica.as_ref()?)))
            .collect();
        Err(format!("does not come to an end: {replicas:?}"))
    }
}

fn random_step<S: Store>(fabric: &mut Fabric<S>, rng: &mut Xoshiro256PlusPlus, faults: Faults) {
    let node = rng.random_range(0..fabric.nodes.len());
    let user = rng.random_range(0..fabric.users.len());
    let is_lost = rng.random_range(0..100) < faults.lost;
    if fabric.has_states {
        match rng.random_range(0..40) {
            0..=1 => fabric.begin_sync(node),
            2..=3 => fabric.finish_sync(node),
            4 => fabric.checkpoint(node),
            5 => fabric.report_ends(),
            _ => {}
        }
    }
    match rng.random_range(0..100) {
        0..=5 => fabric.append(user),
        6..=7 => fabric.append_together(),
        8..=27 if is_lost => {
            fabric.nodes[node].queue.pop_front();
        }
        8..=27 => fabric.deliver(node),
        28..=47 if is_lost => {
            fabric.users[user].queue.pop_front();
            if let Some(client) = &mut fabric.users[user].client {
                client.on_send_failed(onepipe_log::ScatteringKind::BestEffort);
            }
            fabric.drain();
        }
        28..=47 => fabric.deliver_to_client(user),
        48..=67 => fabric.store(node),
        68..=87 => fabric.deliver_ordered(node),
        88..=95 => {
            fabric.now = fabric.now.after_ns(rng.random_range(0..200));
            fabric.time_out();
        }
        96 if faults.replicas => fabric.restart(node),
        97 if faults.replicas => fabric.rejoin(node),
        98 if faults.replicas && rng.random_range(0..4) == 0 && fabric.has_spare() => {
            match rng.random_range(0..2) {
                0 if faults.disks => fabric.lose_disk(node),
                0 if faults.leaves => drop(fabric.leave(node, is_lost)),
                0 => fabric.crash(node),
                _ => fabric.exclude(node),
            }
        }
        99 if faults.clients && rng.random_range(0..4) == 0 => {
            fabric.crash_client(user);
            let next = fabric.users.len() as u32;
            fabric.start_client(ProcessId(FIRST_CLIENT + next), 1 + u64::from(next));
        }
        _ => {}
    }
}

/// Runs a seed, and returns what is wrong.
pub fn run<S: Store>(seed: u64, faults: Faults, has_states: bool) -> Result<Fabric<S>, String> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut fabric = fabric::<S>();
    // Half of the runs with states: replicas find out by messages whether the log is open.
    fabric.has_starts = has_states && seed / 32 % 2 == 1;
    fabric.lacks_controller = has_states && seed / 64 % 2 == 1;
    fabric.has_late_ends = has_states && seed / 128 % 2 == 1;
    if has_states {
        fabric = fabric.with_states();
    }
    if fabric.has_starts {
        fabric.open_log();
    }
    fabric.append_together();
    fabric.has_slow_states = has_states;
    let power_at = faults.power.then(|| rng.random_range(0..STEPS));
    for step in 0..STEPS {
        random_step(&mut fabric, &mut rng, faults);
        if has_states && seed / 4 % 2 == 1 {
            // Logs grow, and are trimmed, between the faults.
            let steps = rng.random_range(0..6);
            let _ = (0..steps).take_while(|_| fabric.step()).count();
        }
        if power_at == Some(step) {
            if has_states && seed % 2 == 1 {
                (0..fabric.nodes.len()).for_each(|node| fabric.checkpoint(node));
            }
            if faults.disks {
                fabric.lose_disk(rng.random_range(0..fabric.nodes.len()));
            }
            fabric.power_loss();
        }
        fabric.check()?;
    }
    fabric.finish()?;
    Ok(fabric)
}

/// Lets a replica return whose entries were trimmed, crashes it again after some events, and lets
/// it return once more. `variant` decides what the crash loses. Returns whether the crash came
/// before the replica was a member.
pub fn crash_while_returning(events: usize, variant: u64) -> Result<bool, String> {
    let mut fabric = fabric::<JournalStore>().with_states();
    fabric.clock += variant;
    let append = |fabric: &mut Fabric<JournalStore>| {
        for user in 0..fabric.users.len() {
            fabric.append(user);
        }
        while fabric.step() || !fabric.has_applied_all() && fabric.advance() {}
    };
    append(&mut fabric);
    fabric.crash(1);
    (0..4).for_each(|_| append(&mut fabric));
    for node in [0, 2] {
        fabric.checkpoint(node);
    }
    fabric.restart(1);
    for _ in 0..events {
        if !fabric.step() {
            fabric.advance();
        }
        fabric.check()?;
    }
    let is_early = fabric.nodes[1].replica.as_ref().is_some_and(|one| !one.is_whole());
    fabric.crash(1);
    fabric.restart(1);
    fabric.finish()?;
    Ok(is_early)
}
