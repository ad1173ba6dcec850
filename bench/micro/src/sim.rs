//! The simulator: packet-hop events per second, on one core and on several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::{Result, ensure};
use onepipe_sim_scenarios::{HopKind, Options, end, start};
use onepipe_topology::Shape;

use crate::{Better, Detail, Digest, Harness, Progress, Report};

/// Options of [`sim`].
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// Processes on the testbed's 32 hosts. Default 512.
    pub processes: u32,
    /// Virtual time of the warm-up under load, in us. Default 800, after which all pairs have open
    /// connections.
    pub warm_up_us: u64,
    /// Virtual time that is measured under load, in us. Default 300.
    pub duration_us: u64,
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Number of threads, compared with one thread. Default: one, compared with a heap.
    pub threads: Option<NonZeroUsize>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { processes: 512, warm_up_us: 800, duration_us: 300, runs: 3, threads: None }
    }
}

/// Simulates the paper's testbed with all-to-all traffic and all invariants checked. An event is
/// the arrival of a frame at a switch or a host over a link; arrivals within a host do not count.
/// Measured twice: with all connections open, and from the first message on, when nearly every
/// message opens a connection. Yardstick: the rate of `std::collections::BinaryHeap` alone, with
/// one event for each link of that network; with [`SimOptions::threads`] the rate of one thread,
/// which must have the same history.
///
/// # Errors
/// Returns an error when an invariant is violated, or when several threads have another history
/// than one.
pub fn sim(options: &SimOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let yardstick = match options.threads {
        None => "a binary heap of as many events as the network has links, and nothing else",
        Some(_) => "the same on one thread, with the same history",
    };
    let cores = if options.threads.is_none() { "on one core" } else { "on several threads" };
    let about = format!(
        "simulated packet-hop events a second {cores}, all invariants checked; \
         pairs=known: the steady state, after a warm-up in which all pairs have connected; \
         pairs=new: from the first message on, with the first contacts of all pairs; \
         yardstick: {yardstick}"
    );
    let mut harness = Harness::new("sim", &about).with_runs(options.runs).with_progress(progress);
    for (pairs, warm_up_us) in [("known", options.warm_up_us), ("new", 0)] {
        let threads = options.threads.map_or(String::new(), |count| format!(" threads={count}"));
        let case = format!("topology=testbed processes={} pairs={pairs}", options.processes);
        let case = case + &threads;
        let (mut last_hops, mut digests) = (Hops::default(), [None; 2]);
        let [digest, yardstick_digest] = &mut digests;
        harness.measure(
            &case,
            "hops/s",
            Better::Higher,
            || {
                let run = measure(options, warm_up_us, options.threads)?;
                last_hops = run.hops;
                run.rate(digest)
            },
            || match options.threads {
                None => Ok(heap_rate(2 * options.processes as usize)),
                Some(_) => {
                    measure(options, warm_up_us, Some(NonZeroUsize::MIN))?.rate(yardstick_digest)
                }
            },
        )?;
        harness.detail(details(&last_hops));
        if let Some(threads) = options.threads {
            let [digest, yardstick_digest] = digests;
            ensure!(digest == yardstick_digest, "{threads} threads have another history than one");
            let names = [format!("threads={threads}"), "threads=1".to_owned()];
            let sides = names.into_iter().zip(digests);
            let sides = sides.map(|(name, digest)| {
                let digest = format!("{:016x}", digest.unwrap_or_default());
                Digest { name, digest }
            });
            harness.digests(sides.collect());
        }
    }
    Ok(harness.finish())
}

/// Hops by purpose, in the order of [`HopKind::ALL`].
type Hops = [u64; HopKind::ALL.len()];

/// A run: the hops in the measured virtual time, the wall-clock seconds that they took, and the
/// digest of the whole history.
struct Run {
    hops: Hops,
    seconds: f64,
    digest: u64,
}

impl Run {
    /// Returns the hops per second. Checks that the history is that of the previous run.
    fn rate(&self, digest: &mut Option<u64>) -> Result<f64> {
        let previous = digest.replace(self.digest);
        ensure!(previous.is_none_or(|previous| previous == self.digest), "two runs differ");
        Ok(self.hops.iter().sum::<u64>() as f64 / self.seconds)
    }
}

fn measure(options: &SimOptions, warm_up_us: u64, threads: Option<NonZeroUsize>) -> Result<Run> {
    let duration_ns = (warm_up_us + options.duration_us) * 1_000;
    let plan = Options::new(Shape::testbed(), options.processes, 1, duration_ns);
    let mut fabric = start(&Options { threads, ..plan })?;
    fabric.run_us(warm_up_us);
    let before = fabric.stats().hops_by_kind;
    let clock = Instant::now();
    fabric.run_us(options.duration_us);
    let seconds = clock.elapsed().as_secs_f64();
    let mut hops = fabric.stats().hops_by_kind;
    hops.iter_mut().zip(before).for_each(|(hops, before)| *hops -= before);
    let report = end(fabric);
    ensure!(report.violations == 0, "broken: {:?}", report.first_violations);
    Ok(Run { hops, seconds, digest: report.trace_hash })
}

/// Returns the hops in total and by purpose.
fn details(hops: &Hops) -> Vec<Detail> {
    let detail = |name: &str, value: u64| Detail {
        name: name.to_string(),
        value: value as f64,
        unit: String::new(),
    };
    let kinds = HopKind::ALL.into_iter().zip(hops);
    let kinds = kinds.map(|(kind, hops)| detail(kind.name(), *hops));
    std::iter::once(detail("hops", hops.iter().sum())).chain(kinds).collect()
}

fn heap_rate(pending: usize) -> f64 {
    const EVENTS: u64 = 4_000_000;
    let mut heap: BinaryHeap<_> = (0..pending as u64).map(|at| Reverse((at * 97, at))).collect();
    let start = Instant::now();
    for number in 0..EVENTS {
        let Some(Reverse((at, _))) = heap.pop() else { break };
        let ahead = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        heap.push(Reverse((at + ahead, number)));
    }
    black_box(&heap);
    EVENTS as f64 / start.elapsed().as_secs_f64()
}
