//! What clients are given and what they return.

use alloc::vec::Vec;

use onepipe_base::{ProcessId, Timestamp};

use crate::operation::Outcome;
use crate::reply::Refusal;

/// How a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// Time after which a reply counts as lost, in ns, until a response time was measured. Default
    /// 10 ms.
    pub timeout_ns: u64,
    /// Lower limit on that time, in ns, when response times are known: it follows them by RFC 6298,
    /// and doubles with each repetition, up to the 16-fold. Default 100 us.
    pub timeout_min_ns: u64,
    /// Time after which the owners that have not replied are given up, in ns. Default 10 s.
    pub give_up_ns: u64,
    /// Whether the fabric delivers each reliable request or reports its loss. Then the client asks
    /// for late replies; otherwise it sends the request again. Default true.
    pub is_loss_reported: bool,
    /// Limit on the numbers of requests from the oldest in flight on. Default 1,024. The owners'
    /// `results_max` must not be lower.
    pub pending_max: u64,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout_ns: 10_000_000,
            timeout_min_ns: 100_000,
            give_up_ns: 10_000_000_000,
            is_loss_reported: true,
            pending_max: 1_024,
        }
    }
}

/// A request among those of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request cannot be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The limit on requests in flight is reached.
    #[error("cannot submit: {0} requests are in flight since the oldest (pending_max = {0})")]
    Full(u64),
    /// There is no batch, or one without operations.
    #[error("cannot submit a request or a batch without operations")]
    Empty,
    /// Two batches are for one owner.
    #[error("cannot submit two batches for process {}", .0.0)]
    TwoBatches(ProcessId),
    /// A batch has too many operations.
    #[error("cannot submit {0} operations in a batch (OPERATIONS_MAX = 256)")]
    TooManyOperations(usize),
    /// An operation writes 2^32 bytes or more.
    #[error("cannot write 2^32 bytes or more by one operation")]
    TooLong,
}

/// Why an owner has not executed a batch, or is not known to have.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The owner refuses the batch, and has executed none of it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The owner has ended. It may have executed the batch before.
    #[error("the owner has ended, and may have executed the batch before")]
    OwnerEnded,
    /// The owner has not replied for too long. It may have executed the batch, or may still do so.
    #[error("no reply within the limit (give_up_ns); the batch may have been executed")]
    Unanswered,
    /// The fabric cannot send the request: it exceeds a limit, or a receiver is unknown.
    #[error("the fabric cannot send the request")]
    Unsendable,
}

/// A batch that an owner has executed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executed {
    /// The timestamp at which the owner has executed it. Batches that write have it in common with
    /// those of the other owners of their request.
    pub at: Timestamp,
    /// What each operation has found.
    pub outcomes: Vec<Outcome>,
}

/// A request that has completed: all its owners have replied or are not awaited any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Completed {
    /// The request.
    pub request: RequestId,
    /// What each owner has done, in the order in which the batches were submitted.
    pub answers: Vec<(ProcessId, Result<Executed, MemoryError>)>,
}

/// A scattering that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OutgoingScattering {
    /// Whether it is to be sent by the reliable service.
    pub is_reliable: bool,
    /// Whether its only message is to be sent without an order, as
    /// [`OutgoingReply`](crate::OutgoingReply)s are.
    pub is_unordered: bool,
    /// Receivers and payloads, one for each receiver.
    pub messages: Vec<(ProcessId, Vec<u8>)>,
    /// The request.
    pub request: RequestId,
    /// Whether the scattering asks for lost replies.
    pub(crate) is_question: bool,
}

/// What a client has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientStats {
    /// Scatterings that the fabric has reported as lost, in whole or in part.
    pub failed: u64,
    /// Scatterings that ask for lost replies.
    pub asked: u64,
    /// Messages that are no replies, or have another number of outcomes than operations.
    pub malformed: u64,
}
