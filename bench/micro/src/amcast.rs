//! Agreed multicast on loopback: members, replicas and a client, each with its own thread and
//! socket; the baseline is PrimCast, whose members are hosts, over the same sockets in the same
//! run.

mod cpu_usage;
mod deliveries;
mod primcast;
mod send_limit;
mod traffic;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use onepipe_amcast::{Client, GroupId, GroupSet, Replica, ReplicaEvent};
use onepipe_daemon_member::MemberDaemon;
use onepipe_transport_amcast::{Directory, Loopback, MeshDriver, Options, Role, open};
use onepipe_transport_driver::{Doorbell, DrivenMachine, Idle};
use rustix::time::{ClockId, clock_gettime};

use crate::{Better, Detail, Harness, Progress, Report};
use cpu_usage::{CpuUsage, ThreadKind, ThreadList};
use deliveries::Deliveries;
use send_limit::SendLimit;
use traffic::Traffic;

/// Options of [`amcast`].
#[derive(Clone, Debug, PartialEq)]
pub struct AmcastOptions {
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Length of each run, in s. Default 1.5.
    pub seconds: f64,
    /// Numbers of groups of three members; every message goes to all of them. Default 1 and 2.
    pub groups: Vec<u16>,
    /// Message sizes in bytes. Default 150, 512, 1024, 1500.
    pub bytes: Vec<usize>,
    /// Replicas per group. Default 1.
    pub replicas: usize,
    /// Maximum number of messages that the client has in flight. Default 1024.
    pub window: u32,
}

impl Default for AmcastOptions {
    fn default() -> Self {
        Self {
            runs: 3,
            seconds: 1.5,
            groups: vec![1, 2],
            bytes: vec![150, 512, 1024, 1500],
            replicas: 1,
            window: 1_024,
        }
    }
}

const ABOUT: &str = "messages delivered at each replica, every message to all groups of three \
                     members, one client; latency is from submission to delivery, cpu the processor \
                     time of all processes per message; yardstick: PrimCast, where the three members of a \
                     group are hosts that deliver themselves, over the same sockets";
const MEMBERS: usize = 3;
/// Time for connections and congestion windows to reach a steady state.
const WARM_UP: Duration = Duration::from_millis(300);
/// Many threads share few cores: an idle thread yields its core at once.
const IDLE: Idle = Idle::Backoff { spins: 0, yields: 1 };

/// One measured configuration.
#[derive(Clone, Copy, Debug)]
struct Case {
    groups: u16,
    replicas: usize,
    bytes: usize,
    window: u32,
    /// Length of the measurement.
    time: Duration,
}

/// Result of one run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Messages per second at the slowest receiver.
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    cpu_usage: CpuUsage,
    /// Socket counters of the whole run, per message.
    traffic: Traffic,
}

/// Measures throughput and latency of our agreed multicast and of PrimCast, alternately.
///
/// # Errors
/// Returns an error when two receivers disagree on the order, nothing is delivered, or the system
/// refuses a resource.
pub fn amcast(options: &AmcastOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let harness = Harness::new("amcast", ABOUT).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    for &groups in &options.groups {
        for &bytes in &options.bytes {
            let (replicas, window) = (options.replicas, options.window);
            let time = Duration::from_secs_f64(options.seconds);
            let case = Case { groups, replicas, bytes, window, time };
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            harness.measure(
                &format!("groups={groups} replicas={replicas} bytes={bytes} window={window}"),
                "msg/s",
                Better::Higher,
                || {
                    let outcome = run_ours(case)?;
                    ours.push(outcome);
                    Ok(outcome.rate)
                },
                || {
                    let outcome = primcast::run(case)?;
                    theirs.push(outcome);
                    Ok(outcome.rate)
                },
            )?;
            let mut details = mean_details(&ours, "");
            details.extend(mean_details(&theirs, "rival "));
            harness.detail(details);
        }
    }
    Ok(harness.finish())
}

impl Outcome {
    fn details(&self) -> Vec<(String, f64, &'static str)> {
        let own = [("p50", self.p50_us, "us"), ("p99", self.p99_us, "us")];
        let own = own.into_iter().chain([("cpu", self.cpu_us, "us/msg")]);
        let counted = own.chain(self.traffic.per_message());
        let counted = counted.map(|(name, value, unit)| (name.to_string(), value, unit));
        counted.chain(self.cpu_usage.details(self.rate)).collect()
    }
}

/// Returns the mean of each detail over the runs of one side.
fn mean_details(outcomes: &[Outcome], prefix: &str) -> Vec<Detail> {
    let all: Vec<_> = outcomes.iter().map(Outcome::details).collect();
    let mean = |nth: usize| {
        all.iter().map(|details| details[nth].1).sum::<f64>() / all.len().max(1) as f64
    };
    let names = all.first().into_iter().flatten().enumerate();
    let detail = |(nth, (name, _, unit)): (usize, &(String, f64, &str))| Detail {
        name: format!("{prefix}{name}"),
        value: mean(nth),
        unit: (*unit).to_string(),
    };
    names.map(detail).collect()
}

