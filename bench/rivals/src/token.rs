//! A token that bears the next number goes round; who has it sends what waits.

use alloc::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::desk::Desk;
use crate::entry::{Entry, Kind};

/// A member of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    successor: ProcessId,
    /// The next number to give, while this member has the token: when it is born, or alone.
    held: Option<u64>,
    waiting: VecDeque<Bytes>,
    /// The next number to deliver, and what has come before its turn.
    next: u64,
    early: BTreeMap<u64, Entry>,
}

impl Token {
    pub(crate) fn new(own: ProcessId, members: u32) -> Self {
        Self {
            successor: ProcessId((own.0 + 1) % members),
            // It is born at the first member.
            held: (own.0 == 0).then_some(0),
            waiting: VecDeque::new(),
            next: 0,
            early: BTreeMap::new(),
        }
    }

    pub(crate) fn broadcast(&mut self, desk: &mut Desk, payload: Bytes) {
        self.waiting.push_back(payload);
        self.use_it(desk);
    }

    /// A message, or the token.
    pub(crate) fn take(&mut self, desk: &mut Desk, entry: Entry) {
        if entry.kind == Kind::Token {
            self.held = Some(entry.number);
            self.use_it(desk);
        } else if entry.number >= self.next {
            self.early.insert(entry.number, entry);
            self.deliver(desk);
        }
    }

    /// Whether the token is still where it was born.
    pub(crate) fn is_newborn(&self, desk: &Desk) -> bool {
        self.held.is_some() && desk.members > 1
    }

    /// Numbers what waits, sends it, and passes the token on. The receivers put the numbers in
    /// order: nobody waits for what was sent to arrive.
    pub(crate) fn use_it(&mut self, desk: &mut Desk) {
        let Some(mut number) = self.held else { return };
        for payload in self.waiting.drain(..) {
            let entry = Entry { kind: Kind::Message, origin: desk.own, number, payload };
            desk.send_to_others(&entry);
            self.early.insert(number, entry);
            number += 1;
        }
        self.held = Some(number);
        self.deliver(desk);
        if desk.members > 1 {
            self.held = None;
            let (kind, origin, payload) = (Kind::Token, desk.own, Bytes::new());
            desk.send(self.successor, Entry { kind, origin, number, payload });
        }
    }

    fn deliver(&mut self, desk: &mut Desk) {
        while let Some(entry) = self.early.remove(&self.next) {
            self.next += 1;
            desk.deliver(entry);
        }
    }
}
