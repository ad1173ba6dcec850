//! RDMC's figures 4, 6 and 7, and its runs on Sierra: schedules, block sizes, small objects, large
//! groups.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;
use crate::{Condition, Multicast, Scheme};

const PIPELINE: &str = "binomial pipeline";
const CHAIN: &str = "chain";
const TREE: &str = "binomial tree";
const SEQUENTIAL: &str = "sequential";
const MIB: u64 = 1 << 20;
const GROUPS: &[f64] = &[3.0, 4.0, 8.0, 12.0, 16.0];
/// Block sizes in bytes, from 1 KiB to 16 MiB.
const BLOCKS: &[f64] =
    &[1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

fn curve(name: &'static str, task: fn(f64) -> Option<Task>) -> Curve {
    Curve { name, column: None, role: Role::Predicted, remark: "", task }
}

fn run(condition: Condition, scheme: Scheme, members: f64, bytes: u64, block: u64) -> Option<Task> {
    let (members, block_len) = (members as u32, block as u32);
    Some(Task::Multicast(Multicast { condition, scheme, members, bytes, block_len }))
}

/// Returns the time of `curve` relative to the pipeline.
fn times(measured: &Measured, curve: &str, x: f64) -> Option<f64> {
    Some(measured.at(curve, x)? / measured.at(PIPELINE, x)?)
}

/// Returns the relative times of `curve` at several positions.
fn all_times(measured: &Measured, curve: &str, xs: &[f64]) -> Option<Vec<f64>> {
    xs.iter().map(|x| times(measured, curve, *x)).collect()
}

macro_rules! all_schemes {
    ($bytes:expr) => {
        vec![
            curve(PIPELINE, |n| run(Condition::Undisturbed, Scheme::Pipeline, n, $bytes, MIB)),
            curve(CHAIN, |n| run(Condition::Undisturbed, Scheme::Chain, n, $bytes, MIB)),
            curve(TREE, |n| run(Condition::Undisturbed, Scheme::Tree, n, $bytes, MIB)),
            curve(SEQUENTIAL, |n| run(Condition::Undisturbed, Scheme::Sequential, n, $bytes, MIB)),
        ]
    };
}

fn schedules(id: &'static str, title: &'static str, curves: Vec<Curve>) -> Experiment {
    Experiment {
        id,
        title,
        headline: "chain and pipeline are alike except for small objects to many members; \
                   sequential and tree fall off",
        x: Axis { label: "members, the sender among them", is_log: false },
        y: Axis { label: "ms until all members have the object", is_log: true },
        metric: "ms",
        curves,
        xs: GROUPS,
        xs_quick: &[4.0],
        reference: Reference::new(""),
        claims: vec![],
    }
}

/// Figure R-4a.
pub fn large() -> Experiment {
    let claims = vec![
        Claim {
            text: "chain and pipeline are alike with 256 MiB: within 5 % for any group",
            verify: |measured| {
                let times = all_times(measured, CHAIN, &[4.0, 16.0])?;
                let ours = format!("{:.3} times with 4 members, {:.3} with 16", times[0], times[1]);
                let holds = times.iter().all(|times| (0.95..=1.05).contains(times));
                Some(Verdict::new(holds, ours, "\"very similar\"".into()))
            },
            remark: "",
        },
        Claim {
            text: "sequential and tree fall off as groups grow: with 16 members they take at least 10 \
                   and 3 times as long as the pipeline",
            verify: |measured| {
                let (sequential, tree) =
                    (times(measured, SEQUENTIAL, 16.0)?, times(measured, TREE, 16.0)?);
                let ours = format!("{sequential:.1} and {tree:.1} times");
                let holds = sequential >= 10.0 && tree >= 3.0;
                Some(Verdict::new(holds, ours, "\"do poorly\"".into()))
            },
            remark: "",
        },
        Claim {
            text: "16 members take hardly longer than 4: at most 5 % in the pipeline",
            verify: |measured| {
                let (few, many) = (measured.at(PIPELINE, 4.0)?, measured.at(PIPELINE, 16.0)?);
                let ours = format!("{few:.1} and {many:.1} ms");
                let holds = many <= 1.05 * few;
                Some(Verdict::new(holds, ours, "flat, by the figure".into()))
            },
            remark: "",
        },
    ];
    let title = "256 MiB in blocks of 1 MiB, by schedule (RDMC, Fractus)";
    Experiment { claims, ..schedules("R-4a", title, all_schemes!(256 * MIB)) }
}

/// Figure R-4b.
pub fn medium() -> Experiment {
    let claims = vec![Claim {
        text: "with 8 MiB to 16 members the pipeline is faster than the chain by at least a quarter",
        verify: |measured| {
            let (few, many) = (times(measured, CHAIN, 4.0)?, times(measured, CHAIN, 16.0)?);
            let ours = format!("{many:.2} times with 16 members, {few:.2} with 4");
            let holds = many >= 1.25 && few < many;
            Some(Verdict::new(holds, ours, "\"binomial pulls ahead\"".into()))
        },
        remark: "",
    }];
    let title = "8 MiB in blocks of 1 MiB, by schedule (RDMC, Fractus)";
    Experiment { claims, ..schedules("R-4b", title, all_schemes!(8 * MIB)) }
}

/// Returns the position of the highest value of a curve.
fn peak(measured: &Measured, curve: &str) -> Option<f64> {
    let at = |x: &f64| Some((*x, measured.at(curve, *x)?));
    let points: Vec<(f64, f64)> = BLOCKS.iter().filter_map(at).collect();
    points.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).map(|(x, _)| x)
}

