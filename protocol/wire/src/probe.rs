//! A sender's question about packets whose fate it does not know.

use onepipe_base::Psn;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Octets of a probe's payload.
pub const PROBE_OCTETS: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    settled: U32,
    until: U32,
    room_done: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Layout>() == PROBE_OCTETS);

/// "What of my packets before `until`?" The receiver fences those that it does not have, for good,
/// and answers with an ACK (or NAK): after that each of them is delivered or failed, never neither
/// (I12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The sender knows the fate of every packet before this one: the receiver may forget it.
    pub settled: Psn,
    /// Packets from `settled` to before this one are asked about. Equal: a mere window probe.
    pub until: Psn,
    /// The last request for room that the sender is through with: see [`crate::Connect`].
    pub room_done: u32,
}

impl Probe {
    /// Writes the payload. Answers the octets used, or `None` when `room` is too small.
    pub fn write(&self, room: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            settled: U32::new(self.settled.0),
            until: U32::new(self.until.0),
            room_done: U32::new(self.room_done),
            reserved: U32::ZERO,
        };
        room.get_mut(..PROBE_OCTETS)?.copy_from_slice(layout.as_bytes());
        Some(PROBE_OCTETS)
    }

    /// Reads the payload of a frame with opcode [`crate::Opcode::Probe`].
    ///
    /// # Errors
    /// When the payload is too short or the range runs backwards.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (PROBE_OCTETS, payload.len());
            return Err(DecodeError::Truncated { part: "probe", need, got });
        };
        let (settled, until) = (Psn(layout.settled.get()), Psn(layout.until.get()));
        if until.is_before(settled) {
            let value = u64::from(until.0);
            return Err(DecodeError::Field { field: "end of probe", value });
        }
        Ok(Self { settled, until, room_done: layout.room_done.get() })
    }
}
