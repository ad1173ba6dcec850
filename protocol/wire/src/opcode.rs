//! Opcodes: the kinds of frames.

use crate::DecodeError;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The kind of a frame.
        ///
        /// Each service has a range of its own: `0x10..` the reliable service (data, commit,
        /// recall), `0x20..` the controller, `0x40..` agreed multicast, `0x60..` bulk multicast,
        /// `0x80..` scheduled transfer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)*
        }

        impl TryFrom<u8> for Opcode {
            type Error = DecodeError;

            #[inline]
            fn try_from(code: u8) -> Result<Self, DecodeError> {
                match code {
                    $($code => Ok(Self::$name),)*
                    _ => Err(DecodeError::Opcode(code)),
                }
            }
        }

        impl Opcode {
            /// All opcodes of this version.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

opcodes! {
    /// Whole messages of the best-effort service, coalesced: see [`crate::Messages`].
    Data = 0x01,
    /// One fragment of a message that does not fit a frame: see [`crate::Fragment`].
    Fragment = 0x02,
    /// Acknowledges packets and advertises the window: see [`crate::Ack`].
    Ack = 0x03,
    /// As an ACK, but sent at once because it reports a packet that will never be delivered.
    Nak = 0x04,
    /// Asks the receiver about unacknowledged packets: see [`crate::Probe`].
    Probe = 0x05,
    /// Carries promises only, over one hop. No payload.
    Beacon = 0x06,
    /// Opens a connection or requests a reservation: see [`crate::Connect`].
    Connect = 0x07,
    /// Answers a connect: the body of an ACK, with the granted window.
    Grant = 0x08,
    /// The receiver does not know the connection: the sender must reopen it. No payload.
    Reset = 0x09,
    /// A process announces itself on its link, one hop only. With a payload, a joiner asks to be
    /// admitted: see [`crate::JoinRequest`].
    Join = 0x0a,
    /// A process takes itself off its link, one hop only. No payload.
    Leave = 0x0b,
    /// A beacon that asks for one: the sender waits until the promises of the other end have passed
    /// the message timestamp. One hop only, no payload.
    Solicit = 0x0c,
    /// As data, for several receivers: see [`crate::SharedReceivers`].
    SharedData = 0x0d,
    /// Answers a joiner, one hop only: see [`crate::JoinAnswer`].
    JoinAnswer = 0x0e,
    /// A switch acknowledges a Leave: the promises of the link no longer count. One hop only, no
    /// payload.
    LeaveAck = 0x0f,
    /// As data, in the reliable service: the prepare phase of its messages.
    ReliableData = 0x11,
    /// As a fragment, in the reliable service.
    ReliableFragment = 0x12,
    /// As an ACK, in the reliable service.
    ReliableAck = 0x13,
    /// As a NAK, in the reliable service: a message arrived too late to be delivered, and its
    /// sender must recall the scattering.
    ReliableNak = 0x14,
    /// As a probe, in the reliable service. Never makes the receiver reject packets.
    ReliableProbe = 0x15,
    /// As a connect, in the reliable service.
    ReliableConnect = 0x17,
    /// As a grant, in the reliable service.
    ReliableGrant = 0x18,
    /// As a reset, in the reliable service.
    ReliableReset = 0x19,
    /// Recalls scatterings: see [`crate::Recall`].
    Recall = 0x1a,
    /// Acknowledges a recall with the same body.
    RecallAck = 0x1b,
    /// Acknowledgements of several processes: see [`crate::AckBundle`].
    ReliableAckBundle = 0x1c,
    /// As shared data, in the reliable service.
    ReliableSharedData = 0x1d,
    /// Announces a node's links to the controllers: see [`crate::Announce`].
    Announce = 0x20,
    /// An update that is flooded to all nodes, one hop at a time: see [`crate::Flood`].
    Flood = 0x21,
    /// All nodes behind the sender have processed a flood; one hop: see [`crate::FloodAck`].
    FloodAck = 0x22,
    /// The body of a flood, from the controller to one process.
    Notice = 0x23,
    /// The body of a flood acknowledgement, from one process to the controller.
    Completed = 0x24,
    /// A frame that could not be delivered, for the controller to relay. Its payload is a frame.
    Relay = 0x25,
    /// A frame relayed by the controller. Its payload is a frame.
    Relayed = 0x26,
    /// The controller probes whether a process is alive. No payload.
    Ping = 0x27,
    /// Answers a ping. No payload.
    Pong = 0x28,
    /// Recalls that could not be delivered, for the controllers to record: see
    /// [`crate::Undeliverable`].
    Undeliverable = 0x29,
    /// Acknowledges the undeliverable recalls with the same PSN. No payload.
    UndeliverableAck = 0x2a,
    /// An excluded process asks for everything that happened since its exclusion. The PSN is the
    /// requested part of the answer. No payload.
    Recover = 0x2b,
    /// Answers a recover: see [`crate::Recovery`].
    Recovery = 0x2c,
    /// The active controller has recorded an announcement. No payload; the promise is the
    /// controller's clock.
    AnnounceAck = 0x2d,
    /// Advertises a controller on its link, over one hop. No payload.
    Hello = 0x2e,
    /// Advertises the address at which a process is reachable directly: see [`crate::AddressAd`].
    AddressAd = 0x2f,
    /// Which processes are reached through the sender, or an acknowledgement of that; one hop only:
    /// see [`crate::Members`].
    Members = 0x30,
    /// A client asks the leader of a group to order a message: see [`crate::Amcast`], as for all
    /// opcodes of agreed multicast.
    Start = 0x40,
    /// A leader proposes a timestamp of its group for the message that the frame carries.
    Prop = 0x41,
    /// A member acknowledges a proposal, or reports its clock.
    AmcastAck = 0x42,
    /// A member reports the final timestamp of a message, or up to which time the order is final.
    Deliver = 0x43,
    /// A leader has no capacity for a message now.
    Busy = 0x44,
    /// A node requests packets that it has missed.
    Gap = 0x45,
    /// A member promises not to follow any earlier epoch.
    AmcastPromise = 0x46,
    /// Names the present or prospective leader of a group.
    NewLeader = 0x47,
    /// A piece of a block: see [`crate::BulkPiece`].
    BulkPiece = 0x60,
    /// Progress of a member, and the blocks it is ready to take: see [`crate::BulkState`].
    BulkState = 0x61,
    /// Acknowledges the frames of a link: see [`crate::BulkAck`]. Has no sequence number itself.
    BulkAck = 0x62,
    /// Members that have failed: see [`crate::BulkFailures`].
    BulkFailures = 0x63,
    /// The blocks that a member holds: see [`crate::BulkHave`].
    BulkHave = 0x64,
    /// A member asks for a block: see [`crate::BulkWant`].
    BulkWant = 0x65,
    /// The requester is not a member: see [`crate::BulkRefused`]. Has no sequence number.
    BulkRefused = 0x66,
    /// A control packet between an endpoint and an arbiter, in either direction: see
    /// [`crate::Fcp`].
    Fcp = 0x80,
    /// Packets sent in the timeslot and on the path granted by an arbiter: see [`crate::Slot`].
    Slot = 0x81,
    /// Heartbeat of an arbiter: see [`crate::Watchdog`].
    Watchdog = 0x82,
    /// Packets that were sent in their timeslots and lost, by path: see [`crate::Drops`].
    Drops = 0x83,
    /// Foreign traffic that shares the fabric; its payload is opaque.
    Foreign = 0xf0,
}

impl Opcode {
    /// Returns whether a switch consumes this frame instead of forwarding it.
    pub const fn is_hop_only(self) -> bool {
        matches!(
            self,
            Self::Beacon
                | Self::Solicit
                | Self::Join
                | Self::JoinAnswer
                | Self::Leave
                | Self::LeaveAck
                | Self::Flood
                | Self::FloodAck
                | Self::Hello
                | Self::Members
        )
    }

    /// Returns whether the frame is a beacon, which may be marked as [`crate::Flags::UNFED`]: a
    /// solicit is one as well.
    pub const fn is_beacon(self) -> bool {
        matches!(self, Self::Beacon | Self::Solicit)
    }

    /// Returns whether the frame belongs to the controller, agreed or bulk multicast, scheduled
    /// transfer or foreign traffic, and not to ordered scattering: its promises do not count, and
    /// it makes no link live (docs/design/failure.md, "Where is the controller?").
    pub const fn is_control(self) -> bool {
        matches!(self as u8 & 0xf0, 0x20 | 0x40 | 0x60 | 0x80 | 0xf0)
    }

    /// Returns whether the frame belongs to agreed multicast.
    pub const fn is_amcast(self) -> bool {
        self as u8 & 0xf0 == Self::Start as u8
    }

    /// Returns whether the frame belongs to bulk multicast.
    pub const fn is_bulk(self) -> bool {
        self as u8 & 0xf0 == Self::BulkPiece as u8
    }

    /// Returns whether the frame follows one path, as data does, although it
    /// [is control][Self::is_control]: because a lost one is not repeated, or its order matters.
    pub const fn is_path_pinned(self) -> bool {
        matches!(self, Self::Slot | Self::Foreign) || self.is_bulk()
    }

    /// Returns the service of ordered scattering that the frame belongs to, if any.
    pub const fn service(self) -> Option<Service> {
        match self as u8 & 0xf0 {
            0x00 if !self.is_hop_only() => Some(Service::BestEffort),
            0x10 => Some(Service::Reliable),
            _ => None,
        }
    }

    /// Returns the best-effort opcode with the same meaning, so that one handler serves both
    /// services.
    #[inline]
    #[must_use]
    pub const fn in_best_effort(self) -> Self {
        match self {
            Self::ReliableData => Self::Data,
            Self::ReliableFragment => Self::Fragment,
            Self::ReliableAck => Self::Ack,
            Self::ReliableNak => Self::Nak,
            Self::ReliableProbe => Self::Probe,
            Self::ReliableConnect => Self::Connect,
            Self::ReliableGrant => Self::Grant,
            Self::ReliableReset => Self::Reset,
            Self::ReliableSharedData => Self::SharedData,
            other => other,
        }
    }

    /// Returns the opcode with the same meaning in `service`: see [`Opcode::in_best_effort`].
    #[inline]
    #[must_use]
    pub const fn in_service(self, service: Service) -> Self {
        match (service, self) {
            (Service::BestEffort, other) => other,
            (_, Self::Data) => Self::ReliableData,
            (_, Self::Fragment) => Self::ReliableFragment,
            (_, Self::Ack) => Self::ReliableAck,
            (_, Self::Nak) => Self::ReliableNak,
            (_, Self::Probe) => Self::ReliableProbe,
            (_, Self::Connect) => Self::ReliableConnect,
            (_, Self::Grant) => Self::ReliableGrant,
            (_, Self::Reset) => Self::ReliableReset,
            (_, Self::SharedData) => Self::ReliableSharedData,
            (_, other) => other,
        }
    }

    /// Returns whether the frame carries messages, and so a PSN and a message timestamp of its own.
    pub const fn has_messages(self) -> bool {
        matches!(self.in_best_effort(), Self::Data | Self::Fragment | Self::SharedData)
    }

    /// Returns whether the frame lists its receivers, and switches replicate it.
    #[inline]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::SharedData | Self::ReliableSharedData | Self::ReliableAckBundle)
    }
}

