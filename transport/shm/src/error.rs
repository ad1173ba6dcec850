//! Errors of attaching to a segment.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use onepipe_base::ProcessId;

/// Another process has shortened or overwritten the file of a segment, or of a page pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} was shortened or overwritten by another process while in use: end what did it, and start \
     all processes that use the file again",
    path.display()
)]
pub struct SegmentLost {
    /// The path of the file; it may have been removed meanwhile.
    pub path: PathBuf,
}

/// Why a segment could not be created or joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A name must have 1 to 64 letters, digits, `-` and `_`.
    #[error("invalid segment name {0:?}: use 1 to 64 letters, digits, - and _")]
    Name(String),
    /// A field of the configuration is out of range.
    #[error("{field} = {value} is out of range")]
    Config {
        /// The field of [`crate::Config`].
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The process id is out of range of this segment.
    #[error("process {process} is out of range: ids of this segment lie below {processes_max}")]
    OutOfRange {
        /// The id asked for.
        process: u32,
        /// The segment's limit.
        processes_max: u32,
    },
    /// A live process has this id.
    #[error("process {process} is taken by the live process with pid {pid}")]
    Taken {
        /// The id asked for.
        process: u32,
        /// The pid of its owner.
        pid: u64,
    },
    /// All process ids are taken by live processes.
    #[error("all {0} process ids are taken")]
    Full(u32),
    /// The file of this name belongs to another user, or is no ordinary file.
    #[error("{path} belongs to user id {owner}, or is no file: use another name, or remove it")]
    Foreign {
        /// The path of the file.
        path: String,
        /// The user id of its owner.
        owner: u32,
    },
    /// Live processes use a file that was shortened meanwhile.
    #[error(transparent)]
    SegmentLost(#[from] SegmentLost),
    /// Another process has held the setup lock of the file for longer than setting up takes: it was
    /// stopped meanwhile.
    #[error(
        "{path} is being set up by the process with pid {pid} for more than {} s (pid 0: not \
         visible to this user): continue or end that process",
        wait.as_secs()
    )]
    Locked {
        /// The path of the file.
        path: String,
        /// How long this process has waited.
        wait: Duration,
        /// The pid of the holder; 0 if this user may not see it.
        pid: u32,
    },
    /// Live processes use a segment of this name whose layout this version does not understand.
    #[error(
        "the segment is in use with layout version {version}, this program needs {}: use the same version or another name",
        crate::config::VERSION
    )]
    Layout {
        /// The version in its header.
        version: u64,
    },
    /// The memory file system is full.
    #[error(
        "cannot reserve {need} bytes in /dev/shm, which has {free} free: give it more (docker run \
         --shm-size), or remove what other programs left there"
    )]
    NoMemory {
        /// The bytes that this process needs to attach.
        need: u64,
        /// The bytes that are free.
        free: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel refused.
    #[error("cannot {what}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl AttachError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// The process id that was taken, if that was the error.
    pub fn taken(&self) -> Option<ProcessId> {
        match self {
            Self::Taken { process, .. } => Some(ProcessId(*process)),
            _ => None,
        }
    }
}
