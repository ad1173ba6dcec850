//! Fastpass section 7 on its rack of 32: queues, ping times, shares, and retransmissions.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict, is_near};
use crate::reference::Reference;
use crate::verdict::Better;
use crate::{Rack, RackTraffic, Scheduler};

const TCP: &str = "TCP";
const DCTCP: &str = "DCTCP";
const ARBITER: &str = "arbiter";
const TCP_CHANGING: &str = "TCP, they come and go";
const DCTCP_CHANGING: &str = "DCTCP, they come and go";
const ARBITER_CHANGING: &str = "arbiter, they come and go";
/// Percentiles in the paper's tables.
const PERCENTILES: &[f64] = &[50.0, 90.0, 99.0, 99.9];
/// Averaging intervals of throughput, in seconds.
const INTERVALS: &[f64] = &[0.1, 1.0];
const LOADS: &[f64] = &[0.1, 0.3, 0.5, 0.7, 0.9, 0.99];
/// Numbers of hosts that respond to one host at the same time.
const SENDERS: &[f64] = &[8.0, 16.0, 24.0];

const RENO: &str = "Reno, where the paper's hosts used Linux's default (it does not say which)";
const NO_HOST: &str = "hosts send in their timeslots to the ns; for hosts that are late see the last \
                       curve";
const CONTROL: &str = "a request and a grant packet in 64 timeslots: their headers alone take 104 \
                       bytes each, of which 38 are ours; for half as many see the curve \"a \
                       request in 128 timeslots\", where a frame waits longer (wait_slots)";
const CONTROL_FEW: &str = "as with all others";
const CONTROL_FOUR: &str = "\
     four senders share the timeslots of one link, and each of them exchanges a request and a grant \
     packet in 64 timeslots, whatever its share: see the curve \"arbiter, a request in 128 timeslots\"";
const LATE: &str = "arbiter, hosts up to 15 us late";
const LATE_REMARK: &str = "hosts that are up to 15 us late give a third of the paper's median queue, and \
                           less of its tail: the paper does not say how late its hosts are";
const SPARSE: &str = "arbiter, a request in 128 timeslots";
const SPARSE_FEW: &str = "arbiter (each to four others), a request in 128 timeslots";
const FEW: &str = "arbiter (each to four others)";
/// Number of receivers of each endpoint in the curve [`FEW`].
const PEERS: u32 = 4;
const NO_KERNEL: &str = "a reply passes no kernel here, only links of 1 us; what is left is the \
                         arbiter's batches and its lead";

fn run(scheduler: Scheduler, traffic: RackTraffic) -> Option<Task> {
    Some(Task::Rack(Rack { scheduler, traffic, seed: 1 }))
}

/// Returns the same run for every percentile: it measures all of them.
fn four_senders(scheduler: Scheduler, _percent: f64) -> Option<Task> {
    run(scheduler, RackTraffic::FourSenders)
}

fn five_senders(scheduler: Scheduler, seconds: f64) -> Option<Task> {
    run(scheduler, RackTraffic::FiveSenders { interval_ms: (seconds * 1e3).round() as u32 })
}

fn come_and_go(scheduler: Scheduler, seconds: f64) -> Option<Task> {
    run(scheduler, RackTraffic::ComeAndGo { interval_ms: (seconds * 1e3).round() as u32 })
}

fn incast(scheduler: Scheduler, senders: f64) -> Option<Task> {
    run(scheduler, RackTraffic::Incast { senders: senders as u32 })
}

macro_rules! curves {
    ($task:ident, $role:expr, $tcp:expr, $arbiter:expr, $remark:expr) => {
        vec![
            Curve {
                role: $role,
                ..Curve::predicted(TCP, $tcp, RENO, |x| $task(Scheduler::Tcp, x))
            },
            Curve::predicted(DCTCP, None, "", |x| $task(Scheduler::Dctcp, x)),
            Curve::predicted(ARBITER, $arbiter, $remark, |x| $task(Scheduler::Arbiter, x)),
        ]
    };
}

/// Returns the curves of experiments A and B. The length of TCP's queue is a constant of the
/// simulated switch, which is that of experiment A's own baseline: so TCP's curves test nothing.
fn four_senders_curves(remark: &'static str) -> Vec<Curve> {
    let arbiter = Some("Fastpass");
    let mut curves = curves!(four_senders, Role::Calibration, Some("Baseline"), arbiter, remark);
    for curve in curves.iter_mut().filter(|curve| curve.name == ARBITER) {
        curve.role = Role::Ours(Better::Lower);
    }
    curves.push(Curve::predicted(LATE, arbiter, LATE_REMARK, |x| {
        four_senders(Scheduler::LateArbiter, x)
    }));
    curves.push(Curve::predicted(SPARSE, None, "", |x| four_senders(Scheduler::SparseArbiter, x)));
    curves
}

