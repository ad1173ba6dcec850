//! Everything that a run depends on.

use onepipe_base::{Port, ProcessId};
use onepipe_sim_network::{ClockConfig, LinkConfig};
use onepipe_sim_traffic::{CongestionControl, FlowSpec, TcpConfig};
use onepipe_topology::Shape;
use onepipe_wire::{SHORT_HEADER_LEN, SLOT_HEADER_LEN};

/// Buffer of the paper's switch per port, in bytes: the longest queue observed (Fastpass section
/// 7.1, experiment A, baseline, 99.9th percentile: 5,239 KB).
pub const RACK_QUEUE_BYTES: u64 = 5_240_000;
/// Marking threshold of DCTCP for 10 Gbit/s: 65 packets of 1,500 bytes (Alizadeh and others,
/// SIGCOMM 2010, section 3.5).
const MARK_BYTES: u64 = 65 * 1_500;

/// Maximum length of a frame: a datagram on Ethernet.
pub(crate) const FRAME_LEN_MAX: usize = 1_472;

/// A TCP flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source, destination, start and length.
    pub spec: FlowSpec,
    /// When it is closed at the latest, in ns of virtual time.
    pub closes_ns: Option<u64>,
}

impl Flow {
    /// Returns a flow from the start and without an end.
    pub const fn endless(from: u32, to: u32) -> Self {
        Self { spec: FlowSpec { at_ns: 0, from, to, bytes: None }, closes_ns: None }
    }
}

/// Pings at a fixed interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ping {
    /// The host that sends requests.
    pub from: u32,
    /// The host that replies.
    pub to: u32,
    /// Interval of requests, ns.
    pub every_ns: u64,
}

/// Raw frames that every endpoint offers in each timeslot with a given probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OfferedLoad {
    /// Load in thousandths: timeslots with a frame.
    pub load_permille: u32,
    /// Size of a group of hosts that do not send to each other, for example of a pod.
    pub group_hosts: u32,
    /// Number of destinations per host, if there are as many: the following hosts, so that each is
    /// the destination of as many.
    pub peers: u32,
    /// End of the load, in ns of virtual time.
    pub until_ns: u64,
}

impl OfferedLoad {
    /// Returns a load to all other hosts, without an end.
    pub const fn to_all(load_permille: u32) -> Self {
        Self { load_permille, group_hosts: 1, peers: u32::MAX, until_ns: u64::MAX }
    }
}

/// The arbiters, and their settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arbitration {
    /// Number of arbiters: the last hosts; the very last is the initial primary.
    pub arbiters: u32,
    /// Number of scheduled hosts: the first ones.
    pub endpoints: u32,
    /// Capacity of each link reserved for control packets, in thousandths, by which a timeslot is
    /// longer than a full frame. Default 10: "about 1%" (Fastpass section 7.1).
    pub reserve_permille: u32,
    /// Timeslots per batch. Default 32; with 64 a ping waits longer for its timeslot.
    pub batch_slots: u32,
    /// Mean interval of an endpoint's control packets, in timeslots. Default 64.
    pub control_interval_slots: u32,
    /// Timeslots that a pair gets per visit while others wait. Default 1: pairs alternate.
    pub share_slots: u32,
    /// How long before it begins a batch is allocated, ns. Default 65 us.
    pub lead_ns: u64,
    /// Whether grants of two batches share a packet. Default true.
    pub coalesces_grants: bool,
}

impl Arbitration {
    /// Returns the defaults: the last of `hosts` schedules all others.
    pub const fn of(hosts: u32) -> Self {
        Self {
            arbiters: 1,
            endpoints: hosts - 1,
            reserve_permille: 10,
            batch_slots: 32,
            control_interval_slots: 64,
            share_slots: 1,
            lead_ns: 65_000,
            coalesces_grants: true,
        }
    }

