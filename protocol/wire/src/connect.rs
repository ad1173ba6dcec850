//! Opening a connection, and reserving receive buffer for a large message.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the payload of a connect frame.
pub const CONNECT_LEN: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    reservation_bytes: U64,
    reservation_id: U32,
    ack_delay_ns: U32,
}

const _: () = assert!(size_of::<Layout>() == CONNECT_LEN);

/// Opens a connection (`reservation_id` 0), or requests a reservation for one message larger than
/// the window. Retransmitted until a grant answers it; the receiver treats repetitions as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Numbers the reservation requests of a connection from 1; 0 requests none. A new number
    /// releases all earlier reservations.
    pub reservation_id: u32,
    /// Size of the reservation in bytes.
    pub reservation_bytes: u64,
    /// For how long the receiver may delay acknowledgements on this connection, in ns.
    pub ack_delay_ns: u32,
}

impl Connect {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            reservation_bytes: U64::new(self.reservation_bytes),
            reservation_id: U32::new(self.reservation_id),
            ack_delay_ns: U32::new(self.ack_delay_ns),
        };
        buf.get_mut(..CONNECT_LEN)?.copy_from_slice(layout.as_bytes());
        Some(CONNECT_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Connect`].
    ///
    /// # Errors
    /// If the payload is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (CONNECT_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "connect", need, got });
        };
        Ok(Self {
            reservation_id: layout.reservation_id.get(),
            reservation_bytes: layout.reservation_bytes.get(),
            ack_delay_ns: layout.ack_delay_ns.get(),
        })
    }
}
