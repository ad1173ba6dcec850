//! Figure 8: total order by 1Pipe and by rival systems.

use onepipe_wire::{HEADER_LEN, MESSAGE_HEADER_LEN, ORDERING_HEADER_LEN};

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Verdict, is_near};
use crate::reference::Reference;
use crate::verdict::Better;
use crate::{Setup, System, Task, Threads, Traffic};

const XS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
const XS_QUICK: &[f64] = &[2.0, 8.0, 16.0, 32.0, 64.0];

const LINK: &str = "the links of hosts are full: a message of 64 bytes and an \
                    acknowledgement in front of it take 198 bytes of them";
const REPLIES: &str = "a commit waits for the acknowledgement of each message, so none is delayed, \
                       and each is a frame that costs its sender as much as a message: with many \
                       receivers that is half of its rate";
const IN_OWN_FRAMES: &str = "Lamport, clocks in frames of their own";
const ONE_THREAD: &str = "reliable, one thread";
const BE_ONE_THREAD: &str = "best effort, one thread";
const HALF_LOAD: &str = "best effort, half load";
const RIVALS: [&str; 5] = ["switch sequencer", "host sequencer", "token", "Lamport", IN_OWN_FRAMES];
/// The columns of [`RIVALS`] in the paper's tables.
const PAPER_RIVALS: [&str; 4] = ["SwitchSeq", "HostSeq", "Token", "Lamport"];
const BACKLOG_IN_ALL: u32 = 4_096;
const THROUGHPUT: &str = include_str!("../../data/total_order.tsv");
const LATENCY: &str = include_str!("../../data/total_order_lat.tsv");
const SWITCH: &str = "4,096 messages in all do not fill the links to its switch with 128 processes; 64 of each do, see \
                      the other curve";
const HOST: &str = "its host takes the text's 12 ns per message; why the paper's orders 54 and not 80 \
                    M/s is not known";
const TOKEN: &str = "its holder sends everything that waits: for 64 messages of each process and for \
                    4,096 in all see both curves";
const LAMPORT: &str = "clocks share frames with messages, so they cost less than the half of the rate \
                    that they may take: see the curve with frames of their own";
const OWN_FRAMES: &str = "clocks take a third to a half of the rate at any number of processes; the \
                          paper's points have the full rate up to 16 and half of it from 64 on";
const BEST_RIVAL: &str =
    "Lamport's clocks share frames with messages; with frames of their own see its curve";
const SWITCH_LATENCY: &str = "on the path it orders without waiting for barriers, until its links are full; then latency is \
                      the backlog over the rate: see both curves";
const HOST_LATENCY: &str = "at half load it is saturated, the paper's from 16 processes on, and latency is \
                    the backlog over the rate: see both curves";
const TOKEN_LATENCY: &str = "it is saturated at half load, and most of the latency is queueing at each \
                    member; the paper's 604 us with 512 processes are 1.2 us a member, less than a hop";
const BY_HOSTS: &str = "the detour of beacons to the hosts, see 9a";
const BUSY: &str = "";
const BACKLOG: &str = "a saturated rival's latency is its backlog over its rate, and the paper gives no \
                    backlog: see the curves with 4,096 in all";

/// Traffic at the full rate of a process.
fn full_rate(system: System, processes: f64) -> Option<Task> {
    Some(Task::Order(super::setup(system, processes, Traffic::AllToAll { every_ns: 200 })))
}

/// Traffic at half rate: queues stay short where nothing is overloaded.
fn half_rate(system: System, processes: f64) -> Option<Task> {
    Some(Task::Order(super::setup(system, processes, Traffic::AllToAll { every_ns: 400 })))
}

/// Lamport's method with clocks in frames of their own.
fn clocks_in_own_frames(task: Option<Task>) -> Option<Task> {
    changed(task, |setup| Setup { has_clock_frames: true, ..setup })
}

/// A rival whose processes together have a bounded number of undelivered messages. The paper gives
/// no backlog: this number and the 64 messages of each process are assumptions.
fn in_all(task: Option<Task>) -> Option<Task> {
    changed(task, |setup| Setup { rival_backlog: Some(BACKLOG_IN_ALL), ..setup })
}

