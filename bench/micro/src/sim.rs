//! The simulator: packet-hop events a second on one core.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use onepipe_sim_scenarios::{Options, run};
use onepipe_topology::Shape;

use crate::{Better, Harness, Progress, Report};

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct SimOptions {
    /// Processes on the testbed's 32 hosts. Default 512.
    pub processes: u32,
    /// Virtual time under load, in ns. Default 300 us.
    pub duration_ns: u64,
    /// How often each side runs. Default 3.
    pub runs: usize,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { processes: 512, duration_ns: 300_000, runs: 3 }
    }
}

/// The paper's testbed, everybody to everybody, every invariant checked. Counts a frame that
/// arrives at a switch or a host as one event. Yardstick: events a second through
/// `std::collections::BinaryHeap` alone, holding one event for each link of that network.
///
/// # Errors
/// When an invariant is broken.
pub fn sim(options: &SimOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let about = "simulated packet-hop events a second on one core, all invariants checked; \
                 yardstick: a binary heap of as many events as the network has links, and nothing \
                 else";
    let mut harness = Harness::new("sim", about).with_runs(options.runs).with_progress(progress);
    let case = format!("topology=testbed processes={}", options.processes);
    let plan = Options::new(Shape::testbed(), options.processes, 1, options.duration_ns);
    harness.measure(
        &case,
        "hops/s",
        Better::Higher,
        || {
            let start = Instant::now();
            let report = run(&plan, |_| {})?;
            let seconds = start.elapsed().as_secs_f64();
            ensure!(report.violations == 0, "broken: {:?}", report.first_violations);
            Ok(report.network.hops as f64 / seconds)
        },
        || Ok(heap_rate(2 * options.processes as usize)),
    )?;
    Ok(harness.finish())
}

fn heap_rate(waiting: usize) -> f64 {
    const EVENTS: u64 = 4_000_000;
    let mut heap: BinaryHeap<_> = (0..waiting as u64).map(|at| Reverse((at * 97, at))).collect();
    let start = Instant::now();
    for number in 0..EVENTS {
        let Some(Reverse((at, _))) = heap.pop() else { break };
        let ahead = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        heap.push(Reverse((at + ahead, number)));
    }
    black_box(&heap);
    EVENTS as f64 / start.elapsed().as_secs_f64()
}
