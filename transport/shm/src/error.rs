//! Why a process could not join.

use std::io;

use onepipe_base::ProcessId;

/// Why a segment could not be created or joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// A name is 1 to 64 letters, digits, `-` and `_`.
    #[error("{0:?} is no name for a segment: 1 to 64 letters, digits, - and _ are")]
    Name(String),
    /// A number of the configuration is outside its range.
    #[error("{field} = {value} is out of range")]
    Config {
        /// Which field of [`crate::Config`].
        field: &'static str,
        /// What it was set to.
        value: u64,
    },
    /// The segment has no place for this process id.
    #[error("process {process} is out of range: ids of this segment lie below {processes_max}")]
    OutOfRange {
        /// The id asked for.
        process: u32,
        /// The segment's limit.
        processes_max: u32,
    },
    /// A live process has this id.
    #[error("process {process} is taken by the living process with pid {pid}")]
    Taken {
        /// The id asked for.
        process: u32,
        /// Who has it.
        pid: u64,
    },
    /// Every process id is taken by somebody alive.
    #[error("all {0} places are taken")]
    Full(u32),
    /// The file of this name belongs to another user.
    #[error("{path} belongs to user {owner}")]
    Foreign {
        /// The file.
        path: String,
        /// Its owner's id.
        owner: u32,
    },
    /// Living processes use a segment of this name that this version does not understand.
    #[error(
        "the segment is in use with another layout (version {version}, this is {})",
        crate::segment::VERSION
    )]
    Layout {
        /// What its header says.
        version: u64,
    },
    /// The kernel refused.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl AttachError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    /// The process id asked for, if that was the trouble.
    pub fn taken(&self) -> Option<ProcessId> {
        match self {
            Self::Taken { process, .. } => Some(ProcessId(*process)),
            _ => None,
        }
    }
}
