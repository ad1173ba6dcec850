//! What a run is about.

use onepipe_endpoint::Service;
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;
use onepipe_wire::parse_header;

/// A scattering, and when it is submitted. One payload for all its receivers, and small ones that
/// are different for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scattering {
    /// When, in ns.
    pub at_ns: u64,
    /// Who.
    pub from: u32,
    /// To whom the payload goes.
    pub to: Vec<u32>,
    /// Bytes of the payload: 8 at least.
    pub bytes: usize,
    /// To whom the same scattering has a message of 8 bytes.
    pub small_to: Vec<u32>,
    /// By which service.
    pub service: Service,
}

impl Scattering {
    /// A reliable one.
    pub fn new(at_ns: u64, from: u32, to: Vec<u32>, bytes: usize) -> Self {
        Self { at_ns, from, to, bytes, small_to: vec![], service: Service::Reliable }
    }
}

/// Small messages that show how long others take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probes {
    /// Every process sends one so often, in ns, to one after the other.
    pub every_ns: u64,
    /// From then …
    pub from_ns: u64,
    /// … until then.
    pub until_ns: u64,
    /// By which service.
    pub service: Service,
}

/// A fabric, its processes, and what they say.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub shape: Shape,
    /// How many hosts have a process; the first ones.
    pub processes: u32,
    /// Links of hosts.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// Clocks lie up to so many ns apart from the right time.
    pub clock_ns: u64,
    /// Whether the last host is a controller's.
    pub has_controller: bool,
    /// Frames lost on every link, in parts per million.
    pub loss_ppm: u32,
    /// Bytes of the longest frame.
    pub frame_len_max: usize,
    /// A payload of more bytes goes by bulk.
    pub large_bytes: usize,
    /// Bytes of large payloads that a process takes at a time.
    pub received_bytes_max: u64,
    /// When a member of a bulk group counts as dead that answers nothing, in ns.
    pub dead_after_ns: u64,
    /// What is scattered.
    pub scatterings: Vec<Scattering>,
    /// Beside that.
    pub probes: Option<Probes>,
    /// Who dies, and when, in ns.
    pub deaths: Vec<(u32, u64)>,
    /// Who dies instead of sending so many frames more, beacons not counted, from when on.
    pub deaths_after: Vec<(u32, u64, u32)>,
    /// Everything that is drawn.
    pub seed: u64,
}

impl Setup {
    /// `processes` on a fabric with a controller and links of 100 Gbit/s in two classes: messages
    /// go before bulk multicast in switches, too.
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
            large_bytes: 64 << 10,
            received_bytes_max: 1 << 30,
            dead_after_ns: 2_000_000,
            scatterings: vec![],
            probes: None,
            deaths: vec![],
            deaths_after: vec![],
            seed: 1,
        }
    }

    /// The class of a frame: bulk multicast comes last.
    pub(crate) fn class(frame: &[u8]) -> u8 {
        parse_header(frame).is_ok_and(|(_, opcode)| opcode.is_bulk()).into()
    }
}