/// Processes whose sending thread sends acknowledgements, too.
fn one_thread(task: Option<Task>) -> Option<Task> {
    changed(task, |setup| Setup { threads: Threads::One, ..setup })
}

fn changed(task: Option<Task>, change: fn(Setup) -> Setup) -> Option<Task> {
    match task? {
        Task::Order(setup) => Some(Task::Order(change(setup))),
        _ => None,
    }
}

/// Returns the role of a system's curve: only ours can be better than the paper's.
fn role_of(system: System, better: Better) -> Role {
    match system {
        System::BestEffort | System::Reliable => Role::Ours(better),
        _ => Role::Predicted,
    }
}

macro_rules! curves {
    ($load:ident, $better:expr, $($name:literal, $column:literal, $system:ident, $remark:expr;)*) => {
        vec![$(Curve {
            name: $name,
            column: Some($column),
            role: role_of(System::$system, $better),
            remark: $remark,
            task: |x| $load(System::$system, x),
        }),*]
    };
}

fn with_curves(mut curves: Vec<Curve>, more: impl IntoIterator<Item = Curve>) -> Vec<Curve> {
    curves.extend(more);
    curves
}

/// Returns the values of all rivals at `x`, without those that were not measured.
fn rivals_at(measured: &Measured, x: f64) -> Vec<f64> {
    RIVALS.iter().filter_map(|rival| measured.at(rival, x)).collect()
}

/// Returns the least and the highest value of a paper's rivals at 512 processes.
fn paper_rivals(table: &'static str) -> Option<(f64, f64)> {
    let reference = Reference::new(table);
    let all: Option<Vec<f64>> =
        PAPER_RIVALS.iter().map(|rival| reference.at(rival, 512.0)).collect();
    least_and_most(&all?)
}

fn least_and_most(values: &[f64]) -> Option<(f64, f64)> {
    let all = || values.iter().copied();
    Some((all().reduce(f64::min)?, all().reduce(f64::max)?))
}

/// Returns the last x at which both curves were measured, with their values.
fn last_common(measured: &Measured, one: &str, other: &str) -> Option<(f64, f64, f64)> {
    XS.iter().rev().find_map(|x| Some((*x, measured.at(one, *x)?, measured.at(other, *x)?)))
}

/// Compares the x from which a curve lies below three quarters of its value at two processes with
/// the paper's; it holds within a factor of two.
fn falls_off(measured: &Measured, curve: &str, paper: f64) -> Option<Verdict> {
    let two = measured.at(curve, 2.0)?;
    let at = XS.iter().find(|x| measured.at(curve, **x).is_some_and(|rate| rate < 0.75 * two));
    // A curve without a bend counts only if it was measured far enough.
    let ours = match at {
        Some(x) => format!("from {x} on"),
        None => format!("not up to {}", last_common(measured, curve, curve)?.0),
    };
    let holds = at.is_some_and(|x| (paper / 2.0..=paper * 2.0).contains(x));
    Some(Verdict::new(holds, ours, format!("from {paper} on")))
}

/// Compares the value of a curve at 512 processes, times a factor, with the paper's; it holds
/// within 25 %.
fn at_512(
    measured: &Measured,
    curve: &str,
    factor: f64,
    unit: &str,
    better: Better,
    paper: f64,
) -> Option<Verdict> {
    let value = measured.at(curve, 512.0)? * factor;
    Some(Verdict::near(value, paper, better, unit))
}

