//! Figure 16: a hash table in the memory of servers that run no code of it.
//!
//! 16 shards, 16 clients, uniform keys, values of 64 bytes. Every replica is a process of its own,
//! so that there are 16 servers for each replica of a shard; they and the clients are spread over
//! the 32 hosts. A list has one node in the mean before the run.
//!
//! The text says neither how many calls a client has in flight nor how long values and lists are.
//! Calls in flight: one for each server that can take a call of the kind, so 16 for insertions and
//! for look-ups at leaders, and 16 for each replica for look-ups at all of them. That is the number
//! that fits the paper's own rates. Look-ups are 36.4 to 36.9 k/s for a client and a server with
//! any number of replicas, and the text has their delay lower the rate by a tenth: so a fixed
//! number is in flight between a client and a server. Of one, the rates make 24 us for a look-up at
//! a leader and 27 us with the order; of two they make 49 and 54 us, and a look-up without an order
//! takes 27 us in the simulated testbed. Other curves have one call of each client in flight.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict, is_near};
use crate::reference::Reference;
use crate::verdict::Better;
use crate::{Access, Table, Threads};

const INSERT: &str = "1Pipe, insert";
const INSERT_BASE: &str = "leader, insert";
const LOOK_UP: &str = "1Pipe, look-up";
const LOOK_UP_BASE: &str = "leader, look-up";
const INSERT_ONE: &str = "1Pipe, insert, one in flight";
const INSERT_BASE_ONE: &str = "leader, insert, one in flight";
const LOOK_UP_ONE: &str = "1Pipe, look-up, one in flight";
const LOOK_UP_BASE_ONE: &str = "leader, look-up, one in flight";

const LOOK_UP_ONE_THREAD: &str = "1Pipe, look-up, one thread";

/// Servers of a replica of all shards: a client has one call in flight to each of those that can
/// take it.
const SERVERS: u32 = 16;

const BASE_INSERT_RATE: &str = "\
     16 calls of a client take the time of messages alone: 48.6 us with a fence, 18 to 22 us by a \
     leader, whose walk along a list costs nothing. By the same reckoning the paper's take 98 us \
     with a fence and 123 to 232 us by a leader; the text does not say why";
const INSERT_RATE: &str = "\
     with one replica nothing waits for a barrier; with two to four an insertion waits for its \
     commit (48 to 50 us)";
const LOOK_UP_RATE: &str = "\
     a look-up takes 27 us with one replica, and 16 of them are in flight for each replica: with \
     three the sending thread of a client is busy for 0.86 of the time";
const FENCE: &str = "\
     a fence costs one of 4.5 round trips of 10.7 us (48.6 us): without it 3.5 remain, so 1.29 \
     times as many insertions are possible. Nothing waits for a barrier (38.9 us). In the paper an insertion takes half the time of one with a fence: two round \
     trips become one";
const LEADER: &str = "\
     an insertion by a leader takes two round trips (21.8 us). One without takes 2.5 to find its \
     place in the list, which wait for no barrier, and one for the change, which waits for its \
     commit (49.0 us)";
const SCALES: &str = "\
     the sending thread of a client, which is busy for 0.30 of the time with 16 calls in flight and \
     for 0.86 with 48";

fn task(access: Access, inserts: bool, x: f64, in_flight: u32) -> Option<Task> {
    Some(Task::Table(Table {
        access,
        inserts,
        replicas: x as u32,
        in_flight,
        threads: Threads::Two,
    }))
}

/// Returns a curve of our rate.
fn ours(
    name: &'static str,
    column: &'static str,
    remark: &'static str,
    task: fn(f64) -> Option<Task>,
) -> Curve {
    let role = Role::Ours(Better::Higher);
    Curve { role, ..Curve::predicted(name, Some(column), remark, task) }
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
    Some(Verdict::new(holds, format!("{ours:.2}"), format!("{paper:.2}")))
}

