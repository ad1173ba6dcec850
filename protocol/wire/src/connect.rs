//! Opening a connection, and asking for room.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Octets of a connect's payload.
pub const CONNECT_OCTETS: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    room_octets: U64,
    room_id: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Layout>() == CONNECT_OCTETS);

/// Opens a connection (`room_id` 0), or asks for room for one message that is larger than the
/// window. Repeated until a grant answers it; the receiver treats repetitions as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Numbers the requests for room of a connection from 1; 0 asks for none. A new number says
    /// that the sender is through with all earlier ones.
    pub room_id: u32,
    /// Octets of room that the message needs.
    pub room_octets: u64,
}

impl Connect {
    /// Writes the payload. Answers the octets used, or `None` when `room` is too small.
    pub fn write(&self, room: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            room_octets: U64::new(self.room_octets),
            room_id: U32::new(self.room_id),
            reserved: U32::ZERO,
        };
        room.get_mut(..CONNECT_OCTETS)?.copy_from_slice(layout.as_bytes());
        Some(CONNECT_OCTETS)
    }

    /// Reads the payload of a frame with opcode [`crate::Opcode::Connect`].
    ///
    /// # Errors
    /// When the payload is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (CONNECT_OCTETS, payload.len());
            return Err(DecodeError::Truncated { part: "connect", need, got });
        };
        Ok(Self { room_id: layout.room_id.get(), room_octets: layout.room_octets.get() })
    }
}
