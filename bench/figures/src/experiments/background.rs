//! Figure 12: latency beside TCP flows, and on an oversubscribed fabric. As in the paper's figure,
//! hosts act as delegates of the switches.

use crate::env::QUEUE_BYTES;
use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict, is_near};
use crate::reference::Reference;
use crate::{Background, Form, Setup, System};

/// Receive window of flows that loss limits: the default maximum of Linux (`tcp_rmem`).
const LONG_WINDOW_BYTES: u32 = 6 << 20;
/// The paper uses 512 processes. Their paths have as many hops as those of 32, but their idle
/// latency is 8 % higher (figure 9a).
const PROCESSES: f64 = 32.0;
/// Length of a queue from which on frames are marked, in packets of 1,500 bytes. The paper gives
/// neither the congestion control of its TCP flows nor this; its own control "follows DCTCP", with
/// marks by the switches (section 6.1). With this threshold ten flows a host add to best effort
/// what they add in figure 12a.
const MARK_PACKETS: u32 = 130;
const NARROW: &str = "as in 12a; bundles of links become narrower by leaving out links, so with 3:1, \
                      5:1 and 6:1 the remaining ones have 67, 80 and 67 Gbit/s";

fn flows_of(system: System, background: Background) -> Option<Task> {
    let Task::Order(setup) = super::idle(system, PROCESSES)? else { return None };
    // Nothing is lost, so flows reach their windows once, at the start.
    let setup = Setup { warm_up_us: 2_000, measure_us: 2_000, ..setup };
    super::by_hosts(Some(Task::Shared(setup, background)))
}

/// DCTCP flows, with marks from `mark_packets` in a queue on.
fn marked(system: System, flows: f64, oversubscription: f64, mark_packets: u32) -> Option<Task> {
    // Without flows their congestion control does not matter: use one task for all.
    let background = Background::new(flows as u32, flows > 0.0);
    let oversubscription = oversubscription as u32;
    flows_of(system, Background { oversubscription, mark_packets, ..background })
}

/// DCTCP flows with the threshold of the paper's ten flows.
fn beside(system: System, flows: f64, oversubscription: f64) -> Option<Task> {
    marked(system, flows, oversubscription, MARK_PACKETS)
}

/// Ten flows with a threshold `times` as long.
fn marked_at_ten(system: System, flows: f64, times: f64) -> Option<Task> {
    let mark_packets = (f64::from(MARK_PACKETS) * times) as u32;
    (flows == 10.0).then(|| marked(system, flows, 1.0, mark_packets))?
}

/// Reno flows, which react to loss alone: windows of 64 KiB limit them.
fn beside_reno(system: System, flows: f64, oversubscription: f64) -> Option<Task> {
    let background = Background::new(flows as u32, false);
    let oversubscription = oversubscription as u32;
    let mark_packets = MARK_PACKETS;
    flows_of(system, Background { oversubscription, mark_packets, ..background })
}

/// Flows scheduled by an arbiter, with switches that aggregate in the chip: the effect of the
/// arbiter shows best where ordering costs least.
fn scheduled(system: System, flows: f64, has_classes: bool) -> Option<Task> {
    let is_scheduled = flows > 0.0;
    let background = Background { is_scheduled, ..Background::new(flows as u32, false) };
    let (queue_bytes, window_bytes) = (Some(QUEUE_BYTES), LONG_WINDOW_BYTES);
    let background = Background { has_classes, queue_bytes, window_bytes, ..background };
    let Task::Shared(setup, background) = flows_of(system, background)? else { return None };
    // Nothing overflows, so no queue has to be refilled.
    let setup = Setup { form: Form::Chip, warm_up_us: 5_000, measure_us: 1_000, ..setup };
    Some(Task::Shared(setup, background))
}