/// Figure 8a.
pub fn throughput() -> Experiment {
    Experiment {
        id: "8a",
        title: "Total order: messages a process",
        headline: "5 M messages/s a process, flat to 512; reliable 25 % less; sequencers, token and \
                   Lamport fall off",
        x: Axis { label: "processes", is_log: true },
        y: Axis { label: "M messages/s a process", is_log: false },
        metric: "throughput_mps",
        curves: with_curves(
            curves! { full_rate, Better::Higher,
                "best effort", "1Pipe/BE", BestEffort,
                    LINK;
                "reliable", "1Pipe/R", Reliable, REPLIES;
                "switch sequencer", "SwitchSeq", SwitchSequencer,
                    SWITCH;
                "host sequencer", "HostSeq", HostSequencer,
                    HOST;
                "token", "Token", Token, TOKEN;
                "Lamport", "Lamport", Lamport, LAMPORT;
            },
            [
                Curve::predicted(IN_OWN_FRAMES, Some("Lamport"), OWN_FRAMES, |x| {
                    clocks_in_own_frames(full_rate(System::Lamport, x))
                }),
                Curve::predicted(
                    "switch sequencer, 4,096 in all",
                    Some("SwitchSeq"),
                    SWITCH,
                    |x| in_all(full_rate(System::SwitchSequencer, x)),
                ),
                Curve::predicted("host sequencer, 4,096 in all", Some("HostSeq"), HOST, |x| {
                    in_all(full_rate(System::HostSequencer, x))
                }),
                Curve::predicted("token, 4,096 in all", Some("Token"), TOKEN, |x| {
                    in_all(full_rate(System::Token, x))
                }),
                Curve::predicted(ONE_THREAD, None, "", |x| {
                    one_thread(full_rate(System::Reliable, x))
                }),
                Curve::predicted(BE_ONE_THREAD, None, "", |x| {
                    one_thread(full_rate(System::BestEffort, x))
                }),
                Curve::predicted("best effort, by hosts", None, "", |x| {
                    super::by_hosts(full_rate(System::BestEffort, x))
                }),
            ],
        ),
        xs: XS,
        xs_quick: XS_QUICK,
        reference: Reference::new(THROUGHPUT),
        claims: vec![
            Claim {
                text: "best effort is flat: the largest fabric keeps three quarters of two processes",
                verify: |measured| {
                    let (x, last, _) = last_common(measured, "best effort", "best effort")?;
                    let ratio = last / measured.at("best effort", 2.0)?;
                    let ours = format!("{ratio:.2} at {x}");
                    Some(Verdict::new(ratio >= 0.75, ours, "0.98 at 512".into()))
                },
                remark: LINK,
            },
            Claim {
                text: "80 M messages/s per host with 512 processes",
                verify: |measured| {
                    at_512(measured, "best effort", 16.0, "M/s", Better::Higher, 80.0)
                },
                remark: LINK,
            },
            Claim {
                text: "reliable does 25 % less than best effort (here: 15 to 35, in the median)",
                verify: |measured| {
                    let ratio = |x: &f64| {
                        Some(measured.at("reliable", *x)? / measured.at("best effort", *x)?)
                    };
                    let mut ratios: Vec<f64> = XS.iter().filter_map(ratio).collect();
                    ratios.sort_by(f64::total_cmp);
                    let (least, most) = (ratios.first()?, ratios.last()?);
                    let less = |ratio: f64| 100.0 * (1.0 - ratio);
                    let median = less(ratios[ratios.len() / 2]);
                    let (least, most) = (less(*most), less(*least));
                    let ours = format!("{median:.0} % ({least:.0} to {most:.0})");
                    let holds = (15.0..=35.0).contains(&median);
                    Some(Verdict::new(holds, ours, "24 to 25 %".into()))
                },
                remark: REPLIES,
            },
            Claim {
                text: "a host sequencer falls off at 16 processes (below 3/4 of two; within a factor of \
                       two)",
                verify: |measured| falls_off(measured, "host sequencer", 16.0),
                remark: "",
            },
            Claim {
                text: "a switch sequencer falls off at 256 processes",
                verify: |measured| falls_off(measured, "switch sequencer", 256.0),
                remark: SWITCH,
            },
            Claim {
                text: "throughput does not depend on where barriers are aggregated: hosts within \
                       5 % of chips",
                verify: |measured| {
                    let (x, chip, host) =
                        last_common(measured, "best effort", "best effort, by hosts")?;
                    let ours = format!("{:.2} of it at {x}", host / chip);
                    let holds = (0.95..=1.05).contains(&(host / chip));
                    Some(Verdict::new(holds, ours, "the same (section 7.2)".into()))
                },
                remark: "",
            },
            Claim {
                text: "best effort beats every rival at the largest fabric",
                verify: |measured| {
                    let (x, ours, _) = last_common(measured, "best effort", "best effort")?;
                    let (_, best) = least_and_most(&rivals_at(measured, x))?;
                    let (_, paper_best) = paper_rivals(THROUGHPUT)?;
                    let paper = Reference::new(THROUGHPUT).at("1Pipe/BE", 512.0)? / paper_best;
                    let text = format!("{:.1} times the best of them at {x}", ours / best);
                    Some(Verdict::new(ours > best, text, format!("{paper:.1} times at 512")))
                },
                remark: BEST_RIVAL,
            },
            Claim {
                text: "(reason) with one thread, which sends acknowledgements, too, a process does \
                       half of 5 M reliable messages/s with 128 processes (within 25 %)",
                verify: |measured| {
                    let one = measured.at(ONE_THREAD, 128.0)?;
                    let ours = match measured.at("reliable", 128.0) {
                        Some(two) => format!("{one:.2} M/s, with two threads {two:.2}"),
                        None => format!("{one:.2} M/s"),
                    };
                    Some(Verdict::new(is_near(one, 2.5), ours, "not given".into()))
                },
                remark: "",
            },
            Claim {
                text: "a message has 24 bytes of header (section 6.1)",
                verify: |_| {
                    let all = HEADER_LEN + MESSAGE_HEADER_LEN;
                    let ours = format!(
                        "{ORDERING_HEADER_LEN} for the order; {all} in all, {HEADER_LEN} for a message \
                         that is alone in its frame, behind UDP instead of RoCE"
                    );
                    Some(Verdict::new(ORDERING_HEADER_LEN <= 24, ours, "24 bytes".into()))
                },
                remark: "",
            },
            Claim {
                text: "the token's throughput falls as one over the number of processes (the total of \
                       512 to that of 8, within 25 %)",
                verify: |measured| {
                    let (x, last, _) = last_common(measured, "token", "token")?;
                    let product = last * x / (measured.at("token", 8.0)? * 8.0);
                    let ours = format!("{product:.2} of the total of 8 processes, at {x}");
                    let holds = is_near(product, 1.05);
                    Some(Verdict::new(holds, ours, "1.05 at 512".into()))
                },
                remark: TOKEN,
            },
        ],
    }
}

