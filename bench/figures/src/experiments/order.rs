//! Figure 8: total order by 1Pipe and by its rivals.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Verdict};
use crate::reference::Reference;
use crate::{System, Task, Traffic};

const XS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
const XS_QUICK: &[f64] = &[2.0, 8.0, 16.0, 32.0, 64.0];

/// As much as a process can send.
fn full(system: System, processes: f64) -> Option<Task> {
    Some(Task::Order(super::setup(system, processes, Traffic::AllToAll { every_ns: 200 })))
}

/// Half of it: queues stay short where nothing is overloaded.
fn half(system: System, processes: f64) -> Option<Task> {
    Some(Task::Order(super::setup(system, processes, Traffic::AllToAll { every_ns: 400 })))
}

macro_rules! curves {
    ($load:ident, $($name:literal, $column:literal, $system:ident, $remark:literal;)*) => {
        vec![$(Curve {
            name: $name,
            column: Some($column),
            role: Role::Predicted,
            remark: $remark,
            task: |x| $load(System::$system, x),
        }),*]
    };
}

/// The best-effort curve with the switches' work done by hosts.
fn by_hosts(column: Option<&'static str>, task: fn(f64) -> Option<Task>) -> Curve {
    let (role, remark) = (
        Role::Predicted,
        "as in chips, acknowledgements make processes queue: where they cost nothing, 128 take 21.7 us; the rest is the detour, see 9a",
    );
    Curve { name: "best effort, by hosts", column, role, remark, task }
}

fn with(mut curves: Vec<Curve>, more: Curve) -> Vec<Curve> {
    curves.push(more);
    curves
}

/// The last x at which both curves were measured, and their values there.
fn last(measured: &Measured, one: &str, other: &str) -> Option<(f64, f64, f64)> {
    XS.iter().rev().find_map(|x| Some((*x, measured.at(one, *x)?, measured.at(other, *x)?)))
}

/// 8a.
pub fn throughput() -> Experiment {
    Experiment {
        id: "8a",
        title: "Total order: messages a process",
        headline: "5 M messages/s a process, flat to 512; reliable 25 % less; sequencers, token and \
                   Lamport fall off",
        x: Axis { label: "processes", is_log: true },
        y: Axis { label: "M messages/s a process", is_log: false },
        metric: "throughput_mps",
        curves: with(
            curves! { full,
                "best effort", "1Pipe/BE", BestEffort,
                    "an acknowledgement costs its sender as much as a message here, and the more receivers, the fewer messages one of them covers: where it costs nothing, 128 processes do 4.91 M/s, 0.95 of the paper's (run apart)";
                "reliable", "1Pipe/R", Reliable, "as best effort";
                "switch sequencer", "SwitchSeq", SwitchSequencer,
                    "each member has 64 messages on their way at most, and the longer the detour, the \
                     less that is";
                "host sequencer", "HostSeq", HostSequencer, "";
                "token", "Token", Token,
                    "its holder sends all that waits, 64 messages at most: more a round than the paper's";
                "Lamport", "Lamport", Lamport,
                    "clocks are told between messages and share their frames, so they cost less than \
                     the half that they may";
            },
            by_hosts(None, |x| super::by_hosts(full(System::BestEffort, x))),
        ),
        xs: XS,
        xs_quick: XS_QUICK,
        reference: Reference::new(include_str!("../../data/total_order.tsv")),
        claims: vec![
            Claim {
                text: "best effort is flat: the largest fabric keeps three quarters of two processes",
                judge: |measured| {
                    let (x, last, _) = last(measured, "best effort", "best effort")?;
                    let ratio = last / measured.at("best effort", 2.0)?;
                    let ours = format!("{ratio:.2} at {x}");
                    Some(Verdict { holds: ratio >= 0.75, ours, paper: "0.98 at 512".into() })
                },
                remark: "Every acknowledgement costs its sender as much as a message here. The more \
                         receivers, the fewer messages one acknowledgement covers.",
            },
            Claim {
                text: "it does not matter to throughput where switches aggregate: hosts within 5 % of \
                       chips",
                judge: |measured| {
                    let (x, chip, host) = last(measured, "best effort", "best effort, by hosts")?;
                    let ours = format!("{:.2} of it at {x}", host / chip);
                    let holds = (0.95..=1.05).contains(&(host / chip));
                    Some(Verdict { holds, ours, paper: "the same (section 7.2)".into() })
                },
                remark: "",
            },
            Claim {
                text: "best effort beats every rival at the largest fabric, Lamport aside",
                judge: |measured| {
                    let rivals = ["switch sequencer", "host sequencer", "token"];
                    let best =
                        rivals.iter().filter_map(|rival| last(measured, "best effort", rival));
                    let worst = best.map(|(_, ours, rival)| ours / rival).reduce(f64::min)?;
                    let ours = format!("{worst:.1} times the best of them");
                    Some(Verdict { holds: worst > 1.0, ours, paper: "3.9 times at 512".into() })
                },
                remark: "",
            },
            Claim {
                text: "the token's throughput falls as one over the number of processes",
                judge: |measured| {
                    let (x, last, _) = last(measured, "token", "token")?;
                    let product = last * x / (measured.at("token", 8.0)? * 8.0);
                    let ours = format!("in all {product:.2} of what 8 do, at {x}");
                    let holds = (0.5..2.0).contains(&product);
                    Some(Verdict { holds, ours, paper: "1.05 at 512".into() })
                },
                remark: "",
            },
        ],
    }
}

/// 8b.
pub fn latency() -> Experiment {
    Experiment {
        id: "8b",
        title: "Total order: latency at half load",
        headline: "7.4 us at 512 processes (chip); rivals 61 to 604 us",
        x: Axis { label: "processes", is_log: true },
        y: Axis { label: "us from submission to delivery, mean", is_log: true },
        metric: "latency_mean_us",
        curves: with(
            curves! { half,
                "best effort", "1Pipe/chip", BestEffort,
                    "under load messages bear barriers, so few processes need not wait for beacons; of many, acknowledgements take the other half of what a process can send, and all queue: where they cost nothing, 128 processes take 7.0 us, the paper's 7.1 (run apart)";
                "switch sequencer", "SwitchSeq", SwitchSequencer,
                    "in one rack it sits on the way, and costs nothing; with 64 processes it is full, see 8a";
                "host sequencer", "HostSeq", HostSequencer,
                    "half load: it is full from 32 processes on, the paper's from 16";
                "token", "Token", Token, "it is full at half load, too, and what waits at each member makes most of it";
                "Lamport", "Lamport", Lamport, "as its throughput";
            },
            by_hosts(Some("1Pipe/host"), |x| super::by_hosts(half(System::BestEffort, x))),
        ),
        xs: XS,
        xs_quick: XS_QUICK,
        reference: Reference::new(include_str!("../../data/total_order_lat.tsv")),
        claims: vec![Claim {
            text: "best effort beats token, host sequencer and Lamport from 32 processes on",
            judge: |measured| {
                let rivals = ["host sequencer", "token", "Lamport"];
                let least = rivals.iter().filter_map(|rival| {
                    let (x, ours, rival) = last(measured, "best effort", rival)?;
                    (x >= 32.0).then_some(rival / ours)
                });
                let least = least.reduce(f64::min)?;
                let ours = format!("{least:.1} times faster than the next");
                Some(Verdict { holds: least > 1.0, ours, paper: "8.3 times at 512".into() })
            },
            remark: "",
        }],
    }
}
