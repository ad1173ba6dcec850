//! Figure 8b: the latency of total order.

use super::{
    IN_OWN_FRAMES, LATENCY, SHARED_FRAMES, SHORT_VISITS, TOKEN_POINTS, XS, XS_QUICK, at_512,
    calibrated, clocks_in_own_frames, half_rate, host_sequencer, least_and_most, long_visits,
    paper_rivals, rivals_at, role_of, short_visits, with_curves,
};
use crate::experiment::{Axis, Claim, Curve, Experiment, Role, Verdict, is_near};
use crate::reference::Reference;
use crate::verdict::Better;
use crate::{Calibration, Setup, System, Task, Threads, Traffic};

const HALF_LOAD: &str = "best effort, half load";
const PERFECT: &str = "best effort, perfect clocks";
const PERFECT_BUSY: &str = "best effort, perfect clocks, half load";
const RARE_BEACONS: &str = "best effort, perfect clocks, a beacon in 12 us";
const RARE_BEACONS_BUSY: &str = "best effort, perfect clocks, a beacon in 12 us, half load";
const MANY_FRAMES: &str = "best effort, perfect clocks, four times the half load";
const UNORDERED_MANY_FRAMES: &str = "unordered, four times the half load";
/// The number of processes at which an idle and a busy fabric are compared.
const BUSY_AT: f64 = 32.0;
const SWITCH_LATENCY: &str = "\
     on the path it orders without waiting for barriers, until its links are full; then latency is \
     the backlog over the rate, and the paper gives no backlog";
const HOST_LATENCY: &str = "\
     at half load it is saturated from 32 processes on, the paper's from 16 on, and until then a \
     message takes two hops";
const TOKEN_LATENCY: &str = "\
     it is saturated at half load, and its visits have 64 messages. The paper's rate times its \
     latency is 3 to 5 messages of each process: for that number see the other curve";
const BY_HOSTS: &str = "the detour of beacons to the hosts, see 9a";
const BUSY: &str = "\
     links still wait for beacons at half load: with exact clocks a message takes 1.2 us over the \
     longest path, and 3.7 us with a beacon in 12 us instead of 3; of the 1.2 us, gaps between \
     frames are 0.3, which four times the load takes away (curves)";
const INTERVAL: &str = "\
     clocks are exchanged at intervals as long as the paper's latencies, as it gives none. With few \
     processes a message waits for less, because the messages of others bear clocks, too; with 512 \
     sending the clock to all takes 102 of 190 us";
const BACKLOG: &str = "\
     a saturated rival's latency is its backlog over its rate, and the paper gives no backlog: for \
     the token see the curve with 5 messages of each process";

/// Returns the run of [`BUSY_AT`] processes with exact clocks.
fn perfect_clocks(task: Option<Task>) -> Option<Task> {
    match task? {
        Task::Order(setup) if f64::from(setup.processes) == BUSY_AT => {
            let calibration = Calibration { clock_ns: 0, clock_tail_ns: 0, ..setup.calibration };
            Some(Task::Order(Setup { calibration, ..setup }))
        }
        _ => None,
    }
}

/// Returns the run of [`BUSY_AT`] processes with exact clocks and four times the beacon interval.
fn rare_beacons(task: Option<Task>) -> Option<Task> {
    match perfect_clocks(task)? {
        Task::Order(setup) => {
            let beacon_ns = 4 * setup.calibration.beacon_ns;
            let calibration = Calibration { beacon_ns, ..setup.calibration };
            Some(Task::Order(Setup { calibration, ..setup }))
        }
        _ => None,
    }
}

