//! Parameters of a run.

use onepipe_endpoint::Service;
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;
use onepipe_wire::parse_header;

/// A scattering: one payload for some receivers, and small messages, different for each receiver,
/// for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scattering {
    /// Time of submission, in ns.
    pub at_ns: u64,
    /// The sender.
    pub from: u32,
    /// Receivers of the payload.
    pub to: Vec<u32>,
    /// Length of the payload, at least 8 bytes.
    pub bytes: usize,
    /// Receivers of a message of 8 bytes in the same scattering.
    pub small_to: Vec<u32>,
    /// The service.
    pub service: Service,
}

impl Scattering {
    /// Returns a reliable scattering without small messages.
    pub fn new(at_ns: u64, from: u32, to: Vec<u32>, bytes: usize) -> Self {
        Self { at_ns, from, to, bytes, small_to: vec![], service: Service::Reliable }
    }
}

/// Small messages that measure the latency of other traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Interval between the probes of a process, in ns; the receivers alternate.
    pub every_ns: u64,
    /// Time of the first probe, in ns.
    pub from_ns: u64,
    /// No probes are sent from this time on, in ns.
    pub until_ns: u64,
    /// The service.
    pub service: Service,
}

/// A fabric, its processes, and their traffic.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub shape: Shape,
    /// Number of hosts with a process; the first ones.
    pub processes: u32,
    /// Links of hosts.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// Maximum clock offset, in ns.
    pub clock_ns: u64,
    /// Whether the last host runs a controller.
    pub has_controller: bool,
    /// Frames lost on every link, in parts per million.
    pub loss_ppm: u32,
    /// Maximum length of a frame.
    pub frame_len_max: usize,
    /// Payloads longer than this, in bytes, are sent by bulk multicast.
    pub large_threshold_bytes: usize,
    /// Receive buffer for large payloads, in bytes.
    pub received_bytes_max: u64,
    /// Time without an answer after which a member of a bulk group has failed, in ns.
    pub dead_after_ns: u64,
    /// The scatterings.
    pub scatterings: Vec<Scattering>,
    /// Probes in addition.
    pub probes: Option<Probes>,
    /// Crashes: process, and time in ns.
    pub crashes: Vec<(u32, u64)>,
    /// Crashes: process, time in ns, and number of frames (without beacons) sent after that time
    /// before the crash.
    pub crashes_after: Vec<(u32, u64, u32)>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Setup {
    /// Returns a setup with a controller and links of 100 Gbit/s with two priority classes:
    /// switches forward messages before bulk multicast.
    pub fn new(shape: Shape, processes: u32) -> Self {
        let link = LinkConfig { classes: 2, ..LinkConfig::default() };
        Self {
            shape,
            processes,
            host_link: link,
            switch_link: link,
            clock_ns: 300,
            has_controller: true,
            loss_ppm: 0,
            frame_len_max: 1_472,
            large_threshold_bytes: 64 << 10,
            received_bytes_max: 1 << 30,
            dead_after_ns: 2_000_000,
            scatterings: vec![],
            probes: None,
            crashes: vec![],
            crashes_after: vec![],
            seed: 1,
        }
    }

    /// Returns the priority class of a frame: bulk multicast is lower.
    pub(crate) fn class(frame: &[u8]) -> u8 {
        parse_header(frame).is_ok_and(|(_, opcode)| opcode.is_bulk()).into()
    }
}
