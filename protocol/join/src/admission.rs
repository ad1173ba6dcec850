//! The side of the switch: challenges joiners, and decides.

use onepipe_base::{Address, Incarnation, Instance, Promises, Psn, Timestamp, WIRE_MODULUS};
use onepipe_wire::{
    Frame, HEADER_LEN, Header, JOIN_LEN, JoinAnswer, JoinRequest, JoinRole, Opcode, RefuseReason,
    Terms, opcode_unchecked, seal,
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
    /// Returns whether a second node with this id and role is refused while the first one is
    /// received. Of two processes with one id the later incarnation takes the id over, because a
    /// restart must not wait.
    pub fn is_exclusive(&self) -> bool {
        self.role == JoinRole::Controller
    }

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
pub struct Request {
    /// The joiner.
    pub applicant: Applicant,
    /// What it states.
    pub join: JoinRequest,
}

impl Request {
    /// Returns the request in `frame`, if the frame is one.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        if opcode_unchecked(frame) != Some(Opcode::Join) {
            return None;
        }
        let frame = Frame::parse_join(frame).ok()?;
        if frame.opcode != Opcode::Join || frame.payload.is_empty() {
            return None;
        }
        let join = JoinRequest::parse(frame.payload).ok()?;
        let instance = frame.header.sender()?;
        let is_switch = matches!(instance.address, Address::Switch(_));
        if is_switch != (join.role == JoinRole::Switch) {
            return None;
        }
        Some(Self { applicant: Applicant { instance, role: join.role }, join })
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

/// What the driver knows about the ports of its switch that concern a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Occupancy {
    /// The node that is admitted at the address of the request.
    pub present: Option<Applicant>,
    /// The node that is admitted at another address under the id and in the role of the joiner;
    /// needed only if [`Applicant::is_exclusive`].
    pub rival: Option<Rival>,
    /// Whether a node with the id of the joiner is reached through a neighbouring switch; needed
    /// only if [`Applicant::is_exclusive`].
    pub is_elsewhere: bool,
    /// Whether no port is free.
    pub is_full: bool,
    /// The highest incarnation that a clock which is not far ahead can have given; `None`: any.
    pub incarnation_max: Option<Incarnation>,
}

/// A node that is admitted under the id of a joiner, at another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rival {
    /// Time since its last frame, in ns; `None`: its link is down.
    pub unseen_ns: Option<u64>,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Give this node a port, and accept it.
    Admit(Applicant, JoinRequest),
    /// Take the port of this node away; its successor repeats the request.
    Replace(Obstacle),
    /// Only answer.
    Answer(JoinAnswer),
}

/// The node that loses its port to a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Obstacle {
    /// [`Occupancy::present`]: the node at the address of the joiner is another one now.
    Present,
    /// [`Occupancy::rival`].
    Rival,
}

/// A controller that was not received for this many intervals of Hello frames may be replaced.
const HELLOS_PER_TIMEOUT: u64 = 3;
/// Shortest interval of Hello frames that is assumed, in ns.
const HELLO_INTERVAL_MIN_NS: u64 = 100_000_000;

/// Decides about joiners. Holds no state about any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admission {
    own: Instance,
    terms: Terms,
    controller_timeout_ns: u64,
}

impl Admission {
    /// Returns the admission to the fabric with `terms` at the switch `own`, whose controllers send
    /// a Hello in every `hello_interval_ns`.
    pub fn new(own: Instance, terms: Terms, hello_interval_ns: u64) -> Self {
        let controller_timeout_ns =
            HELLOS_PER_TIMEOUT.saturating_mul(hello_interval_ns.max(HELLO_INTERVAL_MIN_NS));
        Self { own, terms, controller_timeout_ns }
    }

    /// Returns how long after its last frame a controller counts as live, in ns.
    pub fn controller_timeout_ns(&self) -> u64 {
        self.controller_timeout_ns
    }

