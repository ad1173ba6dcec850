//! How a transfer is set up, and what it tells.

use alloc::vec::Vec;

use onepipe_base::ProcessId;

use crate::client::{ClientConfig, ClientEvent};

/// What an object counts as at least, however short: about what is kept of it beside its bytes.
pub const OBJECT_LEN_MIN: u64 = 256;

/// How a [`crate::Transfer`] is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransferConfig {
    /// The endpoint.
    pub client: ClientConfig,
    /// Bytes of all objects that are on their way in at a time, each of
    /// [`OBJECT_LEN_MIN`] at least; a sender of more is refused. Default 256 MiB.
    pub receive_bytes_max: u64,
    /// Objects that may be on their way out at a time, 1 to 4096; beside them one to each receiver
    /// that has none, so that nobody waits for receivers that do not answer. To one receiver never
    /// more than 64. Each takes 5 KiB and its bytes. Default 1024.
    pub objects_max: u32,
    /// An object on its way in of which nothing has come for so long is forgotten, ns: its sender
    /// has died or given it up. One that lives, and was not heard, sends all of it anew. Default
    /// 10 s; a sender that is granted timeslots repeats itself each 256 ms.
    pub reassembly_timeout_ns: u64,
}

impl TransferConfig {
    /// The defaults.
    pub const fn new(client: ClientConfig) -> Self {
        Self {
            client,
            receive_bytes_max: 1 << 28,
            objects_max: 1024,
            reassembly_timeout_ns: 10_000_000_000,
        }
    }
}

/// An object that is sent: its receiver, and its number among those for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Who receives it.
    pub dst: ProcessId,
    /// Its number, from 0.
    pub number: u32,
}

/// Why an object was not taken; it is handed back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// As many are under way as may, to this receiver or in all.
    #[error("as many objects are under way as may")]
    Full(Vec<u8>),
    /// It has more pieces than can be numbered.
    #[error("the object is too large")]
    TooLarge,
    /// There is no such endpoint, or it is this one.
    #[error("{} is no other endpoint", .0.0)]
    Unknown(ProcessId),
}

/// What a transfer tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferEvent {
    /// All of an object has come to its receiver. Its memory is handed back.
    Sent(ObjectId, Vec<u8>),
    /// The receiver has no room for it.
    Refused(ObjectId, Vec<u8>),
    /// An object has come: from whom, its number among those of its sender for this endpoint, and
    /// itself.
    Received(ProcessId, u32, Vec<u8>),
    /// Of the endpoint.
    Client(ClientEvent),
}

/// What a transfer has done since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransferStats {
    /// Pieces sent, the ones sent again with them.
    pub pieces_sent: u64,
    /// Of these, the ones sent again, as they were lost or nothing was heard of them; not those to
    /// a receiver that has begun anew.
    pub pieces_retransmitted: u64,
    /// Pieces received for the first time.
    pub pieces_received: u64,
    /// Pieces received again.
    pub pieces_duplicate: u64,
    /// Reports sent.
    pub reports_sent: u64,
    /// Packets that are none of a transfer, of no object that there is, or of a former life.
    pub dropped: u64,
    /// Objects refused for want of room.
    pub refused: u64,
    /// Objects begun and forgotten, as nothing more came of them.
    pub expired: u64,
}
