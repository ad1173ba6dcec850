//! The experiments.

mod agreed;
mod background;
mod cores;
mod disruption;
mod isolation;
mod large;
mod latency;
mod multicast;
mod order;
mod overhead;
mod rack;
mod recovery;
mod removal;
mod robust;
mod scale;
mod store;
mod table;
mod takeover;
mod tpcc;

use crate::{Experiment, Form, Setup, System, Task, Traffic};

/// Returns all experiments, in the order of the papers.
pub fn all() -> Vec<Experiment> {
    vec![
        order::throughput(),
        order::latency(),
        latency::idle(),
        latency::loss(),
        recovery::by_component(),
        background::flows(),
        background::oversubscription(),
        overhead::reordering(),
        overhead::waiting(),
        overhead::beacon_cores(),
        overhead::beacon_share(),
        store::scalability(),
        store::latency(),
        store::sizes(),
        tpcc::scalability(),
        tpcc::loss(),
        removal::removal(),
        table::table(),
        scale::latency(),
        scale::recovery(),
        scale::with_machine_costs(),
        rack::queue(),
        rack::ping(),
        rack::shares(),
        cores::communication(),
        rack::control(),
        cores::timeslots(),
        cores::paths(),
        rack::resent(),
        takeover::takeover(),
        isolation::isolation(),
        multicast::large(),
        multicast::medium(),
        multicast::blocks(),
        multicast::rate(),
        multicast::sierra(),
        robust::breakdown(),
        robust::stall(),
        robust::slow_link(),
        robust::slack(),
        disruption::disruption(),
        agreed::throughput_and_latency(),
        large::beside(),
        large::crossover(),
    ]
}

/// Returns a run of `system` with `processes` on the paper's testbed.
fn setup(system: System, processes: f64, traffic: Traffic) -> Setup {
    let processes = processes as u32;
    // A process sends at most one message in 400 ns, so a round to all others takes this long. The
    // warm-up has three rounds: all pairs communicate, and connections get their full windows.
    let round_us = u64::from(processes) * 400 / 1_000;
    let (warm_up_us, measure_us) = (300 + 3 * round_us, 200 + round_us / 2);
    Setup { warm_up_us, measure_us, ..Setup::new(system, processes, traffic) }
}

/// Returns `task` with hosts as delegates of the switches.
fn by_hosts(task: Option<Task>) -> Option<Task> {
    match task? {
        Task::Order(setup) => Some(Task::Order(Setup { form: Form::Host, ..setup })),
        Task::Shared(setup, background) => {
            Some(Task::Shared(Setup { form: Form::Host, ..setup }, background))
        }
        _ => None,
    }
}

/// Returns `task` if its processes are in one rack: the detour of delegates is calibrated there.
fn one_switch(task: Option<Task>) -> Option<Task> {
    task.filter(|task| matches!(task, Task::Order(setup) if setup.processes <= 8))
}

/// Returns `task` if its processes are in several racks.
fn several_switches(task: Option<Task>) -> Option<Task> {
    task.filter(|task| matches!(task, Task::Order(setup) if setup.processes > 8))
}

/// Returns a task in which each process sends a message every 20 us to the process half-way around
/// the ring of process ids.
fn idle(system: System, processes: f64) -> Option<Task> {
    let setup = setup(system, processes, Traffic::Idle { every_ns: 20_000 });
    Some(Task::Order(Setup { warm_up_us: 400, measure_us: 400, ..setup }))
}