    /// Returns the terms.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    //= spec/ordering.md#R62
    //= spec/ordering.md#R64
    /// Decides about a request: refuses it with a reason, challenges an address that has not proved
    /// yet that it receives, or admits the joiner once no other node is in its way.
    pub fn decide(&self, request: Request, ports: Occupancy, cookies: Cookies) -> Decision {
        let refused = |reason| Decision::Answer(JoinAnswer::Refused { reason, terms: self.terms });
        debug_assert!(cookies.present != 0, "0 stands for no cookie");
        let Request { applicant, join } = request;
        //= spec/ordering.md#R90
        if !join.versions.contain(self.terms.version) {
            return refused(RefuseReason::Version);
        }
        if let Some(reason) = self.objection(applicant, ports) {
            return refused(reason);
        }
        if join.cookie == 0 || ![cookies.present, cookies.previous].contains(&join.cookie) {
            let cookie = cookies.present;
            return Decision::Answer(JoinAnswer::Challenge { cookie, terms: self.terms });
        }
        match (ports.present, ports.rival.filter(|_| applicant.is_exclusive())) {
            // The acceptance was lost.
            (Some(present), _) if present == applicant => {
                Decision::Answer(JoinAnswer::Accepted(self.terms))
            }
            (Some(_), _) => Decision::Replace(Obstacle::Present),
            (None, Some(_)) => Decision::Replace(Obstacle::Rival),
            (None, None) => {
                debug_assert!(!ports.is_full, "an applicant is refused while no port is free");
                Decision::Admit(applicant, join)
            }
        }
    }

    //= spec/ordering.md#R66
    //= spec/ordering.md#R68
    fn objection(&self, applicant: Applicant, ports: Occupancy) -> Option<RefuseReason> {
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
        if ports.incarnation_max.is_some_and(|max| applicant.instance.incarnation > max) {
            return Some(RefuseReason::Incarnation);
        }
        let is_live = |rival: Rival| {
            rival.unseen_ns.is_some_and(|unseen_ns| unseen_ns < self.controller_timeout_ns)
        };
        // A controller that was admitted here, and asks again, is not in the way of itself; which
        // of two goes on was decided by their incarnations.
        let is_elsewhere = ports.is_elsewhere && ports.present != Some(applicant);
        if applicant.is_exclusive() && (is_elsewhere || ports.rival.is_some_and(is_live)) {
            return Some(RefuseReason::Taken);
        }
        (ports.is_full && ports.present.is_none()).then_some(RefuseReason::Full)
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
    use onepipe_wire::{VERSION, Versions};

    const TERMS: Terms = Terms {
        processes_max: 16,
        controllers: Some(Controllers { first: ProcessId(14), count: 2 }),
        link_timeout_ns: 1_000,
        frame_len_max: 1_472,
        key_epoch: 0,
        version: VERSION,
    };
    const COOKIES: Cookies = Cookies { present: 7, previous: 6 };
    const VACANT: Occupancy = Occupancy {
        present: None,
        rival: None,
        is_elsewhere: false,
        is_full: false,
        incarnation_max: Some(Incarnation(100)),
    };

    fn applicant(address: u32, incarnation: u32, role: JoinRole) -> Applicant {
        let address = Address::from_bits(address).expect("an address");
        Applicant { instance: Instance { address, incarnation: Incarnation(incarnation) }, role }
    }

    fn admission() -> Admission {
        let own = Instance { address: Address::Switch(SwitchId(0)), incarnation: Incarnation(0) };
        Admission::new(own, TERMS, 0)
    }

    fn decide(applicant: Applicant, cookie: u64, ports: Occupancy) -> Decision {
        decide_in(Versions::OWN, applicant, cookie, ports)
    }

    fn decide_in(
        versions: Versions,
        applicant: Applicant,
        cookie: u64,
        ports: Occupancy,
    ) -> Decision {
        let join = JoinRequest { role: applicant.role, cookie, wants_members: false, versions };
        admission().decide(Request { applicant, join }, ports, COOKIES)
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
            assert!(
                matches!(decide(process, cookie, VACANT), Decision::Admit(it, _) if it == process)
            );
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
            (process, Occupancy { is_full: true, ..VACANT }, RefuseReason::Full),
        ];
        for (applicant, ports, reason) in cases {
            let refused = Decision::Answer(JoinAnswer::Refused { reason, terms: TERMS });
            assert_eq!(decide(applicant, 7, ports), refused);
        }
    }

