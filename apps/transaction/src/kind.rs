//! What a transaction does, and what a read guarantees.

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The transaction may write.
    Write,
    /// The transaction only reads.
    Read(ReadMode),
}

/// What a read guarantees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// Strictly serializable: the read sees every write that was complete before it began. The
    /// replicas wait for the commit barrier to pass the read's own timestamp.
    Strict,
    /// Serializable: the read sees every write of this client, and every write that the client's
    /// process may know of through the fabric. A write that it has learnt of by other means may be
    /// missed. The replicas wait for the commit barrier that the client has seen.
    Snapshot,
}
