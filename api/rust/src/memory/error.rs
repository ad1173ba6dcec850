//! Errors of registered memory.

use onepipe_base::ProcessId;
use onepipe_memory::{MemoryError, RegionId, RegisterError, SubmitError};

/// Why a command about an own region has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// This process has a region of this number.
    #[error("region {} is already registered: choose another number, or deregister it", .0.0)]
    Exists(RegionId),
    /// This process has no region of this number.
    #[error("region {} is not registered", .0.0)]
    Unknown(RegionId),
    /// This process has left the fabric.
    #[error("this process has left the fabric")]
    Left,
}

impl From<RegisterError> for RegionError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Exists(region) => Self::Exists(region),
        }
    }
}

/// Why a request was not sent, or has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request exceeds a limit, or is malformed. Nothing was sent.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// This process has left the fabric.
    #[error("this process has left the fabric: the outcome of its requests is unknown")]
    Left,
}

/// Why an operation on a remote region has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The owner refuses the operation, has ended or does not answer.
    #[error("cannot {operation} of region {} of process {}: {reason}", region.0, owner.0)]
    Failed {
        /// The owner.
        owner: ProcessId,
        /// The region.
        region: RegionId,
        /// What was to be done, for people: `read bytes 60..76`.
        operation: String,
        /// The reason.
        reason: MemoryError,
    },
    /// The request was not sent, or this process has left.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl OperationError {
    /// Whether the operation may have been executed.
    pub fn may_be_executed(&self) -> bool {
        match self {
            Self::Failed { reason, .. } => {
                matches!(reason, MemoryError::OwnerEnded | MemoryError::Unanswered)
            }
            Self::Request(error) => matches!(error, RequestError::Left),
        }
    }
}