    /// Returns the length of a timeslot, ns: a frame of `frame_len` and the reserve.
    pub const fn slot_ns(&self, link: &LinkConfig, frame_len: usize) -> u64 {
        let bits = 8 * (frame_len as u64 + link.overhead_bytes);
        let parts = bits * (1_000 + self.reserve_permille as u64);
        (parts * 1_000_000).div_ceil(link.rate_bits_per_s)
    }
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The topology.
    pub shape: Shape,
    /// Links between hosts and switches.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// Errors of the hosts' clocks.
    pub clocks: ClockConfig,
    /// Congestion control of TCP.
    pub congestion_control: CongestionControl,
    /// TCP flows.
    pub flows: Vec<Flow>,
    /// The pings, each between two hosts.
    pub pings: Vec<Ping>,
    /// Raw frames.
    pub offer: Option<OfferedLoad>,
    /// The arbiters; `None` without scheduling.
    pub arbitration: Option<Arbitration>,
    /// How late a scheduled host sends at most, ns: Fastpass's "jitter in endpoint transmission
    /// times" (section 7.1). Default 0.
    pub jitter_ns_max: u64,
    /// Whether slot frames have strict priority on every link. Then an [`Egress`](crate::Egress)
    /// only counts those.
    pub prioritizes_slots: bool,
    /// Whether every grant is checked.
    pub checks_grants: bool,
    /// Seed of all random decisions.
    pub seed: u64,
}

impl Setup {
    /// Returns the rack of the paper: 32 hosts at 10 Gbit/s on one switch, exact clocks, TCP that
    /// reacts to loss, and no traffic. Links have 1 us of latency (an assumption, as the paper
    /// names none; a cut-through switch and a cable take less, a network card more).
    pub fn rack() -> Self {
        let link = LinkConfig {
            rate_bits_per_s: 10_000_000_000,
            propagation_ns: 1_000,
            queue_bytes_max: RACK_QUEUE_BYTES,
            ecn_threshold_bytes: MARK_BYTES,
            ..LinkConfig::default()
        };
        Self {
            shape: Shape::star(32).expect("a switch has that many ports"),
            host_link: link,
            switch_link: link,
            clocks: ClockConfig::default(),
            congestion_control: CongestionControl::Reno,
            flows: Vec::new(),
            pings: Vec::new(),
            offer: None,
            arbitration: None,
            jitter_ns_max: 0,
            prioritizes_slots: false,
            checks_grants: false,
            seed: 1,
        }
    }

    /// Returns the setup with an arbiter on the last host.
    #[must_use]
    pub fn scheduled(self) -> Self {
        let arbitration = Some(Arbitration::of(self.shape.host_count()));
        Self { arbitration, ..self }
    }

    /// Returns the payload of a full TCP segment, in bytes. With an arbiter it is shorter: a packet
    /// in a timeslot is behind the headers of its frame and two bytes for its length.
    pub fn segment_len(&self) -> u32 {
        let raw = TcpConfig::new(ProcessId(0), Port(0));
        let head_len = raw.frame_len_max() as u32 - raw.segment_len;
        let around_bytes = (SHORT_HEADER_LEN + SLOT_HEADER_LEN) as u32 + 2;
        match self.arbitration {
            None => raw.segment_len,
            Some(_) => FRAME_LEN_MAX as u32 - around_bytes - head_len,
        }
    }

    /// Returns the bytes of a full frame with link overhead.
    pub fn full_len(&self) -> u64 {
        FRAME_LEN_MAX as u64 + self.host_link.overhead_bytes
    }

    /// Returns the length of a timeslot, ns; without an arbiter, that of a full frame.
    pub fn slot_ns(&self) -> u64 {
        let whole = Arbitration { reserve_permille: 0, ..Arbitration::of(2) };
        let arbitration = self.arbitration.unwrap_or(whole);
        arbitration.slot_ns(&self.host_link, FRAME_LEN_MAX)
    }
}
