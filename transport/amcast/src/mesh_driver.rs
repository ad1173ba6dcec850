//! A machine with its socket and its clock.

use std::io;
use std::net::SocketAddr;

use onepipe_amcast::{Config, ConfigError};
use onepipe_base::ProcessId;
use onepipe_transport_clock::{SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, UdpMesh};

use crate::{Directory, DirectoryError};

/// How often the clock is brought back to the machine's own, which others share, in ns.
const CLOCK_FOLLOW_NS: u64 = 10_000_000;
/// What was not answered is said again after so long, in ns: a process among others may be off its
/// core for milliseconds (design: platform.md).
const RETRANSMIT_NS: u64 = 4_000_000;
/// Packets that may wait to leave: what comes of all frames that one look at the socket may bring.
const OUTBOX: usize = 1 << 15;
/// Bytes of a frame at least: what has no message fills a packet of an Ethernet, however short
/// messages are.
const FRAME_LEN_MIN: usize = 1_452;
/// Messages that are kept for who has missed them.
const RETAINED_MAX: usize = 4_096;
/// A burst of sending is cut off after so many frames: what comes of one look at the socket most
/// often fits.
const BURST_FRAMES_MAX: u32 = 2_048;
/// Room for what is written and not yet handed to the kernel, in bytes.
const SEND_QUEUE_BYTES: usize = 4 << 20;

/// A machine of agreed multicast, driven over UDP.
pub type MeshDriver<M> = Driver<M, UdpMesh, SystemClock>;

/// What may be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do when there is nothing to do. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// Of a member: open messages at which clients are told that it is busy. Default: as many as
    /// there can be, so never.
    pub busy_threshold: Option<u64>,
    /// What was not answered is said again after so long, in ns. Default 4 ms.
    pub rto_min_ns: u64,
    /// Bytes of a client's messages that may ever be on their way at a time; what is more waits at
    /// the client. Default no limit but its window of messages: how much is best the client finds
    /// out.
    pub in_flight_bytes_max: u64,
    /// Messages that members and replicas keep for who has missed them. Default 4096.
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

/// Why there is no station.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory makes no sense, or does not name who is to be opened.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A number is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The system refuses the socket.
    #[error("cannot listen at {at}")]
    Socket {
        /// Where.
        at: SocketAddr,
        /// What it said.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Opens the machine that `make` makes for whoever `directory` names at `at`, which must be a
/// `what`.
///
/// # Errors
/// [`OpenError`]. That others do not answer is none: they are waited for.
pub fn open<M: DrivenMachine>(
    directory: &Directory,
    (at, what): (SocketAddr, &'static str),
    options: &Options,
    make: impl FnOnce(Config) -> Result<M, ConfigError>,
) -> Result<MeshDriver<M>, OpenError> {
    let groups = directory.groups()?;
    let Some((process, _)) = directory.at(at) else {
        return Err(DirectoryError::WrongRole { at, what }.into());
    };
    let mut config = Config::new(process, groups);
    config.incarnation = start_incarnation();
    config.coordinators = directory.coordinators();
    config.rto_min_ns = options.rto_min_ns;
    config.busy_threshold = options.busy_threshold.unwrap_or(u64::MAX);
    config.in_flight_bytes_max = options.in_flight_bytes_max;
    config.history = options.history;
    config.outbox = OUTBOX;
    let frame_len_max = config.groups.frame_len_max;
    // Who is named, but as something else, is no process of that kind to the machine.
    let machine = make(config).map_err(|error| match error.name {
        "process" => OpenError::Directory(DirectoryError::WrongRole { at, what }),
        _ => OpenError::Config(error),
    })?;
    open_with(directory, (at, process), (frame_len_max, options.idle), machine)
}

/// As [`open`], with a machine that was made already, of process `process`.
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
    for (other, there) in directory.addresses().filter(|(other, _)| *other != process) {
        mesh.set_peer(other, there);
    }
    let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
    let config =
        DriverConfig { idle, burst_frames_max: BURST_FRAMES_MAX, ..DriverConfig::default() };
    Ok(Driver::new(machine, mesh, clock, config))
}
