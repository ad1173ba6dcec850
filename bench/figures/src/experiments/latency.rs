//! Figure 9: latency on an idle network, and what loss adds.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;
use crate::verdict::{Better, Contradiction, NEAR, Outcome, Stated};
use crate::{Setup, System, Traffic};

/// Least probe timeout of an endpoint that polls: its timeout is then that of its measured round
/// trips.
const MEASURED_ROUND_TRIPS_NS: u64 = 1_000;
/// Processes of the curves at full load. All of them reach the full rate (figure 8a).
const FULL_LOAD: f64 = 128.0;
const LOSS: &str = include_str!("../../data/loss_latency.tsv");
const IDLE: &str = include_str!("../../data/reorder_testbed.tsv");
const NO_STALL: &str = "the paper's rise is what the formula above gives; here a lost packet does \
                        not stall everybody";
const RETRANSMISSIONS: &str = "";
const AT_FULL_LOAD: &str = "best effort, full load of 128 processes, lost at receivers";
const RELIABLE_AT_FULL_LOAD: &str = "reliable, full load of 128 processes, lost at receivers";
/// As [`RELIABLE_AT_FULL_LOAD`], with more messages that are not acknowledged.
const MANY_OPEN: &str = "reliable, full load, lost at receivers, 1,024 messages open";
/// The text's and the points' detour of a delegate.
const DETOUR: Contradiction = Contradiction::Differ(
    Stated { value: 2.0, text: "2 us a switch, 10 us over five (section 7.2)" },
    Stated { value: 1.34, text: "1.34 us over one switch, 7.55 us over five (figure 9a)" },
);

/// Returns what losses add to the latency if any lost packet of a period of `stall_us` stalls
/// everybody for that time, in us: the sum over k of `stall_us` times the probability that one of
/// `packets` is lost k times.
fn stalls_us(loss: f64, stall_us: f64, packets: f64) -> f64 {
    let again = (1..64).map(|times| 1.0 - (1.0 - loss.powi(times)).powf(packets));
    stall_us * again.sum::<f64>()
}

/// Compares the paper's points of a column with that formula, for the packets that 512 processes
/// send at 5 M/s in the period. Returns the lowest and the highest ratio of the formula to the
/// points.
fn explained(column: &str, stall_us: f64) -> Option<(f64, f64)> {
    let reference = Reference::new(LOSS);
    let points = reference.points(column);
    let lossless = points.first()?.1;
    let ratio = |(loss, paper_us): &(f64, f64)| {
        (lossless + stalls_us(*loss, stall_us, 5.0 * 512.0 * stall_us)) / paper_us
    };
    let ratios: Vec<f64> = points.iter().map(ratio).collect();
    let of = |choose: fn(f64, f64) -> f64| ratios.iter().copied().reduce(choose);
    Some((of(f64::min)?, of(f64::max)?))
}

/// Verifies that the paper's points follow from the formula within 25 %.
fn is_explained(column: &str, stall_us: f64) -> Option<Verdict> {
    let (least, most) = explained(column, stall_us)?;
    let ours = format!("{least:.2} to {most:.2} of its points");
    Some(Verdict::new(least >= 0.75 && most <= 1.25, ours, "1".into()))
}

/// Compares what ordering adds to the value `name`, over one, three and five switches, with the
/// paper's range from `least` to `most`.
fn over_unordered(measured: &Measured, name: &str, least: f64, most: f64) -> Option<Verdict> {
    let at = |curve: &str, x: f64| {
        let points = measured.curves.get(curve)?;
        points.iter().find(|(at, _)| *at == x)?.1.get(name).copied()
    };
    let over = |x| Some(at("best effort", x)? - at("unordered", x)?);
    let all = [over(8.0)?, over(16.0)?, over(32.0)?];
    let holds = all.iter().all(|us| (0.75 * least..=1.25 * most).contains(us));
    let [one, three, five] = all;
    let ours = format!("{one:.1}, {three:.1} and {five:.1} us over 1, 3, 5 switches");
    Some(Verdict::new(holds, ours, format!("{least} to {most} us")))
}

