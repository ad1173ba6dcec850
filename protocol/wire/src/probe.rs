//! A sender's question about packets whose fate it does not know.

use onepipe_base::Psn;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Bytes of a probe's payload.
pub const PROBE_LEN: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    resolved: U32,
    until: U32,
    reservation_done: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Layout>() == PROBE_LEN);

/// "What of my packets before `until`?" The receiver fences those that it does not have, for good,
/// and answers with an ACK (or NAK): after that each of them is delivered or failed, never neither
/// (I12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The sender knows the fate of every packet before this one: the receiver may forget it.
    pub resolved: Psn,
    /// Packets from `resolved` to before this one are asked about. Equal: a mere window probe.
    pub until: Psn,
    /// The last request for room that the sender is through with: see [`crate::Connect`].
    pub reservation_done: u32,
}

impl Probe {
    /// Writes the payload. Answers the bytes used, or `None` when `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            resolved: U32::new(self.resolved.0),
            until: U32::new(self.until.0),
            reservation_done: U32::new(self.reservation_done),
            reserved: U32::ZERO,
        };
        buf.get_mut(..PROBE_LEN)?.copy_from_slice(layout.as_bytes());
        Some(PROBE_LEN)
    }

    /// Reads the payload of a frame with opcode [`crate::Opcode::Probe`].
    ///
    /// # Errors
    /// When the payload is too short or the range runs backwards.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (PROBE_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "probe", need, got });
        };
        let (resolved, until) = (Psn(layout.resolved.get()), Psn(layout.until.get()));
        if until.is_before(resolved) {
            let value = u64::from(until.0);
            return Err(DecodeError::Field { field: "end of probe", value });
        }
        Ok(Self { resolved, until, reservation_done: layout.reservation_done.get() })
    }
}
