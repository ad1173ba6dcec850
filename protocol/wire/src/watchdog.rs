//! Heartbeats of arbiters, which elect the primary.

use onepipe_base::ProcessId;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of the payload of a watchdog frame.
pub const WATCHDOG_LEN: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    epoch: U32,
    primary: U32,
}

const _: () = assert!(size_of::<Layout>() == WATCHDOG_LEN);

/// Claims that `primary` allocates timeslots. The primary repeats the claim as a heartbeat; a node
/// that receives a worse claim than the best that it knows answers with the best one
/// (docs/design/arbiter.md, "How does a secondary take over without knowing what was given?").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watchdog {
    /// Rises with each change of the primary, from 1. An epoch of 0 claims nothing: an arbiter
    /// advertises itself, so that switches learn its port. The claim with the higher epoch wins,
    /// and among equal epochs the one with the higher `primary`.
    pub epoch: u32,
    /// The claimed primary.
    pub primary: ProcessId,
}

impl Watchdog {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout { epoch: U32::new(self.epoch), primary: U32::new(self.primary.0) };
        buf.get_mut(..WATCHDOG_LEN)?.copy_from_slice(layout.as_bytes());
        Some(WATCHDOG_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Watchdog`].
    ///
    /// # Errors
    /// If the payload is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (WATCHDOG_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "watchdog", need, got });
        };
        Ok(Self { epoch: layout.epoch.get(), primary: ProcessId(layout.primary.get()) })
    }
}
