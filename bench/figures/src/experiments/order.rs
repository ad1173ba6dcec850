//! Figure 8: total order by 1Pipe and by rival systems.

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

mod latency;

use onepipe_wire::{HEADER_LEN, MESSAGE_HEADER_LEN, ORDERING_HEADER_LEN};

pub use self::latency::latency;
use crate::experiment::{
    Axis, Claim, ContradictedPoints, Curve, Experiment, Measured, Role, Verdict, is_near,
};
use crate::reference::Reference;
use crate::verdict::{Better, Contradiction, Stated};
use crate::{Calibration, Setup, System, Task, Threads, Traffic};

const XS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
const XS_QUICK: &[f64] = &[2.0, 8.0, 16.0, 32.0, 64.0];

const LINK: &str = "\
     the links of hosts carry 3.9 to 4.2 M/s a process: a message of 64 bytes takes 186 bytes of \
     them, and 202 with an acknowledgement in front of it";
/// Best effort at a load that the links of hosts carry.
const CARRIED: &str = "best effort, 3.85 M/s offered";
/// Time between the messages of a process of [`CARRIED`], in ns.
const CARRIED_EVERY_NS: u64 = 260;
const REPLIES: &str = "\
     up to 256 processes the polling thread is the limit, 256 ns for a message and the \
     acknowledgement of another; at 512 the links of hosts are full, as a commit waits for the \
     acknowledgement of each message";
const IN_OWN_FRAMES: &str = "Lamport";
const ONE_THREAD: &str = "reliable, one thread";
const BE_ONE_THREAD: &str = "best effort, one thread";
const SHORT_VISITS: &str = "token, 5 of each";
const RIVALS: [&str; 5] =
    ["switch sequencer", "host sequencer", "token", SHARED_FRAMES, IN_OWN_FRAMES];
/// The columns of [`RIVALS`] in the paper's tables.
const PAPER_RIVALS: [&str; 4] = ["SwitchSeq", "HostSeq", "Token", "Lamport"];
/// Messages that the processes of a rival have submitted and not delivered, by the paper's own
/// points with 512 processes: rate (figure 8a) times latency (figure 8b). The host sequencer has
/// 0.106 M/s x 512 x 61.46 us of them in all.
const HOST_BACKLOG: u32 = 3_335;
/// The token has 0.00745 M/s x 604.4 us of each process.
const TOKEN_BACKLOG: u32 = 5;
/// Up to 32 processes each has a host of its own (section 7.1), and a token takes 2.2 us at least
/// to the next one (figure 9a, unordered, one rack). With messages of 0.2 us, 5 M/s, it does the
/// total of figure 8a, 3.6 to 3.9 M/s, if each visit has 29 messages, so a round of two visits
/// takes 16 us. A message waits for half a round and travels then.
const TOKEN_POINTS: &[ContradictedPoints] = &[ContradictedPoints {
    first: 2.0,
    last: 32.0,
    numbers: Contradiction::Exceeds(
        Stated {
            value: 10.2,
            text: "10.2 us, with 8 processes 34, that a message waits and travels at the rates of \
                   figure 8a (29 messages a visit, as a hop takes 2.2 us by figure 9a)",
        },
        Stated { value: 2.46, text: "2.46 us, with 8 processes 7.3 (figure 8b)" },
    ),
}];
const THROUGHPUT: &str = include_str!("../../data/total_order.tsv");
const LATENCY: &str = include_str!("../../data/total_order_lat.tsv");
const SWITCH: &str = "";
/// Time of the host sequencer for a message, in ns: with it the sequencer orders the 54 M/s of
/// figure 8a's point at 512 processes.
const HOST_SEQUENCER_NS: u64 = 15;
const TOKEN: &str = "\
     from 64 processes on several share a host, and a hop of the token between them takes no link: \
     the hops of a round to other hosts stay 32, and all processes together do 4.2 to 4.9 M/s. The \
     paper's do 3.5 to 3.9 with any number of processes";
/// A better form of the rival than the paper's, so it is not compared with the paper's points.
const SHARED_FRAMES: &str = "Lamport, clocks in the frames of messages";
const OWN_FRAMES: &str = "clocks are exchanged at intervals as long as the latencies of figure 8b. With \
                          64 processes they then take a quarter of the rate, and the paper has half \
                          of it there, at a latency of 43 us";
const BEST_RIVAL: &str = "the best one is Lamport's method with clocks in the frames of messages, which \
                          the paper does not have: with clocks in frames of their own see its curve";

/// Traffic at the full rate of a process.
fn full_rate(system: System, processes: f64) -> Option<Task> {
    Some(Task::Order(super::setup(system, processes, Traffic::AllToAll { every_ns: 200 })))
}

/// Traffic at half rate: queues stay short where nothing is overloaded.
fn half_rate(system: System, processes: f64) -> Option<Task> {
    Some(Task::Order(super::setup(system, processes, Traffic::AllToAll { every_ns: 400 })))
}

/// Traffic at a rate that the links of hosts carry with 512 processes.
fn carried_rate(processes: f64) -> Option<Task> {
    let traffic = Traffic::AllToAll { every_ns: CARRIED_EVERY_NS };
    (processes == 512.0).then(|| Task::Order(super::setup(System::BestEffort, processes, traffic)))
}

