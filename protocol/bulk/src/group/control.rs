//! Control frames: acknowledgements, state, failures, held blocks and requests.

use onepipe_base::{Now, ProcessId, Promises, Psn, Transmit};
use onepipe_wire::{
    BULK_FAILURE_LEN, BULK_HEADER_LEN, BulkAck, BulkFailure, BulkFailures, BulkHave, BulkHeader,
    BulkPieceHeader, BulkState, BulkWant, Flags, HEADER_LEN, Header, Opcode, seal, seal_detached,
};

use super::{ActiveObject, Group, Refusal};
use crate::Memory;
use crate::config::FRAME_LEN_MIN;
use crate::event::Outcome;
use crate::object::HaveWord;
use crate::session::Item;

/// Maximum number of words of held blocks per frame: fits the shortest frame allowed.
const HAVE_WORDS_MAX: u32 = 48;
/// Maximum number of failures per frame: fits the shortest frame allowed.
const FAILURES_MAX: usize = 48;
const _: () = assert!(
    HEADER_LEN + BULK_HEADER_LEN + FAILURES_MAX * BULK_FAILURE_LEN <= FRAME_LEN_MIN,
    "the shortest frame holds as many failures"
);
const _: () = assert!(
    HEADER_LEN + BULK_HEADER_LEN + 8 * HAVE_WORDS_MAX as usize <= FRAME_LEN_MIN,
    "the shortest frame holds as many words"
);

impl<M: Memory> Group<M> {
    /// Queues tokens for members that may send the first block of the next object.
    pub(super) fn queue_first_tokens(&mut self) {
        self.senders.first().iter().for_each(|rank| self.peers.queue_state(*rank));
    }

    /// Queues a changed word of held blocks for all live peers.
    pub(super) fn queue_have(&mut self, changed: HaveWord) {
        let stable = self.window.stable();
        for rank in self.peers.ranks() {
            if self.membership.is_live_peer(rank) {
                self.peers[rank].queue_have(changed, stable);
                self.peers.set_ready(rank);
            }
        }
    }

    /// Writes the next control frame for a member, if any.
    pub(super) fn write_control(
        &mut self,
        now: Now,
        rank: u32,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let peer = &mut self.peers[rank];
        if peer.session.received.ack_at().is_some_and(|at| at <= now.mono) {
            return self.write_ack(now, rank, slot);
        }
        if !peer.session.has_slot() {
            return None;
        }
        let sent_until = peer.failures_sent as usize;
        if sent_until < self.membership.failures().len() {
            return self.write_failures(now, rank, sent_until, slot);
        }
        let (is_due, tokens_due) =
            (core::mem::take(&mut peer.is_state_due), peer.tokens_due.take());
        if is_due
            || tokens_due.is_some_and(|object| {
                self.window.get(object).is_some_and(ActiveObject::lacks_blocks)
            })
        {
            return self.write_state(now, rank, slot);
        }
        let peer = &mut self.peers[rank];
        if let Some(wanted) = peer.requests_due.pop_front() {
            let want = BulkWant { object: wanted.object, block: wanted.block };
            let item = Some(Item::Want(wanted));
            return self.write(now, rank, item, slot, |_, buffer| want.write(buffer));
        }
        if let Some(changed) = peer.haves_due.pop_front() {
            if changed.object >= self.window.stable() {
                return self.write_have(now, rank, changed, 1, slot).map(|(sent, _)| sent);
            }
            return self.write_control(now, rank, slot);
        }
        if let Some(next) = peer.have_cursor {
            let from = next.max(HaveWord::first_of(self.window.stable()));
            if from.object >= self.window.known() {
                peer.have_cursor = None;
                return None;
            }
            let (sent, next) = self.write_have(now, rank, from, HAVE_WORDS_MAX, slot)?;
            self.peers[rank].have_cursor = Some(next);
            return Some(sent);
        }
        let object = self.peers[rank].next_offer(|block| self.window.holds(block))?;
        let extent = self.window.shape(object)?.extent;
        let header = BulkPieceHeader {
            object,
            extent,
            digest: 0,
            block: 0,
            offset: 0,
            ordinal: BulkPieceHeader::REQUESTED,
            is_offer: true,
        };
        let item = Item::Offer { object };
        self.write(now, rank, Some(item), slot, |_, buffer| {
            header.write(buffer).map(|_| onepipe_wire::BULK_PIECE_HEADER_LEN)
        })
    }

