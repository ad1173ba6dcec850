//! The side of the switch: challenges joiners, and decides.

use onepipe_base::{Address, Incarnation, Instance, Promises, Psn, Timestamp, WIRE_MODULUS};
use onepipe_wire::{
    DecodeError, Frame, HEADER_LEN, Header, JOIN_LEN, JoinAnswer, JoinRequest, JoinRole, Opcode,
    RefuseReason, Terms, foreign_version, seal,
};

/// A node that asks for admission, or was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Applicant {
    /// Its address and incarnation.
    pub instance: Instance,
    /// What it is.
    pub role: JoinRole,
}

impl Applicant {
    //= spec/ordering.md#R65
    /// Returns whether a node that was admitted as this may send a frame with this header: as
    /// itself only, unless it is a switch, and as a controller only if it is one. Foreign traffic
    /// has no incarnations. The header need not be verified: a corrupt one is dropped in any case.
    #[inline]
    pub fn may_send(&self, header: &Header) -> bool {
        let (address, incarnation) = Instance::to_words(Some(self.instance));
        self.role == JoinRole::Switch
            || (header.src().0 == address
                && (header.incarnation().0 == incarnation
                    || header.opcode() == Ok(Opcode::Foreign))
                && (self.role == JoinRole::Controller || !is_of_controller(header)))
    }
}

/// Whether only controllers, and switches that forward for them, send such a frame.
#[inline]
fn is_of_controller(header: &Header) -> bool {
    matches!(
        header.opcode(),
        Ok(Opcode::Flood
            | Opcode::Notice
            | Opcode::Relayed
            | Opcode::Ping
            | Opcode::UndeliverableAck
            | Opcode::Recovery
            | Opcode::AnnounceAck
            | Opcode::Hello)
    )
}

/// A request for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// A request in this version of the wire format.
    Join(Applicant, JoinRequest),
    /// A request in another version.
    OtherVersion,
}

impl Request {
    /// Returns the request in `frame`, if the frame is one.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let frame = match Frame::parse(frame) {
            Ok(frame) => frame,
            Err(DecodeError::Version(_)) => {
                return foreign_version(frame).map(|_| Self::OtherVersion);
            }
            Err(_) => return None,
        };
        if frame.opcode != Opcode::Join || frame.payload.is_empty() {
            return None;
        }
        let request = JoinRequest::parse(frame.payload).ok()?;
        let instance = frame.header.sender()?;
        let is_switch = matches!(instance.address, Address::Switch(_));
        if is_switch != (request.role == JoinRole::Switch) {
            return None;
        }
        Some(Self::Join(Applicant { instance, role: request.role }, request))
    }
}

/// The cookies that prove that a joiner receives at its address: of the present interval, and of
/// the one before. They are a keyed hash of address and joiner, which the driver computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookies {
    /// The cookie that is sent now. Not 0.
    pub present: u64,
    /// The cookie that was sent in the interval before.
    pub previous: u64,
}

/// What the driver knows about the id that a joiner asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vacancy {
    /// Whether another node with this id is attached and was received recently.
    pub is_taken: bool,
    /// Whether no port is free.
    pub is_full: bool,
    /// The highest incarnation that a clock which is not far ahead can have given; `None`: any.
    pub incarnation_max: Option<Incarnation>,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Admit this node, and answer.
    Admit(Applicant),
    /// Only answer.
    Answer(JoinAnswer),
}

/// Decides about joiners. Holds no state about any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    own: Instance,
    terms: Terms,
}

impl Admission {
    /// Returns the admission to the fabric with `terms` at the switch `own`.
    pub fn new(own: Instance, terms: Terms) -> Self {
        Self { own, terms }
    }

    /// Returns the terms.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    //= spec/ordering.md#R62
    //= spec/ordering.md#R64
    /// Decides about a request: refuses it with a reason, challenges an address that has not proved
    /// yet that it receives, or admits the joiner.
    pub fn decide(&self, request: Request, vacancy: Vacancy, cookies: Cookies) -> Decision {
        let refused = |reason| Decision::Answer(JoinAnswer::Refused { reason, terms: self.terms });
        let Request::Join(applicant, request) = request else {
            return refused(RefuseReason::Version);
        };
        if let Some(reason) = self.objection(applicant, vacancy) {
            return refused(reason);
        }
        if request.cookie != 0 && [cookies.present, cookies.previous].contains(&request.cookie) {
            return Decision::Admit(applicant);
        }
        let cookie = cookies.present;
        Decision::Answer(JoinAnswer::Challenge { cookie, terms: self.terms })
    }

    //= spec/ordering.md#R66
    fn objection(&self, applicant: Applicant, vacancy: Vacancy) -> Option<RefuseReason> {
        if let Address::Process(process) = applicant.instance.address {
            if process.0 >= self.terms.processes_max {
                return Some(RefuseReason::OutOfRange);
            }
            let is_reserved = self.terms.controllers.is_some_and(|ids| ids.contains(process));
            match (applicant.role, is_reserved) {
                (JoinRole::Controller, false) => return Some(RefuseReason::NotController),
                (JoinRole::Process, true) => return Some(RefuseReason::IsController),
                _ => {}
            }
        }
        if vacancy.incarnation_max.is_some_and(|max| applicant.instance.incarnation > max) {
            return Some(RefuseReason::Incarnation);
        }
        match (vacancy.is_taken, vacancy.is_full) {
            (true, _) => Some(RefuseReason::Taken),
            (_, true) => Some(RefuseReason::Full),
            _ => None,
        }
    }

