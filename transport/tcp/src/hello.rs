//! What a connection begins with, and what members say to each other before a group begins.

use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The first octets of all that is said here; the last one is the version.
const MAGIC: [u8; 4] = [b'1', b'p', b'b', 1];
/// Octets of what is said.
pub(crate) const OCTETS: usize = 24;

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
    pub(crate) fn octets(self) -> [u8; OCTETS] {
        let mut octets = [0; OCTETS];
        octets[..4].copy_from_slice(&MAGIC);
        octets[4] = match self.role {
            Role::Member => 1,
            Role::Guest => 2,
            Role::Ready => 3,
            Role::Misses => 4,
            Role::Go => 5,
            Role::Word => 6,
            Role::Ask => 7,
            Role::Stands => 8,
        };
        octets[8..16].copy_from_slice(&self.group.to_be_bytes());
        octets[16..20].copy_from_slice(&self.from.to_be_bytes());
        octets[20..].copy_from_slice(&self.to.to_be_bytes());
        octets
    }

    /// `None` of anything that is no such thing.
    pub(crate) fn parse(octets: &[u8; OCTETS]) -> Option<Self> {
        let role = match octets[4] {
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
        let word = |at: usize| [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
        let (high, low) = (u32::from_be_bytes(word(8)), u32::from_be_bytes(word(12)));
        (octets[..4] == MAGIC).then(|| Self {
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
        stream.write_all(&self.octets())
    }

    /// Hears what is said next on a stream that blocks.
    pub(crate) fn hear(mut stream: &TcpStream) -> io::Result<Self> {
        let mut octets = [0; OCTETS];
        stream.read_exact(&mut octets)?;
        Self::parse(&octets)
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
            let octets = caller.octets();
            assert_eq!(Caller::parse(&octets), Some(caller));
            for at in 0..5 {
                let mut wrong = octets;
                wrong[at] ^= 0x40;
                assert_eq!(Caller::parse(&wrong), None, "{at}");
            }
        }
    }
}
