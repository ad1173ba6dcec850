//! What can go wrong, and where.

use std::io;

use onepipe_base::ProcessId;
use onepipe_endpoint::ConfigError;
use onepipe_transport_shm::AttachError;

/// Why a process could not join a fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A living process has this id.
    #[error("process {} of fabric {fabric:?} is taken by the living process with pid {pid}", process.0)]
    Taken {
        /// The fabric's name.
        fabric: String,
        /// The id asked for.
        process: ProcessId,
        /// Who has it.
        pid: u64,
    },
    /// The segment of shared memory could not be created or joined.
    #[error("cannot join fabric {fabric:?} in shared memory")]
    SharedMemory {
        /// The fabric's name.
        fabric: String,
        /// What was wrong.
        source: AttachError,
    },
    /// Over a switch nobody gives out process ids.
    #[error("no process id given, which the switch at {switch:?} needs")]
    ProcessNeeded {
        /// The address as given.
        switch: String,
    },
    /// The address of the switch makes no sense, or its name is not known.
    #[error("{switch:?} is no address of a switch")]
    Address {
        /// The address as given.
        switch: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// The system refuses a socket.
    #[error("cannot open a socket to the switch at {switch:?}")]
    Socket {
        /// The address as given.
        switch: String,
        /// What the system said.
        source: io::Error,
    },
    /// A number of the configuration is out of its range.
    #[error("process {} cannot be configured so", process.0)]
    Config {
        /// Which process it would have been.
        process: ProcessId,
        /// Which number.
        source: ConfigError,
    },
    /// A number of what is set for large payloads is out of its range.
    #[error("process {} cannot take payloads of any size so", process.0)]
    LargeConfig {
        /// Which process it would have been.
        process: ProcessId,
        /// Which number.
        source: onepipe_large::ConfigError,
    },
    /// The fabric carries shorter frames than the configuration asks for.
    #[error("frame_len_max = {requested} is more than the {supported} that this fabric carries")]
    Frame {
        /// What the configuration asks for.
        requested: usize,
        /// What the fabric carries.
        supported: usize,
    },
    /// The system refuses a thread.
    #[error("cannot start the thread that drives process {}", process.0)]
    Thread {
        /// Which process it would have been.
        process: ProcessId,
        /// What the system said.
        source: io::Error,
    },
}

/// Why no event will come any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The pipe has left and everything that it had received was handed out.
    #[error("process {} has left", .0.0)]
    Left(ProcessId),
}

/// Why leaving was not graceful. The process has left all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// The fate of some messages was not known in time.
    #[error("process {} left before the fate of all its messages was known", .0.0)]
    Unsettled(ProcessId),
    /// The thread that drove the pipe ended in a panic: a callback's, or a bug of ours.
    #[error("the thread that drove process {} has panicked", .0.0)]
    Panicked(ProcessId),
}