/// Unscheduled flows in a lower class than messages, with queues that overflow.
fn behind(system: System, flows: f64) -> Option<Task> {
    let background = Background::new(flows as u32, false);
    let (queue_bytes, window_bytes) = (Some(QUEUE_BYTES), LONG_WINDOW_BYTES);
    let background = Background { has_classes: true, queue_bytes, window_bytes, ..background };
    let Task::Shared(setup, background) = flows_of(system, background)? else { return None };
    // After a loss two Reno flows take 112 round trips of 50 us to fill the queue again.
    let setup = Setup { form: Form::Chip, warm_up_us: 6_000, measure_us: 6_000, ..setup };
    (flows == 0.0 || flows == 10.0).then_some(Task::Shared(setup, background))
}

/// Reno flows with long windows and queues that overflow: another assumption about the paper's
/// switches.
fn overflowing(system: System, flows: f64) -> Option<Task> {
    let background = Background::new(10, false);
    let (queue_bytes, window_bytes) = (Some(QUEUE_BYTES), LONG_WINDOW_BYTES);
    let background = Background { queue_bytes, window_bytes, ..background };
    let Task::Shared(setup, background) = flows_of(system, background)? else { return None };
    let setup = Setup { warm_up_us: 6_000, measure_us: 6_000, ..setup };
    (flows == 10.0).then_some(Task::Shared(setup, background))
}

macro_rules! curves {
    ($($name:literal, $column:expr, $remark:expr, $task:expr;)*) => {
        vec![$(Curve {
            name: $name,
            column: $column,
            role: Role::Predicted,
            remark: $remark,
            task: $task,
        }),*]
    };
}

/// Marks the point at `x` of the first curve, best effort, as the one by which the threshold of
/// marks was chosen.
fn calibrated_at(x: f64, mut curves: Vec<Curve>) -> Vec<Curve> {
    curves[0].role = Role::CalibratedAt { x, points: &[] };
    curves
}

/// Returns the difference of a curve between two positions.
fn more(measured: &Measured, curve: &str, at: f64, base: f64) -> Option<f64> {
    Some(measured.at(curve, at)? - measured.at(curve, base)?)
}

/// Verifies that a curve rises between two positions by as much as the paper's, within 25 %.
fn adds(
    measured: &Measured,
    curve: &str,
    (at, base): (f64, f64),
    paper_us: f64,
) -> Option<Verdict> {
    let more_us = more(measured, curve, at, base)?;
    let holds = is_near(more_us, paper_us);
    Some(Verdict::new(holds, format!("{more_us:.1} us"), format!("{paper_us:.1} us")))
}

/// Verifies that ten scheduled flows add less than 2 us (our design goal; no paper has this).
fn adds_little(measured: &Measured, curve: &str) -> Option<Verdict> {
    let more_us = more(measured, curve, 10.0, 0.0)?;
    let gbps = measured.other(curve, 10.0, "flows_gbps")?;
    let ours = format!("{more_us:.2} us, while flows carry {gbps:.0} Gbit/s for each host");
    Some(Verdict::new(more_us < 2.0, ours, "no scheduler".into()))
}

const SCHEDULED: [&str; 2] =
    ["best effort by chips, scheduled flows", "reliable by chips, scheduled flows"];
const IN_CLASSES: [&str; 2] = [
    "best effort by chips, scheduled flows, two classes",
    "reliable by chips, scheduled flows, two classes",
];
const BEHIND: &str = "reliable by chips, Reno flows, two classes";
const SCHEDULED_QUEUES: &str = "clocks are off by up to five timeslots of 127 ns here, and the path \
                                to a receiver has two to six links of 762 ns: packets of different \
                                timeslots meet before it; a reliable message waits in such queues \
                                on its own path and on those of its acknowledgement and of the \
                                commit";
const FEW_FLOWS: &str = "two flows leave queues below the threshold of marks (130 packets, by ten \
                         flows), and four reach it";