/// The two services of ordered scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// At most once; a loss is reported.
    BestEffort,
    /// Delivered by all correct receivers or none.
    Reliable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reliable_opcodes_are_best_effort_plus_sixteen() {
        for opcode in Opcode::ALL.iter().copied() {
            if opcode.service() != Some(Service::Reliable) {
                continue;
            }
            let best_effort = opcode.in_best_effort();
            if matches!(opcode, Opcode::Recall | Opcode::RecallAck | Opcode::ReliableAckBundle) {
                assert_eq!(best_effort, opcode);
                continue;
            }
            assert_eq!(best_effort as u8 + 0x10, opcode as u8);
            assert_eq!(best_effort.in_service(Service::Reliable), opcode);
            assert_eq!(best_effort.in_service(Service::BestEffort), best_effort);
            assert_eq!(best_effort.service(), Some(Service::BestEffort));
        }
        assert_eq!((Opcode::Beacon.service(), Opcode::Flood.service()), (None, None));
        assert!(Opcode::Announce.is_control() && !Opcode::Recall.is_control());
        assert!(Opcode::Fcp.is_control() && Opcode::Slot.is_control());
        assert!(Opcode::Slot.is_path_pinned() && !Opcode::Fcp.is_path_pinned());
        assert!(Opcode::BulkPiece.is_control() && Opcode::BulkAck.is_path_pinned());
    }
}
