//! A token that bears the next number goes round; who has it sends what waits.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::To;
use crate::context::OrderContext;
use crate::entry::{Entry, Kind};

/// How many members one part of the token speaks of.
const PART_MEMBERS_MAX: usize = 250;

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
    out_of_order: BTreeMap<u32, Entry>,
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
            out_of_order: BTreeMap::new(),
        }
    }

    pub(crate) fn send(&mut self, context: &mut OrderContext, to: To, payload: Bytes) {
        self.waiting.push_back((to, payload));
        self.use_token(context);
    }

    /// Messages that wait for the token.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// A message, or a part of the token. Answers whether it made sense.
    pub(crate) fn receive(&mut self, context: &mut OrderContext, entry: Entry) -> bool {
        if entry.kind == Kind::Token {
            return self.on_token_part(context, &entry);
        }
        if entry.sequence >= self.next {
            self.out_of_order.insert(entry.sequence, entry);
            self.deliver(context);
        }
        true
    }

    fn on_token_part(&mut self, context: &mut OrderContext, entry: &Entry) -> bool {
        let first = entry.sequence as usize;
        let counts = entry.payload.chunks_exact(4);
        let behind = first + counts.len();
        let Some(known) = self.sent.get_mut(first..behind) else { return false };
        for (known, count) in known.iter_mut().zip(counts) {
            *known = u32::from_be_bytes(count.try_into().expect("chunks of four"));
        }
        if behind == self.sent.len() {
            self.held = Some(entry.number);
            self.use_token(context);
        }
        true
    }

    /// Whether the token is still where it was born.
    pub(crate) fn is_initial(&self, context: &OrderContext) -> bool {
        self.held.is_some() && context.members > 1
    }

    /// Numbers what waits, sends it, and passes the token on.
    pub(crate) fn use_token(&mut self, context: &mut OrderContext) {
        let Some(mut number) = self.held else { return };
        for (to, payload) in self.waiting.drain(..) {
            let entry = Entry::message(context.own, number, payload);
            context.for_each(to, |context, to| {
                let sent = &mut self.sent[to.index()];
                let entry = Entry { sequence: *sent, ..entry.clone() };
                *sent += 1;
                match to == context.own {
                    true => drop(self.out_of_order.insert(entry.sequence, entry)),
                    false => context.send(to, entry),
                }
            });
            number += 1;
        }
        self.held = Some(number);
        self.deliver(context);
        if context.members > 1 {
            self.held = None;
            for (part, counts) in self.sent.chunks(PART_MEMBERS_MAX).enumerate() {
                let payload = counts.iter().flat_map(|count| count.to_be_bytes()).collect();
                let (kind, origin, sequence) =
                    (Kind::Token, context.own, (part * PART_MEMBERS_MAX) as u32);
                context.send(self.successor, Entry { kind, origin, sequence, number, payload });
            }
        }
    }

    fn deliver(&mut self, context: &mut OrderContext) {
        while let Some(entry) = self.out_of_order.remove(&self.next) {
            self.next += 1;
            context.deliver(entry);
        }
    }
}