/// Figure 12a.
pub fn flows() -> Experiment {
    Experiment {
        id: "12a",
        title: "Latency beside background flows",
        headline: "with 10 TCP flows a host, 30 us more for best effort and 50 us for reliable",
        x: Axis { label: "background flows a host", is_log: false },
        y: Axis { label: "us from submission to delivery, mean", is_log: false },
        metric: "latency_mean_us",
        curves: calibrated_at(
            10.0,
            curves! {
                "best effort", Some("BE-host"), FEW_FLOWS, |x| beside(System::BestEffort, x, 1.0);
                "reliable", Some("R-host"), FEW_FLOWS, |x| beside(System::Reliable, x, 1.0);
                "best effort, Reno flows", None, "", |x| beside_reno(System::BestEffort, x, 1.0);
                "reliable, Reno flows", None, "", |x| beside_reno(System::Reliable, x, 1.0);
                "best effort by chips, scheduled flows", None, "", |x| {
                    scheduled(System::BestEffort, x, false)
                };
                "reliable by chips, scheduled flows", None, "", |x| scheduled(System::Reliable, x, false);
                "best effort by chips, scheduled flows, two classes", None, "", |x| {
                    scheduled(System::BestEffort, x, true)
                };
                "reliable by chips, scheduled flows, two classes", None, "", |x| {
                    scheduled(System::Reliable, x, true)
                };
                "reliable by chips, Reno flows, two classes", None, "", |x| behind(System::Reliable, x);
                "best effort, half the threshold", None, "", |x| marked_at_ten(System::BestEffort, x, 0.5);
                "best effort, twice the threshold", None, "", |x| marked_at_ten(System::BestEffort, x, 2.0);
                "best effort, queues overflow", None, "", |x| overflowing(System::BestEffort, x);
                "reliable, queues overflow", None, "", |x| overflowing(System::Reliable, x);
            },
        ),
        xs: &[0.0, 2.0, 4.0, 6.0, 8.0, 10.0],
        xs_quick: &[0.0, 10.0],
        reference: Reference::new(include_str!("../../data/background_flow_lat.tsv")),
        claims: vec![
            Claim {
                text: "ten flows a host add 30 us to best effort, by which the threshold of marks was \
                       chosen",
                verify: |measured| {
                    let ours = format!("{:.1} us", more(measured, "best effort", 10.0, 0.0)?);
                    Some(Verdict::calibration(ours, "30.3 us".into()))
                },
                remark: "",
            },
            Claim {
                text: "they add 50 us to reliable (within 25 %)",
                verify: |measured| adds(measured, "reliable", (10.0, 0.0), 75.32 - 26.71),
                remark: "",
            },
            Claim {
                text: "what ten flows add follows from the threshold of marks: half of it, all, and \
                       twice as much; Reno flows, which only windows limit, add more than all three",
                verify: |measured| {
                    let idle = measured.at("best effort", 0.0)?;
                    let names = [
                        "best effort, half the threshold",
                        "best effort",
                        "best effort, twice the threshold",
                        "best effort, Reno flows",
                    ];
                    let added: Option<Vec<f64>> =
                        names.iter().map(|name| Some(measured.at(name, 10.0)? - idle)).collect();
                    let added = added?;
                    let texts: Vec<String> = added.iter().map(|us| format!("{us:.1}")).collect();
                    let holds = added.windows(2).all(|pair| pair[0] < pair[1]);
                    let ours = format!("{} us", texts.join(", "));
                    Some(Verdict::new(holds, ours, "30.3 us; no threshold given".into()))
                },
                remark: "",
            },
            Claim {
                text: "ten flows scheduled by an arbiter (as in F-A) add less than 2 us to best \
                       effort",
                verify: |measured| adds_little(measured, SCHEDULED[0]),
                remark: SCHEDULED_QUEUES,
            },
            Claim {
                text: "ten flows scheduled by an arbiter add less than 2 us to reliable",
                verify: |measured| adds_little(measured, SCHEDULED[1]),
                remark: SCHEDULED_QUEUES,
            },
            Claim {
                text: "with two classes on links, messages before flows, scheduled flows add less \
                       than 2 us to best effort",
                verify: |measured| adds_little(measured, IN_CLASSES[0]),
                remark: "",
            },
            Claim {
                text: "with two classes on links, scheduled flows add less than 2 us to reliable",
                verify: |measured| adds_little(measured, IN_CLASSES[1]),
                remark: "",
            },
            Claim {
                text: "the classes alone are enough for messages, but not for the flows: frames of \
                       unscheduled flows overflow, frames of scheduled flows do not",
                verify: |measured| {
                    let more_us = more(measured, BEHIND, 10.0, 0.0)?;
                    let lost = |curve| measured.other(curve, 10.0, "frames_overflowed");
                    let (behind, scheduled) = (lost(BEHIND)?, lost(IN_CLASSES[1])?);
                    let ours =
                        format!("{more_us:.2} us more; {behind:.0} and {scheduled:.0} frames");
                    let holds = more_us < 2.0 && behind > 0.0 && scheduled == 0.0;
                    Some(Verdict::new(holds, ours, "no scheduler".into()))
                },
                remark: "",
            },
            Claim {
                text: "ten flows cost reliable more than best effort",
                verify: |measured| {
                    let reliable = more(measured, "reliable", 10.0, 0.0)?;
                    let best_effort = more(measured, "best effort", 10.0, 0.0)?;
                    let ours = format!("{:.1} times as much", reliable / best_effort);
                    let holds = reliable > best_effort;
                    Some(Verdict::new(holds, ours, "1.6 times as much".into()))
                },
                remark: "",
            },
            Claim {
                text: "two flows add half of what ten add to best effort (within 25 %)",
                verify: |measured| {
                    let (ten, two) = (
                        more(measured, "best effort", 10.0, 0.0)?,
                        more(measured, "best effort", 2.0, 0.0)?,
                    );
                    let ours = format!("{:.2}: {two:.1} and {ten:.1} us", two / ten);
                    let paper = "0.49: 14.7 and 30.3 us".into();
                    Some(Verdict::new(is_near(two / ten, 0.49), ours, paper))
                },
                remark: FEW_FLOWS,
            },
        ],
    }
}

