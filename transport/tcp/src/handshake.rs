//! The handshake of a connection, and the messages of members before a group runs.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The first bytes of each handshake message; the last one is the version.
const MAGIC: [u8; 4] = [b'1', b'p', b'b', 1];
/// Length of a handshake message.
pub(crate) const HANDSHAKE_LEN: usize = 24;

/// The kind of a handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeKind {
    /// Opens a member's connection to another one.
    Member,
    /// Opens a connection for the application's own protocol.
    App,
    /// The sender has connected to all members.
    Ready,
    /// The sender cannot reach the member `to`.
    Unreachable,
    /// All members have connected to all: the group starts.
    Start,
    /// A value that members exchange; it stands in `to`.
    Value,
    /// Queries the state of a group.
    StateQuery,
    /// Reports the state of a group, which stands in `to`.
    StateReply,
}

/// A handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// The kind of the message.
    pub kind: HandshakeKind,
    /// The group.
    pub group: u64,
    /// The sender's rank in the group.
    pub from: u32,
    /// The receiver's rank, or the value of the message.
    pub to: u32,
}

impl Handshake {
    pub(crate) fn bytes(self) -> [u8; HANDSHAKE_LEN] {
        let mut bytes = [0; HANDSHAKE_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.kind {
            HandshakeKind::Member => 1,
            HandshakeKind::App => 2,
            HandshakeKind::Ready => 3,
            HandshakeKind::Unreachable => 4,
            HandshakeKind::Start => 5,
            HandshakeKind::Value => 6,
            HandshakeKind::StateQuery => 7,
            HandshakeKind::StateReply => 8,
        };
        bytes[8..16].copy_from_slice(&self.group.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.from.to_be_bytes());
        bytes[20..].copy_from_slice(&self.to.to_be_bytes());
        bytes
    }

    /// Parses a message; `None` for malformed bytes.
    pub(crate) fn parse(bytes: &[u8; HANDSHAKE_LEN]) -> Option<Self> {
        let kind = match bytes[4] {
            1 => HandshakeKind::Member,
            2 => HandshakeKind::App,
            3 => HandshakeKind::Ready,
            4 => HandshakeKind::Unreachable,
            5 => HandshakeKind::Start,
            6 => HandshakeKind::Value,
            7 => HandshakeKind::StateQuery,
            8 => HandshakeKind::StateReply,
            _ => return None,
        };
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let (high, low) = (u32::from_be_bytes(word(8)), u32::from_be_bytes(word(12)));
        (bytes[..4] == MAGIC).then(|| Self {
            kind,
            group: u64::from(high) << 32 | u64::from(low),
            from: u32::from_be_bytes(word(16)),
            to: u32::from_be_bytes(word(20)),
        })
    }

    /// Sends the message on a blocking stream.
    ///
    /// # Errors
    /// The system's.
    pub fn send(self, mut stream: &TcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes())
    }

    /// Receives the next message on a blocking stream.
    pub(crate) fn recv(mut stream: &TcpStream) -> io::Result<Self> {
        let mut bytes = [0; HANDSHAKE_LEN];
        stream.read_exact(&mut bytes)?;
        Self::parse(&bytes).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "malformed handshake: the peer is not a member of a bulk group",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_round_trip_and_others_are_rejected() {
        let before = [
            HandshakeKind::Ready,
            HandshakeKind::Unreachable,
            HandshakeKind::Start,
            HandshakeKind::Value,
        ];
        for kind in [
            HandshakeKind::Member,
            HandshakeKind::App,
            HandshakeKind::StateQuery,
            HandshakeKind::StateReply,
        ]
        .into_iter()
        .chain(before)
        {
            let handshake = Handshake { kind, group: 0x0102_0304_0506_0708, from: 9, to: 10 };
            let bytes = handshake.bytes();
            assert_eq!(Handshake::parse(&bytes), Some(handshake));
            for at in 0..5 {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                assert_eq!(Handshake::parse(&wrong), None, "{at}");
            }
        }
    }
}
