//! How a software switch is set up.

use std::io;
use std::net::SocketAddr;

use onepipe_base::{Controllers, SwitchId};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::Offload;

use onepipe_switch::Eager;

use crate::{Faults, Racks};

/// After this much silence nobody waits for a link, in ns. Who is killed is missed at once, as the
/// kernel says so; this is for who is cut off or hangs, and on a machine that is busy beyond its
/// cores any process may be off them for tens of milliseconds.
pub const LINK_TIMEOUT_NS: u64 = 100_000_000;
/// The same where there are controllers, in ns: silence costs a process its life there, and on two
/// overloaded cores one was off them for 0.1 s (docs/results/recovery.md).
pub const CONTROLLED_LINK_TIMEOUT_NS: u64 = 1_000_000_000;

/// What a software switch is and how much it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it listens. Port 0: any, see [`crate::SoftwareSwitch::local_addr`].
    pub bind: SocketAddr,
    /// The switch above it, if it is not the root.
    pub up: Option<SocketAddr>,
    /// Neighbours below it at most: processes and other switches. 1 to 4,096, default 128: more
    /// than the endpoints of an arbiter and the most arbiters that they know, by default.
    pub ports_max: u16,
    /// Its own number, in which no two switches of a fabric with controllers may agree. Default 0.
    pub switch: SwitchId,
    /// As [`onepipe_switch::Config::controllers`]: their ids lie below `processes_max`. Default
    /// none. With them a switch takes up to some milliseconds to start: so that its life is later
    /// than any former one.
    pub controllers: Option<Controllers>,
    /// Process ids lie below this. Default 1,024.
    pub processes_max: u32,
    /// The longest frame, in bytes. 256 to 65,000, default 65,000: what endpoints use matters.
    pub frame_len_max: usize,
    /// A neighbour that was silent for this long may lose its port to a new one, in ns. Default
    /// 10 s.
    pub port_timeout_ns: u64,
    /// As [`onepipe_switch::Config::beacon_interval_ns`]. Default 20,000: what a shared machine
    /// keeps up with.
    pub beacon_interval_ns: u64,
    /// As [`onepipe_switch::Config::eager_beacons`]. Default [`Eager::Always`].
    pub eager_beacons: Eager,
    /// As [`onepipe_switch::Config::link_timeout_ns`]. Default [`LINK_TIMEOUT_NS`]; with
    /// [`Config::with_controllers`], [`CONTROLLED_LINK_TIMEOUT_NS`].
    pub link_timeout_ns: u64,
    /// As [`onepipe_switch::Config::start_wait_ns`]. Default 1 ms.
    pub start_wait_ns: u64,
    /// What to do when there is nothing to do. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// How much work is left to the kernel at most. Default [`Offload::Segment`].
    pub offload: Offload,
    /// The socket buffer asked for in each direction, in bytes. Default 16 MiB.
    pub socket_buffer_bytes: usize,
    /// What goes wrong on purpose. Default nothing.
    pub faults: Faults,
    /// How fast its links are. Default as fast as the machine.
    pub link_rate: Option<LinkRate>,
    /// The racks that it stands for, with several paths between them. Default none: one way to each
    /// process.
    pub racks: Option<Racks>,
}

/// Links of a given rate, each with a queue of its own before it: a slower switch than this machine
/// could be, with queues that can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRate {
    /// Bits a second on each link, with what Ethernet, IP and UDP add to a frame. 1,000 or more.
    pub bits_per_s: u64,
    /// Bytes that may wait for a link; frames that find no room are lost. 2,048 or more.
    pub queue_bytes_max: usize,
    /// A frame that finds more bytes before it than this is marked, if given.
    pub mark_bytes: Option<usize>,
}

impl LinkRate {
    /// The name of the field that is out of range, and its value.
    pub(crate) fn out_of_range(&self) -> Option<(&'static str, u64)> {
        match self {
            Self { bits_per_s: 0..1_000, .. } => Some(("bits_per_s", self.bits_per_s)),
            Self { queue_bytes_max: 0..2_048, .. } => {
                Some(("queue_bytes_max", self.queue_bytes_max as u64))
            }
            _ => None,
        }
    }
}

impl Config {
    /// The defaults for a switch that listens at `bind`.
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            up: None,
            switch: SwitchId(0),
            controllers: None,
            ports_max: 128,
            processes_max: 1024,
            frame_len_max: 65_000,
            port_timeout_ns: 10_000_000_000,
            beacon_interval_ns: 20_000,
            eager_beacons: Eager::Always,
            link_timeout_ns: LINK_TIMEOUT_NS,
            start_wait_ns: 1_000_000,
            idle: Idle::ADAPTIVE,
            offload: Offload::Segment,
            socket_buffer_bytes: 16 << 20,
            faults: Faults::default(),
            link_rate: None,
            racks: None,
        }
    }

    /// In a fabric with these controllers: a link is believed dead later.
    #[must_use]
    pub fn with_controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = Some(controllers);
        self.link_timeout_ns = CONTROLLED_LINK_TIMEOUT_NS;
        self
    }
}

/// Why a software switch could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A number of the configuration is outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// Which field of [`Config`].
        field: &'static str,
        /// What it was set to.
        value: u64,
    },
    /// There is no such link among its racks and paths.
    #[error(
        "there is no link of rack {rack} to path {path}: racks are 0 to {} and paths 0 to {}",
        .racks - 1, .paths - 1
    )]
    UnknownLink {
        /// The rack that was named.
        rack: u32,
        /// The path that was named.
        path: u32,
        /// How many racks there are.
        racks: u32,
        /// How many paths there are.
        paths: u32,
    },
    /// It is no probability.
    #[error("a loss of {0} is none: it lies between 0 and 1")]
    Loss(f64),
    /// There are no links between racks, as there are no racks.
    #[error("there are no racks whose links could lose anything")]
    NoRacks,
    /// The machine refused its part of the configuration.
    #[error(transparent)]
    Switch(#[from] onepipe_switch::ConfigError),
    /// The socket could not be opened or bound.
    #[error("cannot listen at {bind}")]
    Socket {
        /// Where it was to listen.
        bind: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}
