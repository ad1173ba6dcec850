//! Errors of joining, receiving and leaving.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::ProcessId;
use onepipe_endpoint::ConfigError;
use onepipe_transport_shm::{AttachError, SegmentLost};
use onepipe_transport_udp::{JoinFailure, explain};

/// Why a process could not join a fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A live process has this id.
    #[error(
        "process {} of fabric {fabric:?} is taken by the live process with pid {pid}: stop that \
         process, or choose another id",
        process.0
    )]
    Taken {
        /// The fabric's name.
        fabric: String,
        /// The requested id.
        process: ProcessId,
        /// The pid of its owner.
        pid: u64,
    },
    /// The segment of shared memory could not be created or joined.
    #[error("cannot join fabric {fabric:?} in shared memory")]
    SharedMemory {
        /// The fabric's name.
        fabric: String,
        /// The cause.
        source: AttachError,
    },
    /// A switch does not assign process ids.
    #[error(
        "no process id given: the switch at {switch:?} does not assign ids: choose one that no other \
         process has (`Builder::process`)"
    )]
    ProcessNeeded {
        /// The address as given.
        switch: String,
    },
    /// The address of the switch is malformed or cannot be resolved.
    #[error("{switch:?} is not the address of a switch (write for example 10.0.0.1:4410)")]
    Address {
        /// The address as given.
        switch: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// Nothing answers at the address of the switch or aggregator.
    #[error(
        "no {above} answers at {address} (waited {} s): start one there with \"onepipe {above} \
         --listen {address}\", or wait longer with --wait (`Builder::wait`)",
        waited.as_secs_f64()
    )]
    NoAnswer {
        /// The command that would answer there: `switch` or `aggregator`.
        above: &'static str,
        /// The address.
        address: SocketAddr,
        /// How long joining has waited: [`crate::Builder::wait`].
        waited: Duration,
    },
    /// A setting differs from that of the fabric.
    #[error(
        "{setting} is {ours} here and {theirs} in the fabric: leave the setting out, or give all \
         nodes the same"
    )]
    Mismatch {
        /// Name of the setting.
        setting: &'static str,
        /// Its value here.
        ours: String,
        /// Its value in the fabric.
        theirs: String,
    },
    /// The switch or aggregator does not admit this process.
    #[error("{address} does not admit process {}: {reason}", process.0)]
    Refused {
        /// The address of the switch.
        address: SocketAddr,
        /// The requested process id.
        process: ProcessId,
        /// Why, and what to do.
        reason: String,
    },
    /// The system refuses a socket.
    #[error("cannot open a local socket for the switch at {switch:?}")]
    Socket {
        /// The address as given.
        switch: String,
        /// The system's error.
        source: io::Error,
    },
    /// A field of the configuration is out of its range.
    #[error("invalid configuration of process {}", process.0)]
    Config {
        /// The requested process id.
        process: ProcessId,
        /// The field.
        source: ConfigError,
    },
    /// A setting of large payloads is out of its range.
    #[error("invalid configuration of large payloads of process {}", process.0)]
    LargeConfig {
        /// The requested process id.
        process: ProcessId,
        /// The field.
        source: onepipe_large::ConfigError,
    },
    /// The fabric carries shorter frames than the configuration requests.
    #[error(
        "frame_len_max = {requested} bytes exceeds the limit of this fabric, {supported} bytes: leave it \
         out, or choose a lower one"
    )]
    Frame {
        /// The requested frame length.
        requested: usize,
        /// The frame length of the fabric.
        supported: usize,
    },
    /// The system refuses a thread.
    #[error("cannot start the thread that drives process {}", process.0)]
    Thread {
        /// The requested process id.
        process: ProcessId,
        /// The system's error.
        source: io::Error,
    },
}

impl JoinError {
    /// Returns the error of process `process` for a failed handshake.
    pub(crate) fn of_handshake(process: ProcessId, failure: JoinFailure) -> Self {
        match failure {
            JoinFailure::NoAnswer { above, address, waited } => {
                Self::NoAnswer { above, address, waited }
            }
            JoinFailure::Mismatch { setting, ours, theirs, .. }
            | JoinFailure::Changed { setting, ours, theirs, .. } => {
                Self::Mismatch { setting, ours, theirs }
            }
            JoinFailure::Refused { address, reason, terms } => {
                Self::Refused { address, process, reason: explain(reason, &terms) }
            }
        }
    }
}

/// Why no further event will come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The pipe has left, and all received events were handed out.
    #[error("process {} has left", .0.0)]
    Left(ProcessId),
    /// Another process has shortened the file of the shared memory, and all received events were
    /// handed out.
    #[error(transparent)]
    SegmentLost(SegmentLost),
}

/// Why leaving was not graceful. The process has left in any case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// The outcomes of some messages were not known in time.
    #[error("process {} left before the outcomes of all its messages were known", .0.0)]
    Unresolved(ProcessId),
    /// Some messages that were received and acknowledged could not be delivered in time: they were
    /// handed back as [`crate::Event::Undelivered`].
    #[error(
        "process {} left before it could deliver {messages} messages that it had acknowledged: \
         each was handed back as `Undelivered`",
        process.0
    )]
    Undelivered {
        /// The process that has left.
        process: ProcessId,
        /// Number of messages handed back.
        messages: u64,
    },
    /// No switch has acknowledged that this process leaves. Everything is resolved, but with
    /// controllers its last reliable scatterings may be discarded at their receivers.
    #[error("process {} left, but its switch did not acknowledge that in time", .0.0)]
    Unacknowledged(ProcessId),
    /// The thread that drove the pipe has panicked, in a callback or by a bug of this crate.
    #[error("the thread that drove process {} has panicked", .0.0)]
    Panicked(ProcessId),
    /// Another process has shortened the file of the shared memory: the outcomes of messages in
    /// flight are unknown.
    #[error(transparent)]
    SegmentLost(SegmentLost),
}
