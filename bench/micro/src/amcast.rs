//! Agreed multicast on loopback: members, replicas and a client, each with a thread and a socket of
//! its own; and PrimCast, whose members are hosts, over the same sockets in the same run.

mod rival;
mod tally;
mod traffic;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use onepipe_amcast::{Client, GroupId, GroupSet, Replica, ReplicaEvent};
use onepipe_daemon_member::MemberDaemon;
use onepipe_transport_amcast::{Directory, Loopback, Options, Role, Station, open};
use onepipe_transport_driver::{Doorbell, Idle, Pipe};
use rustix::time::{ClockId, clock_gettime};

use crate::{Better, Detail, Harness, Progress, Report};
use tally::Tally;
use traffic::Traffic;

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct AmcastOptions {
    /// How often each side runs. Default 3.
    pub runs: usize,
    /// How long each run takes, s. Default 1.5.
    pub seconds: f64,
    /// Groups of three members; every message is for all of them. Default 1 and 2.
    pub groups: Vec<u16>,
    /// Octets of a message. Default 150, 512, 1024, 1500.
    pub octets: Vec<usize>,
    /// Replicas of each group. Default 1.
    pub replicas: usize,
    /// Messages that the client has open. Default 1024.
    pub window: u32,
}

impl Default for AmcastOptions {
    fn default() -> Self {
        Self {
            runs: 3,
            seconds: 1.5,
            groups: vec![1, 2],
            octets: vec![150, 512, 1024, 1500],
            replicas: 1,
            window: 1_024,
        }
    }
}

const ABOUT: &str = "messages delivered at each replica, every message to all groups of three \
                     members, one client; latency is from submission to delivery, cpu the processor \
                     time of all processes a message; yardstick: PrimCast, whose three members a \
                     group are hosts and deliver, over the same sockets";
const MEMBERS: usize = 3;
/// Until everybody has found its pace.
const WARM_UP: Duration = Duration::from_millis(300);
/// Many threads share few cores: who has nothing to do leaves its core at once.
const IDLE: Idle = Idle::Backoff { spins: 0, yields: 1 };

/// What is measured, and how much of it.
#[derive(Clone, Copy, Debug)]
struct Case {
    groups: u16,
    replicas: usize,
    octets: usize,
    window: u32,
    time: Duration,
}

/// What has come of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Messages a second at the slowest receiver.
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    /// Of the whole run, a message.
    traffic: Traffic,
}

/// Throughput and latency, ours and the rival's, in turn.
///
/// # Errors
/// When two receivers disagree on the order, nothing is delivered, or the system refuses.
pub fn amcast(options: &AmcastOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let harness = Harness::new("amcast", ABOUT).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    for &groups in &options.groups {
        for &octets in &options.octets {
            let (replicas, window) = (options.replicas, options.window);
            let time = Duration::from_secs_f64(options.seconds);
            let case = Case { groups, replicas, octets, window, time };
            let (mut ours, mut theirs) = (Outcome::default(), Outcome::default());
            harness.measure(
                &format!("groups={groups} replicas={replicas} octets={octets} window={window}"),
                "msg/s",
                Better::Higher,
                || {
                    ours = run_ours(case)?;
                    Ok(ours.rate)
                },
                || {
                    theirs = rival::run(case)?;
                    Ok(theirs.rate)
                },
            )?;
            let mut details = ours.details("");
            details.extend(theirs.details("rival "));
            harness.detail(details);
        }
    }
    Ok(harness.finish())
}

impl Outcome {
    fn details(&self, whose: &str) -> Vec<Detail> {
        let detail = |name: &str, value, unit: &str| Detail {
            name: format!("{whose}{name}"),
            value,
            unit: unit.to_string(),
        };
        let own = [("p50", self.p50_us, "us"), ("p99", self.p99_us, "us")];
        let own = own.into_iter().chain([("cpu", self.cpu_us, "us/msg")]);
        own.chain(self.traffic.a_message())
            .map(|(name, value, unit)| detail(name, value, unit))
            .collect()
    }
}

/// Who takes part, until all shall end.
struct Crew<'a> {
    stop: &'a AtomicBool,
    is_warm: &'a AtomicBool,
    began: Instant,
    /// What those who have ended have sent and received.
    traffic: &'a Mutex<Traffic>,
    doorbells: Vec<Doorbell>,
}

impl Case {
    fn directory(self, replicas: usize) -> Result<Directory> {
        let world = Loopback {
            groups: self.groups,
            members: MEMBERS,
            replicas,
            clients: 1,
            coordinators: 0,
        };
        let mut directory = world.directory().context("no free ports")?;
        directory.set_window(self.window);
        directory.set_message_octets(self.octets);
        Ok(directory)
    }

    fn all_groups(self) -> GroupSet {
        (0..self.groups).map(GroupId).fold(GroupSet::EMPTY, GroupSet::with)
    }
}

