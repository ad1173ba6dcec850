//! Figure 14: a transactional key-value store.
//!
//! Keys are drawn from 10 billion, evenly or as YCSB does, values are as long as those of ETC
//! (`onepipe_verify_transactions::Lengths`). Every process is a client and stores a part of the
//! keys. Our transactions that only read are snapshots; the paper's are best effort, which alone is
//! not serializable (docs/design/transactions.md, "Why does a read wait?"). The peak is that of a
//! closed loop over the number of transactions in flight, 8, 16, 32, 64 or 128 of each client; a
//! load of 95 % of it has the smallest number in flight that reaches it. The rate is measured for
//! 0.2 ms, and 3 us more for each operation of a transaction, after as long a warm-up; with YCSB's
//! keys that lasts until all transactions in flight could wait for the hottest one.
//!
//! With one process no frame leaves, and there is nothing to measure: the curves begin at two.
//! The table of YCSB is kv_scalability_ycsb.tsv; in kv_scalability.tsv the value of NonTX at 16 is
//! 1.592 instead of 1.692.

mod contradictions;
mod reasons;

use onepipe_verify_transactions::{OperationMix, Protocol};

use self::contradictions::{
    FRAMES, HOT_KEY, HOT_KEY_LOAD, HOT_KEY_NONTX, MESSAGES, NONTX_POINTS, NONTX_YCSB_POINTS,
    SHARE_POINTS, SIZE_FARM_POINTS, SIZE_NONTX_POINTS, SIZE_NONTX_YCSB_POINTS, SIZE_POINTS,
    SIZE_YCSB_POINTS, UNIFORM_POINTS, VALUES, VALUES_YCSB, YCSB_POINTS,
};
use self::reasons::{
    ALONE, CPU_OR_LINK, FARM_CPU, FARM_HOT, FEW, HOT, LINKS, MANY_LOCKS, NONTX_LIMIT, OPERATIONS,
    OVER_FARM, OVER_NONTX, QUEUE,
};
use crate::experiment::{
    Axis, Claim, ContradictedPoints, Curve, Experiment, Measured, Role, Task, Verdict, is_near,
};
use crate::reference::Reference;
use crate::verdict::Better;
use crate::{Class, InFlight, KeyValue, Threads};

const XS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
const XS_QUICK: &[f64] = &[2.0, 8.0, 32.0];
/// Some of the nine points of figures 14b and 14c, as a run of 512 processes takes minutes.
const SHARES: &[f64] = &[0.1, 2.0, 5.0, 50.0];
const SIZES: &[f64] = &[2.0, 16.0, 128.0, 512.0];
/// Number of processes of figures 14b and 14c.
const PROCESSES: u32 = 512;
/// Operations that the transactions in flight of a client have together in figure 14c.
const OPERATIONS_IN_FLIGHT: u32 = 64;
/// Mean length of a value of ETC, in bytes.
const VALUE_BYTES: f64 = 194.0;
/// Hosts of the testbed, and the rate of their links in Gbit/s.
const HOSTS: f64 = 32.0;

const UNIFORM: &str = "1Pipe, uniform";
const YCSB: &str = "1Pipe, YCSB";
const NONTX_UNIFORM: &str = "NonTX, uniform";
const NONTX_YCSB: &str = "NonTX, YCSB";
const FARM_UNIFORM: &str = "FaRM, uniform";
const FARM_YCSB: &str = "FaRM, YCSB";
const STRICT: &str = "1Pipe, uniform, strict reads";
const ONE_THREAD: &str = "1Pipe, uniform, one thread";
const LATE_ACKS: &str = "1Pipe, uniform, acknowledged after 100 us";

/// Curves of figure 14b without contention, and the share of writes at which they have a point.
const ALONE_WRITES: &str = "1Pipe, write-only, uniform, one in flight";
const ALONE_BOTH: &str = "1Pipe, read-write, uniform, one in flight";
const FARM_ALONE_READS: &str = "FaRM, read-only, uniform, one in flight";
const FARM_ALONE_WRITES: &str = "FaRM, write-only, uniform, one in flight";
const FARM_ALONE_BOTH: &str = "FaRM, read-write, uniform, one in flight";
const ALONE_AT: f64 = 50.0;

