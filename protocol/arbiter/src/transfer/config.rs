//! Configuration, events and counters of object transfer.

use alloc::vec::Vec;

use onepipe_base::ProcessId;

use crate::client::{ClientConfig, ClientEvent};

/// Minimum memory charge of an object, in bytes: about that of its state.
pub const OBJECT_LEN_MIN: u64 = 256;

/// Configuration of a [`crate::Transfer`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransferConfig {
    /// The endpoint.
    pub client: ClientConfig,
    /// Maximum memory of incoming objects, in bytes, each charged with at least
    /// [`OBJECT_LEN_MIN`]; objects beyond are refused. Default 256 MiB.
    pub receive_bytes_max: u64,
    /// Maximum number of outgoing objects, 1 to 4096. One more is accepted for each receiver that
    /// has none, so that receivers that do not answer do not block others. At most 64 per receiver.
    /// Each takes 5 KiB and its bytes. Default 1024.
    pub objects_max: u32,
    /// Time after which an incomplete object is dropped, ns, as its sender has stopped or has
    /// cancelled it. A sender that was merely disconnected sends it again from the start. Default
    /// 10 s; a sender with grants retransmits at least every 256 ms.
    pub reassembly_timeout_ns: u64,
    /// Maximum delay of a report of received pieces, ns. Default 100 us.
    pub report_delay_ns: u64,
    /// Initial retransmission timeout of an object, ns; doubled on every expiry up to the maximum.
    /// Default 2 ms.
    pub rto_ns: u64,
    /// Maximum retransmission timeout of an object, ns. Default 256 ms.
    pub rto_ns_max: u64,
}

impl TransferConfig {
    /// Returns the defaults.
    pub const fn new(client: ClientConfig) -> Self {
        Self {
            client,
            receive_bytes_max: 1 << 28,
            objects_max: 1024,
            reassembly_timeout_ns: 10_000_000_000,
            report_delay_ns: 100_000,
            rto_ns: 2_000_000,
            rto_ns_max: 256_000_000,
        }
    }
}

/// An outgoing object: its receiver, and its number among those for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The receiver.
    pub dst: ProcessId,
    /// Its number, from 0.
    pub number: u32,
}

/// Why an object was not accepted. The object is returned.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The maximum number of objects is in flight, to this receiver or in total.
    #[error("cannot send: too many objects in flight (objects_max, or 64 to one receiver)")]
    Full(Vec<u8>),
    /// The object has more pieces than can be numbered.
    #[error("the object is too large")]
    TooLarge,
    /// The destination does not exist, or is this endpoint.
    #[error("process {} is not another endpoint", .0.0)]
    Unknown(ProcessId),
}

/// An event of object transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferEvent {
    /// The receiver has the whole object. Returns its memory.
    Sent(ObjectId, Vec<u8>),
    /// The receiver has no memory for the object.
    Refused(ObjectId, Vec<u8>),
    /// An object was received: its sender, its number among those of the sender for this endpoint,
    /// and its contents.
    Received(ProcessId, u32, Vec<u8>),
    /// An event of the endpoint.
    Client(ClientEvent),
}

/// Counters of object transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransferStats {
    /// Pieces sent, with retransmissions.
    pub pieces_sent: u64,
    /// Pieces retransmitted after a loss or a timeout; not those sent to a restarted receiver.
    pub pieces_retransmitted: u64,
    /// Pieces received for the first time.
    pub pieces_received: u64,
    /// Duplicate pieces received.
    pub pieces_duplicate: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Reports received, without those to a previous or later incarnation of this endpoint.
    pub reports_received: u64,
    /// Packets that are malformed, of an unknown object, or of a previous incarnation.
    pub dropped: u64,
    /// Objects refused for lack of memory.
    pub refused: u64,
    /// Incomplete objects dropped after the reassembly timeout.
    pub expired: u64,
}
