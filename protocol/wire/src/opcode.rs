//! What a frame is for.

use crate::DecodeError;

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// The kind of a frame.
        ///
        /// Ranges are set aside so that later services find their place: `0x10..` the reliable
        /// service (data, commit, recall), `0x20..` the controller, `0x40..` agreed multicast,
        /// `0x60..` bulk multicast, `0x80..` scheduled transfer.
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
            /// Every opcode of this version.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

opcodes! {
    /// Whole messages of the best-effort service, coalesced: see [`crate::Messages`].
    Data = 0x01,
    /// One piece of a message that does not fit a frame: see [`crate::Fragment`].
    Fragment = 0x02,
    /// What the receiver has, and its window: see [`crate::Ack`].
    Ack = 0x03,
    /// The same body as an ACK, sent at once because it reports a packet that will never be
    /// delivered.
    Nak = 0x04,
    /// Asks the receiver to settle packets: see [`crate::Probe`].
    Probe = 0x05,
    /// Barriers and nothing else, one hop only. No payload.
    Beacon = 0x06,
    /// Opens a connection or asks for room for a large message: see [`crate::Connect`].
    Connect = 0x07,
    /// Answers a connect: the same body as an ACK, with the window that is granted.
    Grant = 0x08,
    /// The receiver knows no such connection: the sender must open it anew. No payload.
    Reset = 0x09,
    /// A process announces itself on its link, one hop only. No payload.
    Join = 0x0a,
    /// A process takes itself off its link, one hop only. No payload.
    Leave = 0x0b,
    /// As data, of the reliable service: the prepare phase of its messages.
    ReliableData = 0x11,
    /// As a fragment, of the reliable service.
    ReliableFragment = 0x12,
    /// As an ACK, of the reliable service.
    ReliableAck = 0x13,
    /// As a NAK, of the reliable service: a message came too late to be delivered, and its sender
    /// must recall the scattering.
    ReliableNak = 0x14,
    /// As a probe, of the reliable service. It settles and asks, and never fences.
    ReliableProbe = 0x15,
    /// As a connect, of the reliable service.
    ReliableConnect = 0x17,
    /// As a grant, of the reliable service.
    ReliableGrant = 0x18,
    /// As a reset, of the reliable service.
    ReliableReset = 0x19,
    /// The sender takes scatterings back: see [`crate::Recall`].
    Recall = 0x1a,
    /// They are taken back: the same body as the recall.
    RecallAck = 0x1b,
    /// A node tells the controllers of its links: see [`crate::Announce`].
    Announce = 0x20,
    /// News on its way through all nodes, one hop at a time: see [`crate::Flood`].
    Flood = 0x21,
    /// Everybody behind the sender has done what a wave asks, one hop: see [`crate::FloodAck`].
    FloodAck = 0x22,
    /// The same body as a wave, from the controller to one process.
    Notice = 0x23,
    /// The same body as an echo, from one process to the controller.
    Completed = 0x24,
    /// A frame that could not be delivered, for the controller to hand on. Its payload is a frame.
    Relay = 0x25,
    /// A frame that the controller hands on. Its payload is a frame.
    Relayed = 0x26,
    /// The controller asks for a sign of life. No payload.
    Ping = 0x27,
    /// A sign of life. No payload.
    Pong = 0x28,
    /// Recalls that could not be delivered, for the controllers to record:
    /// see [`crate::Undeliverable`].
    Undeliverable = 0x29,
    /// They are recorded. Bears the PSN of what it answers. No payload.
    UndeliverableAck = 0x2a,
    /// A process that was excluded asks for what has happened since. The PSN is the part of the
    /// answer asked for. No payload.
    Recover = 0x2b,
    /// The answer to it: see [`crate::Recovery`].
    Recovery = 0x2c,
    /// The active controller has taken note of an announcement. No payload; the promise is its
    /// clock's.
    AnnounceAck = 0x2d,
    /// A controller says that it sits on this link, one hop. No payload.
    Hello = 0x2e,
    /// A process tells another one where it can be reached directly: see [`crate::AddressAd`].
    AddressAd = 0x2f,
    /// A client asks the leader of a group to order a message: see [`crate::Amcast`], as for the
    /// others of agreed multicast.
    Start = 0x40,
    /// A leader proposes a timestamp of its group for a message, which it bears.
    Prop = 0x41,
    /// A member has taken a proposal, or tells its clock.
    AmcastAck = 0x42,
    /// A member tells a final timestamp, or up to where the order is settled.
    Deliver = 0x43,
    /// A leader has no room for a message now.
    Busy = 0x44,
    /// Somebody asks for what it has missed.
    Gap = 0x45,
    /// A member follows nobody of an earlier epoch any more.
    AmcastPromise = 0x46,
    /// Who leads a group, or is about to.
    NewLeader = 0x47,
    /// A piece of a block: see [`crate::BulkPiece`].
    BulkPiece = 0x60,
    /// How far a member is, and which blocks it is ready to take: see [`crate::BulkState`].
    BulkState = 0x61,
    /// Which frames have come over a link: see [`crate::BulkAck`]. Not numbered itself.
    BulkAck = 0x62,
    /// Members that have failed: see [`crate::BulkFailures`].
    BulkFailures = 0x63,
    /// Which blocks a member holds: see [`crate::BulkHave`].
    BulkHave = 0x64,
    /// A member asks for a block: see [`crate::BulkWant`].
    BulkWant = 0x65,
    /// Whoever asked is no member: see [`crate::BulkRefused`]. Not numbered.
    BulkRefused = 0x66,
    /// A control packet between an endpoint and an arbiter, either way: see [`crate::Fcp`].
    Fcp = 0x80,
    /// A packet in the timeslot and on the path that an arbiter has granted: see [`crate::Slot`].
    Slot = 0x81,
    /// An arbiter that is alive, and which: see [`crate::Watchdog`].
    Watchdog = 0x82,
    /// Packets that were sent in their timeslots and lost, by path: see [`crate::Drops`].
    Drops = 0x83,
    /// Whatever else shares the fabric; its payload is its own affair.
    Foreign = 0xf0,
}

