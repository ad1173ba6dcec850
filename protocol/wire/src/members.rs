//! Which processes are in the fabric, from one node to its neighbour.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Number of process ids that one frame is about.
pub const MEMBERS_PER_FRAME: u32 = 1_024;
/// Length of the payload of an acknowledgement.
pub const MEMBERS_ACK_LEN: usize = 16;
/// Length of the payload of an update.
pub const MEMBERS_UPDATE_LEN: usize = MEMBERS_ACK_LEN + MEMBERS_PER_FRAME as usize / 8;

/// A set of [`MEMBERS_PER_FRAME`] process ids from [`Members::range`] on: id `first + i` is bit
/// `i % 64` of word `i / 64`.
pub type MemberBits = [u64; MEMBERS_PER_FRAME as usize / 64];

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    range: U32,
    reserved: U32,
    version: U64,
}

const _: () = assert!(size_of::<Front>() == MEMBERS_ACK_LEN);

/// The payload of a Members frame (docs/design/join.md, "How does a process know the others?").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Members {
    /// The ids are those from `range` times [`MEMBERS_PER_FRAME`] on.
    pub range: u32,
    /// Rises with each change of this range at the sender of the update.
    pub version: u64,
    /// The processes that are reached through the sender; `None`: this acknowledges the version.
    pub bits: Option<MemberBits>,
}

impl Members {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let (range, version) = (U32::new(self.range), U64::new(self.version));
        let front = Front { range, reserved: U32::ZERO, version };
        let Some(bits) = self.bits else {
            buf.get_mut(..MEMBERS_ACK_LEN)?.copy_from_slice(front.as_bytes());
            return Some(MEMBERS_ACK_LEN);
        };
        let (to, words) = buf.get_mut(..MEMBERS_UPDATE_LEN)?.split_at_mut(MEMBERS_ACK_LEN);
        to.copy_from_slice(front.as_bytes());
        for (to, word) in words.chunks_exact_mut(8).zip(bits) {
            to.copy_from_slice(&word.to_be_bytes());
        }
        Some(MEMBERS_UPDATE_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Members`].
    ///
    /// # Errors
    /// If the payload is neither as long as an acknowledgement nor as long as an update.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let truncated = |need| DecodeError::Truncated { part: "members", need, got: payload.len() };
        let (front, words) =
            Front::ref_from_prefix(payload).map_err(|_| truncated(MEMBERS_ACK_LEN))?;
        let bits = match words.len() {
            0 => None,
            _ => {
                let (words, _) = <[U64; MEMBERS_PER_FRAME as usize / 64]>::ref_from_prefix(words)
                    .map_err(|_| truncated(MEMBERS_UPDATE_LEN))?;
                Some(words.map(U64::get))
            }
        };
        Ok(Self { range: front.range.get(), version: front.version.get(), bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_updates_are_refused() {
        let mut buf = [0; MEMBERS_UPDATE_LEN];
        let update = Members { range: 3, version: 7, bits: Some([5; 16]) };
        assert_eq!(update.write(&mut buf[1..]), None);
        assert_eq!(update.write(&mut buf), Some(MEMBERS_UPDATE_LEN));
        assert_eq!(Members::parse(&buf), Ok(update));
        for len in (0..MEMBERS_UPDATE_LEN).filter(|len| *len != MEMBERS_ACK_LEN) {
            assert!(Members::parse(&buf[..len]).is_err(), "{len}");
        }
        let ack = Members { bits: None, ..update };
        assert_eq!(Members::parse(&buf[..MEMBERS_ACK_LEN]), Ok(ack));
    }
}