/// Scatterings of one message to all others, offered at twice the rate at which a process sends
/// messages one by one.
fn broadcast(system: System, processes: f64) -> Option<Task> {
    let every_ns = (processes as u64 - 1) * 100;
    Some(Task::Order(super::setup(system, processes, Traffic::Broadcast { every_ns })))
}

/// Lamport's method with clocks in frames of their own, at intervals as long as the latencies of
/// figure 8b: the paper exchanges clocks "per interval" (section 7.2), which is a compromise
/// between latency and throughput, and gives no interval.
fn clocks_in_own_frames(task: Option<Task>) -> Option<Task> {
    changed(task, |setup| {
        let latency_us = Reference::new(LATENCY).at("Lamport", setup.processes.into());
        let clock_interval_ns = latency_us.map(|us| (us * 1e3).round() as u64);
        // Several intervals, as a process sends no messages while it sends its clock to all others.
        let intervals_us = latency_us.map_or(0, |us| (5.0 * us) as u64);
        let measure_us = setup.measure_us.max(intervals_us);
        let warm_up_us = setup.warm_up_us.max(intervals_us);
        Setup { has_clock_frames: true, clock_interval_ns, warm_up_us, measure_us, ..setup }
    })
}

/// A host sequencer with the backlog and the rate of the paper's with 512 processes.
fn host_sequencer(task: Option<Task>) -> Option<Task> {
    changed(task, |setup| {
        let host_message_ns = HOST_SEQUENCER_NS;
        let calibration = Calibration { host_message_ns, ..setup.calibration };
        Setup { rival_backlog: Some(HOST_BACKLOG), calibration, ..setup }
    })
}

/// A token with the backlog of the paper's with 512 processes, measured for several rounds.
fn short_visits(task: Option<Task>) -> Option<Task> {
    let task = changed(task, |setup| Setup {
        rival_backlog: Some(TOKEN_BACKLOG * setup.processes),
        ..setup
    });
    several_rounds(task, 4)
}

/// A token whose processes have up to 64 messages each, measured for several rounds.
fn long_visits(task: Option<Task>) -> Option<Task> {
    several_rounds(task, 16)
}

/// Measures four rounds of a token whose visits take up to `visit_us`, after two.
fn several_rounds(task: Option<Task>, visit_us: u64) -> Option<Task> {
    match task? {
        Task::Order(setup) => {
            let round_us = visit_us * u64::from(setup.processes);
            let warm_up_us = setup.warm_up_us.max(100 + 2 * round_us);
            let measure_us = setup.measure_us.max(4 * round_us);
            Some(Task::Order(Setup { warm_up_us, measure_us, ..setup }))
        }
        _ => None,
    }
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

/// Returns the curve of a rival whose backlog is that of the paper's with 512 processes.
fn calibrated(
    name: &'static str,
    column: &'static str,
    remark: &'static str,
    task: fn(f64) -> Option<Task>,
) -> Curve {
    let role = Role::CalibratedAt { x: 512.0, points: &[] };
    Curve { role, ..Curve::predicted(name, Some(column), remark, task) }
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
            },
            [
                Curve::predicted(SHARED_FRAMES, None, "", |x| full_rate(System::Lamport, x)),
                Curve::predicted(IN_OWN_FRAMES, Some("Lamport"), OWN_FRAMES, |x| {
                    clocks_in_own_frames(full_rate(System::Lamport, x))
                }),
                calibrated("host sequencer", "HostSeq", "", |x| {
                    host_sequencer(full_rate(System::HostSequencer, x))
                }),
                Curve::predicted("token", Some("Token"), TOKEN, |x| {
                    long_visits(full_rate(System::Token, x))
                }),
                Curve {
                    role: Role::Ours(Better::Higher),
                    ..Curve::predicted(CARRIED, Some("1Pipe/BE"), "", carried_rate)
                },
                Curve::predicted("best effort, broadcasts", None, "", |x| {
                    broadcast(System::BestEffort, x)
                }),
                Curve::predicted("reliable, broadcasts", None, "", |x| {
                    broadcast(System::Reliable, x)
                }),
                Curve::predicted("host sequencer, 64 of each", None, "", |x| {
                    full_rate(System::HostSequencer, x)
                }),
                Curve::predicted(SHORT_VISITS, None, "", |x| {
                    short_visits(full_rate(System::Token, x))
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
                text: "(reason) what the links carry is delivered: of 3.85 M/s offered by each of 512 \
                       processes at least 97 %, within 50 us on average",
                verify: |measured| {
                    let rate = measured.at(CARRIED, 512.0)?;
                    let us = measured.other(CARRIED, 512.0, "latency_mean_us")?;
                    let offered = 1e3 / CARRIED_EVERY_NS as f64;
                    let ours = format!("{:.0} %, {us:.1} us", 100.0 * rate / offered);
                    let holds = rate >= 0.97 * offered && us < 50.0;
                    Some(Verdict::new(holds, ours, "not given".into()))
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