impl Opcode {
    /// Whether a switch consumes this frame instead of forwarding it.
    pub const fn is_hop_only(self) -> bool {
        matches!(
            self,
            Self::Beacon | Self::Join | Self::Leave | Self::Flood | Self::FloodAck | Self::Hello
        )
    }

    /// Whether the frame speaks of links, belongs to agreed or bulk multicast or to scheduled
    /// transfer, or is foreign, and not of messages of the fabric's order: its promises count
    /// nowhere, and no link is made live by it (design: failure.md, "Where is the controller?").
    pub const fn is_control(self) -> bool {
        matches!(self as u8 & 0xf0, 0x20 | 0x40 | 0x60 | 0x80 | 0xf0)
    }

    /// Whether the frame belongs to bulk multicast.
    pub const fn is_bulk(self) -> bool {
        self as u8 & 0xf0 == Self::BulkPiece as u8
    }

    /// Whether what is lost is not said again, or counts on its order: it goes one way as other
    /// packets do, though it [is control][Self::is_control].
    pub const fn is_path_pinned(self) -> bool {
        matches!(self, Self::Slot | Self::Foreign) || self.is_bulk()
    }

    /// Which of the two services the frame belongs to, if to one.
    pub const fn service(self) -> Option<Service> {
        match self as u8 & 0xf0 {
            0x00 if !self.is_hop_only() => Some(Service::BestEffort),
            0x10 => Some(Service::Reliable),
            _ => None,
        }
    }

    /// The best-effort opcode of the same meaning: the stages of both services share their code.
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
            other => other,
        }
    }

    /// The opcode of the same meaning in `service`: see [`Opcode::in_best_effort`].
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
            (_, other) => other,
        }
    }

    /// Whether the frame carries messages: it has a PSN and a message timestamp of its own.
    pub const fn has_messages(self) -> bool {
        matches!(self.in_best_effort(), Self::Data | Self::Fragment)
    }
}

/// One of the two services of ordered scattering (design: ordering.md section 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// At most once; a loss is reported.
    BestEffort,
    /// All correct receivers or none.
    Reliable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_have_the_same_opcodes_sixteen_apart() {
        for opcode in Opcode::ALL.iter().copied() {
            if opcode.service() != Some(Service::Reliable) {
                continue;
            }
            let twin = opcode.in_best_effort();
            if matches!(opcode, Opcode::Recall | Opcode::RecallAck) {
                assert_eq!(twin, opcode);
                continue;
            }
            assert_eq!(twin as u8 + 0x10, opcode as u8);
            assert_eq!(twin.in_service(Service::Reliable), opcode);
            assert_eq!(twin.in_service(Service::BestEffort), twin);
            assert_eq!(twin.service(), Some(Service::BestEffort));
        }
        assert_eq!((Opcode::Beacon.service(), Opcode::Flood.service()), (None, None));
        assert!(Opcode::Announce.is_control() && !Opcode::Recall.is_control());
        assert!(Opcode::Fcp.is_control() && Opcode::Slot.is_control());
        assert!(Opcode::Slot.is_path_pinned() && !Opcode::Fcp.is_path_pinned());
        assert!(Opcode::BulkPiece.is_control() && Opcode::BulkAck.is_path_pinned());
    }
}
