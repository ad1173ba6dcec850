//! What an entry of the log changes.

use onepipe_transaction::{Reader, Writer};

/// Length of a block in bytes: the unit of writes and of checksums.
pub const BLOCK_LEN: usize = 4_096;
/// Bytes of an encoded write beside its data.
pub const CHANGE_OVERHEAD: usize = 1 + 8 + 4;

const WRITE: u8 = 1;
const ZERO: u8 = 2;

/// A change of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change<'a> {
    /// Writes bytes: one or more blocks.
    Write {
        /// The first block.
        first: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// Makes blocks zero: a write of zeroes, or a trim. A trimmed block is zero so that all
    /// replicas have the same.
    Zero {
        /// The first block.
        first: u64,
        /// Number of blocks.
        count: u64,
    },
}

/// Why an entry is no change of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The bytes are no encoded change.
    #[error("the entry is no change of a block device")]
    Malformed,
    /// The change goes beyond the device.
    #[error("{count} blocks from block {first} on go beyond a device of {blocks} blocks")]
    OutOfBounds {
        /// The first block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Number of blocks of the device.
        blocks: u64,
    },
}

impl<'a> Change<'a> {
    /// Returns the encoded change.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match self {
            Change::Write { first, data } => {
                writer.u8(WRITE);
                writer.u64(*first);
                writer.bytes(data);
            }
            Change::Zero { first, count } => {
                writer.u8(ZERO);
                writer.u64(*first);
                writer.u64(*count);
            }
        }
        bytes
    }

    /// Parses a change of a device of `blocks` blocks.
    ///
    /// # Errors
    /// If the bytes are no change, or it goes beyond the device.
    pub fn parse(bytes: &'a [u8], blocks: u64) -> Result<Change<'a>, ChangeError> {
        let change = Change::decode(bytes).ok_or(ChangeError::Malformed)?;
        let (first, count) = change.range();
        match first.checked_add(count) {
            Some(end) if end <= blocks => Ok(change),
            _ => Err(ChangeError::OutOfBounds { first, count, blocks }),
        }
    }

    fn decode(bytes: &'a [u8]) -> Option<Change<'a>> {
        let mut reader = Reader(bytes);
        let change = match reader.u8()? {
            WRITE => Change::Write { first: reader.u64()?, data: reader.bytes()? },
            ZERO => Change::Zero { first: reader.u64()?, count: reader.u64()? },
            _ => return None,
        };
        let is_whole = match change {
            Change::Write { data, .. } => !data.is_empty() && data.len().is_multiple_of(BLOCK_LEN),
            Change::Zero { count, .. } => count > 0,
        };
        (is_whole && reader.is_at_end()).then_some(change)
    }

    /// Returns the first block and the number of blocks.
    pub fn range(&self) -> (u64, u64) {
        match self {
            Change::Write { first, data } => (*first, (data.len() / BLOCK_LEN) as u64),
            Change::Zero { first, count } => (*first, *count),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoding_is_read_back(first in any::<u64>(), count in 1..3_u64, is_write: bool) {
            let data = vec![1; count as usize * BLOCK_LEN];
            let change = match is_write {
                true => Change::Write { first, data: &data },
                false => Change::Zero { first, count },
            };
            let bytes = change.to_bytes();
            let fits = first.checked_add(count).is_some();
            prop_assert_eq!(Change::parse(&bytes, u64::MAX).is_ok(), fits);
            prop_assert_eq!(Change::decode(&bytes), Some(change));
            // A shorter or a longer entry is none.
            prop_assert_eq!(Change::decode(&bytes[..bytes.len() - 1]), None);
            let longer = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Change::decode(&longer), None);
        }

        #[test]
        fn arbitrary_bytes_are_no_panic(bytes: Vec<u8>, blocks: u64) {
            if let Ok(change) = Change::parse(&bytes, blocks) {
                let (first, count) = change.range();
                prop_assert!(count > 0 && first + count <= blocks);
            }
        }
    }

    #[test]
    fn change_beyond_the_device_is_refused() {
        let change = Change::Write { first: 7, data: &[0; 2 * BLOCK_LEN] };
        let error = ChangeError::OutOfBounds { first: 7, count: 2, blocks: 8 };
        assert_eq!(Change::parse(&change.to_bytes(), 8), Err(error));
        assert_eq!(Change::parse(&change.to_bytes(), 9), Ok(change));
        let overhead = change.to_bytes().len() - 2 * BLOCK_LEN;
        assert_eq!(overhead, CHANGE_OVERHEAD);
    }

    #[test]
    fn part_of_a_block_is_refused() {
        let change = Change::Write { first: 0, data: &[0; BLOCK_LEN - 1] };
        assert_eq!(Change::parse(&change.to_bytes(), 8), Err(ChangeError::Malformed));
        let nothing = Change::Zero { first: 0, count: 0 };
        assert_eq!(Change::parse(&nothing.to_bytes(), 8), Err(ChangeError::Malformed));
    }
}
