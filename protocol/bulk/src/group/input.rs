//! Input: dispatches frames of other members.

use onepipe_base::{Mono, Port, Verdict};
use onepipe_wire::{
    BulkAckView, BulkFailures, BulkHaveView, BulkHeader, BulkPiece, BulkRefused, BulkStateView,
    BulkWant, DecodeError, Flags, Frame, Opcode,
};

use super::placement::Payload;
use super::{Group, Refusal};
use crate::Memory;
use crate::event::Reason;
use crate::object::BlockId;

impl<M: Memory> Group<M> {
    //= spec/bulk.md#R30
    pub(super) fn on_frame(&mut self, now: Mono, port: Port, bytes: &[u8]) -> Verdict {
        let result =
            Frame::parse(bytes).and_then(|frame| self.process_frame(now, port, &frame, None));
        self.count_frame(result)
    }

    pub(super) fn count_frame(&mut self, result: Result<(), DecodeError>) -> Verdict {
        match result {
            Ok(()) => {
                self.stats.frames_received += 1;
                Verdict::Consumed
            }
            Err(_) => {
                self.stats.frames_dropped += 1;
                Verdict::Dropped
            }
        }
    }

    /// Processes a parsed frame. `placed` is the number of bytes of a piece that was placed.
    pub(super) fn process_frame(
        &mut self,
        now: Mono,
        port: Port,
        frame: &Frame<'_>,
        placed: Option<usize>,
    ) -> Result<(), DecodeError> {
        if frame.opcode as u8 & 0xf0 != Opcode::BulkPiece as u8 {
            return Err(DecodeError::Opcode(frame.opcode as u8));
        }
        let (header, rest) = BulkHeader::parse(frame.payload)?;
        if header.group != self.config.group.0 {
            return Err(DecodeError::Field { field: "group", value: header.group });
        }
        if frame.opcode == Opcode::BulkRefused {
            let refused = BulkRefused::parse(rest)?;
            self.on_refused(frame, refused);
            return Ok(());
        }
        let from = u32::from(header.from);
        let is_member =
            self.config.members.get(from as usize).is_some_and(|member| {
                member.process == frame.header.src() && from != self.config.own
            });
        //= spec/bulk.md#R8
        if !is_member || header.config_digest != self.config_digest {
            return self.refuse(port, frame, BulkRefused::OtherConfig);
        }
        let incarnation = frame.header.incarnation();
        match self.peers[from].incarnation {
            //= spec/bulk.md#R25
            Some(known) if incarnation < known => return Ok(()),
            Some(known) if incarnation > known => {
                // The incarnation that is a member has ended.
                self.fail(from, self.config.own, Reason::Restarted);
                return self.refuse(port, frame, BulkRefused::OtherIncarnation);
            }
            _ if self.membership.has_failed(from) => {
                return self.refuse(port, frame, BulkRefused::Excluded);
            }
            _ => self.peers[from].incarnation = Some(incarnation),
        }
        if self.membership.is_refused() {
            return Ok(());
        }
        // A member whose failure was detected only after the end of the group is live after all.
        self.peers[from].has_failed = false;
        self.peers[from].last_received = now;
        if frame.opcode != Opcode::BulkAck {
            let is_marked = frame.header.has(Flags::CONGESTION);
            let is_asked = frame.header.has(Flags::ACK_NOW);
            self.peers[from].session.on_frame(now, frame.header.psn(), is_marked, is_asked);
            self.peers.set_ready(from);
            self.update_deadline(from);
        }
        (self.peers[from].advertised_stable, self.peers[from].advertised_failed) =
            (header.stable, header.failed);
        self.on_stable(header.stable);
        self.process_body(now, from, frame.opcode, rest, placed)
    }

