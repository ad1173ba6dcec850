//! Joiners: what is not from an admitted neighbour does not reach the machine.

use std::net::SocketAddr;

use onepipe_base::{Address, Cause, Now, Port};
use onepipe_join::{Applicant, Decision, Joiner, Request, Vacancy};
use onepipe_transport_udp::FrameRange;
use onepipe_wire::{JoinAnswer, JoinRole, Opcode, RefuseReason, header_unchecked, parse_header};

use super::SwitchTransport;
use crate::gate::Gate;

impl SwitchTransport {
    //= spec/ordering.md#R65
    /// Returns whether the neighbour at `port` was admitted to send this frame, and the frame is
    /// for the machine.
    #[inline]
    pub(super) fn is_for_machine(&mut self, port: Port, range: FrameRange) -> bool {
        let frame = self.socket.frame(range);
        // What is shorter than a header is for the machine to drop and count.
        let Some(header) = header_unchecked(frame) else { return true };
        if Joiner::takes(frame) {
            return false;
        }
        let Some(applicant) = self.ports.applicant(port) else { return true };
        let is_request = header.length() > 0 && header.opcode() == Ok(Opcode::Join);
        !is_request && applicant.may_send(header)
    }

    //= spec/ordering.md#R64
    /// Handles a frame that is not for the machine. Returns the port of its sender if that has been
    /// admitted by this frame.
    #[cold]
    pub(super) fn on_unadmitted(
        &mut self,
        now: Now,
        (from, port): (SocketAddr, Option<Port>),
        range: FrameRange,
    ) -> Option<Port> {
        let frame = self.socket.frame(range);
        if let (Some(handshake), true) = (&mut self.up_handshake, port.is_some() && port == self.up)
        {
            handshake.on_frame(now, frame);
            return port;
        }
        let Some(request) = Request::parse(frame) else {
            match (parse_header(frame), port) {
                (Err(_), None) => self.stats.frames_foreign += 1,
                (Err(_), Some(_)) => {}
                (Ok((header, _)), port) => {
                    let to = header.sender();
                    self.stats.frames_misattributed += u64::from(port.is_some());
                    self.answer(now, from, JoinAnswer::NotAdmitted, to);
                }
            }
            return None;
        };
        let Request::Join(applicant, _) = request else {
            let terms = *self.gate.admission.terms();
            let reason = RefuseReason::Version;
            self.answer(now, from, JoinAnswer::Refused { reason, terms }, None);
            return None;
        };
        let rival = self.rival(now, from, applicant);
        let is_known = port.is_some_and(|port| self.ports.applicant(port) == Some(&applicant));
        let vacancy = Vacancy {
            is_taken: rival.is_some_and(|(_, is_live)| is_live),
            is_full: port.is_none() && !self.ports.has_free(now.mono),
            incarnation_max: Some(Gate::incarnation_max()),
        };
        let cookies = self.gate.cookies(now, from, applicant);
        match self.gate.admission.decide(request, vacancy, cookies) {
            Decision::Answer(answer) => {
                self.note_refusal(from, applicant, answer);
                self.answer(now, from, answer, Some(applicant.instance));
                None
            }
            Decision::Admit(_) if is_known => {
                let accepted = JoinAnswer::Accepted(*self.gate.admission.terms());
                self.answer(now, from, accepted, Some(applicant.instance));
                port
            }
            Decision::Admit(_) => self.admit(now, (from, port), applicant, rival),
        }
    }

    /// Gives a joiner a port; or takes one away that is in its way, and lets it repeat its request
    /// after the machine was notified.
    fn admit(
        &mut self,
        now: Now,
        (from, port): (SocketAddr, Option<Port>),
        applicant: Applicant,
        rival: Option<(Port, bool)>,
    ) -> Option<Port> {
        if let Some(obstacle) = port.or(rival.map(|(port, _)| port)) {
            self.ports.reclaim(obstacle, Cause::Superseded);
            return None;
        }
        let port = self.ports.assign(from, applicant, now.mono)?;
        self.stats.ports_assigned += 1;
        self.socket.set_destination(port.index(), Some(from));
        let accepted = JoinAnswer::Accepted(*self.gate.admission.terms());
        self.answer(now, from, accepted, Some(applicant.instance));
        Some(port)
    }

    //= spec/ordering.md#R68
    /// Returns the other neighbour with the controller id of a joiner. Of processes the later
    /// incarnation takes the id over: a restart must not wait.
    fn rival(&self, now: Now, from: SocketAddr, applicant: Applicant) -> Option<(Port, bool)> {
        if applicant.role != JoinRole::Controller {
            return None;
        }
        self.ports.rival(applicant, from, now.mono, self.controller_timeout_ns)
    }

    /// Records a refusal that an operator should know of.
    fn note_refusal(&mut self, from: SocketAddr, applicant: Applicant, answer: JoinAnswer) {
        let JoinAnswer::Refused { reason, .. } = answer else { return };
        match (reason, applicant.instance.address) {
            (RefuseReason::Full, _) => {
                self.stats.batches_without_port += 1;
                if !self.ports.is_reclaiming() {
                    self.stats.last_rejected = Some(from);
                }
            }
            (RefuseReason::OutOfRange, Address::Process(process)) => {
                self.stats.process_out_of_range = Some(process);
            }
            _ => {}
        }
    }

    /// Answers a frame from `from`.
    fn answer(
        &mut self,
        now: Now,
        from: SocketAddr,
        answer: JoinAnswer,
        to: Option<onepipe_base::Instance>,
    ) {
        if !self.gate.take_answer() {
            return;
        }
        let Some(slot) = self.socket.slot() else { return };
        let frame = self.socket.frame(slot);
        if let Some(bytes) = self.gate.admission.write(now.sync, answer, to, frame) {
            let range = self.socket.keep(slot, bytes);
            self.socket.set_destination(self.one_shot, Some(from));
            self.socket.send(self.one_shot, range);
            // The next answer may have another address.
            self.socket.flush();
            self.stats.join_answers += 1;
        }
    }
}