fn blocks_of(bytes: u64, block: f64) -> Option<Task> {
    (block <= bytes as f64)
        .then(|| run(Condition::Undisturbed, Scheme::Pipeline, 4.0, bytes, block as u64))?
}

/// Figure R-6.
pub fn blocks() -> Experiment {
    Experiment {
        id: "R-6",
        title: "Bandwidth to 4 members by the size of blocks (RDMC, Fractus)",
        headline: "larger blocks are better until there are too few of them",
        x: Axis { label: "bytes of a block", is_log: true },
        y: Axis { label: "Gbit/s: bytes of the object by its time", is_log: false },
        metric: "gbps",
        curves: vec![
            curve("16 KiB", |block| blocks_of(16 << 10, block)),
            curve("256 KiB", |block| blocks_of(256 << 10, block)),
            curve("1 MiB", |block| blocks_of(MIB, block)),
            curve("16 MiB", |block| blocks_of(16 * MIB, block)),
            curve("128 MiB", |block| blocks_of(128 * MIB, block)),
        ],
        xs: BLOCKS,
        xs_quick: &[16_384.0, 1_048_576.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "bandwidth rises with the size of blocks, and falls again: neither the \
                       smallest nor the largest is best, for 1, 16 and 128 MiB",
                verify: |measured| {
                    measured.at("1 MiB", 1_024.0)?;
                    let peaks = ["1 MiB", "16 MiB", "128 MiB"].map(|curve| peak(measured, curve));
                    let ends = [MIB as f64, BLOCKS[7], BLOCKS[7]];
                    let inside = |(peak, end): (&Option<f64>, f64)| {
                        peak.is_some_and(|peak| peak > BLOCKS[0] && peak < end)
                    };
                    let holds = peaks.iter().zip(ends).all(inside);
                    let kib = peaks.map(|peak| peak.unwrap_or(0.0) / 1024.0);
                    let ours = format!("best: {}, {} and {} KiB", kib[0], kib[1], kib[2]);
                    Some(Verdict::new(holds, ours, "\"a peak is reached\"".into()))
                },
                remark: "",
            },
            Claim {
                text: "the larger the object, the larger its best block",
                verify: |measured| {
                    measured.at("1 MiB", 1_024.0)?;
                    let (small, large) = (peak(measured, "1 MiB")?, peak(measured, "128 MiB")?);
                    let ours = format!("{} and {} KiB", small / 1024.0, large / 1024.0);
                    Some(Verdict::new(small < large, ours, "by the figure".into()))
                },
                remark: "",
            },
        ],
    }
}

fn rate_of(senders: u32, members: f64) -> Option<Task> {
    run(Condition::Rate { senders }, Scheme::Pipeline, members, 1, MIB)
}

/// Figure R-7.
pub fn rate() -> Experiment {
    Experiment {
        id: "R-7",
        title: "Objects of one byte (RDMC, Fractus)",
        headline: "the rate falls with the number of members and rises with that of senders",
        x: Axis { label: "members", is_log: false },
        y: Axis { label: "thousand objects/s, of all senders", is_log: true },
        metric: "thousand_per_s",
        curves: vec![
            curve("one sends", |n| rate_of(1, n)),
            curve("half of them send", |n| rate_of((n / 2.0) as u32, n)),
            curve("all send", |n| rate_of(n as u32, n)),
        ],
        xs: &[3.0, 4.0, 8.0, 12.0, 16.0],
        xs_quick: &[4.0, 8.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "twice the members do not halve the rate of one sender",
                verify: |measured| {
                    let (few, many) =
                        (measured.at("one sends", 4.0)?, measured.at("one sends", 8.0)?);
                    let ours = format!("{few:.0} and {many:.0} thousand/s with 4 and 8 members");
                    Some(Verdict::new(many > 0.5 * few, ours, "by the figure".into()))
                },
                remark: "",
            },
            Claim {
                text: "all senders together do more than one alone, for any group",
                verify: |measured| {
                    let more = |x| Some(measured.at("all send", x)? / measured.at("one sends", x)?);
                    let (few, many) = (more(4.0)?, more(8.0)?);
                    let ours = format!("{few:.1} times with 4 members, {many:.1} with 8");
                    let holds = few > 1.0 && many > 1.0;
                    Some(Verdict::new(holds, ours, "by the figure".into()))
                },
                remark: "",
            },
        ],
    }
}

/// Figure R-8.
pub fn sierra() -> Experiment {
    let of = |members| run(Condition::Sierra, Scheme::Pipeline, members, 4 * MIB, 16 << 10);
    Experiment {
        id: "R-8",
        title: "4 MiB in 256 blocks to up to 512 members (RDMC, Sierra)",
        headline: "sub-linear up to 512 nodes",
        x: Axis { label: "members", is_log: true },
        y: Axis { label: "ms until all members have the object", is_log: false },
        metric: "ms",
        curves: vec![curve(PIPELINE, of)],
        xs: &[4.0, 16.0, 64.0, 128.0, 256.0, 512.0],
        xs_quick: &[4.0, 64.0],
        reference: Reference::new(""),
        claims: vec![Claim {
            text: "64 times the members take less than twice the time (as many blocks as the \
                   paper's 256 MB, each a 64th as large)",
            verify: |measured| {
                let at = |x| measured.at(PIPELINE, x);
                let (at_4, at_256, at_512) = (at(4.0)?, at(256.0)?, at(512.0)?);
                let ours = format!(
                    "{:.2} times with 256 members against 4; 512 take {:.2} times as long",
                    at_256 / at_4,
                    at_512 / at_4
                );
                Some(Verdict::new(at_256 < 2.0 * at_4, ours, "sub-linear".into()))
            },
            remark: "",
        }],
    }
}