/// Compares what a loss of one in ten thousand adds to the latency with the paper: at least a
/// tenth, and at most a quarter more than there; less is better. One in a million must add less
/// than a tenth.
fn grows(measured: &Measured, curve: &str, paper: f64, text: &str) -> Option<Verdict> {
    let lossless = measured.at(curve, 1e-8).or_else(|| measured.at(curve, 1e-6))?;
    let over = |x| Some(measured.at(curve, x)? / lossless);
    let (rare, often) = (over(1e-6)?, over(1e-4)?);
    let ours = format!("{rare:.2} times at 1e-6, {often:.2} at 1e-4");
    if rare >= 1.1 {
        return Some(Verdict::new(false, ours, text.into()));
    }
    let expected = 1.1..=1.25 * paper;
    Some(Verdict::in_range(often, expected, Better::Lower, ours, text.into()))
}

/// The 5th and 95th percentiles of figure 9a, in us, at [`IDLE_XS`].
#[allow(clippy::approx_constant, reason = "a percentile of the paper, in us")]
const BE_P5: [f64; 4] = [3.14, 4.02, 5.29, 5.62];
const BE_P95: [f64; 4] = [6.88, 7.53, 9.67, 11.2];
const R_P5: [f64; 4] = [8.17, 12.46, 16.05, 15.72];
const R_P95: [f64; 4] = [12.26, 16.92, 20.38, 22.23];
const IDLE_XS: &[f64] = &[8.0, 16.0, 32.0, 512.0];
const QUANTILES: &str = "nothing varies here but clocks and the phase of beacons";

/// Compares a quantile of a curve with the paper's at all numbers of processes that were measured;
/// lower is better.
fn quantile(measured: &Measured, curve: &str, name: &str, paper: [f64; 4]) -> Option<Verdict> {
    let ratio = |(x, paper): (&f64, f64)| Some((*x, measured.other(curve, *x, name)? / paper));
    let ratios: Vec<(f64, f64)> = IDLE_XS.iter().zip(paper).filter_map(ratio).collect();
    let least = ratios.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let most = ratios.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let ours = format!("{:.2} at {}, {:.2} at {}", least.1, least.0, most.1, most.0);
    let outcome = Outcome::of((least.1, most.1), &NEAR, Some(Better::Lower));
    Some(Verdict { outcome, ..Verdict::new(true, ours, "1".into()) })
}

const ONE_SWITCH: &str = "best effort, by hosts, over one switch";
const BY_HOSTS: &str = "the detour of beacons to the hosts";

const ON_EVERY_LINK: &str = "best effort, lost on every link";
const DEFAULTS: &str = "best effort, our default timeouts, lost on every link";
const THROUGHPUT: &str = "";
/// Compares the share of the reliable rate of 128 processes that remains with a loss with the
/// paper's: 6.4 M/s with little loss, 6.3 with 1e-2, 5.7 with 1e-1.
fn remains(measured: &Measured, loss: f64, paper: f64) -> Option<Verdict> {
    let rate = |x| measured.other(RELIABLE_AT_FULL_LOAD, x, "throughput_mps");
    let share = rate(loss)? / rate(1e-8).or_else(|| rate(1e-6))?;
    let expected = NEAR.start() * paper..=NEAR.end() * paper;
    let (ours, paper) = (format!("{share:.2}"), format!("{paper:.2}"));
    Some(Verdict::in_range(share, expected, Better::Higher, ours, paper))
}

/// Returns a curve of our latency.
fn ours(
    name: &'static str,
    column: &'static str,
    remark: &'static str,
    task: fn(f64) -> Option<Task>,
) -> Curve {
    let role = Role::Ours(Better::Lower);
    Curve { role, ..Curve::predicted(name, Some(column), remark, task) }
}