/// State that all threads of a run share.
struct Workers<'a> {
    stop: &'a AtomicBool,
    is_warm: &'a AtomicBool,
    began: Instant,
    /// Socket counters of the threads that have ended.
    traffic: &'a Mutex<Traffic>,
    threads: &'a ThreadList,
    /// Number of messages delivered by each receiver.
    delivered: Vec<Arc<AtomicU64>>,
    doorbells: Vec<Doorbell>,
}

impl Case {
    fn directory(self, replicas: usize) -> Result<Directory> {
        let layout = Loopback {
            groups: self.groups,
            members: MEMBERS,
            replicas,
            clients: 1,
            coordinators: 0,
        };
        let mut directory = layout.directory().context("no free ports")?;
        directory.set_window(self.window);
        directory.set_message_len(self.bytes);
        Ok(directory)
    }

    fn all_groups(self) -> GroupSet {
        (0..self.groups).map(GroupId).fold(GroupSet::EMPTY, GroupSet::with)
    }
}

fn run_ours(case: Case) -> Result<Outcome> {
    let directory = case.directory(case.replicas)?;
    let options = Options { idle: IDLE, ..Options::default() };
    measure(case, |workers, scope| {
        let mut receivers = Vec::new();
        for group in (0..case.groups).map(GroupId) {
            for (index, at) in directory.of(Role::Member(group)).into_iter().enumerate() {
                let mut member = MemberDaemon::new(&directory, at, &options)?;
                workers.doorbells.push(member.doorbell());
                let (stop, traffic, threads) = (workers.stop, workers.traffic, workers.threads);
                scope.spawn(move || {
                    threads.register(ThreadKind::of_member(index));
                    member.run(stop, |_| {});
                    traffic::lock(traffic).add(member.mesh(), member.report().retransmitted);
                });
            }
            for at in directory.of(Role::Replica(group)) {
                let mesh_driver = open(&directory, (at, "replica"), &options, Replica::new)?;
                let record = |replica: &mut Replica, event, deliveries: &mut Deliveries| match event
                {
                    ReplicaEvent::Delivered(delivery) => {
                        deliveries.record(replica.message(&delivery))
                    }
                    ReplicaEvent::Behind => deliveries.set_behind(),
                };
                receivers.push(workers.spawn_receiver(
                    scope,
                    ThreadKind::Replica,
                    mesh_driver,
                    record,
                ));
            }
        }
        let at = directory.of(Role::Client)[0];
        let client = open(&directory, (at, "client"), &options, Client::new)?;
        let to = case.all_groups();
        let submit =
            move |client: &mut Client, now, message: &[u8]| client.amcast(now, to, message).is_ok();
        let counts = |client: &Client| (client.in_flight(), client.stats().retransmitted);
        // Members retain this many messages for a replica that lags; PrimCast's client waits for
        // its slowest member as well.
        workers.spawn_sender(scope, client, (case.bytes, options.history as u64), submit, counts);
        Ok(receivers)
    })
}

/// Starts the participants with `start`, measures for the configured time, and stops them.
fn measure(
    case: Case,
    start: impl for<'a, 'scope> FnOnce(
        &mut Workers<'scope>,
        &'scope std::thread::Scope<'scope, '_>,
    ) -> Result<Vec<ScopedJoinHandle<'scope, Deliveries>>>,
) -> Result<Outcome> {
    let (stop, is_warm) = (AtomicBool::new(false), AtomicBool::new(false));
    let (traffic, threads) = (Mutex::new(Traffic::default()), ThreadList::default());
    let mut outcome = std::thread::scope(|scope| {
        let mut workers = Workers {
            stop: &stop,
            is_warm: &is_warm,
            began: Instant::now(),
            traffic: &traffic,
            threads: &threads,
            delivered: Vec::new(),
            doorbells: Vec::new(),
        };
        let started = start(&mut workers, scope);
        let (spent, cpu_usage) = if started.is_ok() {
            std::thread::sleep(WARM_UP);
            is_warm.store(true, Ordering::Release);
            let (snapshot, before) = (threads.snapshot(), clock_gettime(ClockId::ProcessCPUTime));
            std::thread::sleep(case.time);
            let spent = seconds(clock_gettime(ClockId::ProcessCPUTime)) - seconds(before);
            (spent, snapshot.usage_until(&threads.snapshot()))
        } else {
            (0.0, CpuUsage::default())
        };
        stop.store(true, Ordering::Release);
        workers.doorbells.iter().for_each(Doorbell::ring);
        let per_receiver = started?.into_iter().map(|receiver| receiver.join());
        let per_receiver = per_receiver.collect::<Result<Vec<_>, _>>();
        let per_receiver = per_receiver.map_err(|_| anyhow!("a receiver thread panicked"))?;
        deliveries::check_same_order(&per_receiver)?;
        let is_behind = per_receiver.iter().any(Deliveries::is_behind);
        ensure!(!is_behind, "a replica fell further behind than members retain messages");
        let slowest = per_receiver.iter().min_by_key(|deliveries| deliveries.counted());
        let slowest = slowest.context("there are receivers")?;
        ensure!(slowest.counted() > 0, "nothing was delivered");
        Ok(Outcome {
            rate: slowest.rate(),
            p50_us: slowest.latency_us(0.5),
            p99_us: slowest.latency_us(0.99),
            cpu_us: spent * 1e6 / slowest.counted() as f64,
            cpu_usage,
            traffic: Traffic::default().with_messages(slowest.delivered()),
        })
    })?;
    // All threads have ended and have added their counters.
    let messages = outcome.traffic.messages();
    outcome.traffic = traffic.into_inner().unwrap_or_default().with_messages(messages);
    Ok(outcome)
}

