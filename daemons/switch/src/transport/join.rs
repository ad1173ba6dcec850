//! Joiners: what is not from an admitted neighbour does not reach the machine.

use std::net::SocketAddr;

use onepipe_base::{Address, Cause, Instance, Machine, Now, Port};
use onepipe_join::{
    Applicant, Decision, Event, Joiner, Obstacle, Occupancy, Request, Roster, Side,
};
use onepipe_transport_udp::FrameRange;
use onepipe_wire::{
    Header, JoinAnswer, JoinRequest, JoinRole, Opcode, RefuseReason, header_unchecked, parse_header,
};

use super::SwitchTransport;
use super::controllers::AnnouncementAnswer;
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
        if Joiner::takes(frame) || Roster::takes(frame) {
            return false;
        }
        let Some(applicant) = self.ports.applicant(port) else { return true };
        let is_request = header.length() > 0 && header.opcode() == Ok(Opcode::Join);
        let source = (header.src(), header.incarnation());
        !is_request && applicant.may_send(&header) && !self.is_of_second_controller(port, source)
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
        if let (true, Some(port)) = (Roster::takes(frame), port)
            && self.ports.applicant(port).is_none_or(|known| may_send(known, frame))
        {
            self.roster.handle_frame(now, port, frame);
            return Some(port);
        }
        let is_from_above = port.is_some() && port == self.up;
        if is_from_above && let Some(answer) = AnnouncementAnswer::parse(frame) {
            self.on_announcement_answer(now, answer);
            return port;
        }
        if let (Some(handshake), true) = (&mut self.up_handshake, is_from_above) {
            if handshake.on_frame(now, frame) == Some(Event::Forgotten) {
                port.into_iter().for_each(|port| self.roster.forget(now, port));
            }
            return port;
        }
        let Some(request) = Request::parse(frame) else {
            match parse_header(frame) {
                Err(_) => self.stats.frames_foreign += u64::from(port.is_none()),
                Ok((header, _)) => {
                    self.on_rejected(now, (from, port), &header);
                }
            }
            return None;
        };
        let applicant = request.applicant;
        let rival = match applicant.is_exclusive() {
            true => self.ports.rival(applicant, from, now.mono),
            false => None,
        };
        let occupancy = Occupancy {
            present: port.and_then(|port| self.ports.applicant(port).copied()),
            rival: rival.map(|(_, rival)| rival),
            is_elsewhere: match applicant.instance.address {
                Address::Process(process) if applicant.is_exclusive() => {
                    self.roster.is_behind_switch(process)
                }
                _ => false,
            },
            is_full: port.is_none() && !self.ports.has_free(now.mono),
            incarnation_max: Some(Gate::incarnation_max()),
        };
        let cookies = self.gate.cookies(now, from, applicant);
        match self.gate.admission.decide(request, occupancy, cookies) {
            Decision::Answer(answer) => {
                self.note_refusal(from, applicant, answer);
                if let (JoinAnswer::Accepted(_), Some(port)) = (answer, port) {
                    self.roster.repeat(now, port);
                }
                self.answer(now, from, answer, Some(applicant.instance));
                None
            }
            Decision::Replace(obstacle) => {
                let port = match obstacle {
                    Obstacle::Present => port,
                    Obstacle::Rival => rival.map(|(port, _)| port),
                };
                // The request is repeated after the machine was notified.
                port.into_iter().for_each(|port| self.ports.reclaim(port, Cause::Superseded));
                None
            }
            Decision::Admit(_, JoinRequest { wants_members, .. }) => {
                self.admit(now, from, applicant, wants_members)
            }
        }
    }

    /// Handles a frame that its sender may not send.
    fn on_rejected(&mut self, now: Now, (from, port): (SocketAddr, Option<Port>), header: &Header) {
        let applicant = port.and_then(|port| self.ports.applicant(port));
        if let Some(port) = port
            && applicant.is_some_and(|applicant| applicant.may_send(header))
            && self.is_of_second_controller(port, (header.src(), header.incarnation()))
        {
            return self.on_second_controller(now, port, header);
        }
        self.stats.frames_misattributed += u64::from(port.is_some());
        self.answer(now, from, JoinAnswer::NotAdmitted, header.sender());
    }

    /// Gives a joiner a port.
    fn admit(
        &mut self,
        now: Now,
        from: SocketAddr,
        applicant: Applicant,
        wants_members: bool,
    ) -> Option<Port> {
        if let Some(data_path) = &mut self.data_path
            && !data_path.can_reach(from)
        {
            return None;
        }
        let port = self.ports.assign(from, applicant, now.mono)?;
        self.stats.ports_assigned += 1;
        match (applicant.role, applicant.instance.address) {
            (JoinRole::Switch, _) => self.roster.open(now, port, Side::Below { wants_members }),
            (JoinRole::Process, Address::Process(process)) => {
                self.roster.open(now, port, Side::Process { process, wants_members });
            }
            (JoinRole::Controller, Address::Process(process)) => {
                self.roster.open(now, port, Side::Controller { process });
                // Other switches are to know of it before another one asks there.
                self.roster.set_up(now, port, true);
            }
            _ => {}
        }
        self.socket.set_destination(port.index(), Some(from));
        if let Some(data_path) = &mut self.data_path {
            let only = (applicant.role != JoinRole::Switch).then_some(applicant.instance);
            data_path.connect(port, from, only);
        }
        let accepted = JoinAnswer::Accepted(*self.gate.admission.terms());
        self.answer(now, from, accepted, Some(applicant.instance));
        Some(port)
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
    pub(super) fn answer(
        &mut self,
        now: Now,
        from: SocketAddr,
        answer: JoinAnswer,
        to: Option<Instance>,
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

fn may_send(applicant: &Applicant, frame: &[u8]) -> bool {
    header_unchecked(frame).is_some_and(|header| applicant.may_send(&header))
}
