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

const INSERT_RATE: &str = "\
     the text does not say how many calls a client has in flight. With 128 the CPU time of clients \
     is the limit (client_cpu 0.85 to 1.00): a call takes 3.6 to 3.9 of their messages and 0.8 to \
     2.4 acknowledgements, 200 ns each. The paper's clients do a third of that; with one call in \
     flight ours do 16 k/s, in 61 to 64 us (curves)";
const BASE_INSERT_RATE: &str = "\
     a message of a leader's program costs 200 ns, as any other, and the program's walk along a list \
     costs nothing. If the paper's leaders are the limit, they take 7.7 to 14.5 us for an insertion";
const LOOK_UP_RATE: &str = "\
     clients are the limit (client_cpu 0.95 to 0.99), and servers only with one replica (server_cpu \
     0.95, 0.25 with four): a look-up takes 2.5 messages of 200 ns each, and 0.4 to 1.2 \
     acknowledgements. In the paper a client does 2,334 k/s with four replicas and 590 with one, so \
     the servers are the limit";
const BASE_LOOK_UP_RATE: &str = "\
     clients and leaders are busy (0.98) with 2.5 messages a look-up; the paper's leaders answer a \
     third of that";
const FENCE: &str = "\
     a fence costs one of 5.2 messages of a client, and the order 0.8 acknowledgements, which cost \
     as much (client_messages, client_acks). The other messages are the same on both sides: a list \
     is walked before the key is inserted, 1.5 nodes in the mean";
const FENCE_ONE: &str = "\
     a fence costs one of 4.5 round trips of 10.7 us (47.9 us), and the order more: 3.2 round trips \
     in 60.7 us, as requests and replies wait for barriers, and the change for its commit";
const LEADER: &str = "\
     a client sends a leader one message, and needs 3.8 without one; with 200 ns for a message of \
     any program, the leader's CPU is busy to 0.56 (server_cpu), the client's to 0.99 without one";
const LEADER_ONE: &str = "\
     an insertion by a leader takes two round trips (21.6 us), one without takes 3.2, which wait for \
     barriers (62.4 us): the walk along a list and the change, one after the other";
const ORDER_ONE: &str = "\
     the order costs each message 2.9 us: 2.6 round trips take 43.4 us, 2.5 without it 26.9. That is \
     more than the 2.1 us of figure 9a, as a look-up waits for the commit barrier, too";
const CLIENTS: &str = "\
     clients are the limit (client_cpu 0.95 to 0.99), while server_cpu falls from 0.95 to 0.33: a \
     client has more servers with more replicas, and its acknowledgements cover fewer messages. For \
     what the servers could answer see the next row";

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
            Curve::predicted(INSERT, Some("1Pipe/insert"), INSERT_RATE, |x| {
                task(Ordered, true, x, None)
            }),
            Curve::predicted(INSERT_BASE, Some("base/insert"), BASE_INSERT_RATE, |x| {
                task(Leader, true, x, None)
            }),
            Curve::predicted(LOOK_UP, Some("1Pipe/lookup"), LOOK_UP_RATE, |x| {
                task(Ordered, false, x, None)
            }),
            Curve::predicted(LOOK_UP_BASE, Some("base/lookup"), BASE_LOOK_UP_RATE, |x| {
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
            remark: FENCE,
        },
        Claim {
            text: "with one call in flight, they do, too (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT_ONE, INSERT_BASE_ONE), 1.0, 1.9),
            remark: FENCE_ONE,
        },
        Claim {
            text: "with three replicas, they insert 3.4 times as fast as by a leader (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT, INSERT_BASE), 3.0, 3.4),
            remark: LEADER,
        },
        Claim {
            text: "with three replicas and one call in flight, they do, too (within 25 %)",
            verify: |measured| has_ratio(measured, (INSERT_ONE, INSERT_BASE_ONE), 3.0, 3.4),
            remark: LEADER_ONE,
        },
        Claim {
            text: "the order costs a tenth of the look-ups at one replica (within 25 %)",
            verify: |measured| has_ratio(measured, (LOOK_UP, LOOK_UP_BASE), 1.0, 0.9),
            remark: ORDER_ONE,
        },
        Claim {
            text: "with one call in flight, it does, too (within 25 %)",
            verify: |measured| has_ratio(measured, (LOOK_UP_ONE, LOOK_UP_BASE_ONE), 1.0, 0.9),
            remark: ORDER_ONE,
        },
        Claim {
            text: "look-ups grow with the replicas: three times as many with three (within 25 %)",
            verify: |measured| scales(measured, LOOK_UP, 2.96),
            remark: CLIENTS,
        },
        Claim {
            text: "(capacity) the look-ups that servers could answer grow so (within 25 %)",
            verify: |measured| {
                let bound = |x| measured.other(LOOK_UP, x, "server_bound_kops");
                let ours = bound(3.0)? / bound(1.0)?;
                let holds = (0.75..=1.25).contains(&(ours / 2.96));
                Some(Verdict { holds, ours: format!("{ours:.2}"), paper: "2.96".into() })
            },
            remark: CLIENTS,
        },
        Claim {
            text: "insertions do not depend on the number of replicas: with three as many as with \
                   one (within 25 %)",
            verify: |measured| scales(measured, INSERT, 0.97),
            remark: INSERT_RATE,
        },
        Claim {
            text: "look-ups at a leader do not grow with the replicas (within 25 %)",
            verify: |measured| scales(measured, LOOK_UP_BASE, 1.01),
            remark: BASE_LOOK_UP_RATE,
        },
    ]
}