/// Returns the ratio of two curves at `x`.
fn times(measured: &Measured, curve: &str, other: &str, x: f64) -> Option<f64> {
    Some(measured.at(curve, x)? / measured.at(other, x)?)
}

/// Figure F-A.
pub fn queue() -> Experiment {
    Experiment {
        id: "F-A",
        title: "The queue before a receiver of four senders (Fastpass)",
        headline: "median 4351 KB with TCP, 18 KB with the arbiter, which has 1.6 % less throughput",
        x: Axis { label: "percentile of the samples", is_log: false },
        y: Axis { label: "KB in the queue", is_log: true },
        metric: "queue_p{x}_kb",
        curves: four_senders_curves(NO_HOST),
        xs: PERCENTILES,
        xs_quick: PERCENTILES,
        reference: Reference::new(include_str!("../../data/fastpass_queue.tsv")),
        claims: vec![
            Claim {
                text: "the median queue under the arbiter is at most 18 KB",
                verify: |measured| {
                    let median = measured.at(ARBITER, 50.0)?;
                    let tail = measured.at(ARBITER, 99.9)?;
                    let ours = format!("{median:.1} KB; 99.9 % of the time {tail:.1}");
                    let paper = "18 KB; 305".into();
                    Some(Verdict::new(median <= 18.0, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "TCP's median queue, which was used for calibration, is at least 242 times as long",
                verify: |measured| {
                    let times = times(measured, TCP, ARBITER, 50.0)?;
                    let ours = format!("{times:.0} times");
                    Some(Verdict::new(times >= 242.0, ours, "242 times".into()))
                },
                remark: "",
            },
            Claim {
                text: "applications get at most 1.6 % less throughput under the arbiter than with TCP",
                verify: |measured| {
                    let of = |curve| measured.other(curve, 50.0, "goodput_gbps");
                    let (tcp, arbiter) = (of(TCP)?, of(ARBITER)?);
                    let less = 100.0 * (1.0 - arbiter / tcp);
                    let ours = format!("{less:.1} % less: {arbiter:.2} and {tcp:.2} Gbit/s");
                    let paper = "1.6 % less: 9.28 and 9.43 Gbit/s".into();
                    Some(Verdict::new(less <= 1.65, ours, paper))
                },
                remark: ENCAPSULATION,
            },
            Claim {
                text: "the control protocol takes about 1 % of the throughput (here: 1.25 at most)",
                verify: |measured| {
                    let percent = measured.other(ARBITER, 50.0, "control_percent")?;
                    let ours = format!("{percent:.2} % of the bytes in timeslots");
                    let paper = "about 1 %; 0.3 % in experiment E".into();
                    Some(Verdict::in_range(percent, 0.75..=1.25, Better::Lower, ours, paper))
                },
                remark: CONTROL_FOUR,
            },
            Claim {
                text: "(reason) with half as many requests the control protocol takes 1 % (within 25 %)",
                verify: |measured| {
                    let percent = measured.other(SPARSE, 50.0, "control_percent")?;
                    let ours = format!("{percent:.2} % of the bytes in timeslots");
                    Some(Verdict::new(is_near(percent, 1.0), ours, "not given".into()))
                },
                remark: "",
            },
            Claim {
                text: "at most 1.6 % of the link is left empty under the arbiter, where TCP's \
                       full frames would fill it",
                verify: |measured| {
                    let of = |curve| measured.other(curve, 50.0, "line_percent");
                    let (tcp, arbiter) = (of(TCP)?, of(ARBITER)?);
                    let less = tcp - arbiter;
                    let ours = format!("{less:.1} %: {arbiter:.1} and {tcp:.1} % are full");
                    Some(Verdict::new(less <= 1.65, ours, "1.6 %".into()))
                },
                remark: "",
            },
        ],
    }
}

const ENCAPSULATION: &str = "a packet under the arbiter travels inside one of our frames, with an additional \
                             header of 66 bytes, 4.3 % of the same 1,500. The paper's client is in \
                             the kernel and sends packets unchanged";

/// Figure F-B.
pub fn ping() -> Experiment {
    Experiment {
        id: "F-B",
        title: "Ping of the receiver of four senders (Fastpass)",
        headline: "median 3.56 ms with TCP, 0.23 ms with the arbiter",
        x: Axis { label: "percentile of the replies", is_log: false },
        y: Axis { label: "ms from the ping to its reply", is_log: true },
        metric: "ping_p{x}_ms",
        curves: four_senders_curves(NO_KERNEL),
        xs: PERCENTILES,
        xs_quick: PERCENTILES,
        reference: Reference::new(include_str!("../../data/fastpass_ping.tsv")),
        claims: vec![Claim {
            text: "pings are 15.5 times as fast under the arbiter (TCP's queue was used for calibration)",
            verify: |measured| {
                let times = times(measured, TCP, ARBITER, 50.0)?;
                let (tcp, arbiter) = (measured.at(TCP, 50.0)?, measured.at(ARBITER, 50.0)?);
                let ours = format!("{times:.1} times: {arbiter:.3} and {tcp:.2} ms");
                let paper = "15.5 times: 0.23 and 3.56 ms".into();
                Some(Verdict::new(times >= 15.5, ours, paper))
            },
            remark: "",
        }],
    }
}

/// Figure F-C.
pub fn shares() -> Experiment {
    Experiment {
        id: "F-C",
        title: "Deviation between the shares of five connections on one link (Fastpass)",
        headline: "5200 times closer with the arbiter, over intervals of 1 s",
        x: Axis { label: "s over which throughput is taken", is_log: true },
        y: Axis { label: "Mbit/s, standard deviation of a sender's throughput", is_log: true },
        metric: "deviation_mbps",
        curves: [
            curves!(five_senders, Role::Predicted, None, None, ""),
            vec![
                Curve::predicted(TCP_CHANGING, None, "", |x| come_and_go(Scheduler::Tcp, x)),
                Curve::predicted(DCTCP_CHANGING, None, "", |x| come_and_go(Scheduler::Dctcp, x)),
                Curve::predicted(ARBITER_CHANGING, None, "", |x| {
                    come_and_go(Scheduler::Arbiter, x)
                }),
            ],
        ]
        .into_iter()
        .flatten()
        .collect(),
        xs: INTERVALS,
        xs_quick: &[0.1],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "over intervals of 1 s the shares of up to five senders that come and go are \
                       at least 1000 times closer under the arbiter (one comes or goes every 3 s, \
                       in the paper every 30 s; the interval with the change does not count)",
                verify: |measured| closer(measured, [TCP_CHANGING, ARBITER_CHANGING], 1_000.0),
                remark: "",
            },
            Claim {
                text: "the shares of senders that come and go are at least 100 times closer when \
                       the intervals with a change count, too",
                verify: |measured| {
                    let all = |curve| measured.other(curve, 1.0, "deviation_all_mbps");
                    let (tcp, arbiter) = (all(TCP_CHANGING)?, all(ARBITER_CHANGING)?);
                    let times = tcp / arbiter;
                    let ours = format!("{times:.0} times: {arbiter:.3} and {tcp:.0} Mbit/s");
                    let paper = "not given".into();
                    Some(Verdict::new(times >= 100.0, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "over intervals of 1 s the shares of five senders that stay are 1000 times \
                       closer",
                verify: |measured| closer(measured, [TCP, ARBITER], 1_000.0),
                remark: "",
            },
            Claim {
                text: "over intervals of 0.1 s the shares of five senders that stay are 100 times \
                       closer, as a packet counts more",
                verify: |measured| {
                    let times = times(measured, TCP, ARBITER, 0.1)?;
                    let (tcp, arbiter) = (measured.at(TCP, 0.1)?, measured.at(ARBITER, 0.1)?);
                    let ours = format!("{times:.0} times: {arbiter:.3} and {tcp:.0} Mbit/s");
                    let paper = "not given for 0.1 s".into();
                    Some(Verdict::new(times >= 100.0, ours, paper))
                },
                remark: "",
            },
        ],
    }
}

/// Verifies that over intervals of 1 s the shares of the second curve are at least `least` times
/// closer than those of the first.
fn closer(measured: &Measured, [tcp, arbiter]: [&str; 2], least: f64) -> Option<Verdict> {
    let times = times(measured, tcp, arbiter, 1.0)?;
    let (tcp, arbiter) = (measured.at(tcp, 1.0)?, measured.at(arbiter, 1.0)?);
    let ours = format!("{times:.0} times: {arbiter:.3} and {tcp:.0} Mbit/s");
    Some(Verdict::new(times >= least, ours, "5200 times".into()))
}

/// Figure F-E.
pub fn control() -> Experiment {
    Experiment {
        id: "F-E",
        title: "What control packets take beside the traffic of a rack (Fastpass)",
        headline: "0.3 % of throughput",
        x: Axis { label: "load, part of what the endpoints can send", is_log: false },
        y: Axis { label: "bytes of control packets, % of those in timeslots", is_log: false },
        metric: "control_percent",
        curves: vec![
            Curve::predicted(ARBITER, None, "", |load| {
                run(Scheduler::Arbiter, RackTraffic::Load { permille: (load * 1e3).round() as u32 })
            }),
            Curve::predicted(FEW, None, "", |load| {
                let permille = (load * 1e3).round() as u32;
                run(Scheduler::Arbiter, RackTraffic::LoadToFew { permille, peers: PEERS })
            }),
            Curve::predicted(SPARSE, None, "", |load| {
                let permille = (load * 1e3).round() as u32;
                run(Scheduler::SparseArbiter, RackTraffic::Load { permille })
            }),
            Curve::predicted(SPARSE_FEW, None, "", |load| {
                let permille = (load * 1e3).round() as u32;
                run(Scheduler::SparseArbiter, RackTraffic::LoadToFew { permille, peers: PEERS })
            }),
        ],
        xs: LOADS,
        xs_quick: &[0.9],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "control packets take at most 0.3 % as many bytes as the traffic, at \
                       load 0.9",
                verify: |measured| {
                    let percent = measured.at(ARBITER, 0.9)?;
                    let ours = format!("{percent:.2} %, requests and grants");
                    Some(Verdict::new(percent <= 0.3, ours, "0.3 %".into()))
                },
                remark: CONTROL,
            },
            Claim {
                text: "control packets take at most 0.3 % where each endpoint sends to four \
                       others, at load 0.9",
                verify: |measured| {
                    let percent = measured.at(FEW, 0.9)?;
                    let ours = format!("{percent:.2} %, requests and grants");
                    Some(Verdict::new(percent <= 0.3, ours, "0.3 %".into()))
                },
                remark: CONTROL_FEW,
            },
            Claim {
                text: "less than two full packets wait before any endpoint at any time, at load 0.9 and \
                       with exact clocks",
                verify: |measured| {
                    let bytes = measured.other(ARBITER, 0.9, "octets_queued_max")?;
                    let ours = format!("{bytes:.0} bytes at the most, control packets included");
                    let paper = "one packet, by its argument (section 6.3)".into();
                    Some(Verdict::new(bytes < 2.0 * 1_538.0, ours, paper))
                },
                remark: "",
            },
        ],
    }
}

/// Figure F-H.
pub fn resent() -> Experiment {
    Experiment {
        id: "F-H",
        title: "Segments that are retransmitted when many hosts respond to one (Fastpass)",
        headline: "2.5 times fewer with the arbiter, in a service of Facebook's",
        x: Axis { label: "hosts that respond, a megabyte each", is_log: false },
        y: Axis { label: "% of all segments retransmitted", is_log: false },
        metric: "resent_percent",
        curves: curves!(incast, Role::Predicted, None, None, ""),
        xs: SENDERS,
        xs_quick: &[16.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "2.5 times fewer segments are retransmitted under the arbiter (the service is \
                       not available: here 16 hosts respond to one at the same time, repeatedly)",
                verify: |measured| {
                    let (tcp, arbiter) = (measured.at(TCP, 16.0)?, measured.at(ARBITER, 16.0)?);
                    let ours = format!("{arbiter:.3} % and {tcp:.3} %");
                    let holds = arbiter * 2.5 <= tcp && tcp > 0.0;
                    Some(Verdict::new(holds, ours, "2.5 times fewer".into()))
                },
                remark: "",
            },
            Claim {
                text: "the arbiter does not delay responses: the 99th percentile is within 1.1 \
                       times that with TCP",
                verify: |measured| {
                    let of = |curve| measured.other(curve, 16.0, "flow_p99_ms");
                    let (tcp, arbiter) = (of(TCP)?, of(ARBITER)?);
                    let ours = format!("{arbiter:.1} and {tcp:.1} ms");
                    let paper = "not given".into();
                    Some(Verdict::new(arbiter <= 1.1 * tcp, ours, paper))
                },
                remark: "",
            },
        ],
    }
}