const RATE: Better = Better::Higher;
const LATENCY: Better = Better::Lower;

/// Returns a curve some of whose points the paper contradicts.
fn contradicted(
    points: &'static [ContradictedPoints],
    name: &'static str,
    column: &'static str,
    remark: &'static str,
    task: fn(f64) -> Option<Task>,
) -> Curve {
    let role = Role::Contradicted { better: None, points };
    Curve { role, ..Curve::predicted(name, Some(column), remark, task) }
}

/// As [`contradicted`], of our store.
fn ours_at(
    points: &'static [ContradictedPoints],
    better: Better,
    name: &'static str,
    column: &'static str,
    remark: &'static str,
    task: fn(f64) -> Option<Task>,
) -> Curve {
    let role = Role::Contradicted { better: Some(better), points };
    Curve { role, ..contradicted(points, name, column, remark, task) }
}

fn store(protocol: Protocol, processes: f64, is_zipf: bool) -> KeyValue {
    KeyValue { protocol, ..KeyValue::new(processes as u32, is_zipf) }
}

fn peak(protocol: Protocol, processes: f64, is_zipf: bool) -> Option<Task> {
    Some(Task::KeyValue(store(protocol, processes, is_zipf)))
}

/// Verifies that the ratio of one curve to another at `x` lies within 25 % of the paper's.
fn has_ratio(
    measured: &Measured,
    (one, other): (&str, &str),
    x: f64,
    paper: f64,
) -> Option<Verdict> {
    let ours = measured.ratio(one, other, x)?;
    let holds = is_near(ours, paper);
    Some(Verdict::new(holds, format!("{ours:.3}"), format!("{paper}")))
}

/// Verifies that all points of a curve lie within a share of each other, and says where the least
/// and the greatest are.
fn is_flat(measured: &Measured, curve: &str, within: f64, paper: &str) -> Option<Verdict> {
    let points = measured.curves.get(curve)?;
    let points: Option<Vec<(f64, f64)>> =
        points.iter().map(|(x, _)| Some((*x, measured.at(curve, *x)?))).collect();
    let points = points.filter(|points| points.len() > 2)?;
    let least = points.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1))?;
    let most = points.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let holds = least.1 >= (1.0 - within) * most.1;
    let ours = format!("{:.3} at {}, {:.3} at {}", least.1, least.0, most.1, most.0);
    Some(Verdict::new(holds, ours, paper.into()))
}

/// Figure 14a.
pub fn scalability() -> Experiment {
    let uniform = Reference::new(include_str!("../../data/kv_scalability_uni.tsv"));
    let ycsb = Reference::new(include_str!("../../data/kv_scalability_ycsb.tsv"));
    let names = [
        "Processes",
        "1Pipe/Unif",
        "FaRM/Unif",
        "NonTX/Unif",
        "1Pipe/YCSB",
        "FaRM/YCSB",
        "NonTX/YCSB",
    ];
    Experiment {
        id: "14a",
        title: "Transactional key-value store: transactions a process",
        headline: "1.88 M transactions/s a process at 512, uniform, 0.90 of a store without \
                   transactions; FaRM half of it, and it does not scale with YCSB's keys",
        x: Axis { label: "processes", is_log: true },
        y: Axis { label: "M transactions/s a process", is_log: false },
        metric: "throughput_mtps",
        curves: vec![
            ours_at(UNIFORM_POINTS, RATE, UNIFORM, "1Pipe/Unif", CPU_OR_LINK, |x| {
                peak(Protocol::Onepipe, x, false)
            }),
            ours_at(YCSB_POINTS, RATE, YCSB, "1Pipe/YCSB", HOT, |x| {
                peak(Protocol::Onepipe, x, true)
            }),
            contradicted(NONTX_POINTS, NONTX_UNIFORM, "NonTX/Unif", NONTX_LIMIT, |x| {
                peak(Protocol::NonTx, x, false)
            }),
            contradicted(NONTX_YCSB_POINTS, NONTX_YCSB, "NonTX/YCSB", HOT, |x| {
                peak(Protocol::NonTx, x, true)
            }),
            Curve::predicted(FARM_UNIFORM, Some("FaRM/Unif"), FARM_CPU, |x| {
                peak(Protocol::Farm, x, false)
            }),
            Curve::predicted(FARM_YCSB, Some("FaRM/YCSB"), FARM_HOT, |x| {
                peak(Protocol::Farm, x, true)
            }),
            Curve::predicted(STRICT, None, "", |x| {
                let run = store(Protocol::Onepipe, x, false);
                Some(Task::KeyValue(KeyValue { is_strict: true, ..run }))
            }),
            Curve::predicted(ONE_THREAD, None, "", |x| {
                let run = store(Protocol::Onepipe, x, false);
                Some(Task::KeyValue(KeyValue { threads: Threads::One, ..run }))
            }),
            Curve::predicted(LATE_ACKS, None, "", |x| {
                let run = store(Protocol::Onepipe, x, false);
                Some(Task::KeyValue(KeyValue { ack_delay_ns: 100_000, ..run }))
            }),
        ],
        xs: XS,
        xs_quick: XS_QUICK,
        reference: uniform.joined(&names, ycsb),
        claims: scalability_claims(),
    }
}

