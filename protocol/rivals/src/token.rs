//! Token ring: a token with the next sequence number circulates, and its holder sends.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::ProcessId;

use crate::To;
use crate::context::OrderContext;
use crate::entry::{Entry, Kind};

/// Maximum number of members per part of the token.
const PART_MEMBERS_MAX: usize = 250;

/// Member of the ring.
///
/// Only one member sends at any time: the holder passes the token on when it has sent the messages
/// that waited when the token came. The token contains how many messages each member has been sent,
/// and each message has its number among those of its receiver. So the holder may pass the token on
/// before its messages arrive, and a receiver can detect missing ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    successor: ProcessId,
    /// Next sequence number, while this member holds the token: initially, or if it is alone.
    held: Option<u64>,
    /// Next sequence number, while the messages of this visit are being sent.
    passing: Option<u64>,
    /// Number of messages sent to each member, as of the token's last visit.
    sent: Vec<u32>,
    waiting: VecDeque<(To, Bytes)>,
    /// Number of the next message to be delivered here.
    next: u32,
    /// Messages received out of order.
    out_of_order: BTreeMap<u32, Entry>,
}

impl Token {
    pub(crate) fn new(own: ProcessId, members: u32) -> Self {
        Self {
            successor: ProcessId((own.0 + 1) % members),
            // The first member holds the token initially.
            held: (own.0 == 0).then_some(0),
            passing: None,
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

    /// Returns the number of messages that wait for the token.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Handles a message or a part of the token. Returns whether it was valid.
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

    /// Returns whether this member holds the token initially.
    pub(crate) fn is_initial(&self, context: &OrderContext) -> bool {
        self.held.is_some() && context.members > 1
    }

    /// Numbers and sends waiting messages. The token is passed on after them.
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
            (self.held, self.passing) = (None, Some(number));
        }
    }

    /// Passes the token on, if the messages before it are sent. Returns whether it did.
    pub(crate) fn pass(&mut self, context: &mut OrderContext) -> bool {
        let Some(number) = self.passing.take() else { return false };
        for (part, counts) in self.sent.chunks(PART_MEMBERS_MAX).enumerate() {
            let payload = counts.iter().flat_map(|count| count.to_be_bytes()).collect();
            let (kind, origin, sequence) =
                (Kind::Token, context.own, (part * PART_MEMBERS_MAX) as u32);
            context.send(self.successor, Entry { kind, origin, sequence, number, payload });
        }
        true
    }

    fn deliver(&mut self, context: &mut OrderContext) {
        while let Some(entry) = self.out_of_order.remove(&self.next) {
            self.next += 1;
            context.deliver(entry);
        }
    }
}
