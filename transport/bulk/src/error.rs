//! Errors of joining a group.

use std::io;

use onepipe_transport_pages as pages;
use onepipe_transport_pages::AttachError;
use onepipe_transport_tcp::RendezvousError;

/// Why a member could not join its group.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The members could not connect to each other.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
    /// The members cannot share memory; typically they are not on one host.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl From<pages::JoinError> for JoinError {
    fn from(error: pages::JoinError) -> Self {
        match error {
            pages::JoinError::Rendezvous(error) => Self::Rendezvous(error),
            pages::JoinError::Attach(error) => Self::Attach(error),
        }
    }
}
