//! Systematic histories: an election at any event, combined with every other fault. `drawn` samples
//! such histories at random.

use std::collections::BTreeSet;

use onepipe_amcast::{GroupId, GroupSet};

use crate::drawn::watch;
use crate::harness::{FrameFault, Harness, Plan, Step};
use crate::model::{BOTH, FIRST, MESSAGES, State};
use crate::observer::{MEMBERS, Observer};

/// Two messages for both groups, and one for the electing group.
const GROUPS: [u8; MESSAGES] = [BOTH, BOTH, FIRST];
/// Send times in ns: each message is sent before the previous one is decided.
const SENT_NS: [u64; MESSAGES] = [0, 7_000, 12_000];
/// Time by which all retransmissions have arrived.
const END_NS: u64 = 800_000;

/// Further faults.
#[derive(Clone, Copy, Debug, Default)]
struct Others {
    /// Crash of a member before an event.
    crash: Option<(usize, u64)>,
    /// Fault of a frame, by frame number.
    frame: Option<(u64, FrameFault)>,
}

/// Results of all histories.
#[derive(Debug, Default)]
pub struct Swept {
    pub histories: u64,
    pub events: u64,
    /// Number of histories in which all messages were decided.
    pub decided: u64,
    /// States of the rules that were visited.
    pub states: BTreeSet<State>,
}

fn harness() -> Harness {
    let plan =
        Plan { members: vec![MEMBERS; 2], replicas: 1, clients: 2, history: 4, ..Plan::calm() };
    let mut harness = Harness::new(plan);
    harness.sent_log = Some(Vec::new());
    harness.is_controlled = false;
    for (at, (kind, sent)) in GROUPS.into_iter().zip(SENT_NS).enumerate() {
        let groups = GroupSet::from_bits(u64::from(kind));
        harness.plan(sent, Step::SendOne(at % 2, groups));
    }
    harness
}

impl Swept {
    /// Runs a history with an election of member `elected` before event `at`.
    fn run_history(&mut self, elected: usize, at: Option<u64>, others: Others) {
        let mut harness = harness();
        harness.frame_faults.extend(others.frame);
        let mut observers = [Observer::new(GROUPS, GroupId(0), elected)];
        let result = watch(harness, &mut observers, END_NS, |harness, event| {
            if at == Some(event) {
                harness.plan(harness.now, Step::Elect(elected));
            }
            if let Some((member, _)) = others.crash.filter(|(_, then)| *then == event) {
                harness.members[member] = None;
            }
        });
        let seen = result.unwrap_or_else(|why| panic!("{elected} at {at:?}, {others:?}: {why}"));
        self.histories += 1;
        self.events += seen["events"];
        self.decided += seen["all decided"];
        self.states.extend(observers[0].states.drain(..));
    }

    /// Returns the number of events and frames of the history without faults.
    fn size() -> (u64, u64) {
        let mut harness = harness();
        let mut events = 0;
        while harness.advance(60_000) {
            events += 1;
        }
        (events, harness.frames)
    }

    /// Returns all crashes, before each event, and none.
    fn crashes(events: u64) -> impl Iterator<Item = Option<(usize, u64)>> {
        (0..2 * MEMBERS).flat_map(move |member| (0..events).map(move |at| Some((member, at))))
    }

    /// Elects every member of the first group before each `stride`-th event, combined with every
    /// crash before every event, and with every fault of every frame.
    pub fn singles(stride: usize) -> Self {
        let (mut swept, (events, frames)) = (Self::default(), Self::size());
        let elections = (0..events).step_by(stride).map(Some).chain([None]);
        for (elected, at) in elections.flat_map(|at| [0, 1, 2].map(|elected| (elected, at))) {
            swept.run_history(elected, at, Others::default());
            for crash in Self::crashes(events) {
                swept.run_history(elected, at, Others { crash, frame: None });
            }
            // An election causes additional frames.
            for number in 1..=2 * frames {
                for frame_fault in [FrameFault::Lost, FrameFault::Late, FrameFault::Twice] {
                    let frame = Some((number, frame_fault));
                    swept.run_history(elected, at, Others { crash: None, frame });
                }
            }
        }
        swept
    }

    /// Elects the second member before each `stride`-th event, combined with every crash before
    /// every second event and the loss of every third frame, all at once.
    pub fn triples(stride: usize) -> Self {
        let (mut swept, (events, frames)) = (Self::default(), Self::size());
        for at in (0..events).step_by(stride) {
            for crash in Self::crashes(events).step_by(2) {
                for number in (1..=2 * frames).step_by(3) {
                    let frame = Some((number, FrameFault::Lost));
                    swept.run_history(1, Some(at), Others { crash, frame });
                }
            }
        }
        swept
    }
}
