//! What a connection begins with, and what members say to each other before a group begins.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The first bytes of all that is said here; the last one is the version.
const MAGIC: [u8; 4] = [b'1', b'p', b'b', 1];
/// Bytes of what is said.
pub(crate) const LEN: usize = 24;

/// What somebody connects for, or says before the group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// To be a member's link to another one.
    Member,
    /// To say something that is the application's affair: the stream is handed to it.
    Guest,
    /// Has met everybody.
    Ready,
    /// Cannot meet the member `to`.
    Misses,
    /// Everybody has met everybody: the group begins.
    Go,
    /// Something that each two tell each other then: it stands in `to`.
    Word,
    /// To ask how a group stands.
    Ask,
    /// How it stands: that is in `to`.
    Stands,
}

/// Who connects, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// What for.
    pub role: Role,
    /// The group.
    pub group: u64,
    /// The caller's rank in it.
    pub from: u32,
    /// The rank of whom it wants.
    pub to: u32,
}

impl Caller {
    pub(crate) fn bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = match self.role {
            Role::Member => 1,
            Role::Guest => 2,
            Role::Ready => 3,
            Role::Misses => 4,
            Role::Go => 5,
            Role::Word => 6,
            Role::Ask => 7,
            Role::Stands => 8,
        };
        bytes[8..16].copy_from_slice(&self.group.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.from.to_be_bytes());
        bytes[20..].copy_from_slice(&self.to.to_be_bytes());
        bytes
    }

    /// `None` of anything that is no such thing.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Self> {
        let role = match bytes[4] {
            1 => Role::Member,
            2 => Role::Guest,
            3 => Role::Ready,
            4 => Role::Misses,
            5 => Role::Go,
            6 => Role::Word,
            7 => Role::Ask,
            8 => Role::Stands,
            _ => return None,
        };
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let (high, low) = (u32::from_be_bytes(word(8)), u32::from_be_bytes(word(12)));
        (bytes[..4] == MAGIC).then(|| Self {
            role,
            group: u64::from(high) << 32 | u64::from(low),
            from: u32::from_be_bytes(word(16)),
            to: u32::from_be_bytes(word(20)),
        })
    }

    /// Says it on a stream that blocks.
    ///
    /// # Errors
    /// What the system says.
    pub fn say(self, mut stream: &TcpStream) -> io::Result<()> {
        stream.write_all(&self.bytes())
    }

    /// Hears what is said next on a stream that blocks.
    pub(crate) fn hear(mut stream: &TcpStream) -> io::Result<Self> {
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
    fn what_is_said_is_heard_and_nothing_else() {
        let before = [Role::Ready, Role::Misses, Role::Go, Role::Word];
        for role in [Role::Member, Role::Guest, Role::Ask, Role::Stands].into_iter().chain(before) {
            let caller = Caller { role, group: 0x0102_0304_0506_0708, from: 9, to: 10 };
            let bytes = caller.bytes();
            assert_eq!(Caller::parse(&bytes), Some(caller));
            for at in 0..5 {
                let mut wrong = bytes;
                wrong[at] ^= 0x40;
                assert_eq!(Caller::parse(&wrong), None, "{at}");
            }
        }
    }
}
