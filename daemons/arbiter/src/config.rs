//! How an arbiter daemon is set up.

use std::io;
use std::net::SocketAddr;

use onepipe_arbiter::{ArbiterConfig, ArbiterError, Core};
use onepipe_base::ProcessId;
use onepipe_transport_driver::Idle;

/// What an arbiter daemon is and how much it may use.
#[derive(Clone, Debug)]
pub struct Config {
    /// The switch that it sits behind.
    pub switch: SocketAddr,
    /// The machine. Incarnation and sizes of frames are set by [`crate::ArbiterDaemon::new`].
    pub machine: ArbiterConfig,
    /// What to do when there is nothing to do, on each core. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// The cores that it stays on: the first is for communication, the others give out timeslots;
    /// one does both. Default none: one thread, on whichever core.
    pub cores: Vec<usize>,
    /// Where it says over HTTP how it is. Default nowhere.
    pub status_listen: Option<SocketAddr>,
}

impl Config {
    /// The defaults for arbiter `process` of endpoints 0 to `nodes`, all behind one switch, as a
    /// process among others on a machine of few cores. There a process may be off its core for
    /// milliseconds (design: platform.md): so the arbiter works 2 ms ahead, not 65 us, and a
    /// primary that says nothing is replaced after 20 ms, not 1 ms.
    pub fn new(switch: SocketAddr, process: ProcessId, nodes: u32, slot_ns: u64) -> Self {
        let mut machine = ArbiterConfig::new(process, nodes, (1, 1), slot_ns);
        machine.core = Core::One { nodes };
        machine.lead_ns = 2_000_000;
        machine.comm.idle_timeout_ns = 1_000_000_000;
        machine.failover.watchdog_ns = 1_000_000;
        machine.failover.takeover_ns = 20_000_000;
        Self { switch, machine, idle: Idle::ADAPTIVE, cores: Vec::new(), status_listen: None }
    }
}

/// Why an arbiter could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The machine refused its part of the configuration.
    #[error(transparent)]
    Machine(#[from] ArbiterError),
    /// There is no such core, or not for this process.
    #[error("cannot run on core {core}")]
    Core {
        /// Its number.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The status cannot be answered there.
    #[error("cannot listen at {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system gives no threads.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The socket to the switch could not be opened.
    #[error("cannot reach the switch at {switch}")]
    Socket {
        /// Its address.
        switch: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}