fn scalability_claims() -> Vec<Claim> {
    vec![
        Claim {
            text: "the rate a process does not fall with the number of processes (within 10 %)",
            verify: |measured| {
                let verdict = is_flat(measured, UNIFORM, 0.1, "0.99 of one process at 512")?;
                Some(verdict.or_contradiction(FRAMES))
            },
            remark: CPU_OR_LINK,
        },
        Claim {
            text: "uniform: 90 % of a store without transactions at 512 processes (at least 85 %)",
            verify: |measured| {
                let ours = measured.ratio(UNIFORM, NONTX_UNIFORM, 512.0)?;
                let paper = "0.90 by the text, 0.91 by its points".into();
                let verdict = Verdict::new(ours >= 0.85, format!("{ours:.2}"), paper);
                Some(verdict.or_contradiction(FRAMES))
            },
            remark: OVER_NONTX,
        },
        Claim {
            text: "YCSB's keys have 70 % of the rate of uniform ones at 512 processes (within \
                   25 %)",
            verify: |measured| {
                let verdict = has_ratio(measured, (YCSB, UNIFORM), 512.0, 0.67)?;
                Some(verdict.or_contradiction(HOT_KEY))
            },
            remark: HOT,
        },
        Claim {
            text: "so have they without transactions (within 25 %)",
            verify: |measured| {
                let verdict = has_ratio(measured, (NONTX_YCSB, NONTX_UNIFORM), 512.0, 0.72)?;
                Some(verdict.or_contradiction(HOT_KEY_NONTX))
            },
            remark: HOT,
        },
        Claim {
            text: "FaRM has 50 % of our rate with uniform keys at 512 processes (within 25 %)",
            verify: |measured| {
                let verdict = has_ratio(measured, (FARM_UNIFORM, UNIFORM), 512.0, 0.445)?;
                Some(verdict.or_contradiction(FRAMES))
            },
            remark: OVER_FARM,
        },
        Claim {
            text: "FaRM does not scale with YCSB's keys: its part of our rate falls to less than \
                   half between 2 processes and 512",
            verify: |measured| {
                let few = measured.ratio(FARM_YCSB, YCSB, 2.0)?;
                let many = measured.ratio(FARM_YCSB, YCSB, 512.0)?;
                let ours = format!("from {few:.2} to {many:.3}");
                Some(Verdict::new(many < 0.5 * few, ours, "from 0.48 to 0.05".into()))
            },
            remark: FARM_HOT,
        },
        Claim {
            text: "1.88 M transactions/s a process need no more than the 5 M messages/s of a \
                   process (section 7.2)",
            verify: |measured| {
                let of = |name| measured.other(UNIFORM, 512.0, name);
                let messages = of("requests")? + of("replies")?;
                let holds = messages * 1.877 <= 5.0;
                let ours = format!("{messages:.2} messages a transaction");
                let paper = format!("{:.1} M messages/s", messages * 1.877);
                Some(Verdict::new(holds, ours, paper).or_contradiction(MESSAGES))
            },
            remark: CPU_OR_LINK,
        },
        Claim {
            text: "1.88 M transactions/s of 16 processes pass the link of a host",
            verify: |measured| {
                let measured = measured.other(UNIFORM, 512.0, "link_bound_mtps")?;
                let ours = format!("our frames fill the link at {measured:.2} M transactions/s");
                let holds = measured >= 1.877;
                Some(Verdict::new(holds, ours, "1.88 M/s".into()).or_contradiction(FRAMES))
            },
            remark: CPU_OR_LINK,
        },
    ]
}

