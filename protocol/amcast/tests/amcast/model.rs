//! Model checking of the machines: all interleavings of one group of three members, up to a number
//! of steps (stateright).
//!
//! The network is a set of packets that only grows: each packet may arrive at any time, any number
//! of times, or never. This covers loss, duplication, reordering and crashes, and makes
//! retransmission unnecessary. The other group is abstracted to the timestamp that it has agreed
//! on, which may arrive at any time. What holds for one group under all inputs holds for both.

use std::collections::BTreeSet;
use std::sync::Arc;

use onepipe_amcast::{Config, Group, GroupId, GroupSet, Groups, LogicalTime, Member, MessageId};
use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{AMCAST_LEN, Amcast, Frame, Header, Opcode, SHORT_HEADER_LEN, seal};
use stateright::{Checker, Model, Property};

/// Members of the group under test. Those of the other group follow, if both groups are modelled.
const MEMBERS: u32 = 3;
/// One replica per group.
const REPLICAS: std::ops::Range<u32> = 6..8;
const CLIENT: u32 = 8;
const FRAME_LEN: usize = SHORT_HEADER_LEN + AMCAST_LEN + 1;

/// Bounds of the model.
#[derive(Clone, Debug)]
struct Bounds {
    /// Number of messages: even ones are for both groups, odd ones for the group under test.
    messages: u32,
    /// Members that are elected, in order; the first in epoch 2.
    elections: Vec<usize>,
    /// Timestamps that the other group may have agreed on for each common message; empty if its
    /// members are modelled or there are no such messages.
    others: Vec<u64>,
    /// Whether the members of both groups are modelled.
    is_whole: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    members: Vec<Member>,
    network: BTreeSet<Arc<[u8]>>,
    elected: usize,
    /// Decisions that the replicas of each group were sent, and barriers with the number of
    /// positions they cover.
    decided: [BTreeSet<(u64, MessageId, LogicalTime)>; 2],
    barriers_of: [BTreeSet<(LogicalTime, u64)>; 2],
    led: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Arrives(Arc<[u8]>),
    Elect,
}

fn now() -> Now {
    Now { mono: Mono::from_ns(u64::MAX), sync: Timestamp::from_ns(1 << 50) }
}

fn frame(src: u32, dst: u32, opcode: Opcode, body: &Amcast) -> Arc<[u8]> {
    let mut frame = [0; SHORT_HEADER_LEN + AMCAST_LEN];
    body.write(&mut frame[SHORT_HEADER_LEN..]).expect("the buffer fits the frame");
    let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
    let sync = now().sync;
    seal(&mut frame, header.stamped(sync, Promises::both(sync), Psn(0)), AMCAST_LEN);
    frame.as_slice().into()
}

impl State {
    /// Adds the output of a member to the network, and records what is for replicas.
    fn drain(&mut self, index: usize) {
        let all = self.members.len() as u32;
        let member = &mut self.members[index];
        let mut slot = [0; FRAME_LEN];
        while let Some(sent) = member.poll_transmit(now(), &mut slot) {
            let parsed = Frame::parse(&slot[..sent.bytes]).expect("sealed");
            let (body, _) = Amcast::parse(parsed.payload).expect("written");
            let dst = parsed.header.dst().0;
            if dst < all {
                self.network.insert(slot[..sent.bytes].into());
            } else if REPLICAS.contains(&dst) && parsed.opcode == Opcode::Deliver {
                let group = (dst - REPLICAS.start) as usize;
                self.barriers_of[group].insert((body.barrier, body.count));
                if body.has(Amcast::MESSAGE) {
                    self.decided[group].insert((body.position, body.id, body.timestamp));
                }
            }
        }
        while member.poll_event().is_some() {
            self.led += 1;
        }
        // Counters are no part of the state.
        member.take_stats();
    }

    fn agrees(&self) -> bool {
        let differ = |one: &(u64, MessageId, LogicalTime),
                      other: &(u64, MessageId, LogicalTime)| {
            one != other && (one.0 == other.0 || one.1 == other.1)
        };
        let all = &self.decided;
        let differ_in =
            |of: &BTreeSet<_>| of.iter().any(|one| of.iter().any(|other| differ(one, other)));
        // Both groups must agree on a message's position.
        let is_divergent = all[0]
            .iter()
            .any(|one| all[1].iter().any(|other| one.1 == other.1 && one.2 != other.2));
        !all.iter().any(differ_in) && !is_divergent
    }

