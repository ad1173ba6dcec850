//! Figure 16: a hash table in the memory of servers that run no code of it.
//!
//! 16 shards, 16 clients, uniform keys, values of 64 bytes. Every replica is a process of its own,
//! so that there are 16 servers for each replica of a shard; they and the clients are spread over
//! the 32 hosts. A list has one node in the mean before the run. The text says neither how many
//! calls a client has in flight nor how long values and lists are. The peak is that of a closed
//! loop over the calls in flight, as in figure 14a; other curves have one call in flight.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Task, Verdict};
use crate::reference::Reference;
use crate::{Access, Table};

const INSERT: &str = "1Pipe, insert";
const INSERT_BASE: &str = "leader, insert";
const LOOK_UP: &str = "1Pipe, look-up";
const LOOK_UP_BASE: &str = "leader, look-up";
const INSERT_ONE: &str = "1Pipe, insert, one in flight";
const INSERT_BASE_ONE: &str = "leader, insert, one in flight";
const LOOK_UP_ONE: &str = "1Pipe, look-up, one in flight";
const LOOK_UP_BASE_ONE: &str = "leader, look-up, one in flight";

const UNEXPLAINED: &str = "not explained";

fn task(access: Access, inserts: bool, x: f64, in_flight: Option<u32>) -> Option<Task> {
    Some(Task::Table(Table { access, inserts, replicas: x as u32, in_flight }))
}

/// Returns the ratio of one curve to another at `x`.
fn ratio(measured: &Measured, one: &str, other: &str, x: f64) -> Option<f64> {
    Some(measured.at(one, x)? / measured.at(other, x)?)
}

/// Verifies that the ratio of one curve to another at `x` lies within 25 % of the paper's.
fn has_ratio(
    measured: &Measured,
    (one, other): (&str, &str),
    x: f64,
    paper: f64,
) -> Option<Verdict> {
    let ours = ratio(measured, one, other, x)?;
    let holds = (0.75..=1.25).contains(&(ours / paper));
    Some(Verdict { holds, ours: format!("{ours:.2}"), paper: format!("{paper:.2}") })
}

/// Verifies that a curve at three replicas is to the same at one as in the paper, within 25 %.
fn scales(measured: &Measured, curve: &str, paper: f64) -> Option<Verdict> {
    let ours = measured.at(curve, 3.0)? / measured.at(curve, 1.0)?;
    let holds = (0.75..=1.25).contains(&(ours / paper));
    Some(Verdict { holds, ours: format!("{ours:.2}"), paper: format!("{paper:.2}") })
}

/// Figure 16.
pub fn table() -> Experiment {
    use Access::{Leader, Ordered};
    Experiment {
        id: "16",
        title: "Hash table in the memory of others: operations a client",
        headline: "insertions 1.9 times those with fences without replicas, 3.4 times with three; \
                   look-ups 10 % fewer at one replica, then with the number of replicas",
        x: Axis { label: "replicas", is_log: false },
        y: Axis { label: "k operations/s a client", is_log: true },
        metric: "kops",
        curves: vec![
            Curve::predicted(INSERT, Some("1Pipe/insert"), UNEXPLAINED, |x| {
                task(Ordered, true, x, None)
            }),
            Curve::predicted(INSERT_BASE, Some("base/insert"), UNEXPLAINED, |x| {
                task(Leader, true, x, None)
            }),
            Curve::predicted(LOOK_UP, Some("1Pipe/lookup"), UNEXPLAINED, |x| {
                task(Ordered, false, x, None)
            }),
            Curve::predicted(LOOK_UP_BASE, Some("base/lookup"), UNEXPLAINED, |x| {
                task(Leader, false, x, None)
            }),
            Curve::predicted(INSERT_ONE, None, "", |x| task(Ordered, true, x, Some(1))),
            Curve::predicted(INSERT_BASE_ONE, None, "", |x| task(Leader, true, x, Some(1))),
            Curve::predicted(LOOK_UP_ONE, None, "", |x| task(Ordered, false, x, Some(1))),
            Curve::predicted(LOOK_UP_BASE_ONE, None, "", |x| task(Leader, false, x, Some(1))),
        ],
        xs: &[1.0, 2.0, 3.0, 4.0],
        xs_quick: &[1.0, 3.0],
        reference: Reference::new(include_str!("../../data/remote-hashtable.tsv")),
        claims: claims(),
    }
}

fn claims() -> Vec<Claim> {
    vec![
        Claim {
            text: "without replicas, clients insert 1.9 times as fast as with a fence (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT, INSERT_BASE), 1.0, 1.9),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "so they do with one call in flight (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT_ONE, INSERT_BASE_ONE), 1.0, 1.9),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "with three replicas, they insert 3.4 times as fast as by a leader (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT, INSERT_BASE), 3.0, 3.4),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "so they do with one call in flight (within 25 %), with three replicas",
            verify: |measured| has_ratio(measured, (INSERT_ONE, INSERT_BASE_ONE), 3.0, 3.4),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "the order costs a tenth of the look-ups at one replica (within 25 %)",
            verify: |measured| has_ratio(measured, (LOOK_UP, LOOK_UP_BASE), 1.0, 0.9),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "so it does with one call in flight (within 25 %), at one replica",
            verify: |measured| has_ratio(measured, (LOOK_UP_ONE, LOOK_UP_BASE_ONE), 1.0, 0.9),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "look-ups grow with the replicas: three times as many with three (within 25 %)",
            verify: |measured| scales(measured, LOOK_UP, 2.96),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "insertions do not depend on the number of replicas: with three as many as with \
                   one (within 25 %)",
            verify: |measured| scales(measured, INSERT, 0.97),
            remark: UNEXPLAINED,
        },
        Claim {
            text: "look-ups at a leader do not grow with the replicas (within 25 %)",
            verify: |measured| scales(measured, LOOK_UP_BASE, 1.01),
            remark: UNEXPLAINED,
        },
    ]
}