fn seconds(time: rustix::time::Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl<'scope> Workers<'scope> {
    fn spawn_receiver<M: DrivenMachine + Send + 'scope>(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        kind: ThreadKind,
        mut mesh_driver: MeshDriver<M>,
        mut record: impl FnMut(&mut M, M::Event, &mut Deliveries) + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, Deliveries> {
        self.doorbells.push(mesh_driver.doorbell());
        let (stop, is_warm, began) = (self.stop, self.is_warm, self.began);
        let (traffic, threads) = (self.traffic, self.threads);
        let delivered = Arc::new(AtomicU64::new(0));
        self.delivered.push(Arc::clone(&delivered));
        scope.spawn(move || {
            threads.register(kind);
            let mut deliveries = Deliveries::new(began);
            while !stop.load(Ordering::Acquire) {
                if is_warm.load(Ordering::Relaxed) {
                    deliveries.start_counting();
                }
                deliveries.update_clock();
                let progress =
                    mesh_driver.turn(|machine, event| record(machine, event, &mut deliveries));
                delivered.store(deliveries.delivered(), Ordering::Release);
                mesh_driver.rest(progress);
            }
            deliveries.stop_counting();
            traffic::lock(traffic).add(mesh_driver.transport(), 0);
            deliveries
        })
    }

    /// Spawns a sender thread, which keeps at most `ahead_max` messages more in flight than the
    /// slowest receiver has delivered. `counts` returns the messages in flight and the packets
    /// retransmitted.
    fn spawn_sender<M: DrivenMachine + Send + 'scope>(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        mut mesh_driver: MeshDriver<M>,
        (bytes, ahead_max): (usize, u64),
        mut submit: impl FnMut(&mut M, onepipe_base::Now, &[u8]) -> bool + Send + 'scope,
        counts: impl Fn(&M) -> (usize, u64) + Send + 'scope,
    ) {
        self.doorbells.push(mesh_driver.doorbell());
        let (stop, began, traffic, threads) = (self.stop, self.began, self.traffic, self.threads);
        let mut send_limit = SendLimit::new(&self.delivered, ahead_max);
        scope.spawn(move || {
            threads.register(ThreadKind::Client);
            let (mut polls, mut in_flight_sum) = (0, 0);
            let mut message = vec![7; bytes.max(8)];
            while !stop.load(Ordering::Acquire) {
                let now = mesh_driver.now();
                message[..8].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_be_bytes());
                let machine = mesh_driver.machine_mut();
                let is_limited = send_limit.send_while(|| submit(machine, now, &message));
                let progress = mesh_driver.turn(|_, _| {});
                (polls, in_flight_sum) =
                    (polls + 1, in_flight_sum + counts(mesh_driver.machine()).0 as u64);
                // Waits by time: no doorbell rings when a receiver catches up.
                match is_limited {
                    true => std::thread::sleep(send_limit::POLL_INTERVAL),
                    false => mesh_driver.rest(progress),
                }
            }
            let mut traffic = traffic::lock(traffic);
            traffic.add(mesh_driver.transport(), counts(mesh_driver.machine()).1);
            traffic.add_in_flight(in_flight_sum, polls);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_deliver_in_one_order() {
        let time = Duration::from_millis(200);
        let case = Case { groups: 2, replicas: 2, bytes: 150, window: 64, time };
        let ours = run_ours(case).expect("messages are delivered");
        let theirs = primcast::run(case).expect("messages are delivered");
        for outcome in [ours, theirs] {
            assert!(outcome.rate > 0.0 && outcome.p99_us >= outcome.p50_us, "{outcome:?}");
        }
    }
}