    /// Writes `answer` into `slot` as a frame to `to`, the sender of what is answered. Returns its
    /// length, or `None` if the slot is too small.
    pub fn write(
        &self,
        sync: Timestamp,
        answer: JoinAnswer,
        to: Option<Instance>,
        slot: &mut [u8],
    ) -> Option<usize> {
        let len = answer.write(slot.get_mut(HEADER_LEN..)?)?;
        Some(seal(slot, hop_header(Opcode::JoinAnswer, self.own, to, sync), len))
    }
}

/// Length of the longest answer.
pub(crate) const FRAME_LEN: usize = HEADER_LEN + JOIN_LEN;

/// Returns the header of a frame of the handshake. Its promises raise nothing: they are a quarter
/// of the range of timestamps in the past.
pub(crate) fn hop_header(
    opcode: Opcode,
    own: Instance,
    peer: Option<Instance>,
    sync: Timestamp,
) -> Header {
    let nothing = Promises::both(sync.saturating_sub_ns(WIRE_MODULUS / 4));
    let header = Header::hop_only(opcode, own, peer, nothing);
    debug_assert_eq!(header.psn(), Psn(Instance::to_words(peer).1));
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Controllers, ProcessId, SwitchId};

    const TERMS: Terms = Terms {
        processes_max: 16,
        controllers: Some(Controllers { first: ProcessId(14), count: 2 }),
        link_timeout_ns: 1_000,
        frame_len_max: 1_472,
        key_epoch: 0,
    };
    const COOKIES: Cookies = Cookies { present: 7, previous: 6 };
    const VACANT: Vacancy =
        Vacancy { is_taken: false, is_full: false, incarnation_max: Some(Incarnation(100)) };

    fn applicant(address: u32, incarnation: u32, role: JoinRole) -> Applicant {
        let address = Address::from_bits(address).expect("an address");
        Applicant { instance: Instance { address, incarnation: Incarnation(incarnation) }, role }
    }

    fn admission() -> Admission {
        let own = Instance { address: Address::Switch(SwitchId(0)), incarnation: Incarnation(0) };
        Admission::new(own, TERMS)
    }

    fn decide(applicant: Applicant, cookie: u64, vacancy: Vacancy) -> Decision {
        let request = JoinRequest { role: applicant.role, cookie };
        admission().decide(Request::Join(applicant, request), vacancy, COOKIES)
    }

    //= spec/ordering.md#R64
    #[test]
    fn admits_only_who_returns_a_cookie_in_time() {
        let process = applicant(3, 1, JoinRole::Process);
        let challenge = Decision::Answer(JoinAnswer::Challenge { cookie: 7, terms: TERMS });
        for cookie in [0, 1, 5, 8] {
            assert_eq!(decide(process, cookie, VACANT), challenge);
        }
        for cookie in [6, 7] {
            assert_eq!(decide(process, cookie, VACANT), Decision::Admit(process));
        }
    }

    //= spec/ordering.md#R62
    //= spec/ordering.md#R66
    #[test]
    fn refusals_name_their_reason() {
        let process = applicant(3, 1, JoinRole::Process);
        let cases = [
            (applicant(16, 1, JoinRole::Process), VACANT, RefuseReason::OutOfRange),
            (applicant(14, 1, JoinRole::Process), VACANT, RefuseReason::IsController),
            (applicant(13, 1, JoinRole::Controller), VACANT, RefuseReason::NotController),
            (applicant(3, 101, JoinRole::Process), VACANT, RefuseReason::Incarnation),
            (applicant(3, u32::MAX, JoinRole::Process), VACANT, RefuseReason::Incarnation),
            (process, Vacancy { is_taken: true, ..VACANT }, RefuseReason::Taken),
            (process, Vacancy { is_full: true, ..VACANT }, RefuseReason::Full),
        ];
        for (applicant, vacancy, reason) in cases {
            let refused = Decision::Answer(JoinAnswer::Refused { reason, terms: TERMS });
            assert_eq!(decide(applicant, 7, vacancy), refused);
        }
        let other = admission().decide(Request::OtherVersion, VACANT, COOKIES);
        let (reason, terms) = (RefuseReason::Version, TERMS);
        assert_eq!(other, Decision::Answer(JoinAnswer::Refused { reason, terms }));
    }

    //= spec/ordering.md#R65
    #[test]
    fn node_sends_as_itself_only() {
        let header = |opcode, src, incarnation| {
            Header::new(opcode, ProcessId(src), ProcessId(1), Incarnation(incarnation))
        };
        let process = applicant(3, 5, JoinRole::Process);
        assert!(process.may_send(&header(Opcode::Data, 3, 5)));
        for (src, incarnation) in [(4, 5), (3, 4), (3, u32::MAX), (1 << 31, 0)] {
            assert!(!process.may_send(&header(Opcode::Data, src, incarnation)));
        }
        let controller = applicant(14, 5, JoinRole::Controller);
        for opcode in [Opcode::Notice, Opcode::Flood, Opcode::Hello, Opcode::Ping] {
            assert!(!process.may_send(&header(opcode, 3, 5)));
            assert!(controller.may_send(&header(opcode, 14, 5)));
            assert!(!controller.may_send(&header(opcode, 15, 5)));
        }
        let switch = applicant(1 << 31, 5, JoinRole::Switch);
        assert!(switch.may_send(&header(Opcode::Notice, 14, 9)));
    }
}