    fn write_ack(&mut self, now: Now, rank: u32, slot: &mut [u8]) -> Option<Transmit> {
        let mut received = core::mem::take(&mut self.peers[rank].session.received);
        let incarnation = self.peers[rank].incarnation;
        let ack = received.take_ack();
        let sent = ack.zip(incarnation).and_then(|((largest, words, marked), incarnation)| {
            let ack = BulkAck { incarnation, largest, marked };
            self.write(now, rank, None, slot, |_, buffer| ack.write(buffer, words.iter().copied()))
        });
        self.peers[rank].session.received = received;
        sent
    }

    fn write_failures(
        &mut self,
        now: Now,
        rank: u32,
        first: usize,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        debug_assert!(first < self.membership.failures().len(), "there are failures to be sent");
        let until = self.membership.failures().len().min(first + FAILURES_MAX);
        self.peers[rank].failures_sent = until as u32;
        let item = Item::Failures { first: first as u32 };
        self.write(now, rank, Some(item), slot, |group, buffer| {
            let entries =
                group.membership.failures()[first..until].iter().map(|failure| BulkFailure {
                    rank: failure.rank as u16,
                    by: failure.by as u16,
                    reason: failure.reason as u8,
                });
            let buffer = buffer.get_mut(..(until - first) * BULK_FAILURE_LEN)?;
            Some(BulkFailures::write(buffer, entries))
        })
    }

    fn write_state(&mut self, now: Now, rank: u32, slot: &mut [u8]) -> Option<Transmit> {
        let state = BulkState {
            complete: self.window.complete(),
            known: self.window.known(),
            resolved: self.window.resolved(),
            total: self.window.total(),
            // The root computes its own digest only when it compares it with another member's.
            digest: if self.config.own == 0 {
                0
            } else {
                self.window.digest_before(self.window.complete())
            },
            view: self.membership.view(),
            is_closed: self.membership.is_closed(),
            is_clean: self.membership.outcome() == Some(Outcome::Complete),
        };
        debug_assert!(self.window.complete() <= self.window.resolved(), "the state is consistent");
        let mut tokens = [0; crate::OBJECTS_MAX as usize];
        let active = self.config.objects_max as usize;
        for (at, token) in tokens[..active].iter_mut().enumerate() {
            *token = self.tokens(rank, self.window.stable() + at as u32);
        }
        self.write(now, rank, Some(Item::State), slot, |_, buffer| {
            state.write(buffer, tokens[..active].iter().copied())
        })
    }

    //= spec/bulk.md#R16
    //= spec/bulk.md#R17
    /// Returns how many blocks of an object a member may send in total.
    fn tokens(&mut self, rank: u32, object: u32) -> u32 {
        let Some(active) = self.window.get(object) else { return 0 };
        if active.body().is_some() {
            let ahead = self.config.lookahead_blocks;
            return self.peers[rank].flows.get_mut(object).consumed.saturating_add(ahead);
        }
        // Senders of a first block get one token before the object is known, for one object at a
        // time.
        let is_next =
            active.shape().is_none() && object == self.window.known().max(self.window.stable());
        u32::from(is_next && self.senders.first().contains(&rank))
    }

