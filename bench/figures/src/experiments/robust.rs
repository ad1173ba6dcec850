//! RDMC's table 1 and its section 4.5 on delays: where the time of a transfer goes, a paused relay,
//! a slow link, slack.

use crate::experiment::{Axis, Claim, Curve, Experiment, Role, Task, Verdict};
use crate::reference::Reference;
use crate::verdict::{Better, Outcome};
use crate::{Condition, Multicast, Scheme};

const PIPELINE: &str = "binomial pipeline";
const CHAIN: &str = "chain";
const FORMULA: &str = "strict steps, by the paper's formula";
const MIB: u64 = 1 << 20;
const GROUPS: &[f64] = &[4.0, 8.0, 16.0, 32.0, 64.0];
/// Blocks of an object for the comparison of groups of up to 64: a multiple of all group sizes.
const BLOCKS: u64 = 256;

const RUNS_AHEAD: &str = "members do not wait for the end of a step here, so some run ahead of \
                          others, and blocks wait longer: more slack, at no cost in time; for strict steps see the other \
                          curve";
const STRICT: &str = "binomial pipeline, strict steps";
const STRICT_REMARK: &str = "";
const NO_HOSTS: &str = "hosts have no delays here, neither for a processor nor for interrupts";

fn curve(name: &'static str, task: fn(f64) -> Option<Task>) -> Curve {
    Curve { name, column: None, role: Role::Predicted, remark: "", task }
}

fn run(condition: Condition, scheme: Scheme, members: u32, bytes: u64, block: u64) -> Option<Task> {
    let block_len = block as u32;
    Some(Task::Multicast(Multicast { condition, scheme, members, bytes, block_len }))
}

/// Table T-1: the same run for every line.
pub fn breakdown() -> Experiment {
    Experiment {
        id: "T-1",
        title: "Where the time of 256 MiB to 4 members goes (RDMC, Stampede)",
        headline: "99 % of it the network is in use",
        x: Axis {
            label: "1 until the first block has arrived, 2 other blocks, 3 waiting, 4 total",
            is_log: false,
        },
        y: Axis { label: "us, at the farthest member", is_log: true },
        metric: "part_{x}_us",
        curves: vec![Curve {
            column: Some("RDMC"),
            remark: NO_HOSTS,
            ..curve(PIPELINE, |_| run(Condition::Breakdown, Scheme::Pipeline, 4, 256 * MIB, MIB))
        }],
        xs: &[1.0, 2.0, 3.0, 4.0],
        xs_quick: &[1.0, 2.0, 3.0, 4.0],
        reference: Reference::new(include_str!("../../data/rdmc_transfer.tsv")),
        claims: vec![Claim {
            text: "blocks are in transmission for 99 % of the time",
            verify: |measured| {
                let at = |x| measured.at(PIPELINE, x);
                let percent = 100.0 * (at(1.0)? + at(2.0)?) / at(4.0)?;
                let ours = format!("{percent:.1} %");
                Some(Verdict::new(percent >= 98.9, ours, "98.9 %".into()))
            },
            remark: "",
        }],
    }
}

fn stall_of(scheme: Scheme, us: f64) -> Option<Task> {
    run(Condition::Stall { us: us as u32 }, scheme, 4, 64 * MIB, MIB)
}

