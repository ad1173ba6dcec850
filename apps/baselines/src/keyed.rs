//! What an application says about its parts of transactions.

use alloc::vec::Vec;

use onepipe_transaction::State;

/// The use of a row by a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyUse {
    /// The row, unique in its shard.
    pub key: u64,
    /// Whether the part writes the row; it may read it in any case.
    pub is_write: bool,
}

/// The state of a shard that consists of rows with keys, which are locked and have versions.
pub trait Keyed: State {
    /// Returns whether a part reads, and whether it writes.
    fn uses(part: &[u8]) -> (bool, bool);

    /// Returns the rows that a part uses, each once. Equal parts use equal rows at any time.
    fn keys(&self, part: &[u8]) -> Vec<KeyUse>;

    /// Appends the values that a part reads, as they are now; nothing if the results of the part
    /// exist only after its execution.
    ///
    /// In the latter case [`Protocol::Farm`](crate::Protocol::Farm) is correct only for parts that
    /// use, of the rows that they do not write, those columns alone that no transaction writes:
    /// FaRM validates such rows, and does not lock them.
    fn read_values(&self, part: &[u8], results: &mut Vec<u8>);
}
