//! Control frames: acknowledgements, state, failures, held blocks and requests.

use core::ops::Range;

use onepipe_base::{Now, ProcessId, Psn, Transmit};
use onepipe_wire::{
    BULK_FAILURE_LEN, BULK_HEADER_LEN, BulkAck, BulkFailure, BulkFailures, BulkHave, BulkHeader,
    BulkPieceHeader, BulkState, BulkWant, Flags, Header, Opcode, SHORT_HEADER_LEN, seal,
    seal_detached,
};

use super::{ActiveObject, Group, Refusal};
use crate::Memory;
use crate::config::FRAME_LEN_MIN;
use crate::control_queue::Control;
use crate::event::{Failure, Outcome};
use crate::object::HaveWord;
use crate::session::Item;

/// Maximum number of words of held blocks per frame: fits the shortest frame allowed.
const HAVE_WORDS_MAX: u32 = 48;
const _: () = assert!(
    SHORT_HEADER_LEN + BULK_HEADER_LEN + 8 * HAVE_WORDS_MAX as usize <= FRAME_LEN_MIN,
    "the shortest frame holds as many words"
);

/// Frame to be written.
pub(super) struct Output<'a> {
    pub now: Now,
    /// Receiver of the frame.
    pub rank: u32,
    pub slot: &'a mut [u8],
}

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
                self.peers[rank].control.queue_have(changed, stable);
                self.peers.set_ready(rank);
            }
        }
    }

    /// Writes the next control frame for a member, if any.
    pub(super) fn write_control(&mut self, output: Output<'_>) -> Option<Transmit> {
        let (peer, window) = (&mut self.peers[output.rank], &self.window);
        if peer.session.received.ack_at().is_some_and(|at| at <= output.now.mono) {
            return self.write_ack(output);
        }
        if !peer.session.has_slot() {
            return None;
        }
        let lacks = |object| window.get(object).is_some_and(ActiveObject::lacks_blocks);
        let objects = window.stable()..window.known();
        match peer.control.pop(self.membership.failures().len(), objects, lacks) {
            Some(Control::Failures(range)) => self.write_failures(output, range),
            Some(Control::State) => self.write_state(output),
            Some(Control::Want(wanted)) => {
                let want = BulkWant { object: wanted.object, block: wanted.block };
                self.write(output, Some(Item::Want(wanted)), |_, buffer| want.write(buffer))
            }
            Some(Control::HaveChanged(changed)) => {
                self.write_have(output, changed, 1).map(|(sent, _)| sent)
            }
            Some(Control::HaveFrom(from)) => {
                let rank = output.rank;
                let (sent, next) = self.write_have(output, from, HAVE_WORDS_MAX)?;
                self.peers[rank].control.continue_from(next);
                Some(sent)
            }
            None => {
                let object = peer.next_offer(|block| window.holds(block))?;
                self.write_offer(output, object)
            }
        }
    }

    //= spec/bulk.md#R17
    fn write_offer(&mut self, output: Output<'_>, object: u32) -> Option<Transmit> {
        let header = BulkPieceHeader {
            object,
            extent: self.window.shape(object)?.extent,
            digest: 0,
            block: 0,
            offset: 0,
            ordinal: BulkPieceHeader::REQUESTED,
            is_offer: true,
        };
        self.write(output, Some(Item::Offer { object }), |_, buffer| {
            header.write(buffer).map(|_| onepipe_wire::BULK_PIECE_HEADER_LEN)
        })
    }

    fn write_ack(&mut self, output: Output<'_>) -> Option<Transmit> {
        let rank = output.rank;
        let mut received = core::mem::take(&mut self.peers[rank].session.received);
        let incarnation = self.peers[rank].incarnation;
        let ack = received.take_ack();
        let sent = ack.zip(incarnation).and_then(|((largest, words, marked), incarnation)| {
            let ack = BulkAck { incarnation, largest, marked };
            self.write(output, None, |_, buffer| ack.write(buffer, words.iter().copied()))
        });
        self.peers[rank].session.received = received;
        sent
    }

    fn write_failures(&mut self, output: Output<'_>, range: Range<usize>) -> Option<Transmit> {
        debug_assert!(range.end <= self.membership.failures().len(), "failures exist");
        let item = Item::Failures { first: range.start as u32 };
        self.write(output, Some(item), |group, buffer| {
            let buffer = buffer.get_mut(..range.len() * BULK_FAILURE_LEN)?;
            let entry = |failure: &Failure| BulkFailure {
                rank: failure.rank as u16,
                by: failure.by as u16,
                reason: failure.reason as u8,
            };
            let failures = &group.membership.failures()[range];
            Some(BulkFailures::write(buffer, failures.iter().map(entry)))
        })
    }

    fn write_state(&mut self, output: Output<'_>) -> Option<Transmit> {
        let state = BulkState {
            complete: self.window.complete(),
            known: self.window.known(),
            resolved: self.window.resolved(),
            total: self.window.total(),
            // The root computes its own digest only when it compares it with another member's.
            digest: match self.config.own {
                0 => 0,
                _ => self.window.digest_before(self.window.complete()),
            },
            view: self.membership.view(),
            is_closed: self.membership.is_closed(),
            is_clean: self.membership.outcome() == Some(Outcome::Complete),
        };
        debug_assert!(self.window.complete() <= self.window.resolved(), "the state is consistent");
        let mut tokens = [0; crate::OBJECTS_MAX as usize];
        let active = self.config.objects_max as usize;
        for (at, token) in tokens[..active].iter_mut().enumerate() {
            *token = self.tokens(output.rank, self.window.stable() + at as u32);
        }
        self.write(output, Some(Item::State), |_, buffer| {
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
        output: Output<'_>,
        from: HaveWord,
        words: u32,
    ) -> Option<(Transmit, HaveWord)> {
        let HaveWord { object, word: first } = from;
        let active = self.window.get(object)?;
        let extent = active.shape().map(|shape| shape.extent);
        let all = active.shape().map_or(0, |shape| shape.blocks.div_ceil(64));
        let until = (first + words).min(all);
        let have = BulkHave { object, extent, view: self.membership.view(), first };
        let sent = self.write(output, Some(Item::Have(from)), |group, buffer| {
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
        output: Output<'_>,
        item: Option<Item>,
        body: impl FnOnce(&Self, &mut [u8]) -> Option<usize>,
    ) -> Option<Transmit> {
        self.write_detached(output, item, None, body)
    }

    /// Writes a frame whose last `detached_len` bytes are not in the slot.
    pub(super) fn write_detached(
        &mut self,
        output: Output<'_>,
        item: Option<Item>,
        detached_len: Option<usize>,
        body: impl FnOnce(&Self, &mut [u8]) -> Option<usize>,
    ) -> Option<Transmit> {
        let Output { now, rank, slot } = output;
        debug_assert!(rank != self.config.own, "no frame goes to this member");
        let bulk_header = self.bulk_header();
        let buffer = bulk_header.write(slot.get_mut(SHORT_HEADER_LEN..)?)?;
        let bytes = BULK_HEADER_LEN + body(self, buffer)?;
        let member = self.config.members[rank as usize];
        let opcode = item.map_or(Opcode::BulkAck, |item| item.opcode());
        let header = self.header(opcode, member.process);
        let session = &mut self.peers[rank].session;
        let all = bytes + detached_len.unwrap_or(0);
        let needs_ack = item.is_some() && session.needs_ack(SHORT_HEADER_LEN + all);
        let header = header.flagged(u8::from(needs_ack) * Flags::ACK_NOW);
        let psn = if item.is_some() { session.next() } else { Psn::FIRST };
        let header = header.with_psn(psn);
        let bytes = match detached_len {
            Some(detached_len) => seal_detached(slot, header, detached_len),
            None => seal(slot, header, bytes),
        };
        debug_assert!(
            bytes <= SHORT_HEADER_LEN + usize::from(u16::MAX),
            "the length fits its field"
        );
        if let Some(item) = item {
            session.on_sent(now.mono, item, SHORT_HEADER_LEN + all);
            self.update_deadline(rank);
        }
        self.stats.frames_sent += 1;
        Some(Transmit { port: member.port, bytes })
    }

    /// Writes the next refusal of a process that is not a member.
    pub(super) fn write_refusal(&mut self, slot: &mut [u8]) -> Option<Transmit> {
        let Refusal { port, to, reason } = self.refusals.pop()?;
        let buffer = self.bulk_header().write(slot.get_mut(SHORT_HEADER_LEN..)?)?;
        let bytes = BULK_HEADER_LEN + reason.write(buffer)?;
        let header = self.header(Opcode::BulkRefused, to);
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