    /// Returns whether a replica that knows `count` positions misses nothing below the barrier.
    fn is_barrier_safe(&self) -> bool {
        self.barriers_of.iter().zip(&self.decided).all(|(barriers_of, decided)| {
            barriers_of.iter().all(|(barrier, count)| {
                decided.iter().all(|(position, _, last)| last > barrier || position < count)
            })
        })
    }
}

impl Bounds {
    fn groups() -> Groups {
        let ids = |all: std::ops::Range<u32>| all.map(ProcessId).collect::<Vec<_>>();
        let group = |members, replicas| Group { members, replicas };
        Groups {
            groups: vec![
                group(ids(0..MEMBERS), ids(REPLICAS.start..7)),
                group(ids(MEMBERS..2 * MEMBERS), ids(7..REPLICAS.end)),
            ],
            clients: vec![ProcessId(CLIENT)],
            window: 2,
            message_groups_max: 2,
            frame_len_max: FRAME_LEN,
        }
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let config =
            |id| Config { history: 1, outbox: 64, ..Config::new(ProcessId(id), Self::groups()) };
        let member = |id| Member::new(config(id)).expect("right");
        let mut states = vec![State {
            members: (0..MEMBERS * (1 + u32::from(self.is_whole))).map(member).collect(),
            network: BTreeSet::new(),
            elected: 0,
            decided: [BTreeSet::new(), BTreeSet::new()],
            barriers_of: [BTreeSet::new(), BTreeSet::new()],
            led: 0,
        }];
        for sequence in 0..self.messages {
            let id = MessageId { client: 0, sequence };
            let is_shared = sequence % 2 == 0 && (self.is_whole || !self.others.is_empty());
            let groups = GroupSet::from_bits(if is_shared { 0b11 } else { 0b01 });
            let start = Amcast::new(GroupId(0), 1).with_message(id, groups);
            let far = Amcast::new(GroupId(1), 1).with_message(id, groups);
            for state in &mut states {
                (0..MEMBERS).for_each(|to| {
                    state.network.insert(frame(CLIENT, to, Opcode::Start, &start));
                });
                if self.is_whole && is_shared {
                    (MEMBERS..2 * MEMBERS).for_each(|to| {
                        state.network.insert(frame(CLIENT, to, Opcode::Start, &far));
                    });
                }
            }
            if !is_shared || self.is_whole {
                continue;
            }
            let with = |state: &State, other: u64| {
                let mut state = state.clone();
                let timestamp = LogicalTime(other);
                let other = Amcast::new(GroupId(1), 1).with_message(id, groups);
                let flags = other.flags | Amcast::DECIDED;
                let other = Amcast { flags, timestamp, barrier: timestamp, ..other };
                (0..MEMBERS).for_each(|to| {
                    state.network.insert(frame(MEMBERS, to, Opcode::Prop, &other));
                });
                state
            };
            let all = states.iter().flat_map(|state| self.others.iter().map(|o| with(state, *o)));
            states = all.collect();
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(state.network.iter().cloned().map(Action::Arrives));
        if state.elected < self.elections.len() {
            actions.push(Action::Elect);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Arrives(packet) => {
                let mut bytes = packet.to_vec();
                let to = Frame::parse(&bytes).expect("sealed").header.dst().index();
                state.members[to].handle_frame(now(), Port(0), &mut bytes);
                state.drain(to);
            }
            Action::Elect => {
                let index = self.elections[state.elected];
                state.elected += 1;
                let epoch = state.elected as u32 + 1;
                state.members[index].lead(now(), epoch);
                // Requests for promises are sent by the timer.
                state.members[index].handle_timeout(now());
                state.drain(index);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("agreement", |_: &Bounds, state: &State| state.agrees()),
            Property::always(
                "no position is added below a barrier",
                |_: &Bounds, state: &State| state.is_barrier_safe(),
            ),
            Property::sometimes("all is decided", |bounds: &Bounds, state: &State| {
                state.decided[0].len() == bounds.messages as usize
            }),
            Property::sometimes(
                "the last elected member leads",
                |bounds: &Bounds, state: &State| state.led as usize >= bounds.elections.len(),
            ),
        ]
    }
}

/// Explores all states, or those within some steps. Returns their number and the violations.
fn explore(bounds: Bounds, steps: Option<usize>) -> (usize, Vec<&'static str>) {
    let limits = bounds.checker().threads(1);
    let limits = match steps {
        Some(steps) => limits.target_max_depth(steps),
        None => limits,
    };
    let checker = limits.spawn_bfs().join();
    let wrong = checker.discoveries().into_keys().collect();
    (checker.unique_state_count(), wrong)
}

/// Checks that there are no violations, and that the expected ends are reached.
#[cfg(not(feature = "mistakes"))]
fn check(bounds: Bounds, steps: Option<usize>, ends: &[&str]) -> usize {
    let (states, mut found) = explore(bounds, steps);
    found.sort_unstable();
    assert_eq!(found, ends, "in {states} states");
    states
}

const DECIDED: &str = "all is decided";
const LEADS: &str = "the last elected member leads";

//= spec/amcast.md#R8
//= spec/amcast.md#R9
//= spec/amcast.md#R13
//= spec/amcast.md#R15
#[cfg(not(feature = "mistakes"))]
#[test]
fn one_message_for_both_groups_exhaustively() {
    let bounds = Bounds { messages: 1, elections: vec![], others: vec![3], is_whole: false };
    let states = check(bounds, None, &[DECIDED, LEADS]);
    assert!(states > 1_000, "{states}");
}

/// Two messages; one of them is for this group alone.
fn two_messages() -> Bounds {
    Bounds { messages: 2, elections: vec![], others: vec![1], is_whole: false }
}

#[cfg(not(feature = "mistakes"))]
#[test]
fn two_messages_within_eight_steps() {
    let states = check(two_messages(), Some(9), &[DECIDED, LEADS]);
    assert!(states > 10_000, "{states}");
}

//= spec/amcast.md#R9
//= spec/amcast.md#R13
//= spec/amcast.md#R25
#[cfg(not(feature = "mistakes"))]
#[test]
fn a_message_and_an_election_within_twelve_steps() {
    let bounds = Bounds { messages: 1, elections: vec![1], others: vec![], is_whole: false };
    let states = check(bounds, Some(13), &[DECIDED, LEADS]);
    assert!(states > 10_000, "{states}");
}

#[cfg(not(feature = "mistakes"))]
#[test]
#[ignore = "half a minute and more: cargo test -p onepipe-amcast --test amcast -- --ignored model"]
fn larger_models_within_bounds() {
    let states = check(two_messages(), Some(11), &[DECIDED, LEADS]);
    assert!(states > 150_000, "{states}");
    let bounds = Bounds { elections: vec![1, 2], ..two_messages() };
    let (states, found) = explore(bounds, Some(9));
    assert!(states > 10_000 && found.iter().all(|end| [DECIDED, LEADS].contains(end)), "{found:?}");
}

/// Two groups of three members with three messages, two of them for both groups, and an election,
/// within six steps.
#[cfg(not(feature = "mistakes"))]
#[test]
#[ignore = "a quarter of a minute: cargo test -p onepipe-amcast --test amcast -- --ignored model"]
fn two_groups_of_three_with_three_messages() {
    let bounds = Bounds { messages: 3, elections: vec![1], others: vec![], is_whole: true };
    let (states, found) = explore(bounds, Some(7));
    assert!(states > 50_000, "{states}");
    assert!(found.iter().all(|end| [DECIDED, LEADS].contains(end)), "{found:?}");
}

/// The model must be able to detect bugs: two show within these steps.
#[cfg(feature = "mistakes")]
#[test]
fn model_detects_mistakes() {
    use onepipe_base::mistake::{Mistake, choose};
    for mistake in [Mistake::PendingForgotten, Mistake::GapsIgnored] {
        choose(Some(mistake));
        let (_, found) = explore(two_messages(), Some(9));
        assert!(found.iter().any(|found| ![DECIDED, LEADS].contains(found)), "{mistake:?}");
    }
    choose(None);
}
