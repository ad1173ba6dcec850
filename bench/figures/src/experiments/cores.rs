//! Fastpass section 7.3 on this machine: timeslot allocation and path selection per core.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;

/// Numbers of endpoints that share one thread here and still keep up.
const SERVED: &[f64] = &[16.0, 64.0, 256.0];
const LOADS: &[f64] = &[0.1, 0.5, 0.9, 0.99];
const CORE: &str = "one core";
/// Number of endpoints that the paper's arbiter was compiled for.
const NODES: u32 = 256;
/// Number of endpoints for path selection: sixteen racks of 32, as in the paper's measurement
/// (docs/design/arbiter.md).
const PATH_NODES: u32 = 512;

fn permille(load: f64) -> u32 {
    (load * 1e3).round() as u32
}

fn figure(
    id: &'static str,
    title: &'static str,
    headline: &'static str,
    task: fn(f64) -> Option<Task>,
    claims: Vec<Claim>,
) -> Experiment {
    Experiment {
        id,
        title,
        headline,
        x: Axis { label: "load, part of what the endpoints can send", is_log: false },
        y: Axis { label: "Tbit/s of traffic, on one core", is_log: false },
        metric: "tbps",
        curves: vec![Curve { name: CORE, column: None, role: Role::Machine, remark: "", task }],
        xs: LOADS,
        xs_quick: &[0.9],
        reference: Reference::new(""),
        claims,
    }
}

/// Verifies that one core handles at least `tbps` of traffic at load 0.9.
fn at_least(measured: &Measured, tbps: f64, paper: &str) -> Option<Verdict> {
    let core = measured.at(CORE, 0.9)?;
    let slot_us = measured.other(CORE, 0.9, "slot_us")?;
    let ours = format!("{core:.2} Tbit/s on one core at load 0.9, {slot_us:.2} us a timeslot");
    Some(Verdict::new(core >= tbps, ours, paper.into()))
}

/// Figure F-D.
pub fn communication() -> Experiment {
    Experiment {
        id: "F-D",
        title: "Traffic whose requests and grants one core handles, over UDP (Fastpass)",
        headline: "130 Gbit/s with 1 us of queueing in the card",
        x: Axis { label: "endpoints", is_log: true },
        y: Axis { label: "Gbit/s of traffic, on one core for communication", is_log: false },
        metric: "gbps",
        curves: vec![Curve {
            name: CORE,
            column: None,
            role: Role::Machine,
            remark: "",
            task: |nodes| Some(Task::Communication { nodes: nodes as u32 }),
        }],
        xs: SERVED,
        xs_quick: &[16.0],
        reference: Reference::new(""),
        claims: vec![Claim {
            text: "one core for communication serves 130 Gbit/s of traffic, and packets wait 1 us",
            verify: |measured| {
                let endpoints = *SERVED.last()?;
                let gbps = measured.at(CORE, endpoints)?;
                let turn_us = measured.other(CORE, endpoints, "turn_us")?;
                let slot_ns = measured.other(CORE, endpoints, "slot_ns")?;
                let ours = format!(
                    "{gbps:.0} Gbit/s, {slot_ns:.0} ns a timeslot, and {turn_us:.0} us between two \
                     polls, with {endpoints} endpoints"
                );
                let paper = "130 Gbit/s with 1 us".into();
                Some(Verdict::new(gbps >= 130.0 && turn_us <= 1.0, ours, paper))
            },
            remark: "a fraction of a core serves the traffic, but packets wait longer: the paper polls \
                     the card's queues from user space, while here a poll is a system call that receives \
                     and sends the packets of all endpoints, which send requests just before a \
                     batch is closed",
        }],
    }
}

/// Figure F-F.
pub fn timeslots() -> Experiment {
    let task = |load| Some(Task::Timeslots { nodes: NODES, load_permille: permille(load) });
    figure(
        "F-F",
        "Traffic that a core allocates timeslots to, 256 endpoints, on this machine (Fastpass)",
        "2.21 Tbit/s on 8 cores",
        task,
        vec![Claim {
            text: "one core allocates timeslots to at least as much traffic as two of the paper's cores",
            verify: |measured| at_least(measured, 2.21 / 4.0, "2.21 Tbit/s on eight cores"),
            remark: "",
        }],
    )
}

/// Figure F-G.
pub fn paths() -> Experiment {
    let task = |load| Some(Task::Paths { nodes: PATH_NODES, load_permille: permille(load) });
    figure(
        "F-G",
        "Traffic that a core selects paths for, 16 racks, on this machine (Fastpass)",
        "more than 5 Tbit/s on 10 cores",
        task,
        vec![Claim {
            text: "one core selects paths for at least as much traffic as two of the paper's cores",
            verify: |measured| at_least(measured, 1.0, "more than 5 Tbit/s on ten cores"),
            remark: "",
        }],
    )
}