/// Returns a run of figure 14b at this percentage of writes.
fn share(protocol: Protocol, percent: f64, plotted: Class) -> Option<Task> {
    let mix = OperationMix::Independent((10.0 * percent).round() as u64);
    let run = store(protocol, PROCESSES.into(), true);
    let plotted = Some(plotted);
    let in_flight = InFlight::SharePercent(95);
    Some(Task::KeyValue(KeyValue { mix, in_flight, plotted, ..run }))
}

/// Returns a run with uniform keys and one transaction in flight for each client, at 50 % of
/// writes: with fewer, too few transactions only write.
fn alone(protocol: Protocol, percent: f64, plotted: Class) -> Option<Task> {
    let mix = OperationMix::Independent(500);
    let run = store(protocol, PROCESSES.into(), false);
    let in_flight = InFlight::Operations(2);
    let alone = KeyValue { mix, in_flight, plotted: Some(plotted), ..run };
    (percent == ALONE_AT).then_some(Task::KeyValue(alone))
}

/// Figure 14b.
pub fn latency() -> Experiment {
    use Class::{ReadOnly, ReadWrite, WriteOnly};
    use Protocol::{Farm, Onepipe};
    Experiment {
        id: "14b",
        title: "Transactional key-value store: latency by share of writes, 512 processes, YCSB",
        headline: "21 us read-only, 32 us with writes, whatever their share; FaRM's grow to 229 \
                   and 757 us",
        x: Axis { label: "operations that write, in percent", is_log: true },
        y: Axis { label: "us at 95 % of the peak rate, mean", is_log: true },
        metric: "latency_us",
        curves: vec![
            ours_at(SHARE_POINTS, LATENCY, "1Pipe, read-only", "1Pipe-RO", HOT, |x| {
                share(Onepipe, x, ReadOnly)
            }),
            ours_at(SHARE_POINTS, LATENCY, "1Pipe, write-only", "1Pipe-WO", HOT, |x| {
                share(Onepipe, x, WriteOnly)
            }),
            ours_at(SHARE_POINTS, LATENCY, "1Pipe, read-write", "1Pipe-WR", HOT, |x| {
                share(Onepipe, x, ReadWrite)
            }),
            Curve::predicted("FaRM, read-only", Some("FaRM-RO"), FARM_HOT, |x| {
                share(Farm, x, ReadOnly)
            }),
            Curve::predicted("FaRM, write-only", Some("FaRM-WO"), FARM_HOT, |x| {
                share(Farm, x, WriteOnly)
            }),
            Curve::predicted("FaRM, read-write", Some("FaRM-WR"), FARM_HOT, |x| {
                share(Farm, x, ReadWrite)
            }),
            Curve::predicted(ALONE_WRITES, None, "", |x| alone(Onepipe, x, WriteOnly)),
            Curve::predicted(ALONE_BOTH, None, "", |x| alone(Onepipe, x, ReadWrite)),
            Curve::predicted(FARM_ALONE_READS, None, "", |x| alone(Farm, x, ReadOnly)),
            Curve::predicted(FARM_ALONE_WRITES, None, "", |x| alone(Farm, x, WriteOnly)),
            Curve::predicted(FARM_ALONE_BOTH, None, "", |x| alone(Farm, x, ReadWrite)),
        ],
        xs: SHARES,
        xs_quick: &[5.0],
        reference: Reference::new(include_str!("../../data/kv_latency_ycsb.tsv")),
        claims: latency_claims(),
    }
}