/// Figure 9a.
pub fn idle() -> Experiment {
    Experiment {
        id: "9a",
        title: "Latency of an idle fabric",
        headline: "1.7 to 2.3 us over unordered, whatever the number of hops; reliable a round trip \
                   more",
        x: Axis { label: "processes", is_log: true },
        y: Axis { label: "us from submission to delivery, mean", is_log: false },
        metric: "latency_mean_us",
        curves: vec![
            ours("best effort", "BE-chip", "", |x| super::idle(System::BestEffort, x)),
            ours("reliable", "R-chip", "", |x| super::idle(System::Reliable, x)),
            ours("best effort, by hosts", "BE-host", BY_HOSTS, |x| {
                super::several_switches(super::by_hosts(super::idle(System::BestEffort, x)))
            }),
            ours("reliable, by hosts", "R-host", BY_HOSTS, |x| {
                super::by_hosts(super::idle(System::Reliable, x))
            }),
            Curve {
                role: Role::Calibration,
                ..Curve::predicted(ONE_SWITCH, Some("BE-host"), "", |x| {
                    super::one_switch(super::by_hosts(super::idle(System::BestEffort, x)))
                })
            },
            Curve {
                role: Role::Calibration,
                ..Curve::predicted("unordered", Some("unorder"), "", |x| {
                    super::idle(System::Unordered, x)
                })
            },
        ],
        xs: IDLE_XS,
        xs_quick: &[8.0, 16.0, 32.0],
        reference: Reference::new(IDLE),
        claims: vec![
            Claim {
                text: "ordering costs an idle message 1.7 to 2.3 us on average (each within 25 %)",
                verify: |measured| over_unordered(measured, "latency_mean_us", 1.7, 2.3),
                remark: "",
            },
            Claim {
                text: "at the 95th percentile ordering costs 1.7 to 3.3 us (each within 25 %)",
                verify: |measured| over_unordered(measured, "latency_p95_us", 1.7, 3.3),
                remark: "nothing varies here but clocks and the phase of beacons",
            },
            Claim {
                text: "the 5th percentiles of best effort lie within 25 % of the paper's",
                verify: |measured| quantile(measured, "best effort", "latency_p5_us", BE_P5),
                remark: QUANTILES,
            },
            Claim {
                text: "the 95th percentiles of best effort lie within 25 % of the paper's",
                verify: |measured| quantile(measured, "best effort", "latency_p95_us", BE_P95),
                remark: QUANTILES,
            },
            Claim {
                text: "the 5th percentiles of reliable lie within 25 % of the paper's",
                verify: |measured| quantile(measured, "reliable", "latency_p5_us", R_P5),
                remark: QUANTILES,
            },
            Claim {
                text: "the 95th percentiles of reliable lie within 25 % of the paper's",
                verify: |measured| quantile(measured, "reliable", "latency_p95_us", R_P95),
                remark: QUANTILES,
            },
            Claim {
                text: "reliable takes a round trip more: 2 to 10 us, increasing with the path (within 25 %)",
                verify: |measured| {
                    let more =
                        |x| Some(measured.at("reliable", x)? - measured.at("best effort", x)?);
                    let (one, three, five) = (more(8.0)?, more(16.0)?, more(32.0)?);
                    let ours =
                        format!("{one:.1}, {three:.1} and {five:.1} us over 1, 3, 5 switches");
                    let holds = one < three && three < five && one >= 1.5 && five <= 12.5;
                    Some(Verdict::new(holds, ours, "5.1, 8.5 and 10.6 us".into()))
                },
                remark: "",
            },
            Claim {
                text: "delegates of switches cost 10 us over five of them (within 25 %)",
                verify: |measured| {
                    let at = |curve| measured.at(curve, 32.0);
                    let us = at("best effort, by hosts")? - at("best effort")?;
                    let verdict = Verdict::near(us, 10.0, Better::Lower, "us");
                    Some(verdict.or_contradiction(DETOUR))
                },
                remark: "",
            },
            Claim {
                text: "the cost of ordering an idle message stays within a microsecond from one switch to \
                   five",
                verify: |measured| {
                    let over =
                        |x| Some(measured.at("best effort", x)? - measured.at("unordered", x)?);
                    let (one, five) = (over(8.0)?, over(32.0)?);
                    let ours = format!("{one:.1} us over one switch, {five:.1} over five");
                    let paper = "2.3 us over one switch, 1.8 over five".into();
                    Some(Verdict::new((five - one).abs() <= 1.0, ours, paper))
                },
                remark: "",
            },
        ],
    }
}

