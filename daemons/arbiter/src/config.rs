//! Configuration of an arbiter daemon, and start errors.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_arbiter::{ArbiterConfig, ArbiterError, Core};
use onepipe_base::ProcessId;
use onepipe_transport_driver::Idle;

/// Configuration of an arbiter daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The switch that the arbiter is attached to.
    pub switch: SocketAddr,
    /// The machine. [`crate::ArbiterDaemon::new`] sets its incarnation and frame length.
    pub machine: ArbiterConfig,
    /// Behaviour of idle threads. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// Cores to run on: the first one communicates, the others allocate timeslots; a single one
    /// does both. Default none: one thread that is not pinned.
    pub cores: Vec<usize>,
    /// How long the start waits for the switch to answer. Default zero: the start does not wait.
    pub wait: Duration,
    /// Address of the HTTP status server. Default none.
    pub status_listen: Option<SocketAddr>,
}

impl Config {
    /// Returns the defaults for arbiter `process` of endpoints 0 to `nodes` behind one switch, for
    /// a shared machine with few cores. A process may be preempted there for milliseconds, so the
    /// lead is 2 ms instead of 65 us, and the takeover time 20 ms instead of 1 ms.
    pub fn new(switch: SocketAddr, process: ProcessId, nodes: u32, slot_ns: u64) -> Self {
        let mut machine = ArbiterConfig::new(process, Core::One { nodes }, slot_ns);
        machine.lead_ns = 2_000_000;
        machine.comm.idle_timeout_ns = 1_000_000_000;
        machine.failover.watchdog_ns = 1_000_000;
        machine.failover.takeover_ns = 20_000_000;
        Self {
            switch,
            machine,
            idle: Idle::ADAPTIVE,
            cores: Vec::new(),
            wait: Duration::ZERO,
            status_listen: None,
        }
    }
}

/// Why an arbiter could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The machine rejected its configuration.
    #[error(transparent)]
    Machine(#[from] ArbiterError),
    /// The core does not exist, or is not available to this process.
    #[error("cannot run on core {core}")]
    Core {
        /// The core.
        core: usize,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The status server cannot listen.
    #[error("cannot listen at {listen}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A thread cannot be created.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The switch does not answer, or does not admit this arbiter.
    #[error(transparent)]
    Join(#[from] onepipe_transport_udp::JoinFailure),
    /// The socket to the switch cannot be opened.
    #[error("cannot reach the switch at {switch}")]
    Socket {
        /// The address of the switch.
        switch: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
}