fn latency_claims() -> Vec<Claim> {
    vec![
        Claim {
            text: "our latency of read-only transactions does not depend on the share of writes \
                   (within 10 %)",
            verify: |measured| {
                let verdict = is_flat(measured, "1Pipe, read-only", 0.1, "20.99 to 21.83 us")?;
                Some(verdict.or_contradiction(HOT_KEY_LOAD))
            },
            remark: HOT,
        },
        Claim {
            text: "nor does that of read-write transactions (within 10 %)",
            verify: |measured| {
                let verdict = is_flat(measured, "1Pipe, read-write", 0.1, "31.27 to 32.20 us")?;
                Some(verdict.or_contradiction(HOT_KEY_LOAD))
            },
            remark: HOT,
        },
        Claim {
            text: "transactions that write are slower than those that only read, at every share",
            verify: |measured| {
                let points = measured.curves.get("1Pipe, read-only")?;
                let pairs = points.iter().filter_map(|(x, _)| {
                    measured.ratio("1Pipe, read-write", "1Pipe, read-only", *x)
                });
                let least = pairs.reduce(f64::min)?;
                let ours = format!("at least {least:.2} times as long");
                Some(Verdict::new(least > 1.0, ours, "1.43 to 1.51 times".into()))
            },
            remark: FEW,
        },
        Claim {
            text: "FaRM's reads are quicker up to 2 % of writes, and slower from 5 % on",
            verify: |measured| {
                let at = |x| measured.ratio("FaRM, read-only", "1Pipe, read-only", x);
                let (before, after) = (at(2.0)?, at(5.0)?);
                let ours = format!("{before:.2} of ours at 2 %, {after:.2} at 5 %");
                let holds = before < 1.0 && after > 1.0;
                let verdict = Verdict::new(holds, ours, "0.91 and 1.50".into());
                Some(verdict.or_contradiction(HOT_KEY_LOAD))
            },
            remark: FARM_HOT,
        },
        Claim {
            text: "without contention FaRM's transactions that write take 3 and 4 times as long as \
                   its reads: round trips (within 25 %)",
            verify: |measured| {
                let of = |curve| measured.ratio(curve, FARM_ALONE_READS, ALONE_AT);
                let (writes, both) = (of(FARM_ALONE_WRITES)?, of(FARM_ALONE_BOTH)?);
                let holds = is_near(writes, 3.0) && is_near(both, 4.0);
                let ours = format!("{writes:.2} and {both:.2}");
                Some(Verdict::new(holds, ours, "2.98 and 3.98".into()))
            },
            remark: ALONE,
        },
        Claim {
            text: "without contention FaRM's transactions that write are slightly slower than ours",
            verify: |measured| {
                let writes = measured.ratio(FARM_ALONE_WRITES, ALONE_WRITES, ALONE_AT)?;
                let both = measured.ratio(FARM_ALONE_BOTH, ALONE_BOTH, ALONE_AT)?;
                let ours = format!("{writes:.2} and {both:.2} times");
                let holds = writes >= 1.0 && both >= 1.0;
                Some(Verdict::new(holds, ours, "1.03 and 1.40 times".into()))
            },
            remark: ALONE,
        },
        Claim {
            text: "contention multiplies the latency of FaRM's reads by at least 10 from 0.1 % of \
                   writes to 50 %",
            verify: |measured| {
                let at = |x| measured.at("FaRM, read-only", x);
                let times = at(50.0)? / at(0.1)?;
                let ours = format!("{times:.1} times");
                Some(Verdict::new(times >= 10.0, ours, "20.7 times".into()))
            },
            remark: QUEUE,
        },
    ]
}