/// Figure 9b.
pub fn loss() -> Experiment {
    /// Our defaults, for hosts whose processes wait for a processor, with losses on every link.
    fn defaults(system: System, loss: f64) -> Option<Task> {
        let loss_ppb = (loss * 1e9).round() as u32;
        match super::idle(system, 512.0)? {
            Task::Order(setup) => {
                Some(Task::Order(Setup { loss_ppb, warm_up_us: 2_000, measure_us: 1_000, ..setup }))
            }
            _ => None,
        }
    }
    /// As `defaults`, with processes that poll, as in the paper (section 6.1): a probe timeout
    /// follows the measured round trips.
    fn polling(system: System, loss: f64) -> Option<Task> {
        match defaults(system, loss)? {
            Task::Order(setup) => {
                let probe_timeout_ns = MEASURED_ROUND_TRIPS_NS;
                Some(Task::Order(Setup { probe_timeout_ns, ..setup }))
            }
            _ => None,
        }
    }
    /// As `polling`, with losses only where the paper has them: "in lib1pipe receiver" (section
    /// 7.2).
    fn at(system: System, loss: f64) -> Option<Task> {
        match polling(system, loss)? {
            Task::Order(setup) => Some(Task::Order(Setup { loses_at_hosts: true, ..setup })),
            _ => None,
        }
    }
    /// The full load of figure 8a, with losses at receivers: after the handshakes, whose frames are
    /// lost as well, and long enough for queues to show whether they grow.
    fn full_load(system: System, loss: f64) -> Option<Task> {
        let traffic = Traffic::AllToAll { every_ns: 200 };
        Some(Task::Order(Setup {
            loss_ppb: (loss * 1e9).round() as u32,
            loses_at_hosts: true,
            probe_timeout_ns: MEASURED_ROUND_TRIPS_NS,
            warm_up_us: 3_000,
            measure_us: 500,
            ..super::setup(system, FULL_LOAD, traffic)
        }))
    }
    /// As `full_load`, where 1,024 messages of a process may wait for their acknowledgements.
    fn many_open(loss: f64) -> Option<Task> {
        match full_load(System::Reliable, loss).filter(|_| loss == 1e-1 || loss == 1e-8)? {
            Task::Order(setup) => Some(Task::Order(Setup { buffered_messages: 1_024, ..setup })),
            _ => None,
        }
    }
    Experiment {
        id: "9b",
        title: "Latency against loss",
        headline: "grows from 1e-5 on: a lost beacon delays everyone for an interval",
        x: Axis { label: "frames lost on each link", is_log: true },
        y: Axis { label: "us from submission to delivery, mean", is_log: true },
        metric: "latency_mean_us",
        curves: vec![
            ours("best effort", "BE-chip", "", |x| at(System::BestEffort, x)),
            ours("reliable", "R-chip", RETRANSMISSIONS, |x| at(System::Reliable, x)),
            ours("best effort, by hosts", "BE-host", "", |x| {
                super::by_hosts(at(System::BestEffort, x))
            }),
            ours("reliable, by hosts", "R-host", RETRANSMISSIONS, |x| {
                super::by_hosts(at(System::Reliable, x))
            }),
            Curve::predicted(ON_EVERY_LINK, None, "", |x| polling(System::BestEffort, x)),
            Curve::predicted("reliable, lost on every link", None, "", |x| {
                polling(System::Reliable, x)
            }),
            Curve::predicted(DEFAULTS, None, "", |x| defaults(System::BestEffort, x)),
            Curve::predicted("reliable, our default timeouts, lost on every link", None, "", |x| {
                defaults(System::Reliable, x)
            }),
            Curve::predicted(AT_FULL_LOAD, None, "", |x| full_load(System::BestEffort, x)),
            Curve::predicted(RELIABLE_AT_FULL_LOAD, None, "", |x| full_load(System::Reliable, x)),
            Curve::predicted(MANY_OPEN, None, "", many_open),
        ],
        xs: &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1],
        xs_quick: &[1e-6, 1e-4, 1e-2],
        reference: Reference::new(LOSS),
        claims: vec![
            Claim {
                text: "(the paper's points) best effort follows from the full load of 8a, counted so \
                       that any of the packets of 3 us, lost, stalls everybody for 3 us (formula, \
                       within 25 %)",
                verify: |_| is_explained("BE-chip", 3.0),
                remark: "",
            },
            Claim {
                text: "(the paper's points) reliable, too, with the 10.55 us that it takes longer \
                       than best effort (formula, within 25 %)",
                verify: |_| is_explained("R-chip", 17.92 - 7.37),
                remark: "",
            },
            Claim {
                text: "a lost packet does not stall everybody: under full load of 128 processes a \
                       loss of 1e-3 adds less than half of what that formula gives",
                verify: |measured| {
                    let at = |x| measured.at(AT_FULL_LOAD, x);
                    let more = at(1e-3)? - at(1e-8).or_else(|| at(1e-6))?;
                    let formula = stalls_us(1e-3, 3.0, 5.0 * FULL_LOAD * 3.0);
                    let ours = format!("{more:.2} us; by the formula {formula:.2}");
                    let paper = "3.7 us, with 512 processes".into();
                    Some(Verdict::new(more < 0.5 * formula, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "loss has little impact on throughput: at 1e-2 reliable keeps 98 % of its rate \
                       (within 25 %)",
                verify: |measured| remains(measured, 1e-2, 0.98),
                remark: THROUGHPUT,
            },
            Claim {
                text: "at 1e-1 reliable keeps 89 % of its rate (within 25 %)",
                verify: |measured| remains(measured, 1e-1, 0.89),
                remark: THROUGHPUT,
            },
            Claim {
                text: "best effort: up to 1e-6 loss does not raise the latency, from 1e-4 on by at \
                       least a tenth",
                verify: |measured| {
                    grows(measured, "best effort", 1.31, "1.00 times at 1e-6, 1.31 at 1e-4")
                },
                remark: NO_STALL,
            },
            Claim {
                text: "reliable: up to 1e-6 loss does not raise the latency, from 1e-4 on by at \
                       least a tenth",
                verify: |measured| {
                    grows(measured, "reliable", 1.73, "1.01 times at 1e-6, 1.73 at 1e-4")
                },
                remark: RETRANSMISSIONS,
            },
            Claim {
                text: "(reason) what a loss of 1e-2 on every link adds to best effort with our default \
                       timeouts is the wait for a probe: with those of processes that poll it adds \
                       less than 1 us",
                verify: |measured| {
                    let more = |curve| Some(measured.at(curve, 1e-2)? - measured.at(curve, 1e-6)?);
                    let (polling, defaults) = (more(ON_EVERY_LINK)?, more(DEFAULTS)?);
                    let ours = format!("{polling:.1} us, with the default timeouts {defaults:.1}");
                    Some(Verdict::new(polling < 1.0, ours, "5.6 us".into()))
                },
                remark: "",
            },
            Claim {
                text: "loss costs reliable more than best effort",
                verify: |measured| {
                    let more = |curve| Some(measured.at(curve, 1e-2)? - measured.at(curve, 1e-6)?);
                    let (best_effort, reliable) = (more("best effort")?, more("reliable")?);
                    let ours =
                        format!("{reliable:.1} us more at 1e-2, best effort {best_effort:.1}");
                    let paper = "25.9 us more at 1e-2, best effort 5.6".into();
                    Some(Verdict::new(reliable > best_effort, ours, paper))
                },
                remark: "",
            },
        ],
    }
}
