//! Random histories of the size for which the rules were explored exhaustively.

use onepipe_amcast::{GroupId, GroupSet};
use onepipe_base::ProcessId;
use proptest::prelude::*;

use crate::harness::{Harness, Plan, Step};
use crate::model::{BOTH, FIRST, MESSAGES, OTHER};
use crate::observer::{MEMBERS, Observer, Seen};

/// Destination groups of the messages, and members of the first group that may be elected: the
/// configurations that `../rules` explores.
const SHAPES: &[([u8; MESSAGES], &[usize])] = &[
    ([BOTH, FIRST, FIRST], &[0, 1, 2]),
    ([BOTH, BOTH, FIRST], &[0, 1, 2]),
    ([BOTH, BOTH, OTHER], &[0, 1, 2]),
    ([BOTH, FIRST, OTHER], &[1, 2]),
    ([FIRST, FIRST, FIRST], &[1, 2]),
    ([BOTH, BOTH, BOTH], &[0]),
];
/// Time by which nearly everything is decided.
const END_NS: u64 = 2_900_000;

/// Random history.
#[derive(Clone, Debug)]
pub struct History {
    seed: u64,
    shape: usize,
    elected: usize,
    /// Time of the election, if any.
    elected_at: Option<u64>,
    /// Group that holds the election.
    first: u16,
    /// Client and time of each message.
    sends: [(usize, u64); MESSAGES],
    window: u32,
    crash: Option<(usize, u64)>,
    lose_percent: u64,
    repeat_percent: u64,
    jitter_ns: u64,
    /// Links between members that drop everything, as bits of both members.
    blocked_links: Vec<(u32, u32)>,
    blocked_until: u64,
}

/// Returns a strategy for random histories.
pub fn histories() -> impl Strategy<Value = History> {
    let time = 0u64..300_000;
    let send = || (0usize..2, 0u64..200_000);
    let who = (any::<u64>(), 0..SHAPES.len(), 0usize..3, 0u16..2, 1u32..4);
    let what = (
        prop::option::weighted(0.8, time.clone()),
        [send(), send(), send()],
        prop::option::weighted(0.4, (0..2 * MEMBERS, time)),
    );
    let network = (
        prop_oneof![Just(0u64), 0u64..40],
        prop_oneof![Just(0u64), 0u64..30],
        prop_oneof![Just(1u64), 1u64..80_000],
    );
    let members = 0..2 * MEMBERS as u32;
    let timeout = (prop::collection::vec((members.clone(), members), 0..8), 0u64..1_000_000);
    (who, what, network, timeout).prop_map(
        |((seed, shape, elected, first, window), (elected_at, sends, crash), network, timeout)| {
            let candidates = SHAPES[shape].1;
            History {
                seed,
                shape,
                elected: candidates[elected % candidates.len()],
                elected_at,
                first,
                sends,
                window,
                crash,
                lose_percent: network.0,
                repeat_percent: network.1,
                jitter_ns: network.2,
                blocked_links: timeout.0,
                blocked_until: timeout.1,
            }
        },
    )
}

impl History {
    /// Whether a crashed member restarts with an empty memory: in a quarter of the histories.
    fn restarts(&self) -> bool {
        self.crash.is_some() && self.seed >> 62 == 0
    }

    fn harness(&self) -> Harness {
        let mut harness = Harness::new(Plan {
            seed: self.seed,
            members: vec![MEMBERS, MEMBERS],
            replicas: 1,
            clients: 2,
            history: 4,
            window: self.window,
            lose_percent: self.lose_percent,
            repeat_percent: self.repeat_percent,
            jitter_ns: self.jitter_ns,
            announces: self.restarts(),
            ..Plan::calm()
        });
        let index = |member: u32| ProcessId(member);
        harness.blocked_links =
            self.blocked_links.iter().map(|(src, dst)| (index(*src), index(*dst))).collect();
        harness.blocked_until = self.blocked_until;
        harness.sent_log = Some(Vec::new());
        harness.is_controlled = false;
        let first = usize::from(self.first) * MEMBERS;
        for (kind, (client, at)) in SHAPES[self.shape].0.into_iter().zip(self.sends) {
            let bits = match kind {
                BOTH => 0b11,
                FIRST => 1 << self.first,
                _ => 1 << (1 - self.first),
            };
            harness.plan(at, Step::SendOne(client, GroupSet::from_bits(bits)));
        }
        if let Some(at) = self.elected_at {
            harness.plan(at, Step::Elect(first + self.elected));
        }
        if let Some((member, at)) = self.crash {
            harness.plan(at, Step::CrashMember(member));
            if self.restarts() {
                harness.plan(at + self.seed % 100_000, Step::RestartMember(member));
            }
        }
        harness
    }

    /// Returns the observers: one that maps the electing group to the first group of the rules and,
    /// without an election, one that maps the other group to it.
    fn observers(&self) -> Vec<Observer> {
        let groups = SHAPES[self.shape].0;
        let mut all = vec![Observer::new(groups, GroupId(self.first), self.elected)];
        if self.elected_at.is_none() {
            let turned = groups.map(|kind| match kind {
                FIRST => OTHER,
                OTHER => FIRST,
                both => both,
            });
            all.push(Observer::new(turned, GroupId(1 - self.first), 0));
        }
        all
    }

    /// Runs the history. Returns how often each step was seen.
    ///
    /// # Errors
    /// A violation of the rules or of another property.
    pub fn run_history(&self) -> Result<Seen, String> {
        watch(self.harness(), &mut self.observers(), END_NS, |_, _| {})
    }
}

/// Runs the harness until `end_ns` and checks all packets against the rules. `before` may change
/// the harness before each event. Returns what the first observer has seen.
pub fn watch(
    mut harness: Harness,
    observers: &mut [Observer],
    end_ns: u64,
    mut before: impl FnMut(&mut Harness, u64),
) -> Result<Seen, String> {
    let (mut events, mut rivals) = (0, 0);
    loop {
        before(&mut harness, events);
        if harness.wrong.is_some() || !harness.advance(end_ns) {
            break;
        }
        events += 1;
        let packets = harness.sent_log.replace(Vec::new()).unwrap_or_default();
        for observer in &mut *observers {
            observer.observe(&packets).map_err(|why| format!("at {} ns: {why}", harness.now))?;
        }
        let leads = |group: usize| {
            let members = harness.members[MEMBERS * group..MEMBERS * (group + 1)].iter();
            members.flatten().filter(|member| member.is_leader()).count()
        };
        rivals += u64::from((0..2).any(|group| leads(group) > 1));
    }
    if let Some(wrong) = harness.wrong {
        return Err(wrong);
    }
    let mut seen = std::mem::take(&mut observers[0].seen);
    seen.insert("events", events);
    seen.insert("events while two led", rivals);
    seen.insert("all decided", u64::from(observers[0].is_all_decided()));
    Ok(seen)
}
