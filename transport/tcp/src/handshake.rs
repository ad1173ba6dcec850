//! What a connection begins with, and what members say to each other before a group begins.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The first bytes of all that is said here; the last one is the version.
const MAGIC: [u8; 4] = [b'1', b'p', b'b', 1];
/// Bytes of what is said.
pub(crate) const LEN: usize = 24;

/// What somebody connects for, or says before the group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeKind {
    /// To be a member's link to another one.
    Member,
    /// To say something that is the application's affair: the stream is handed to it.
    App,
    /// Has met everybody.
    Ready,
    /// Cannot meet the member `to`.
    Unreachable,
    /// Everybody has met everybody: the group begins.
    Start,
    /// Something that each two tell each other then: it stands in `to`.
    Value,
    /// To ask how a group stands.
    StateQuery,
    /// How it stands: that is in `to`.
    StateReply,
}

/// Who connects, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    /// What for.
    pub kind: HandshakeKind,
    /// The group.
    pub group: u64,
    /// The caller's rank in it.
    pub from: u32,
    /// The rank of whom it wants.
    pub to: u32,
}

impl Handshake {
    pub(crate) fn bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
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

    /// `None` of anything that is no such thing.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Self> {
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

    /// Says it on a stream that blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(self, mut stream: &TcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes())
    }

    /// Hears what is said next on a stream that blocks.
    pub(crate) fn recv(mut stream: &TcpStream) -> io::Result<Self> {
        let mut bytes = [0; LEN];
        stream.read_exact(&mut bytes)?;
        Self::parse(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is no such member"))
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
