//! The figures.

mod background;
mod latency;
mod order;
mod recovery;

use crate::{Calibration, Experiment, Setup, System, Task, Traffic};

/// All of them, in the order of the papers.
pub fn all() -> Vec<Experiment> {
    vec![
        order::throughput(),
        order::latency(),
        latency::idle(),
        latency::loss(),
        recovery::by_component(),
        background::flows(),
        background::oversubscription(),
    ]
}

/// A run of `system` with `processes` on the paper's testbed.
fn setup(system: System, processes: f64, traffic: Traffic) -> Setup {
    let processes = processes as u32;
    // Everybody has talked to everybody, and connections have found their windows.
    let round_us = u64::from(processes) * 400 / 1_000;
    Setup {
        system,
        processes,
        traffic,
        calibration: Calibration::PAPER,
        loss_ppm: 0,
        warm_up_us: 300 + 3 * round_us,
        measure_us: 200 + round_us / 2,
        seed: 1,
    }
}

/// A message of each process every 20 us, to a process half-way round.
fn idle(system: System, processes: f64) -> Option<Task> {
    let setup = setup(system, processes, Traffic::Idle { every_ns: 20_000 });
    Some(Task::Order(Setup { warm_up_us: 400, measure_us: 400, ..setup }))
}
