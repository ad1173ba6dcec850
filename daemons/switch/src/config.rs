//! The configuration of a software switch.

use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::{Controllers, SwitchId};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::{Given, Offload};

use onepipe_switch::Eager;

use crate::{Faults, Racks};

/// Default link timeout, in ns: for a neighbour that hangs or is cut off, as the kernel reports a
/// killed one at once. On an overloaded machine any process may be off its core for tens of ms.
pub const LINK_TIMEOUT_NS: u64 = 100_000_000;
/// Default link timeout with controllers, in ns: a timeout excludes the process there, and on two
/// overloaded cores a live process was off its core for 0.1 s (`docs/results/recovery.md`).
pub const CONTROLLED_LINK_TIMEOUT_NS: u64 = 1_000_000_000;

/// Default interval of heartbeats, in ns: a fabric at rest sends ten frames a second on each link,
/// and a neighbour that hangs at rest is noticed after ten of them.
pub const HEARTBEAT_INTERVAL_NS: u64 = 100_000_000;

/// The configuration of a software switch.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where it listens. Port 0: any, see [`crate::SoftwareSwitch::local_addr`].
    pub bind: SocketAddr,
    /// The switch above it, if it is not the root.
    pub up: Option<SocketAddr>,
    /// The command that runs the node above, which an error advises to start. Default `switch`.
    pub above: &'static str,
    /// How long the start waits for the switch above to answer; then its terms replace the settings
    /// below that were not [given][Config::given]. Default zero: the start does not wait, and
    /// nothing is adopted.
    pub wait: Duration,
    /// The settings that must hold in the fabric of the switch above, instead of being adopted.
    pub given: Given,
    /// Maximum number of neighbours below it: processes and other switches. 1 to 4,096, default
    /// 128: more than the default limits of an arbiter's endpoints and arbiters together.
    pub ports_max: u16,
    /// Its number, unique among the switches of a fabric with controllers. Default 0.
    pub switch: SwitchId,
    /// As [`onepipe_switch::Config::controllers`]: their ids lie below `processes_max`. Default
    /// none. With controllers a switch takes up to some milliseconds to start, so that its
    /// incarnation is later than any previous one.
    pub controllers: Option<Controllers>,
    /// Limit of process ids. Default 1,024.
    pub processes_max: u32,
    /// The longest frame, in bytes. 256 to 65,000, default 65,000: the endpoints' limit is what
    /// matters.
    pub frame_len_max: usize,
    /// After this idle time in ns a neighbour's port may be assigned to another one. Default 10 s.
    pub port_timeout_ns: u64,
    /// As [`onepipe_switch::Config::beacon_interval_ns`]. Default 20,000: what a shared machine
    /// keeps up with.
    pub beacon_interval_ns: u64,
    /// As [`onepipe_switch::Config::heartbeat_interval_ns`]; 0: beacons at the fixed interval.
    /// Default [`HEARTBEAT_INTERVAL_NS`].
    pub heartbeat_interval_ns: u64,
    /// As [`onepipe_switch::Config::eager_beacons`]. Default [`Eager::Always`].
    pub eager_beacons: Eager,
    /// As [`onepipe_switch::Config::link_timeout_ns`]. Default [`LINK_TIMEOUT_NS`]; with
    /// [`Config::with_controllers`], [`CONTROLLED_LINK_TIMEOUT_NS`].
    pub link_timeout_ns: u64,
    /// As [`onepipe_switch::Config::start_wait_ns`]. Default 1 ms.
    pub start_wait_ns: u64,
    /// The idle strategy. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
    /// The highest level of UDP offload. Default [`Offload::Segment`].
    pub offload: Offload,
    /// Socket buffer requested in each direction, in bytes. Default 16 MiB.
    pub socket_buffer_bytes: usize,
    /// Injected faults. Default none.
    pub faults: Faults,
    /// Rate of its links. Default as fast as the machine.
    pub link_rate: Option<LinkRate>,
    /// The racks that it emulates, with several paths between them. Default none: one path to each
    /// process.
    pub racks: Option<Racks>,
    /// The devices whose frames the kernel's switch handles (`docs/design/xdp.md`); none: the
    /// daemon handles all. Needs the feature `xdp`, an IPv4 address to listen at, at most 64 ports
    /// with the upper one, and neither controllers, faults, racks nor a link rate. Default none.
    pub xdp: Vec<String>,
}

/// Links of a given rate, each with its own output queue: emulates a slower switch with visible
/// queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRate {
    /// Bits per second on each link, including the overhead of Ethernet, IP and UDP. 1,000 or more.
    pub bits_per_s: u64,
    /// Capacity of each queue in bytes; frames that exceed it are dropped. 2,048 or more.
    pub queue_bytes_max: usize,
    /// Marking threshold: a frame that finds a longer queue, in bytes, is marked.
    pub mark_bytes: Option<usize>,
}

impl LinkRate {
    /// Returns the name and the value of the field that is out of range.
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
    /// Returns the defaults for a switch that listens at `bind`.
    pub fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            up: None,
            above: "switch",
            wait: Duration::ZERO,
            given: Given::default(),
            switch: SwitchId(0),
            controllers: None,
            ports_max: 128,
            processes_max: 1024,
            frame_len_max: 65_000,
            port_timeout_ns: 10_000_000_000,
            beacon_interval_ns: 20_000,
            heartbeat_interval_ns: HEARTBEAT_INTERVAL_NS,
            eager_beacons: Eager::Always,
            link_timeout_ns: LINK_TIMEOUT_NS,
            start_wait_ns: 1_000_000,
            idle: Idle::ADAPTIVE,
            offload: Offload::Segment,
            socket_buffer_bytes: 16 << 20,
            faults: Faults::default(),
            link_rate: None,
            racks: None,
            xdp: Vec::new(),
        }
    }

    /// Sets the controllers, and the longer link timeout that they require.
    #[must_use]
    pub fn with_controllers(mut self, controllers: Controllers) -> Self {
        self.controllers = Some(controllers);
        self.link_timeout_ns = CONTROLLED_LINK_TIMEOUT_NS;
        self
    }
}