    /// Writes held blocks from a word on. Also returns where the next frame continues.
    fn write_have(
        &mut self,
        now: Now,
        rank: u32,
        from: HaveWord,
        words: u32,
        slot: &mut [u8],
    ) -> Option<(Transmit, HaveWord)> {
        let HaveWord { object, word: first } = from;
        let active = self.window.get(object)?;
        let extent = active.shape().map(|shape| shape.extent);
        let all = active.shape().map_or(0, |shape| shape.blocks.div_ceil(64));
        let until = (first + words).min(all);
        let have = BulkHave { object, extent, view: self.membership.view(), first };
        let sent = self.write(now, rank, Some(Item::Have(from)), slot, |group, buffer| {
            let held = group.window.body(object).map(|body| body.held.words());
            let words =
                (first..until.max(first)).map(|word| held.map_or(0, |held| held[word as usize]));
            have.write(buffer, words)
        })?;
        let next = match until >= all {
            true => HaveWord::first_of(object + 1),
            false => HaveWord { object, word: until },
        };
        Some((sent, next))
    }

    /// Writes a frame to a member. The frame acknowledges others, or has an `item` as its content:
    /// then it gets a PSN, and the item is sent again if the frame is lost.
    pub(super) fn write(
        &mut self,
        now: Now,
        rank: u32,
        item: Option<Item>,
        slot: &mut [u8],
        body: impl FnOnce(&Self, &mut [u8]) -> Option<usize>,
    ) -> Option<Transmit> {
        self.write_detached(now, rank, item, None, slot, body)
    }

    /// Writes a frame whose last `detached_len` bytes are not in the slot.
    pub(super) fn write_detached(
        &mut self,
        now: Now,
        rank: u32,
        item: Option<Item>,
        detached_len: Option<usize>,
        slot: &mut [u8],
        body: impl FnOnce(&Self, &mut [u8]) -> Option<usize>,
    ) -> Option<Transmit> {
        debug_assert!(rank != self.config.own, "no frame goes to this member");
        let bulk_header = self.bulk_header();
        let buffer = bulk_header.write(slot.get_mut(HEADER_LEN..)?)?;
        let bytes = BULK_HEADER_LEN + body(self, buffer)?;
        let member = self.config.members[rank as usize];
        let opcode = item.map_or(Opcode::BulkAck, |item| item.opcode());
        let header = self.header(opcode, member.process);
        let session = &mut self.peers[rank].session;
        let all = bytes + detached_len.unwrap_or(0);
        let needs_ack = item.is_some() && session.needs_ack(HEADER_LEN + all);
        let header = header.flagged(u8::from(needs_ack) * Flags::ACK_NOW);
        let psn = if item.is_some() { session.next() } else { Psn::FIRST };
        let header = header.stamped(now.sync, Promises::both(now.sync), psn);
        let bytes = match detached_len {
            Some(detached_len) => seal_detached(slot, header, detached_len),
            None => seal(slot, header, bytes),
        };
        debug_assert!(bytes <= HEADER_LEN + usize::from(u16::MAX), "the length fits its field");
        if let Some(item) = item {
            session.on_sent(now.mono, item, HEADER_LEN + all);
            self.update_deadline(rank);
        }
        self.stats.frames_sent += 1;
        Some(Transmit { port: member.port, bytes })
    }

    /// Writes the next refusal of a process that is not a member.
    pub(super) fn write_refusal(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let Refusal { port, to, reason } = self.refusals.pop()?;
        let buffer = self.bulk_header().write(slot.get_mut(HEADER_LEN..)?)?;
        let bytes = BULK_HEADER_LEN + reason.write(buffer)?;
        let header = self.header(Opcode::BulkRefused, to);
        let header = header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST);
        self.stats.frames_sent += 1;
        Some(Transmit { port, bytes: seal(slot, header, bytes) })
    }

    fn header(&self, opcode: Opcode, to: ProcessId) -> Header {
        let own = self.config.members[self.config.own as usize].process;
        Header::new(opcode, own, to, self.config.incarnation)
    }

    fn bulk_header(&self) -> BulkHeader {
        BulkHeader {
            group: self.config.group.0,
            config_digest: self.config_digest,
            from: self.config.own as u16,
            failed: self.membership.failures().len() as u16,
            stable: self.window.stable(),
        }
    }
}
