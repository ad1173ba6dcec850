//! The configuration of a controller daemon.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::{Controllers, ProcessId};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::Given;
use onepipe_wire::DecisionTip;

/// Default interval of Hello frames at rest, in ns: the heartbeat of switches and processes.
const HEARTBEAT_INTERVAL_NS: u64 = 100_000_000;

/// Default timeout of a link, in ns, as at switches and processes with controllers.
const LINK_TIMEOUT_NS: u64 = 1_000_000_000;

/// How a controller is attached to its fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// Behind the switch at this address, over UDP.
    Switch(SocketAddr),
    /// In the shared memory of this name, among the processes of this machine.
    Segment(String),
}

impl std::fmt::Display for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Switch(address) => write!(f, "switch {address}"),
            Self::Segment(name) => write!(f, "shared memory {name}"),
        }
    }
}

/// The configuration of a controller daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the controller is attached.
    pub attachment: Attachment,
    /// The machine: its own process id and the ids of all replicas are taken from here;
    /// [`crate::ControllerDaemon::new`] sets incarnation, links and frame sizes.
    pub machine: onepipe_controller::Config,
    /// Where `GET /status` and `GET /metrics` are answered. Port 0: any, see
    /// [`crate::ControllerDaemon::status_addr`]. Default none. There is no access control.
    pub status_listen: Option<SocketAddr>,
    /// Campaign interval of a replica that is not active. Default 250 ms.
    pub campaign_interval: Duration,
    /// Renewal interval of the active replica. Default 1 s: less than a third of an etcd lease, so
    /// that one lost renewal does not matter.
    pub renew_interval: Duration,
    /// How long an isolated replica does not campaign after it has resigned. Default 3 s.
    pub resign_pause: Duration,
    /// How long the start waits for the switch to answer; then [`Config::machine`] adopts what the
    /// switch states. Default zero: the start does not wait, and adopts nothing.
    pub wait: Duration,
    /// The settings that must hold in the fabric, instead of being adopted.
    pub given: Given,
    /// Whether the process id of the machine is a guess: if the fabric reserves other ids for its
    /// controllers, the first of those is taken. Default false.
    pub adopts_process: bool,
    /// The idle strategy. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
}

impl Config {
    /// Returns the defaults for replica `process` of `controllers`, as one process among others on
    /// a machine with few cores. There a process may be off its core for milliseconds, or for a
    /// tenth of a second under overload. The kernel reports killed processes at once; timeouts are
    /// as long as those of switches and processes (`docs/results/recovery.md`), and prove nothing
    /// while the switch in between may have paused.
    pub fn new(attachment: Attachment, process: ProcessId, controllers: Controllers) -> Self {
        let machine = onepipe_controller::Config {
            hello_interval_ns: 2_000_000,
            heartbeat_interval_ns: HEARTBEAT_INTERVAL_NS,
            link_timeout_ns: LINK_TIMEOUT_NS,
            quiet_ns: 500_000,
            // As long as the link timeout of switches and processes.
            silent_after_ns: LINK_TIMEOUT_NS,
            // Time for a switch to come back from a pause, or to be restarted.
            switch_wait_ns: 30_000_000_000,
            // Frames of a process without a link keep it a member for at most this long.
            grace_ns: 10_000_000_000,
            freeze_after_ns: 50_000_000,
            retransmit_ns: 1_000_000,
            retransmit_max_ns: 50_000_000,
            restart_ns: 200_000_000,
            ping_timeout_ns: LINK_TIMEOUT_NS,
            // One neighbour may learn of a failure by its timeout, long after another has learned
            // of it from the kernel.
            inexact_after_ns: 3_000_000_000,
            ..onepipe_controller::Config::new(process, controllers)
        };
        Self {
            attachment,
            machine,
            status_listen: None,
            campaign_interval: Duration::from_millis(250),
            renew_interval: Duration::from_secs(1),
            resign_pause: Duration::from_secs(3),
            wait: Duration::ZERO,
            given: Given::default(),
            adopts_process: false,
            idle: Idle::ADAPTIVE,
        }
    }
}

/// Why a controller could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The machine's part of the configuration is invalid.
    #[error(transparent)]
    Machine(#[from] onepipe_controller::ConfigError),
    /// The shared memory could not be joined.
    #[error("cannot join the shared memory {name:?}")]
    Segment {
        /// Its name.
        name: String,
        /// The cause.
        source: onepipe_transport_shm::AttachError,
    },
    /// The socket to the switch could not be opened.
    #[error("cannot open a socket to the switch at {switch}")]
    Socket {
        /// Its address.
        switch: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The switch does not answer, or does not admit this controller.
    #[error("controller {} cannot join", process.0)]
    NotAdmitted {
        /// Its id.
        process: ProcessId,
        /// The cause.
        source: onepipe_transport_udp::JoinFailure,
    },
    /// A setting differs from that of the fabric.
    #[error(transparent)]
    Join(#[from] onepipe_transport_udp::JoinFailure),
    /// The status cannot be offered.
    #[error("cannot serve the status at {listen}")]
    Listen {
        /// The configured address.
        listen: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Why a controller or a coordinator has ended before it was stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The thread that calls the store has panicked, with this message.
    #[error(
        "the store is unusable: its thread has panicked: {0}; a file whose database panics is \
         damaged: move it away and restart all nodes of the fabric"
    )]
    StoreThread(String),
    /// A process knows decisions that are not in the store.
    #[error(
        "the store is not usable: it went back in time, or belongs to another controller of this \
         fabric: a process knows of epoch {} of controller {} with {} failures and recalls, and the \
         store has given epoch {epoch}; put the latest store back, stop the other controller, or \
         restart all nodes of the fabric",
        known.epoch, known.replica.0, known.decided
    )]
    StoreOutdated {
        /// The epoch that the store has given to this controller.
        epoch: u32,
        /// The end of the log that the process knows.
        known: DecisionTip,
    },
    /// The switch does not admit this controller any more: another one has taken its id while this
    /// one was not received, or the switch was restarted with other settings.
    #[error(transparent)]
    NotAdmitted(#[from] onepipe_transport_udp::JoinFailure),
    /// Another process has shortened the file of the shared memory.
    #[error(transparent)]
    SegmentLost(#[from] onepipe_transport_shm::SegmentLost),
}