    //= spec/ordering.md#R90
    #[test]
    fn joiner_must_know_the_version_of_the_fabric() {
        let process = applicant(3, 1, JoinRole::Process);
        let decide = |min, max| decide_in(Versions { min, max }, process, 7, VACANT);
        for (min, max) in [(VERSION, VERSION), (VERSION - 1, VERSION), (VERSION, VERSION + 1)] {
            assert!(matches!(decide(min, max), Decision::Admit(..)), "{min} to {max}");
        }
        let (reason, terms) = (RefuseReason::Version, TERMS);
        for (min, max) in [(0, VERSION - 1), (VERSION + 1, u8::MAX)] {
            let refused = Decision::Answer(JoinAnswer::Refused { reason, terms });
            assert_eq!(decide(min, max), refused, "{min} to {max}");
        }
    }

    //= spec/ordering.md#R68
    #[test]
    fn live_controller_is_not_replaced() {
        let controller = applicant(14, 2, JoinRole::Controller);
        let rival = |unseen_ns| Occupancy { rival: Some(Rival { unseen_ns }), ..VACANT };
        let (reason, terms) = (RefuseReason::Taken, TERMS);
        let taken = Decision::Answer(JoinAnswer::Refused { reason, terms });
        assert_eq!(decide(controller, 7, rival(Some(299_999_999))), taken);
        let replaced = Decision::Replace(Obstacle::Rival);
        assert_eq!(decide(controller, 7, rival(Some(300_000_000))), replaced);
        assert_eq!(decide(controller, 7, rival(None)), replaced);
        let challenge = Decision::Answer(JoinAnswer::Challenge { cookie: 7, terms: TERMS });
        assert_eq!(decide(controller, 5, rival(None)), challenge, "the address is not proved");
        let process = applicant(3, 2, JoinRole::Process);
        assert!(matches!(decide(process, 7, rival(Some(0))), Decision::Admit(..)));
    }

    //= spec/ordering.md#R68
    #[test]
    fn controller_that_runs_at_another_switch_is_refused() {
        let controller = applicant(14, 2, JoinRole::Controller);
        let elsewhere = Occupancy { is_elsewhere: true, ..VACANT };
        let (reason, terms) = (RefuseReason::Taken, TERMS);
        let taken = Decision::Answer(JoinAnswer::Refused { reason, terms });
        assert_eq!(decide(controller, 7, elsewhere), taken);
        assert_eq!(decide(controller, 5, elsewhere), taken, "no cookie is needed for the answer");
        let silent = Occupancy { rival: Some(Rival { unseen_ns: None }), ..elsewhere };
        assert_eq!(decide(controller, 7, silent), taken);
        // The acceptance was lost, and switches state the controller to each other already.
        let accepted = Decision::Answer(JoinAnswer::Accepted(TERMS));
        let admitted = Occupancy { present: Some(controller), ..elsewhere };
        assert_eq!(decide(controller, 7, admitted), accepted);
        let restarted = applicant(14, 3, JoinRole::Controller);
        assert_eq!(decide(restarted, 7, admitted), taken);
        let process = applicant(3, 2, JoinRole::Process);
        assert!(matches!(decide(process, 7, elsewhere), Decision::Admit(..)));
    }

    #[test]
    fn node_at_the_same_address_is_confirmed_or_replaced() {
        let process = applicant(3, 2, JoinRole::Process);
        let at_address = |present| Occupancy { present: Some(present), is_full: true, ..VACANT };
        let accepted = Decision::Answer(JoinAnswer::Accepted(TERMS));
        assert_eq!(decide(process, 7, at_address(process)), accepted);
        let previous = applicant(3, 1, JoinRole::Process);
        let replaced = Decision::Replace(Obstacle::Present);
        assert_eq!(decide(process, 7, at_address(previous)), replaced);
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
        let opcodes = [
            Opcode::Flood,
            Opcode::Notice,
            Opcode::Relayed,
            Opcode::Ping,
            Opcode::Recovery,
            Opcode::AnnounceAck,
            Opcode::UndeliverableAck,
            Opcode::Hello,
        ];
        for opcode in opcodes {
            assert!(!process.may_send(&header(opcode, 3, 5)));
            assert!(controller.may_send(&header(opcode, 14, 5)));
            assert!(!controller.may_send(&header(opcode, 15, 5)));
        }
        let switch = applicant(1 << 31, 5, JoinRole::Switch);
        assert!(switch.may_send(&header(Opcode::Notice, 14, 9)));
    }
}
