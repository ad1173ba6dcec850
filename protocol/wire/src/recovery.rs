//! Recovery: what an excluded process must know to resolve its buffered messages.

use onepipe_base::{ProcessId, Timestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::announce::expand;
use crate::flood::FailureLayout;
use crate::{DecodeError, FAILURE_LEN, Failure};

/// Length of a recovery without its entries.
pub const RECOVERY_HEADER_LEN: usize = 16;
const RECALLED_LEN: usize = 12;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    complete: U64,
    part: U16,
    parts: U16,
    failures: U16,
    recalls: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RecalledLayout {
    sender: U32,
    timestamp: U64,
}

const _: () = assert!(size_of::<Front>() == RECOVERY_HEADER_LEN);
const _: () = assert!(size_of::<RecalledLayout>() == RECALLED_LEN);

/// The header of one part of the answer to [`crate::Opcode::Recover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The answer decides the outcome of every scattering below this timestamp.
    pub complete: Timestamp,
    /// Index of this part.
    pub part: u16,
    /// Number of parts.
    pub parts: u16,
}

impl Recovery {
    /// Returns the number of recalls that fit into `bytes` of payload after `failures` failures.
    pub const fn recalls_fitting(bytes: usize, failures: usize) -> usize {
        let left = bytes.saturating_sub(RECOVERY_HEADER_LEN + failures * FAILURE_LEN);
        left / RECALLED_LEN
    }

    /// Writes the part. Returns its length, or `None` if it does not fit.
    pub fn write(
        &self,
        buf: &mut [u8],
        failures: impl ExactSizeIterator<Item = Failure>,
        recalls: impl ExactSizeIterator<Item = (ProcessId, Timestamp)>,
    ) -> Option<usize> {
        let counts = (u16::try_from(failures.len()).ok()?, u16::try_from(recalls.len()).ok()?);
        let bytes =
            RECOVERY_HEADER_LEN + failures.len() * FAILURE_LEN + recalls.len() * RECALLED_LEN;
        let buf = buf.get_mut(..bytes)?;
        let front = Front {
            complete: U64::new(self.complete.to_wire().bits()),
            part: U16::new(self.part),
            parts: U16::new(self.parts),
            failures: U16::new(counts.0),
            recalls: U16::new(counts.1),
        };
        let (header, rest) = buf.split_at_mut(RECOVERY_HEADER_LEN);
        header.copy_from_slice(front.as_bytes());
        let (failed, recalled) = rest.split_at_mut(failures.len() * FAILURE_LEN);
        for (slot, failure) in failed.chunks_exact_mut(FAILURE_LEN).zip(failures) {
            slot.copy_from_slice(FailureLayout::new(failure).as_bytes());
        }
        let slots = recalled.chunks_exact_mut(RECALLED_LEN);
        for (slot, (sender, timestamp)) in slots.zip(recalls) {
            let timestamp = U64::new(timestamp.to_wire().bits());
            let layout = RecalledLayout { sender: U32::new(sender.0), timestamp };
            slot.copy_from_slice(layout.as_bytes());
        }
        Some(bytes)
    }
}

/// A parsed recovery, with its entries borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryView<'a> {
    front: &'a Front,
    failures: &'a [FailureLayout],
    recalls: &'a [RecalledLayout],
}

impl<'a> RecoveryView<'a> {
    /// Parses the payload of a frame with opcode [`crate::Opcode::Recovery`].
    ///
    /// # Errors
    /// If it is shorter than it claims, an entry is invalid, or the part is out of range.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated =
            |need| DecodeError::Truncated { part: "recovery", need, got: payload.len() };
        let (front, rest) =
            Front::ref_from_prefix(payload).map_err(|_| truncated(RECOVERY_HEADER_LEN))?;
        let (failures, recalls) = (front.failures.get().into(), front.recalls.get().into());
        let need = RECOVERY_HEADER_LEN + failures * FAILURE_LEN + recalls * RECALLED_LEN;
        let (failures, rest) = <[FailureLayout]>::ref_from_prefix_with_elems(rest, failures)
            .map_err(|_| truncated(need))?;
        failures.iter().try_for_each(FailureLayout::check)?;
        let (recalls, _) = <[RecalledLayout]>::ref_from_prefix_with_elems(rest, recalls)
            .map_err(|_| truncated(need))?;
        if front.part.get() >= front.parts.get() {
            let value = u64::from(front.part.get());
            return Err(DecodeError::Field { field: "part of a recovery", value });
        }
        Ok(Self { front, failures, recalls })
    }

    /// Returns the header, expanded against `near`.
    pub fn recovery(&self, near: Timestamp) -> Recovery {
        Recovery {
            complete: expand(self.front.complete.get(), near),
            part: self.front.part.get(),
            parts: self.front.parts.get(),
        }
    }

    /// Returns the failures, expanded against `near`.
    pub fn failures(&self, near: Timestamp) -> impl ExactSizeIterator<Item = Failure> + 'a {
        self.failures.iter().map(move |failure| failure.read(near))
    }

    /// Returns sender and timestamp of each recalled scattering, expanded against `near`.
    pub fn recalls(
        &self,
        near: Timestamp,
    ) -> impl ExactSizeIterator<Item = (ProcessId, Timestamp)> + 'a {
        self.recalls.iter().map(move |recalled| {
            let timestamp = expand(recalled.timestamp.get(), near);
            (ProcessId(recalled.sender.get()), timestamp)
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use super::*;
    use alloc::vec::Vec;
    use onepipe_base::{Cause, Incarnation};

    #[test]
    fn recovery_part_round_trips() {
        let near = Timestamp::from_ns(1 << 50);
        let incarnation = Incarnation(1);
        let failure =
            Failure { first: ProcessId(1), count: 2, incarnation, at: near, cause: Cause::Left };
        let recalls = [(ProcessId(4), near), (ProcessId(5), near.wrapping_add_ns(9))];
        let recovery = Recovery { complete: near, part: 1, parts: 2 };
        let mut buf = [0; RECOVERY_HEADER_LEN + FAILURE_LEN + 2 * RECALLED_LEN];
        assert_eq!(Recovery::recalls_fitting(buf.len(), 1), 2);
        let bytes =
            recovery.write(&mut buf, [failure].into_iter(), recalls.into_iter()).expect("fits");
        assert_eq!(bytes, buf.len());
        let view = RecoveryView::parse(&buf).expect("just written");
        assert_eq!(view.recovery(near), recovery);
        assert_eq!(view.failures(near).collect::<Vec<_>>(), [failure]);
        assert_eq!(view.recalls(near).collect::<Vec<_>>(), recalls);
        for short in 0..bytes {
            assert!(RecoveryView::parse(&buf[..short]).is_err());
        }
        buf[9] = 2;
        assert!(RecoveryView::parse(&buf).is_err(), "part 2 of 2");
    }
}