/// Returns a run of figure 14c with this number of operations.
fn size(protocol: Protocol, operations: f64, is_zipf: bool) -> Option<Task> {
    let run = store(protocol, PROCESSES.into(), is_zipf);
    let in_flight = InFlight::Operations(OPERATIONS_IN_FLIGHT);
    let (operations, mix) = (operations as u32, OperationMix::Mixed(95));
    Some(Task::KeyValue(KeyValue { operations, mix, in_flight, ..run }))
}

/// Figure 14c.
pub fn sizes() -> Experiment {
    use Protocol::{Farm, NonTx, Onepipe};
    Experiment {
        id: "14c",
        title: "Transactional key-value store: operations of a transaction, 512 processes",
        headline: "3.8 G operations/s, uniform, and 2.6 with YCSB's keys, whatever the size; 95 % \
                   of the transactions only read; FaRM falls with YCSB's keys",
        x: Axis { label: "operations of a transaction", is_log: true },
        y: Axis { label: "G operations/s in all", is_log: true },
        metric: "operations_gps",
        curves: vec![
            ours_at(SIZE_POINTS, RATE, UNIFORM, "1Pipe/Unif", OPERATIONS, |x| {
                size(Onepipe, x, false)
            }),
            ours_at(SIZE_YCSB_POINTS, RATE, YCSB, "1Pipe/YCSB", HOT, |x| size(Onepipe, x, true)),
            contradicted(SIZE_NONTX_POINTS, NONTX_UNIFORM, "NonTX/Unif", LINKS, |x| {
                size(NonTx, x, false)
            }),
            contradicted(SIZE_NONTX_YCSB_POINTS, NONTX_YCSB, "NonTX/YCSB", HOT, |x| {
                size(NonTx, x, true)
            }),
            contradicted(SIZE_FARM_POINTS, FARM_UNIFORM, "FaRM/Unif", LINKS, |x| {
                size(Farm, x, false)
            }),
            Curve::predicted(FARM_YCSB, Some("FaRM/YCSB"), FARM_HOT, |x| size(Farm, x, true)),
        ],
        xs: SIZES,
        xs_quick: &[2.0],
        reference: Reference::new(include_str!("../../data/multishard.tsv")),
        claims: vec![
            Claim {
                text: "uniform: operations a second do not depend on their number in a transaction \
                       (within 10 %)",
                verify: |measured| {
                    let verdict = is_flat(measured, UNIFORM, 0.1, "3.70 to 3.90 G/s")?;
                    Some(verdict.or_contradiction(VALUES))
                },
                remark: OPERATIONS,
            },
            Claim {
                text: "nor with YCSB's keys (within 10 %)",
                verify: |measured| {
                    let verdict = is_flat(measured, YCSB, 0.1, "2.56 to 2.67 G/s")?;
                    Some(verdict.or_contradiction(VALUES_YCSB))
                },
                remark: HOT,
            },
            Claim {
                text: "FaRM with YCSB's keys does 40 % of ours with 2 operations (within 25 %)",
                verify: |measured| has_ratio(measured, (FARM_YCSB, YCSB), 2.0, 0.437),
                remark: FARM_HOT,
            },
            Claim {
                text: "FaRM with YCSB's keys falls below a hundredth of ours with 512 operations",
                verify: |measured| {
                    let ours = measured.ratio(FARM_YCSB, YCSB, 512.0)?;
                    let holds = ours < 0.01;
                    Some(Verdict::new(holds, format!("{ours:.4}"), "0.0043".into()))
                },
                remark: MANY_LOCKS,
            },
            Claim {
                text: "the values of 3.83 G operations/s pass the links of 32 hosts",
                verify: |measured| {
                    let gbps = |gps: f64| gps * VALUE_BYTES * 8.0 / HOSTS;
                    let [ours, paper] = [measured.at(UNIFORM, 2.0)?, 3.833]
                        .map(|gps| format!("{:.0} Gbit/s of values a host", gbps(gps)));
                    let holds = measured.at(UNIFORM, 2.0)? >= 0.75 * 3.833;
                    Some(Verdict::new(holds, ours, paper).or_contradiction(VALUES))
                },
                remark: OPERATIONS,
            },
        ],
    }
}
