//! How a controller daemon is set up.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::{Controllers, ProcessId};
use onepipe_transport_driver::Idle;

/// Where a controller sits.
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

/// What a controller daemon is and how much it may use.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it sits.
    pub attachment: Attachment,
    /// The machine. Its own id and the ids of all replicas come from here; incarnation, links and
    /// sizes of frames are set by [`crate::ControllerDaemon::new`].
    pub machine: onepipe_controller::Config,
    /// Where it answers `GET /status` and `GET /metrics`. Port 0: any, see
    /// [`crate::ControllerDaemon::status_addr`]. Default none. Whoever reaches it may read it.
    pub status_listen: Option<SocketAddr>,
    /// How often a replica that is not active asks whether it may be. Default 250 ms.
    pub campaign_interval: Duration,
    /// How often an active replica says that it is alive. Default 1 s: below a third of the lease
    /// of an etcd, one lost renewal costs nothing.
    pub renew_interval: Duration,
    /// How long an active replica that hears nobody leaves it to others, after it has resigned.
    /// Default 3 s.
    pub resign_pause: Duration,
    /// What to do when there is nothing to do. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
}

impl Config {
    /// The defaults for replica `process` of `controllers`, as a process among others on a machine
    /// of few cores: there a process may be off its core for milliseconds (design: platform.md), or
    /// for a tenth of a second when it is overloaded. Who is killed is reported at once, as the
    /// kernel says so; mere silence is believed as late as by switches and processes
    /// (docs/results/recovery.md).
    pub fn new(attachment: Attachment, process: ProcessId, controllers: Controllers) -> Self {
        let machine = onepipe_controller::Config {
            hello_interval_ns: 2_000_000,
            link_timeout_ns: 1_000_000_000,
            quiet_ns: 500_000,
            freeze_after_ns: 50_000_000,
            retransmit_ns: 1_000_000,
            retransmit_max_ns: 50_000_000,
            restart_ns: 200_000_000,
            ping_timeout_ns: 300_000_000,
            // The last neighbour may find out by a timeout, the first by the kernel.
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
            idle: Idle::ADAPTIVE,
        }
    }
}

/// Why a controller could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The machine refused its part of the configuration.
    #[error(transparent)]
    Machine(#[from] onepipe_controller::ConfigError),
    /// The shared memory could not be joined.
    #[error("cannot join the shared memory {name:?}")]
    Segment {
        /// Its name.
        name: String,
        /// What stood in the way.
        source: onepipe_transport_shm::AttachError,
    },
    /// The socket to the switch could not be opened.
    #[error("cannot reach the switch at {switch}")]
    Socket {
        /// Its address.
        switch: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The status cannot be offered there.
    #[error("cannot answer at {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives it no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}
