//! What a client asks of the device.

use alloc::vec::Vec;

/// Number of a request within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub(crate) u64);

/// A request that the device executes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Identifies the request in its reply.
    pub id: RequestId,
    /// What to do.
    pub command: Command,
}

/// A part of the device: not empty, and within its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// An operation on the device. Commands of several requests may be executed in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Returns the bytes of a range.
    Read(Range),
    /// Writes bytes.
    Write {
        /// First byte to write.
        offset: u64,
        /// The bytes: not empty.
        data: Vec<u8>,
        /// Whether the bytes are durable before the reply (forced unit access, FUA).
        is_durable: bool,
    },
    /// Makes the writes durable whose replies were sent before; also those of other connections, if
    /// the export says so.
    Flush,
    /// Discards the content of a range, of which nothing is known afterwards.
    Trim {
        /// What to discard.
        range: Range,
        /// Whether the change is durable before the reply.
        is_durable: bool,
    },
    /// Writes zeroes.
    WriteZeroes {
        /// What becomes zero.
        range: Range,
        /// Whether the zeroes are durable before the reply.
        is_durable: bool,
        /// Whether the range may lose the storage allocated to it.
        may_deallocate: bool,
        /// Whether to fail with `NotSupported` unless this is faster than a write.
        must_be_fast: bool,
    },
    /// Prepares for a later read of a range.
    Cache(Range),
    /// Returns which parts of a range have storage: at least one extent from its beginning on.
    Status(Range),
}

/// Consecutive bytes of the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Number of bytes, at least 1.
    pub length: u32,
    /// Whether the bytes have storage, so that a write needs no free space.
    pub is_allocated: bool,
    /// Whether the bytes are known to be zero.
    pub is_zero: bool,
}

/// What a complete command returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing, of all other commands.
    Done,
    /// The bytes of a read.
    Data(Vec<u8>),
    /// The extents of a status, which end at most where its range ends.
    Extents(Vec<Extent>),
}
