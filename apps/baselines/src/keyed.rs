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

    /// Appends the values that a part reads, as they are now. Nothing, if the results of a part
    /// exist only after its execution.
    ///
    /// A part that returns nothing may be executed by [`Protocol::Farm`](crate::Protocol::Farm)
    /// only if what it writes and returns does not depend on rows that it does not write, or on
    /// columns of them that no transaction writes: these rows are validated, and not locked.
    fn read_values(&self, part: &[u8], results: &mut Vec<u8>);
}