/// Figure R-5.
pub fn stall() -> Experiment {
    Experiment {
        id: "R-5",
        title: "A relay of four members pauses (RDMC, Stampede)",
        headline: "100 us make the root wait one step",
        x: Axis { label: "us of the pause", is_log: false },
        y: Axis { label: "us that the transfer takes longer", is_log: false },
        metric: "more_us",
        curves: vec![
            curve(PIPELINE, |us| stall_of(Scheme::Pipeline, us)),
            curve(CHAIN, |us| stall_of(Scheme::Chain, us)),
        ],
        xs: &[25.0, 50.0, 100.0, 200.0, 400.0, 800.0],
        xs_quick: &[100.0, 400.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "a relay that is paused for 100 us costs the transfer at most one step",
                verify: |measured| {
                    let more = measured.at(PIPELINE, 100.0)?;
                    let step = measured.other(PIPELINE, 100.0, "step_us")?;
                    let ours = format!("{more:.0} us more; a step takes {step:.0}");
                    let paper = "the sender waits for one step".into();
                    Some(Verdict::new(more <= step, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "a pause of 400 us costs the transfer at most 400 us and a step",
                verify: |measured| {
                    let (pipeline, chain) =
                        (measured.at(PIPELINE, 400.0)?, measured.at(CHAIN, 400.0)?);
                    let step = measured.other(PIPELINE, 400.0, "step_us")?;
                    let ours = format!("{pipeline:.0} us more, the chain {chain:.0}");
                    let paper = "as much as the pause, by its formulas".into();
                    Some(Verdict::new(pipeline <= 400.0 + step, ours, paper))
                },
                remark: "",
            },
        ],
    }
}

fn slow_of(condition: Condition, scheme: Scheme, members: f64) -> Option<Task> {
    run(condition, scheme, members as u32, BLOCKS << 16, 1 << 16)
}

/// Figure R-slow: one link at half rate.
pub fn slow_link() -> Experiment {
    Experiment {
        id: "R-slow",
        title: "One link carries half as much as the others (RDMC section 4.5)",
        headline: "85.6 % of the bandwidth are left with 64 members; a chain keeps 50 %",
        x: Axis { label: "members", is_log: true },
        y: Axis { label: "% of the bandwidth that is left", is_log: false },
        metric: "kept_percent",
        curves: vec![
            Curve {
                role: Role::Ours(Better::Higher),
                column: Some(FORMULA),
                remark: "each neighbour has its own queue here: only members that need what comes over \
                         the slow link wait for it",
                ..curve(PIPELINE, |n| slow_of(Condition::SlowLink, Scheme::Pipeline, n))
            },
            Curve {
                column: Some("chain, by its argument"),
                ..curve(CHAIN, |n| slow_of(Condition::SlowLink, Scheme::Chain, n))
            },
            Curve {
                column: Some(FORMULA),
                remark: STRICT_REMARK,
                ..curve(STRICT, |n| slow_of(Condition::StrictSlowLink, Scheme::Pipeline, n))
            },
        ],
        xs: &GROUPS[1..],
        xs_quick: &[8.0],
        reference: Reference::new(include_str!("../../data/rdmc_slow_link.tsv")),
        claims: vec![Claim {
            text: "with 64 members at least 85 % are left",
            verify: |measured| {
                let (pipeline, chain) = (measured.at(PIPELINE, 64.0)?, measured.at(CHAIN, 64.0)?);
                let ours = format!("{pipeline:.1} %; of the chain {chain:.1} %");
                let paper = "85.6 % by its formula; of the chain 50 %".into();
                Some(Verdict::new(pipeline >= 85.0, ours, paper))
            },
            remark: "",
        }],
    }
}

/// Figure R-slack.
pub fn slack() -> Experiment {
    Experiment {
        id: "R-slack",
        title: "Steps between the arrival of a block at a member and its relay (RDMC section 4.5)",
        headline: "about 2, by its formula",
        x: Axis { label: "members", is_log: true },
        y: Axis { label: "steps, mean", is_log: false },
        metric: "slack",
        curves: vec![
            // The more slack, the longer a member may be delayed at no cost.
            Curve {
                role: Role::Ours(Better::Higher),
                column: Some(FORMULA),
                remark: RUNS_AHEAD,
                ..curve(PIPELINE, |n| {
                    run(Condition::Undisturbed, Scheme::Pipeline, n as u32, BLOCKS << 16, 1 << 16)
                })
            },
            Curve {
                column: Some(FORMULA),
                remark: STRICT_REMARK,
                ..curve(STRICT, |n| {
                    run(Condition::StrictSteps, Scheme::Pipeline, n as u32, BLOCKS << 16, 1 << 16)
                })
            },
        ],
        xs: GROUPS,
        xs_quick: &[8.0],
        reference: Reference::new(include_str!("../../data/rdmc_slack.tsv")),
        claims: vec![Claim {
            text: "a block is sent 2 steps after it was received (within 25 %), from 16 members on",
            verify: |measured| {
                let at = |x| measured.at(PIPELINE, x);
                let all = [at(16.0)?, at(32.0)?, at(64.0)?];
                let ours =
                    format!("{:.2}, {:.2} and {:.2} with 16, 32 and 64", all[0], all[1], all[2]);
                let least = all.iter().copied().fold(f64::INFINITY, f64::min);
                let most = all.iter().copied().fold(0.0, f64::max);
                let outcome = Outcome::of((least, most), &(1.5..=2.5), Some(Better::Higher));
                Some(Verdict { outcome, ..Verdict::new(true, ours, "about 2".into()) })
            },
            remark: RUNS_AHEAD,
        }],
    }
}
