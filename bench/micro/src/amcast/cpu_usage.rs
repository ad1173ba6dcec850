//! CPU usage of the threads of a run, as counted by the scheduler.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::thread::gettid;

use crate::machine_cpu::idle_s;

/// The role of a thread in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadKind {
    Client,
    /// Leads a group; with PrimCast: the primary, which also delivers.
    Leader,
    /// Follows; with PrimCast: another member, which also delivers.
    Follower,
    Replica,
}

impl ThreadKind {
    const ALL: [Self; 4] = [Self::Client, Self::Leader, Self::Follower, Self::Replica];

    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Replica => "replica",
        }
    }

    /// Returns the kind of the member with this index in its group.
    pub(super) const fn of_member(index: usize) -> Self {
        if index == 0 { Self::Leader } else { Self::Follower }
    }
}

/// Scheduler times of one thread since its start, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SchedTime {
    /// On a core.
    running: u64,
    /// Runnable, while another thread had the core.
    waiting: u64,
}

/// The threads of a run, by thread id.
#[derive(Debug, Default)]
pub(super) struct ThreadList(Mutex<Vec<(ThreadKind, u32)>>);

/// Scheduler times of all threads at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    at: Instant,
    spent: Vec<(ThreadKind, u32, SchedTime)>,
    /// Idle time of all cores of the machine together, in s.
    idle: f64,
}

/// Usage of the threads of one kind between two snapshots, as shares of the elapsed time. `running`
/// is the sum over the threads; the others are means.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Share {
    running: f64,
    waiting: f64,
    idle: f64,
}

/// CPU usage between two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuUsage {
    shares: [Option<Share>; ThreadKind::ALL.len()],
    /// Idle cores of the machine.
    cores_idle: f64,
}

impl ThreadList {
    /// Registers the calling thread as `kind` and sets its name.
    pub(super) fn register(&self, kind: ThreadKind) {
        let own = gettid().as_raw_pid().unsigned_abs();
        let _ = std::fs::write(format!("/proc/self/task/{own}/comm"), kind.name());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((kind, own));
    }

    /// Returns the scheduler times of all threads that are still running.
    pub(super) fn snapshot(&self) -> Snapshot {
        let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        let spent = threads.iter().filter_map(|&(kind, id)| {
            let read = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
            Some((kind, id, SchedTime::read(&read)?))
        });
        let idle = std::fs::read_to_string("/proc/uptime").ok().and_then(|read| idle_s(&read));
        Snapshot { at, spent: spent.collect(), idle: idle.unwrap_or_default() }
    }
}

impl SchedTime {
    /// Parses a `schedstat` line: ns on a core, ns runnable, timeslices (kernel documentation,
    /// scheduler/sched-stats.rst).
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.split_ascii_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self { running: next()?, waiting: next()? })
    }
}

impl Snapshot {
    /// Returns the usage between this snapshot and a later one.
    pub(super) fn usage_until(&self, later: &Self) -> CpuUsage {
        let ns = later.at.duration_since(self.at).as_nanos().max(1) as f64;
        let share = |kind| {
            let mut share = Share::default();
            let mut threads = 0.0;
            for (of, id, spent) in later.spent.iter().filter(|(of, ..)| *of == kind) {
                let before = self.spent.iter().find(|(_, other, _)| other == id);
                let before = before.map(|(.., before)| *before).filter(|_| *of == kind)?;
                share.running += spent.running.saturating_sub(before.running) as f64 / ns;
                share.waiting += spent.waiting.saturating_sub(before.waiting) as f64 / ns;
                threads += 1.0;
            }
            if threads == 0.0 {
                return None;
            }
            share.waiting /= threads;
            share.idle = (1.0 - share.running / threads - share.waiting).max(0.0);
            Some(share)
        };
        let cores_idle = (later.idle - self.idle).max(0.0) / (ns / 1e9);
        CpuUsage { shares: ThreadKind::ALL.map(share), cores_idle }
    }
}

impl CpuUsage {
    /// Returns the number of cores that the threads kept busy.
    fn cores(&self) -> f64 {
        self.shares.iter().flatten().map(|share| share.running).sum()
    }

    /// Returns all details, where `rate` messages per second were delivered.
    pub(super) fn details(&self, rate: f64) -> Vec<(String, f64, &'static str)> {
        let mut details = vec![
            ("busy".to_string(), self.cores(), "cores"),
            ("unused".to_string(), self.cores_idle, "cores"),
        ];
        for (kind, share) in ThreadKind::ALL.into_iter().zip(self.shares) {
            let Some(share) = share else { continue };
            let named = |what: &str| format!("{} {what}", kind.name());
            details.push((named("cpu"), share.running * 1e6 / rate.max(1.0), "us/msg"));
            details.push((named("idle"), share.idle * 100.0, "%"));
            details.push((named("waiting"), share.waiting * 100.0, "%"));
        }
        details
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_schedstat() {
        let spent = SchedTime::read("144748 1797668 2\n");
        assert_eq!(spent, Some(SchedTime { running: 144_748, waiting: 1_797_668 }));
        assert_eq!(SchedTime::read("144748"), None);
    }

    #[test]
    fn computes_shares_between_two_snapshots() {
        let at = Instant::now();
        let snapshot = |ms, client: (u64, u64), followers: [(u64, u64); 2]| {
            let spent = |(running, waiting)| SchedTime {
                running: running * 1_000_000,
                waiting: waiting * 1_000_000,
            };
            let [one, other] = followers.map(spent);
            let spent = vec![
                (ThreadKind::Client, 1, spent(client)),
                (ThreadKind::Follower, 2, one),
                (ThreadKind::Follower, 3, other),
            ];
            Snapshot { at: at + std::time::Duration::from_millis(ms), spent, idle: 0.0 }
        };
        let cpu_usage = snapshot(0, (5, 5), [(0, 0); 2]).usage_until(&snapshot(
            100,
            (55, 25),
            [(40, 0), (20, 20)],
        ));
        let [client, leader, follower, _] = cpu_usage.shares;
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        let client = client.expect("one client");
        assert!(near(client.running, 0.5) && near(client.waiting, 0.2) && near(client.idle, 0.3));
        let follower = follower.expect("two followers");
        assert!(near(follower.running, 0.6) && near(follower.waiting, 0.1));
        assert!(near(follower.idle, 0.6), "each on average: {follower:?}");
        assert!(leader.is_none() && near(cpu_usage.cores(), 1.1));
        let details = cpu_usage.details(110_000.0);
        assert!(details.iter().any(|(name, us, _)| name == "client cpu" && near(*us, 50.0 / 11.0)));
    }

    #[test]
    fn attributes_cpu_time_to_busy_thread() {
        let threads = ThreadList::default();
        threads.register(ThreadKind::Client);
        let before = threads.snapshot();
        while before.at.elapsed().as_millis() < 30 {
            std::hint::spin_loop();
        }
        let cpu_usage = before.usage_until(&threads.snapshot());
        let own = cpu_usage.shares[0].expect("registered thread");
        assert!(own.running > 0.0 && own.running <= 1.05, "{own:?}");
    }
}