/// Verifies that a curve at three replicas is to the same at one as in the paper, within 25 %.
fn scales(measured: &Measured, curve: &str, paper: f64) -> Option<Verdict> {
    let ours = measured.at(curve, 3.0)? / measured.at(curve, 1.0)?;
    let holds = is_near(ours, paper);
    Some(Verdict::new(holds, format!("{ours:.2}"), format!("{paper:.2}")))
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
            ours(INSERT, "1Pipe/insert", INSERT_RATE, |x| task(Ordered, true, x, SERVERS)),
            Curve::predicted(INSERT_BASE, Some("base/insert"), BASE_INSERT_RATE, |x| {
                task(Leader, true, x, SERVERS)
            }),
            ours(LOOK_UP, "1Pipe/lookup", LOOK_UP_RATE, |x| {
                task(Ordered, false, x, SERVERS * x as u32)
            }),
            Curve::predicted(LOOK_UP_BASE, Some("base/lookup"), "", |x| {
                task(Leader, false, x, SERVERS)
            }),
            Curve::predicted(INSERT_ONE, None, "", |x| task(Ordered, true, x, 1)),
            Curve::predicted(INSERT_BASE_ONE, None, "", |x| task(Leader, true, x, 1)),
            Curve::predicted(LOOK_UP_ONE, None, "", |x| task(Ordered, false, x, 1)),
            Curve::predicted(LOOK_UP_ONE_THREAD, None, "", |x| {
                match task(Ordered, false, x, SERVERS * x as u32)? {
                    Task::Table(table) => {
                        Some(Task::Table(Table { threads: Threads::One, ..table }))
                    }
                    _ => None,
                }
            }),
            Curve::predicted(LOOK_UP_BASE_ONE, None, "", |x| task(Leader, false, x, 1)),
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
            remark: FENCE,
        },
        Claim {
            text: "with one call in flight, they do, too (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT_ONE, INSERT_BASE_ONE), 1.0, 1.9),
            remark: FENCE,
        },
        Claim {
            text: "with three replicas, they insert 3.4 times as fast as by a leader (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT, INSERT_BASE), 3.0, 3.4),
            remark: LEADER,
        },
        Claim {
            text: "with three replicas and one call in flight, they do, too (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT_ONE, INSERT_BASE_ONE), 3.0, 3.4),
            remark: LEADER,
        },
        Claim {
            text: "the order costs a tenth of the look-ups at one replica (within 25 %)",
            verify: |measured| has_ratio(measured, (LOOK_UP, LOOK_UP_BASE), 1.0, 0.9),
            remark: "",
        },
        Claim {
            text: "with one call in flight, it does, too (within 25 %)",
            verify: |measured| has_ratio(measured, (LOOK_UP_ONE, LOOK_UP_BASE_ONE), 1.0, 0.9),
            remark: "",
        },
        Claim {
            text: "look-ups grow with the replicas: three times as many with three (within 25 %)",
            verify: |measured| scales(measured, LOOK_UP, 2.96),
            remark: SCALES,
        },
        Claim {
            text: "(capacity) the look-ups that servers could answer grow so (within 25 %)",
            verify: |measured| {
                let bound = |x| measured.other(LOOK_UP, x, "server_bound_kops");
                let ours = bound(3.0)? / bound(1.0)?;
                let holds = is_near(ours, 2.96);
                Some(Verdict::new(holds, format!("{ours:.2}"), "2.96".into()))
            },
            remark: "",
        },
        Claim {
            text: "insertions do not depend on the number of replicas: with three as many as with \
                   one (within 25 %)",
            verify: |measured| scales(measured, INSERT, 0.97),
            remark: "",
        },
        Claim {
            text: "look-ups at a leader do not grow with the replicas (within 25 %)",
            verify: |measured| scales(measured, LOOK_UP_BASE, 1.01),
            remark: "",
        },
    ]
}
