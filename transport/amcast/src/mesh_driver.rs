//! A machine of agreed multicast with its socket and its clock.

use std::io;
use std::net::SocketAddr;

use onepipe_amcast::{Config, ConfigError};
use onepipe_base::ProcessId;
use onepipe_transport_clock::{SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, UdpMesh};

use crate::{Directory, DirectoryError};

/// Interval of realigning the clock with the system's clock, in ns.
const CLOCK_FOLLOW_NS: u64 = 10_000_000;
/// Default of the retransmission timeout, in ns: a process may be off its core for milliseconds on
/// a busy machine.
const RETRANSMIT_NS: u64 = 4_000_000;
/// Capacity of the outbox in packets: the output of all frames that one receive may return.
const OUTBOX: usize = 1 << 15;
/// The maximum frame length is at least this: control frames fill an Ethernet packet even if
/// messages are short.
const FRAME_LEN_MIN: usize = 1_452;
/// Default number of messages retained for peers that have missed them.
const RETAINED_MAX: usize = 4_096;
/// Maximum number of frames in a burst: mostly the whole output of one receive fits.
const BURST_FRAMES_MAX: u32 = 2_048;
/// Capacity for frames that are written and not yet handed to the kernel, in bytes.
const SEND_QUEUE_BYTES: usize = 4 << 20;

/// Drives a machine of agreed multicast over UDP.
pub type MeshDriver<M> = Driver<M, UdpMesh, SystemClock>;

/// Settings of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What an idle turn does with the core. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// Member: number of open messages from which on it signals clients to slow down. Default:
    /// never.
    pub busy_threshold: Option<u64>,
    /// Retransmission timeout, in ns. Default 4 ms.
    pub rto_min_ns: u64,
    /// Client: maximum number of message bytes in flight; further messages wait at the client.
    /// Default unlimited: besides the window, congestion control finds the best amount.
    pub in_flight_bytes_max: u64,
    /// Messages that members and replicas retain for peers that have missed them. Default 4096.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            idle: Idle::ADAPTIVE,
            busy_threshold: None,
            rto_min_ns: RETRANSMIT_NS,
            in_flight_bytes_max: u64::MAX,
            history: RETAINED_MAX,
        }
    }
}

/// Why a process could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory is invalid, or does not list the process.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refuses the socket.
    #[error("cannot listen at {at}")]
    Socket {
        /// The local address.
        at: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The system refuses a thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Opens the process at address `at` of `directory`, which must have the role `role_name`, with the
/// machine that `make` returns.
///
/// # Errors
/// [`OpenError`]. Peers that do not respond are no error: the machine waits for them.
pub fn open<M: DrivenMachine>(
    directory: &Directory,
    (at, role_name): (SocketAddr, &'static str),
    options: &Options,
    make: impl FnOnce(Config) -> Result<M, ConfigError>,
) -> Result<MeshDriver<M>, OpenError> {
    let groups = directory.groups()?;
    let Some((process, _)) = directory.at(at) else {
        return Err(DirectoryError::WrongRole { at, role_name }.into());
    };
    let mut config = Config::new(process, groups);
    config.incarnation = start_incarnation(process.0);
    config.coordinators = directory.coordinators();
    config.rto_min_ns = options.rto_min_ns;
    config.busy_threshold = options.busy_threshold.unwrap_or(u64::MAX);
    config.in_flight_bytes_max = options.in_flight_bytes_max;
    config.history = options.history;
    config.announces = true;
    config.outbox = OUTBOX;
    let frame_len_max = config.groups.frame_len_max;
    // A machine refuses a process of another role by naming the field `process`.
    let machine = make(config).map_err(|error| match error.name {
        "process" => OpenError::Directory(DirectoryError::WrongRole { at, role_name }),
        _ => OpenError::Config(error),
    })?;
    open_with(directory, (at, process), (frame_len_max, options.idle), machine)
}

/// As [`open`], with an existing machine of process `process`.
///
/// # Errors
/// [`OpenError::Socket`].
pub fn open_with<M: DrivenMachine>(
    directory: &Directory,
    (at, process): (SocketAddr, ProcessId),
    (frame_len_max, idle): (usize, Idle),
    machine: M,
) -> Result<MeshDriver<M>, OpenError> {
    let udp = UdpConfig {
        frame_len_max: frame_len_max.max(FRAME_LEN_MIN),
        bind: Some(at),
        send_queue_bytes: SEND_QUEUE_BYTES,
        ..UdpConfig::default()
    };
    let processes = directory.addresses().count() as u32;
    let mesh = UdpMesh::bind(&udp, processes);
    let mut mesh = mesh.map_err(|source| OpenError::Socket { at, source })?;
    for (other, address) in directory.addresses().filter(|(other, _)| *other != process) {
        mesh.set_peer(other, address);
    }
    let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
    let config =
        DriverConfig { idle, burst_frames_max: BURST_FRAMES_MAX, ..DriverConfig::default() };
    Ok(Driver::new(machine, mesh, clock, config))
}
