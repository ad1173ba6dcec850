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
}

impl Opcode {
    /// Whether a switch consumes this frame instead of forwarding it.
    pub const fn is_hop_only(self) -> bool {
        matches!(self, Self::Beacon | Self::Join | Self::Leave)
    }

    /// Whether the frame carries messages: it has a PSN and a message timestamp of its own.
    pub const fn has_messages(self) -> bool {
        matches!(self, Self::Data | Self::Fragment)
    }
}
