//! Which arbiter gives out timeslots.

use onepipe_base::ProcessId;
use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Bytes of a watchdog's payload.
pub const WATCHDOG_LEN: usize = 8;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    epoch: U32,
    primary: U32,
}

const _: () = assert!(size_of::<Layout>() == WATCHDOG_LEN);

/// "`primary` gives out the timeslots": said again and again by itself, and handed on by whoever
/// hears another one claim so (design: arbiter.md section 4, fail-over).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watchdog {
    /// Rises with each change of the primary, from 1 on; with 0 nothing is claimed but that
    /// `primary` is there, so that switches learn where. Of two claims the one with the higher
    /// epoch counts, and of two with the same the one with the higher `primary`.
    pub epoch: u32,
    /// The arbiter.
    pub primary: ProcessId,
}

impl Watchdog {
    /// Writes the payload. Answers the bytes used, or `None` when `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout { epoch: U32::new(self.epoch), primary: U32::new(self.primary.0) };
        buf.get_mut(..WATCHDOG_LEN)?.copy_from_slice(layout.as_bytes());
        Some(WATCHDOG_LEN)
    }

    /// Reads the payload of a frame with opcode [`crate::Opcode::Watchdog`].
    ///
    /// # Errors
    /// When the payload is too short.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((layout, _)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (WATCHDOG_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "watchdog", need, got });
        };
        Ok(Self { epoch: layout.epoch.get(), primary: ProcessId(layout.primary.get()) })
    }
}