    fn process_body(
        &mut self,
        now: Mono,
        from: u32,
        opcode: Opcode,
        rest: &[u8],
        placed: Option<usize>,
    ) -> Result<(), DecodeError> {
        let is_over = self.membership.is_over();
        match opcode {
            Opcode::BulkAck => self.on_ack(now, from, BulkAckView::parse(rest)?),
            Opcode::BulkState => self.on_state(from, &BulkStateView::parse(rest)?),
            Opcode::BulkFailures => {
                for failure in BulkFailures::parse(rest)?.entries() {
                    let reason = Reason::from_bits(failure.reason);
                    self.fail(failure.rank.into(), failure.by.into(), reason);
                }
            }
            Opcode::BulkPiece if !is_over => {
                let piece = BulkPiece::parse(rest)?;
                let bytes = placed.map_or(Payload::InFrame(piece.bytes), Payload::Placed);
                self.on_piece(from, &piece.header, bytes);
            }
            Opcode::BulkHave if !is_over => self.on_have(from, &BulkHaveView::parse(rest)?),
            Opcode::BulkWant if !is_over => {
                let BulkWant { object, block } = BulkWant::parse(rest)?;
                if self.window.shape(object).is_some_and(|shape| block < shape.blocks) {
                    self.peers[from].transfers.on_request(BlockId { object, block });
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Queues a refusal of a process that is not a member.
    fn refuse(
        &mut self,
        port: Port,
        frame: &Frame<'_>,
        reason: BulkRefused,
    ) -> Result<(), DecodeError> {
        self.refusals.push_once(Refusal { port, to: frame.header.src(), reason });
        Ok(())
    }

    fn on_refused(&mut self, frame: &Frame<'_>, refused: BulkRefused) {
        let member = |rank: u32| self.config.members[rank as usize].process;
        let is_for_us = frame.header.dst() == member(self.config.own);
        let from = self.peers.ranks().find(|rank| member(*rank) == frame.header.src());
        let Some(from) = from.filter(|from| is_for_us && *from != self.config.own) else { return };
        if self.membership.is_over() {
            // The peer has refused this member, so it need not be notified of the end.
            self.peers[from].session.close();
            self.peers[from].control.on_refused(self.membership.failures().len());
        } else if !self.membership.has_failed(from) {
            self.exclude(refused);
        }
    }

    fn on_ack(&mut self, now: Mono, from: u32, view: BulkAckView<'_>) {
        if view.ack.incarnation != self.config.incarnation {
            return;
        }
        let session = &mut self.peers[from].session;
        session.on_ack(now, view.ack.largest, view.ack.marked, view.words(), &mut self.lost);
        self.on_lost(from);
        self.peers.set_ready(from);
        self.update_deadline(from);
    }

    //= spec/bulk.md#R21
    fn on_state(&mut self, from: u32, view: &BulkStateView<'_>) {
        let (state, stable) = (view.state, self.peers[from].advertised_stable);
        for (ahead, count) in (0..).zip(view.tokens()) {
            let object = stable.wrapping_add(ahead);
            if self.window.get(object).is_some() {
                let flow = self.peers[from].flows.get_mut(object);
                flow.granted = flow.granted.max(count);
            }
        }
        self.peers[from].on_state(&state);
        self.window.on_total(state.total);
        // The root decides by itself. After its failure, any member may have received its decision.
        if state.is_closed && !self.membership.is_closed() && self.config.own != 0 {
            self.close_group(state.is_clean);
        } else if self.membership.is_closed() && !state.is_closed {
            self.peers.queue_state(from);
        }
        self.check_digest(from, state.complete, state.digest);
        self.advance();
        self.request_missing();
    }

    //= spec/bulk.md#R24
    /// Compares a member's digest of its complete objects with that of the root.
    fn check_digest(&mut self, from: u32, complete: u32, digest: u64) {
        let is_known = (self.window.stable()..=self.window.complete()).contains(&complete);
        if self.membership.is_over() || from == 0 || self.config.own != 0 || !is_known {
            return;
        }
        if self.window.digest_before(complete) != digest {
            self.fail(from, self.config.own, Reason::Digest);
        }
    }
}
