//! Recalls of scatterings.

use onepipe_base::{Incarnation, ProcessId, Timestamp};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;
use crate::announce::expand;

/// Length of a recall entry.
pub const RECALL_LEN: usize = 8;
/// Length of an [`Undeliverable`] entry.
pub const UNDELIVERABLE_LEN: usize = 16;

/// Timestamps of scatterings of the frame's source that the receiver must not deliver; in an
/// acknowledgement, of scatterings of the receiver that the source will not deliver.
#[derive(Clone, Copy, Debug)]
pub struct Recall<'a> {
    timestamps: &'a [U64],
}

impl<'a> Recall<'a> {
    /// Writes as many of `timestamps` as fit. Returns their length.
    pub fn write(buf: &mut [u8], timestamps: impl Iterator<Item = Timestamp>) -> usize {
        let mut bytes = 0;
        for (slot, timestamp) in buf.chunks_exact_mut(RECALL_LEN).zip(timestamps) {
            slot.copy_from_slice(&timestamp.to_wire().bits().to_be_bytes());
            bytes += RECALL_LEN;
        }
        bytes
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Recall`] or
    /// [`crate::Opcode::RecallAck`].
    ///
    /// # Errors
    /// If it does not consist of whole entries, or is empty.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        match <[U64]>::ref_from_bytes(payload) {
            Ok(timestamps) if !timestamps.is_empty() => Ok(Self { timestamps }),
            _ => Err(DecodeError::Field { field: "length of recall", value: payload.len() as u64 }),
        }
    }

    /// Returns the timestamps, expanded against `near`.
    pub fn timestamps(&self, near: Timestamp) -> impl ExactSizeIterator<Item = Timestamp> + 'a {
        self.timestamps.iter().map(move |bits| expand(bits.get(), near))
    }
}

/// A recall that could not be delivered because its receiver has failed. The controllers store it
/// until the receiver recovers (1Pipe section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Undeliverable {
    /// The receiver of the recall.
    pub to: ProcessId,
    /// The incarnation of the receiver; 0 if unknown, which stands for every incarnation.
    pub incarnation: Incarnation,
    /// The scattering's timestamp; its sender is the frame's source.
    pub timestamp: Timestamp,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    to: U32,
    incarnation: U32,
    timestamp: U64,
}

const _: () = assert!(size_of::<Layout>() == UNDELIVERABLE_LEN);

impl Undeliverable {
    /// Writes as many of `entries` as fit. Returns their length.
    pub fn write(buf: &mut [u8], entries: impl Iterator<Item = Self>) -> usize {
        let mut bytes = 0;
        for (slot, entry) in buf.chunks_exact_mut(UNDELIVERABLE_LEN).zip(entries) {
            let layout = Layout {
                to: U32::new(entry.to.0),
                incarnation: U32::new(entry.incarnation.0),
                timestamp: U64::new(entry.timestamp.to_wire().bits()),
            };
            slot.copy_from_slice(layout.as_bytes());
            bytes += UNDELIVERABLE_LEN;
        }
        bytes
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::Undeliverable`], its timestamps
    /// expanded against `near`.
    ///
    /// # Errors
    /// If it does not consist of whole entries, or is empty.
    pub fn parse(
        payload: &[u8],
        near: Timestamp,
    ) -> Result<impl ExactSizeIterator<Item = Self> + '_, DecodeError> {
        let value = payload.len() as u64;
        let layouts = <[Layout]>::ref_from_bytes(payload).ok().filter(|all| !all.is_empty());
        let layouts = layouts
            .ok_or(DecodeError::Field { field: "length of undeliverable recalls", value })?;
        Ok(layouts.iter().map(move |layout| Self {
            to: ProcessId(layout.to.get()),
            incarnation: Incarnation(layout.incarnation.get()),
            timestamp: expand(layout.timestamp.get(), near),
        }))
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn recall_writes_as_many_timestamps_as_fit() {
        let stamps = [(1 << 48) - 1, (1 << 48) + 3, 1 << 48].map(Timestamp::from_ns);
        let mut buf = [0; 2 * RECALL_LEN + 7];
        let bytes = Recall::write(&mut buf, stamps.into_iter());
        assert_eq!(bytes, 2 * RECALL_LEN);
        let recall = Recall::parse(&buf[..bytes]).expect("just written");
        let near = Timestamp::from_ns(1 << 48);
        assert_eq!(recall.timestamps(near).collect::<Vec<_>>(), stamps[..2]);
        assert!(Recall::parse(&buf[..bytes - 1]).is_err() && Recall::parse(&[]).is_err());
    }

    #[test]
    fn undeliverable_recalls_round_trip() {
        let entries = [3, 4].map(|to| Undeliverable {
            to: ProcessId(to),
            incarnation: Incarnation(to + 1),
            timestamp: Timestamp::from_ns(u64::from(to) << 40),
        });
        let mut buf = [0; 40];
        let bytes = Undeliverable::write(&mut buf, entries.into_iter());
        let near = Timestamp::from_ns(1 << 41);
        let read = Undeliverable::parse(&buf[..bytes], near).expect("just written");
        assert_eq!(read.collect::<Vec<_>>(), entries);
        assert!(Undeliverable::parse(&buf[..bytes - 1], near).is_err());
        assert!(Undeliverable::parse(&[], near).is_err());
    }
}
