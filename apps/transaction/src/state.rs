//! What an application stores in a shard.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

/// The state of one shard: a deterministic state machine. All replicas of a shard execute the same
/// parts of transactions at the same timestamps, and have the same state after each.
///
/// A *part* holds the operations of one transaction on one shard, encoded by the application. Parts
/// come from other processes: a part that cannot be parsed has a result that says so, and changes
/// nothing.
pub trait State {
    /// Executes a part of a write at timestamp `at`, and appends its encoded results. No earlier
    /// call had a higher timestamp.
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>);

    /// Executes a part that only reads, at timestamp `at`, and appends its encoded results. They
    /// must be the same at each timestamp of the returned interval, which contains `at`, if no
    /// further write is executed. `at` is not below the timestamp of any executed write.
    fn read(&self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact;

    /// Returns a digest of the state, equal in all replicas at the same timestamp.
    fn digest(&self) -> u64;

    /// Appends the whole state, encoded.
    fn save(&self, bytes: &mut Vec<u8>);

    /// Replaces the state by an encoded one. Returns false, and leaves the state as it was, if the
    /// bytes cannot be parsed.
    fn load(&mut self, bytes: &[u8]) -> bool;
}

/// The interval of timestamps in which the results of a read are exact: the values read were
/// written at or before `from`, and change by themselves (expiry) at `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exact {
    /// First timestamp of the interval. `None` if nothing that was read was ever written.
    pub from: Option<Timestamp>,
    /// First timestamp after the interval. `None` if the values do not change by themselves.
    pub until: Option<Timestamp>,
}
