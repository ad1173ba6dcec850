//! Lamport clocks: a message is delivered once the clocks of all members have passed it.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId};

use crate::To;
use crate::context::OrderContext;
use crate::entry::{Entry, Kind};

/// Clock of a member, and messages waiting for the clocks of the others.
#[derive(Clone, Debug)]
pub(crate) struct Lamport {
    own: ProcessId,
    interval_ns: u64,
    /// All later messages of this member have higher timestamps.
    clock: u64,
    /// Clock value that all others know.
    advertised: u64,
    /// When the clock is advertised next.
    advertise_at: Option<Mono>,
    last_advertised: Mono,
    /// Minimum timestamp of each member's next message.
    next: Vec<u64>,
    /// Cached minimum of `next`: the first position that any future message can take.
    floor: (u64, usize),
    pending: BinaryHeap<Reverse<Pending>>,
}

/// Message waiting for delivery, ordered by time, then by member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pending {
    at: u64,
    origin: ProcessId,
    payload: Bytes,
}

impl Lamport {
    pub(crate) fn new(own: ProcessId, members: u32, interval_ns: u64) -> Self {
        let mut next = alloc::vec![0; members as usize];
        // The own clock exceeds all received ones, so it never holds up a delivery.
        next[own.index()] = u64::MAX;
        Self {
            own,
            interval_ns,
            clock: 0,
            advertised: 0,
            advertise_at: None,
            last_advertised: Mono::from_ns(0),
            next,
            floor: (0, usize::from(own.0 == 0)),
            pending: BinaryHeap::new(),
        }
    }

    pub(crate) fn send(&mut self, context: &mut OrderContext, to: To, payload: Bytes) {
        self.clock += 1;
        debug_assert!(self.clock > self.advertised, "timestamps ascend");
        let entry = Entry::message(self.own, self.clock, payload);
        context.for_each(to, |context, to| match to == context.own {
            true => self.enqueue(entry.clone()),
            false => context.send(to, entry.clone()),
        });
        if to == To::All {
            self.advertised = self.clock;
        }
        self.deliver(context);
    }

    /// Handles a message or a clock. Returns whether it was valid: a member's timestamps increase.
    pub(crate) fn receive(
        &mut self,
        context: &mut OrderContext,
        from: ProcessId,
        entry: Entry,
    ) -> bool {
        let at = entry.number;
        let is_message = entry.kind == Kind::Message;
        let Some(next) = self.next.get_mut(from.index()) else { return false };
        let is_duplicate = at.checked_add(1) == Some(*next) && !is_message;
        if entry.origin != from || at == u64::MAX || (at < *next && !is_duplicate) {
            return false;
        }
        debug_assert!(at + 1 >= *next, "a member's timestamps ascend");
        *next = at + 1;
        self.clock = self.clock.max(at);
        if is_message {
            self.enqueue(entry);
        }
        self.deliver(context);
        true
    }

    /// Advertises the clock if it is due.
    pub(crate) fn handle_time(&mut self, context: &mut OrderContext, now: Mono) {
        if self.clock == self.advertised {
            self.advertise_at = None;
            return;
        }
        let earliest = self.last_advertised.after_ns(self.interval_ns);
        let at = *self.advertise_at.get_or_insert(earliest.max(now));
        if now >= at {
            let (kind, number, payload) = (Kind::Clock, self.clock, Bytes::new());
            let clock = Entry { kind, origin: self.own, sequence: 0, number, payload };
            context.for_each(To::All, |context, to| {
                if to != context.own {
                    context.send(to, clock.clone());
                }
            });
            (self.advertised, self.advertise_at, self.last_advertised) = (self.clock, None, now);
        }
    }

    /// Returns when the clock is to be advertised.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.advertise_at
    }

    /// Panics if the clocks contradict each other.
    pub(crate) fn check_invariants(&self) {
        assert!(self.advertised <= self.clock, "no clock is advertised before it is reached");
        assert_eq!(self.next[self.own.index()], u64::MAX, "the own clock holds up nothing");
        let mut others = self.next.iter().filter(|next| **next != u64::MAX);
        assert!(
            others.all(|next| *next <= self.clock.saturating_add(1)),
            "the own clock passes all others"
        );
        let least = self.next.iter().min().expect("the group has members");
        assert!(self.floor.0 <= *least, "no message is delivered above a clock");
    }

    fn enqueue(&mut self, entry: Entry) {
        let Entry { origin, number: at, payload, .. } = entry;
        self.pending.push(Reverse(Pending { at, origin, payload }));
    }

    fn deliver(&mut self, context: &mut OrderContext) {
        while let Some(Reverse(first)) = self.pending.peek() {
            let position = (first.at, first.origin.index());
            if self.floor < position && !self.raise_floor(position) {
                return;
            }
            let Some(Reverse(Pending { at: number, origin, payload })) = self.pending.pop() else {
                return;
            };
            context.deliver(Entry::message(origin, number, payload));
        }
    }

    /// Recomputes the floor if it may have risen. Returns whether it has reached `position`.
    fn raise_floor(&mut self, position: (u64, usize)) -> bool {
        let (least, member) = self.floor;
        if self.next.get(member).is_some_and(|next| *next == least) {
            return false;
        }
        let members = self.next.iter().enumerate();
        let floor = members.map(|(member, next)| (*next, member)).min();
        let floor = floor.expect("the group has members");
        debug_assert!(floor >= self.floor, "clocks never go back");
        self.floor = floor;
        self.floor >= position
    }
}

// Heaps with the same content may differ in layout, so compare and hash them in sorted order.
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
        let Self {
            own, interval_ns, clock, advertised, advertise_at, last_advertised, next, ..
        } = self;
        (*own, *interval_ns, *clock, *advertised, *advertise_at, *last_advertised, next)
    }

    fn sorted(&self) -> Vec<Reverse<Pending>> {
        self.pending.clone().into_sorted_vec()
    }
}