fn run_ours(case: Case) -> Result<Outcome> {
    let directory = case.directory(case.replicas)?;
    let options = Options { idle: IDLE, ..Options::default() };
    measure(case, |crew, scope| {
        let mut receivers = Vec::new();
        for group in (0..case.groups).map(GroupId) {
            for at in directory.of(Role::Member(group)) {
                let mut member = MemberDaemon::new(&directory, at, &options)?;
                crew.doorbells.push(member.doorbell());
                let (stop, traffic) = (crew.stop, crew.traffic);
                scope.spawn(move || {
                    member.run(stop, |_| {});
                    traffic::lock(traffic).add(member.mesh(), member.report().repeated);
                });
            }
            for at in directory.of(Role::Replica(group)) {
                let station = open(&directory, (at, "replica"), &options, Replica::new)?;
                receivers.push(crew.receive(scope, station, |replica, event, tally| match event {
                    ReplicaEvent::Delivered(delivery) => tally.take(replica.message(&delivery)),
                    ReplicaEvent::Behind => tally.fall_behind(),
                }));
            }
        }
        let at = directory.of(Role::Client)[0];
        let client = open(&directory, (at, "client"), &options, Client::new)?;
        let to = case.all_groups();
        let submit =
            move |client: &mut Client, now, message: &[u8]| client.amcast(now, to, message).is_ok();
        crew.send(scope, client, case.octets, submit, |client| client.stats().repeated);
        Ok(receivers)
    })
}

/// Starts whoever `start` starts, lets them work for the time, and sums up.
fn measure(
    case: Case,
    start: impl for<'a, 'scope> FnOnce(
        &mut Crew<'scope>,
        &'scope std::thread::Scope<'scope, '_>,
    ) -> Result<Vec<ScopedJoinHandle<'scope, Tally>>>,
) -> Result<Outcome> {
    let (stop, is_warm) = (AtomicBool::new(false), AtomicBool::new(false));
    let traffic = Mutex::new(Traffic::default());
    let mut outcome = std::thread::scope(|scope| {
        let mut crew = Crew {
            stop: &stop,
            is_warm: &is_warm,
            began: Instant::now(),
            traffic: &traffic,
            doorbells: Vec::new(),
        };
        let started = start(&mut crew, scope);
        let spent = if started.is_ok() {
            std::thread::sleep(WARM_UP);
            is_warm.store(true, Ordering::Release);
            let before = clock_gettime(ClockId::ProcessCPUTime);
            std::thread::sleep(case.time);
            seconds(clock_gettime(ClockId::ProcessCPUTime)) - seconds(before)
        } else {
            0.0
        };
        stop.store(true, Ordering::Release);
        crew.doorbells.iter().for_each(Doorbell::ring);
        let tallies = started?.into_iter().map(|receiver| receiver.join());
        let tallies = tallies.collect::<Result<Vec<_>, _>>();
        let tallies = tallies.map_err(|_| anyhow!("a receiver has panicked"))?;
        tally::agree(&tallies)?;
        let is_behind = tallies.iter().any(Tally::is_behind);
        ensure!(!is_behind, "a replica was off its core for longer than members keep messages");
        let slowest = tallies.iter().min_by_key(|tally| tally.counted());
        let slowest = slowest.context("there are receivers")?;
        ensure!(slowest.counted() > 0, "nothing was delivered");
        Ok(Outcome {
            rate: slowest.rate(),
            p50_us: slowest.latency_us(0.5),
            p99_us: slowest.latency_us(0.99),
            cpu_us: spent * 1e6 / slowest.counted() as f64,
            traffic: Traffic::default().of(slowest.delivered()),
        })
    })?;
    // Now that all have ended.
    let messages = outcome.traffic.messages();
    outcome.traffic = traffic.into_inner().unwrap_or_default().of(messages);
    Ok(outcome)
}

fn seconds(time: rustix::time::Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

impl<'scope> Crew<'scope> {
    /// Starts somebody who receives.
    fn receive<M: Pipe + Send + 'scope>(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        mut station: Station<M>,
        mut take: impl FnMut(&mut M, M::Event, &mut Tally) + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, Tally> {
        self.doorbells.push(station.doorbell());
        let (stop, is_warm, began) = (self.stop, self.is_warm, self.began);
        let traffic = self.traffic;
        scope.spawn(move || {
            let mut tally = Tally::new(began);
            while !stop.load(Ordering::Acquire) {
                if is_warm.load(Ordering::Relaxed) {
                    tally.begin();
                }
                tally.look_at_clock();
                let progress = station.turn(|machine, event| take(machine, event, &mut tally));
                station.rest(progress);
            }
            tally.end();
            traffic::lock(traffic).add(station.transport(), 0);
            tally
        })
    }

    /// Starts somebody who sends as much as it may.
    fn send<M: Pipe + Send + 'scope>(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        mut station: Station<M>,
        octets: usize,
        mut submit: impl FnMut(&mut M, onepipe_base::Now, &[u8]) -> bool + Send + 'scope,
        repeated: impl FnOnce(&M) -> u64 + Send + 'scope,
    ) {
        self.doorbells.push(station.doorbell());
        let (stop, began, traffic) = (self.stop, self.began, self.traffic);
        scope.spawn(move || {
            let mut message = vec![7; octets.max(8)];
            while !stop.load(Ordering::Acquire) {
                let now = station.now();
                message[..8].copy_from_slice(&(began.elapsed().as_nanos() as u64).to_be_bytes());
                let machine = station.machine_mut();
                while submit(machine, now, &message) {}
                let progress = station.turn(|_, _| {});
                station.rest(progress);
            }
            traffic::lock(traffic).add(station.transport(), repeated(station.machine()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_deliver_in_one_order() {
        let time = Duration::from_millis(200);
        let case = Case { groups: 2, replicas: 2, octets: 150, window: 64, time };
        let ours = run_ours(case).expect("messages are delivered");
        let theirs = rival::run(case).expect("messages are delivered");
        for outcome in [ours, theirs] {
            assert!(outcome.rate > 0.0 && outcome.p99_us >= outcome.p50_us, "{outcome:?}");
        }
    }
}