/// Figure 8b.
pub fn latency() -> Experiment {
    Experiment {
        id: "8b",
        title: "Total order: latency, of ours on an idle fabric, of the rivals at half load",
        headline: "7.4 us at 512 processes (chip); rivals 61 to 604 us",
        x: Axis { label: "processes", is_log: true },
        y: Axis { label: "us from submission to delivery, mean", is_log: true },
        metric: "latency_mean_us",
        curves: with_curves(
            curves! { half_rate, Better::Lower,
                "switch sequencer", "SwitchSeq", SwitchSequencer, SWITCH_LATENCY;
                "host sequencer", "HostSeq", HostSequencer, HOST_LATENCY;
                "token", "Token", Token, TOKEN_LATENCY;
                "Lamport", "Lamport", Lamport, LAMPORT;
            },
            [
                Curve {
                    role: Role::Ours(Better::Lower),
                    ..Curve::predicted("best effort", Some("1Pipe/chip"), "", |x| {
                        super::idle(System::BestEffort, x)
                    })
                },
                Curve {
                    role: Role::Ours(Better::Lower),
                    ..Curve::predicted("best effort, by hosts", Some("1Pipe/host"), BY_HOSTS, |x| {
                        super::several_switches(super::by_hosts(super::idle(System::BestEffort, x)))
                    })
                },
                Curve {
                    role: Role::Calibration,
                    ..Curve::predicted(
                        "best effort, by hosts, over one switch",
                        Some("1Pipe/host"),
                        "",
                        |x| super::one_switch(super::by_hosts(super::idle(System::BestEffort, x))),
                    )
                },
                Curve::predicted(HALF_LOAD, None, "", |x| half_rate(System::BestEffort, x)),
                Curve::predicted("best effort, by hosts, half load", None, "", |x| {
                    super::by_hosts(half_rate(System::BestEffort, x))
                }),
                Curve::predicted("unordered", None, "", |x| super::idle(System::Unordered, x)),
                Curve::predicted("unordered, half load", None, "", |x| {
                    half_rate(System::Unordered, x)
                }),
                Curve::predicted(IN_OWN_FRAMES, Some("Lamport"), OWN_FRAMES, |x| {
                    clocks_in_own_frames(half_rate(System::Lamport, x))
                }),
                Curve::predicted(
                    "switch sequencer, 4,096 in all",
                    Some("SwitchSeq"),
                    SWITCH_LATENCY,
                    |x| in_all(half_rate(System::SwitchSequencer, x)),
                ),
                Curve::predicted(
                    "host sequencer, 4,096 in all",
                    Some("HostSeq"),
                    HOST_LATENCY,
                    |x| in_all(half_rate(System::HostSequencer, x)),
                ),
                Curve::predicted("token, 4,096 in all", Some("Token"), TOKEN_LATENCY, |x| {
                    in_all(half_rate(System::Token, x))
                }),
            ],
        ),
        xs: XS,
        xs_quick: XS_QUICK,
        reference: Reference::new(LATENCY),
        claims: vec![
            Claim {
                text: "7.4 us by chips with 512 processes (idle, as in 9a: the paper's points are 9a's)",
                verify: |measured| at_512(measured, "best effort", 1.0, "us", Better::Lower, 7.4),
                remark: "",
            },
            Claim {
                text: "16 us by hosts with 512 processes (idle)",
                verify: |measured| {
                    at_512(measured, "best effort, by hosts", 1.0, "us", Better::Lower, 16.0)
                },
                remark: "the detour of beacons to the hosts, see 9a",
            },
            Claim {
                text: "the fastest and the slowest rival take 61 and 604 us with 512 processes (each \
                       within 25 %)",
                verify: |measured| {
                    let (least, most) = least_and_most(&rivals_at(measured, 512.0))?;
                    let (paper_least, paper_most) = paper_rivals(LATENCY)?;
                    let holds = is_near(least, paper_least) && is_near(most, paper_most);
                    let paper = format!("{paper_least:.0} and {paper_most:.0} us");
                    Some(Verdict::new(holds, format!("{least:.0} and {most:.0} us"), paper))
                },
                remark: BACKLOG,
            },
            Claim {
                text: "Lamport clocks take 200 us with 512 processes even if half of the throughput is \
                       used for them (clocks in frames of their own, within 25 %)",
                verify: |measured| {
                    let us = measured.at(IN_OWN_FRAMES, 512.0)?;
                    Some(Verdict::new(is_near(us, 200.0), format!("{us:.0} us"), "200 us".into()))
                },
                remark: OWN_FRAMES,
            },
            Claim {
                text: "a message waits for the clock skew alone when links are busy, and for half an \
                       interval as well when they are idle (section 6.2.1; 32 processes): 1.5 us less \
                       (within 25 %)",
                verify: |measured| {
                    let over =
                        |one, other| Some(measured.at(one, 32.0)? - measured.at(other, 32.0)?);
                    let idle = over("best effort", "unordered")?;
                    let busy = over(HALF_LOAD, "unordered, half load")?;
                    let ours = format!(
                        "{:.2} us less: {busy:.2} us over unordered under half load, {idle:.2} idle",
                        idle - busy
                    );
                    Some(Verdict::new(is_near(idle - busy, 1.5), ours, "1.5 us less".into()))
                },
                remark: BUSY,
            },
            Claim {
                text: "best effort beats every rival at the same load, half, from 16 processes on",
                verify: |measured| {
                    let least = XS.iter().filter(|x| **x >= 16.0).filter_map(|x| {
                        let (rival, _) = least_and_most(&rivals_at(measured, *x))?;
                        Some((rival / measured.at(HALF_LOAD, *x)?, *x))
                    });
                    let (least, x) = least.min_by(|one, other| one.0.total_cmp(&other.0))?;
                    let ours = format!("the best rival takes {least:.2} times as long, at {x}");
                    let paper = "1.19 times at the least, at 16".into();
                    Some(Verdict::new(least > 1.0, ours, paper))
                },
                remark: SWITCH_LATENCY,
            },
        ],
    }
}
