//! Everything that a run depends on.

use onepipe_base::{Port, ProcessId};
use onepipe_sim_network::{ClockConfig, LinkConfig};
use onepipe_sim_traffic::{CongestionControl, FlowSpec, TcpConfig};
use onepipe_topology::Shape;
use onepipe_wire::{HEADER_LEN, SLOT_HEADER_LEN};

/// The memory of the paper's switch for one port, in bytes: the longest queue that it has shown
/// (Fastpass section 7.1, experiment A, baseline, 99.9th percentile: 5,239 KB).
pub const RACK_QUEUE_BYTES: u64 = 5_240_000;
/// DCTCP's threshold for 10 Gbit/s: 65 packets of 1,500 bytes (Alizadeh and others, SIGCOMM 2010,
/// section 3.5).
const MARK_BYTES: u64 = 65 * 1_500;

/// Bytes of the longest frame: what fits a datagram on Ethernet.
pub(crate) const FRAME_LEN_MAX: usize = 1_472;

/// A flow of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// From whom, to whom, from when on, how long.
    pub spec: FlowSpec,
    /// When it ends, if it has not before, in ns of virtual time.
    pub closes_ns: Option<u64>,
}

impl Flow {
    /// From the start and without an end.
    pub const fn endless(from: u32, to: u32) -> Self {
        Self { spec: FlowSpec { at_ns: 0, from, to, bytes: None }, closes_ns: None }
    }
}

/// Somebody asks somebody else at a steady pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ping {
    /// Who asks.
    pub from: u32,
    /// Who answers.
    pub to: u32,
    /// From one question to the next, in ns.
    pub every_ns: u64,
}

/// Frames without a protocol, offered by every endpoint in every timeslot or not, by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OfferedLoad {
    /// Timeslots with a frame, of a thousand.
    pub load_permille: u32,
    /// Hosts that lie as close together as these are not sent to: those of one pod, for example.
    pub group_hosts: u32,
    /// Each sends to so many others, if there are as many: those that follow, so that each hears
    /// of as many.
    pub peers: u32,
    /// Until when, in ns of virtual time.
    pub until_ns: u64,
}

impl OfferedLoad {
    /// Such a load to all others, without an end.
    pub const fn to_all(load_permille: u32) -> Self {
        Self { load_permille, group_hosts: 1, peers: u32::MAX, until_ns: u64::MAX }
    }
}

/// Who schedules, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arbitration {
    /// Arbiters: the last hosts, of which the very last begins.
    pub arbiters: u32,
    /// Hosts that are scheduled: the first ones.
    pub endpoints: u32,
    /// Of each link part left to control packets, in thousandths. A timeslot is so much longer
    /// than a full frame takes. Default 10: "about 1%" (Fastpass section 7.1).
    pub reserve_permille: u32,
    /// Timeslots of a batch. Default 32: with 64 a question waits longer for its timeslot.
    pub batch_slots: u32,
    /// An endpoint sends a control packet in so many timeslots on average. Default 64.
    pub control_interval_slots: u32,
    /// Timeslots that a pair gets at a time while others wait. Default 1: turns, slot by slot.
    pub share_slots: u32,
    /// A batch is given out so long before it begins, in ns. Default 65 us (design: arbiter.md
    /// section 1).
    pub lead_ns: u64,
    /// Whether endpoints are told of two batches at a time. Default so.
    pub coalesces_grants: bool,
}

impl Arbitration {
    /// By the last of so many hosts, for all others.
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

    /// The length of a timeslot on such links, in ns: a frame of `frame_len`, and the reserve.
    pub const fn slot_ns(&self, link: &LinkConfig, frame_len: usize) -> u64 {
        let bits = 8 * (frame_len as u64 + link.overhead_bytes);
        let parts = bits * (1_000 + self.reserve_permille as u64);
        (parts * 1_000_000).div_ceil(link.rate_bits_per_s)
    }
}

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who is linked to whom.
    pub shape: Shape,
    /// Between hosts and their switch.
    pub host_link: LinkConfig,
    /// Between switches.
    pub switch_link: LinkConfig,
    /// How wrong the hosts' clocks are.
    pub clocks: ClockConfig,
    /// What TCP slows down for.
    pub congestion_control: CongestionControl,
    /// The flows.
    pub flows: Vec<Flow>,
    /// The questions.
    pub pings: Vec<Ping>,
    /// Frames without a protocol.
    pub offer: Option<OfferedLoad>,
    /// Who schedules; `None`: nobody.
    pub arbitration: Option<Arbitration>,
    /// Whether frames in timeslots go first, before every link, and all others wait for gaps. Then
    /// an [`Egress`](crate::Egress) sees nothing else.
    pub prioritizes_slots: bool,
    /// Whether every grant is looked at.
    pub checks_grants: bool,
    /// Whatever is left to chance.
    pub seed: u64,
}

impl Setup {
    /// The rack of the paper: 32 hosts at 10 Gbit/s on one switch, 1 us a link (an assumption: the
    /// paper names no latency; a cut-through switch and a cable take less, a network card more),
    /// clocks exact, TCP that reacts to loss, and no traffic.
    pub fn rack() -> Self {
        let link = LinkConfig {
            rate_bits_per_s: 10_000_000_000,
            propagation_ns: 1_000,
            queue_bytes_max: RACK_QUEUE_BYTES,
            mark_bytes: MARK_BYTES,
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
            prioritizes_slots: false,
            checks_grants: false,
            seed: 1,
        }
    }

    /// The same with an arbiter on the last host.
    #[must_use]
    pub fn scheduled(self) -> Self {
        let arbitration = Some(Arbitration::of(self.shape.host_count()));
        Self { arbitration, ..self }
    }

    /// Bytes of a stream in a full segment. Under an arbiter they are fewer: a packet in a
    /// timeslot is within a frame that has headers of its own, and two bytes for its length.
    pub fn segment_len(&self) -> u32 {
        let raw = TcpConfig::new(ProcessId(0), Port(0));
        let head_len = raw.frame_len_max() as u32 - raw.segment_len;
        let around_bytes = (HEADER_LEN + SLOT_HEADER_LEN) as u32 + 2;
        match self.arbitration {
            None => raw.segment_len,
            Some(_) => FRAME_LEN_MAX as u32 - around_bytes - head_len,
        }
    }

    /// Bytes of a full frame, with what it costs on the wire.
    pub fn full_len(&self) -> u64 {
        FRAME_LEN_MAX as u64 + self.host_link.overhead_bytes
    }

    /// The length of a timeslot, or of a full frame where nobody schedules, in ns.
    pub fn slot_ns(&self) -> u64 {
        let whole = Arbitration { reserve_permille: 0, ..Arbitration::of(2) };
        let arbitration = self.arbitration.unwrap_or(whole);
        arbitration.slot_ns(&self.host_link, FRAME_LEN_MAX)
    }
}
