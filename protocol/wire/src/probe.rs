//! Probes: ask the receiver about unacknowledged packets.

use onepipe_base::Psn;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the payload of a probe frame.
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

/// Asks about all packets before `until`. The receiver permanently rejects the ones it does not
/// have, and answers with an ACK (or NAK): after that each packet is either delivered or failed
/// (I12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The sender knows the outcome of every packet before this one: the receiver may forget it.
    pub resolved: Psn,
    /// End (exclusive) of the packets asked about, from `resolved` on. If equal to `resolved`: a
    /// window probe.
    pub until: Psn,
    /// The last reservation request that the sender has finished with: see [`crate::Connect`].
    pub reservation_done: u32,
}

impl Probe {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
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

    /// Parses the payload of a frame with opcode [`crate::Opcode::Probe`].
    ///
    /// # Errors
    /// If the payload is too short or `until` precedes `resolved`.
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
