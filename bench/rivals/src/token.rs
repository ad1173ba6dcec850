//! A token that bears the next number goes round; who has it sends what waits.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::To;
use crate::desk::Desk;
use crate::entry::{Entry, Kind};

/// How many members one part of the token speaks of.
const PART: usize = 250;

/// A member of the ring.
///
/// The token says how many messages every member has been sent, and every message which one of
/// these it is: so its holder may pass it on before what it has sent has arrived, and a receiver
/// knows what is still on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    successor: ProcessId,
    /// The next number to give, while this member has the token: when it is born, or alone.
    held: Option<u64>,
    /// How many messages each member has been sent, as the token said when it was last here.
    sent: Vec<u32>,
    waiting: VecDeque<(To, Bytes)>,
    /// Which of the messages to this member is delivered next, and what has come before its turn.
    next: u32,
    early: BTreeMap<u32, Entry>,
}

impl Token {
    pub(crate) fn new(own: ProcessId, members: u32) -> Self {
        Self {
            successor: ProcessId((own.0 + 1) % members),
            // It is born at the first member.
            held: (own.0 == 0).then_some(0),
            sent: alloc::vec![0; members as usize],
            waiting: VecDeque::new(),
            next: 0,
            early: BTreeMap::new(),
        }
    }

    pub(crate) fn send(&mut self, desk: &mut Desk, to: To, payload: Bytes) {
        self.waiting.push_back((to, payload));
        self.use_it(desk);
    }

    /// Messages that wait for the token.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A message, or a part of the token. Answers whether it made sense.
    pub(crate) fn take(&mut self, desk: &mut Desk, entry: Entry) -> bool {
        if entry.kind == Kind::Token {
            return self.take_part(desk, &entry);
        }
        if entry.place >= self.next {
            self.early.insert(entry.place, entry);
            self.deliver(desk);
        }
        true
    }

    fn take_part(&mut self, desk: &mut Desk, entry: &Entry) -> bool {
        let first = entry.place as usize;
        let counts = entry.payload.chunks_exact(4);
        let behind = first + counts.len();
        let Some(known) = self.sent.get_mut(first..behind) else { return false };
        for (known, count) in known.iter_mut().zip(counts) {
            *known = u32::from_be_bytes(count.try_into().expect("chunks of four"));
        }
        if behind == self.sent.len() {
            self.held = Some(entry.number);
            self.use_it(desk);
        }
        true
    }

    /// Whether the token is still where it was born.
    pub(crate) fn is_newborn(&self, desk: &Desk) -> bool {
        self.held.is_some() && desk.members > 1
    }

    /// Numbers what waits, sends it, and passes the token on.
    pub(crate) fn use_it(&mut self, desk: &mut Desk) {
        let Some(mut number) = self.held else { return };
        for (to, payload) in self.waiting.drain(..) {
            let entry = Entry::message(desk.own, number, payload);
            desk.for_each(to, |desk, to| {
                let sent = &mut self.sent[to.index()];
                let entry = Entry { place: *sent, ..entry.clone() };
                *sent += 1;
                match to == desk.own {
                    true => drop(self.early.insert(entry.place, entry)),
                    false => desk.send(to, entry),
                }
            });
            number += 1;
        }
        self.held = Some(number);
        self.deliver(desk);
        if desk.members > 1 {
            self.held = None;
            for (part, counts) in self.sent.chunks(PART).enumerate() {
                let payload = counts.iter().flat_map(|count| count.to_be_bytes()).collect();
                let (kind, origin, place) = (Kind::Token, desk.own, (part * PART) as u32);
                desk.send(self.successor, Entry { kind, origin, place, number, payload });
            }
        }
    }

    fn deliver(&mut self, desk: &mut Desk) {
        while let Some(entry) = self.early.remove(&self.next) {
            self.next += 1;
            desk.deliver(entry);
        }
    }
}
