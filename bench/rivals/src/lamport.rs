//! Logical clocks: a message is delivered when every member is known to be past it.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId};

use crate::To;
use crate::desk::Desk;
use crate::entry::{Entry, Kind};

/// A member's clock, and what waits for the others'.
#[derive(Clone, Debug)]
pub(crate) struct Lamport {
    own: ProcessId,
    interval_ns: u64,
    /// All later messages of this member have higher times.
    clock: u64,
    /// What of it the others have been told, and when to tell it next.
    told: u64,
    tell_at: Option<Mono>,
    last_told: Mono,
    /// The time that each other member's next message has at least.
    next: Vec<u64>,
    /// The first place that any of these can take, when last looked for.
    floor: (u64, usize),
    waiting: BinaryHeap<Reverse<Waiting>>,
}

/// In the order of delivery: by time, then by member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiting {
    at: u64,
    origin: ProcessId,
    payload: Bytes,
}

impl Lamport {
    pub(crate) fn new(own: ProcessId, members: u32, interval_ns: u64) -> Self {
        let mut next = alloc::vec![0; members as usize];
        // Its own are always later than whatever it has heard of.
        next[own.index()] = u64::MAX;
        Self {
            own,
            interval_ns,
            clock: 0,
            told: 0,
            tell_at: None,
            last_told: Mono::from_ns(0),
            next,
            floor: (0, usize::from(own.0 == 0)),
            waiting: BinaryHeap::new(),
        }
    }

    pub(crate) fn send(&mut self, desk: &mut Desk, to: To, payload: Bytes) {
        self.clock += 1;
        let entry = Entry::message(self.own, self.clock, payload);
        desk.for_each(to, |desk, to| match to == desk.own {
            true => self.wait(entry.clone()),
            false => desk.send(to, entry.clone()),
        });
        if to == To::Everybody {
            self.told = self.clock;
        }
        self.deliver(desk);
    }

    /// A message or a clock. Answers whether it made sense: times of one member rise.
    pub(crate) fn take(&mut self, desk: &mut Desk, from: ProcessId, entry: Entry) -> bool {
        let at = entry.number;
        let is_message = entry.kind == Kind::Message;
        let Some(next) = self.next.get_mut(from.index()) else { return false };
        let is_repeated = at.checked_add(1) == Some(*next) && !is_message;
        if entry.origin != from || at == u64::MAX || (at < *next && !is_repeated) {
            return false;
        }
        *next = at + 1;
        self.clock = self.clock.max(at);
        if is_message {
            self.wait(entry);
        }
        self.deliver(desk);
        true
    }

    /// Tells the clock, if it is time.
    pub(crate) fn on_time(&mut self, desk: &mut Desk, now: Mono) {
        if self.clock == self.told {
            self.tell_at = None;
            return;
        }
        let earliest = self.last_told.after_ns(self.interval_ns);
        let at = *self.tell_at.get_or_insert(earliest.max(now));
        if now >= at {
            let (kind, number, payload) = (Kind::Clock, self.clock, Bytes::new());
            let clock = Entry { kind, origin: self.own, place: 0, number, payload };
            desk.for_each(To::Everybody, |desk, to| {
                if to != desk.own {
                    desk.send(to, clock.clone());
                }
            });
            (self.told, self.tell_at, self.last_told) = (self.clock, None, now);
        }
    }

    /// When to tell it.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.tell_at
    }

    fn wait(&mut self, entry: Entry) {
        let Entry { origin, number: at, payload, .. } = entry;
        self.waiting.push(Reverse(Waiting { at, origin, payload }));
    }

    fn deliver(&mut self, desk: &mut Desk) {
        while let Some(Reverse(first)) = self.waiting.peek() {
            let place = (first.at, first.origin.index());
            if self.floor < place && !self.raise_floor(place) {
                return;
            }
            let Some(Reverse(Waiting { at: number, origin, payload })) = self.waiting.pop() else {
                return;
            };
            desk.deliver(Entry::message(origin, number, payload));
        }
    }

    /// Looks for the least again, if whose it was has told more. Answers whether it is `place` now.
    fn raise_floor(&mut self, place: (u64, usize)) -> bool {
        let (least, whose) = self.floor;
        if self.next.get(whose).is_some_and(|next| *next == least) {
            return false;
        }
        let members = self.next.iter().enumerate();
        let floor = members.map(|(member, next)| (*next, member)).min();
        self.floor = floor.expect("there is a member: this one");
        self.floor >= place
    }
}

// A heap has no order of its own to compare: what waits is the same if it leaves in the same order.
impl PartialEq for Lamport {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key() && self.sorted() == other.sorted()
    }
}

impl Eq for Lamport {}

impl core::hash::Hash for Lamport {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
        self.sorted().hash(state);
    }
}

impl Lamport {
    #[allow(clippy::type_complexity, reason = "the fields that are not the heap")]
    fn key(&self) -> (ProcessId, u64, u64, u64, Option<Mono>, Mono, &[u64]) {
        let Self { own, interval_ns, clock, told, tell_at, last_told, next, .. } = self;
        (*own, *interval_ns, *clock, *told, *tell_at, *last_told, next)
    }

    fn sorted(&self) -> Vec<Reverse<Waiting>> {
        self.waiting.clone().into_sorted_vec()
    }
}