/// Returns the run with four times the messages, which cost a quarter of the CPU time and nothing
/// when they are received.
fn many_frames(task: Option<Task>) -> Option<Task> {
    match task? {
        Task::Order(setup) => {
            let message_ns = setup.calibration.message_ns / 4;
            let calibration = Calibration { message_ns, ..setup.calibration };
            let (traffic, threads) = (Traffic::AllToAll { every_ns: 100 }, Threads::One);
            Some(Task::Order(Setup { calibration, traffic, threads, ..setup }))
        }
        _ => None,
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
            },
            [
                Curve::predicted(SHARED_FRAMES, None, "", |x| half_rate(System::Lamport, x)),
                Curve {
                    role: Role::Ours(Better::Lower),
                    ..Curve::predicted("best effort", Some("1Pipe/chip"), "", |x| {
                        super::super::idle(System::BestEffort, x)
                    })
                },
                Curve {
                    role: Role::Ours(Better::Lower),
                    ..Curve::predicted("best effort, by hosts", Some("1Pipe/host"), BY_HOSTS, |x| {
                        super::super::several_switches(super::super::by_hosts(super::super::idle(
                            System::BestEffort,
                            x,
                        )))
                    })
                },
                Curve {
                    role: Role::Calibration,
                    ..Curve::predicted(
                        "best effort, by hosts, over one switch",
                        Some("1Pipe/host"),
                        "",
                        |x| {
                            super::super::one_switch(super::super::by_hosts(super::super::idle(
                                System::BestEffort,
                                x,
                            )))
                        },
                    )
                },
                Curve::predicted(HALF_LOAD, None, "", |x| half_rate(System::BestEffort, x)),
                Curve::predicted("best effort, by hosts, half load", None, "", |x| {
                    super::super::by_hosts(half_rate(System::BestEffort, x))
                }),
                Curve::predicted(PERFECT, None, "", |x| {
                    perfect_clocks(super::super::idle(System::BestEffort, x))
                }),
                Curve::predicted(PERFECT_BUSY, None, "", |x| {
                    perfect_clocks(half_rate(System::BestEffort, x))
                }),
                Curve::predicted(RARE_BEACONS, None, "", |x| {
                    rare_beacons(super::super::idle(System::BestEffort, x))
                }),
                Curve::predicted(RARE_BEACONS_BUSY, None, "", |x| {
                    rare_beacons(half_rate(System::BestEffort, x))
                }),
                Curve::predicted(MANY_FRAMES, None, "", |x| {
                    many_frames(perfect_clocks(half_rate(System::BestEffort, x)))
                }),
                Curve::predicted(UNORDERED_MANY_FRAMES, None, "", |x| {
                    many_frames(perfect_clocks(half_rate(System::Unordered, x)))
                }),
                Curve::predicted("unordered", None, "", |x| {
                    super::super::idle(System::Unordered, x)
                }),
                Curve::predicted("unordered, half load", None, "", |x| {
                    half_rate(System::Unordered, x)
                }),
                Curve::predicted(IN_OWN_FRAMES, Some("Lamport"), INTERVAL, |x| {
                    clocks_in_own_frames(half_rate(System::Lamport, x))
                }),
                calibrated("host sequencer", "HostSeq", HOST_LATENCY, |x| {
                    host_sequencer(half_rate(System::HostSequencer, x))
                }),
                Curve {
                    role: Role::Contradicted { better: None, points: TOKEN_POINTS },
                    ..Curve::predicted("token", Some("Token"), TOKEN_LATENCY, |x| {
                        long_visits(half_rate(System::Token, x))
                    })
                },
                Curve::predicted("host sequencer, 64 of each", None, "", |x| {
                    half_rate(System::HostSequencer, x)
                }),
                Curve::predicted(SHORT_VISITS, None, "", |x| {
                    short_visits(half_rate(System::Token, x))
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
                       used for them (clocks at this interval, within 25 %)",
                verify: |measured| {
                    let us = measured.at(IN_OWN_FRAMES, 512.0)?;
                    Some(Verdict::new(is_near(us, 200.0), format!("{us:.0} us"), "200 us".into()))
                },
                remark: INTERVAL,
            },
            Claim {
                text: "a message waits for the clock skew alone when links are busy, and for half an \
                       interval as well when they are idle (section 6.2.1; 32 processes): 1.5 us less \
                       (within 25 %)",
                verify: |measured| {
                    // In a total order every message waits for the farthest process, and idle
                    // messages go there.
                    let farthest = measured.at("unordered", BUSY_AT)?;
                    let idle = measured.at("best effort", BUSY_AT)? - farthest;
                    let busy = measured.at(HALF_LOAD, BUSY_AT)? - farthest;
                    let ours = format!(
                        "{:.2} us less: {busy:.2} us over the unordered longest path under half \
                         load, {idle:.2} idle",
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