/// Figure 12b.
pub fn oversubscription() -> Experiment {
    Experiment {
        id: "12b",
        title: "Latency on an oversubscribed fabric, ten flows a host",
        headline: "six times too narrow, 30 us more for best effort and 37 us for reliable",
        x: Axis { label: "oversubscription, to 1", is_log: false },
        y: Axis { label: "us from submission to delivery, mean", is_log: false },
        metric: "latency_mean_us",
        curves: calibrated_at(
            1.0,
            curves! {
                "best effort", Some("BE-host"), NARROW, |x| beside(System::BestEffort, 10.0, x);
                "reliable", Some("R-host"), NARROW, |x| beside(System::Reliable, 10.0, x);
                "best effort, Reno flows", None, "", |x| beside_reno(System::BestEffort, 10.0, x);
                "reliable, Reno flows", None, "", |x| beside_reno(System::Reliable, 10.0, x);
            },
        ),
        xs: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        xs_quick: &[1.0, 6.0],
        reference: Reference::new(include_str!("../../data/oversubscription_lat.tsv")),
        claims: vec![
            Claim {
                text: "six times too narrow, 30 us more for best effort (within 25 %)",
                verify: |measured| adds(measured, "best effort", (6.0, 1.0), 76.08 - 46.31),
                remark: NARROW,
            },
            Claim {
                text: "six times too narrow, 37 us more for reliable (within 25 %)",
                verify: |measured| adds(measured, "reliable", (6.0, 1.0), 112.80 - 75.32),
                remark: NARROW,
            },
            Claim {
                text: "every oversubscribed fabric is slower than one that is not",
                verify: |measured| {
                    let least = [2.0, 3.0, 4.0, 5.0, 6.0].into_iter().filter_map(|ratio| {
                        let more = more(measured, "best effort", ratio, 1.0)?;
                        Some((ratio, more))
                    });
                    let (ratio, least) = least.reduce(|one, other| match one.1 < other.1 {
                        true => one,
                        false => other,
                    })?;
                    let ours = format!("{least:.1} us more at least, at {ratio}:1");
                    let paper = "6.7 us more at least, at 2:1".into();
                    Some(Verdict::new(least > 0.0, ours, paper))
                },
                remark: "",
            },
        ],
    }
}
