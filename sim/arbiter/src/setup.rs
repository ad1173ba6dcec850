//! Everything that a run depends on.

use onepipe_sim_network::{ClockConfig, LinkConfig};
use onepipe_sim_traffic::{Demand, React};
use onepipe_topology::Shape;

/// The memory of the paper's switch for one port, in octets: the longest queue that it has shown
/// (Fastpass section 7.1, experiment A, baseline, 99.9th percentile: 5,239 KB).
pub const RACK_QUEUE_OCTETS: u64 = 5_240_000;
/// DCTCP's threshold for 10 Gbit/s: 65 packets of 1,500 octets (Alizadeh and others, SIGCOMM 2010,
/// section 3.5).
const MARK_OCTETS: u64 = 65 * 1_500;

/// A flow of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// From whom, to whom, from when on, how long.
    pub demand: Demand,
    /// When it ends, if it has not before, in ns of virtual time.
    pub closes_ns: Option<u64>,
}

impl Flow {
    /// From the start and without an end.
    pub const fn endless(from: u32, to: u32) -> Self {
        Self { demand: Demand { at_ns: 0, from, to, octets: None }, closes_ns: None }
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
    pub react: React,
    /// The flows.
    pub flows: Vec<Flow>,
    /// The questions.
    pub pings: Vec<Ping>,
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
            queue_octets_max: RACK_QUEUE_OCTETS,
            mark_octets: MARK_OCTETS,
            ..LinkConfig::default()
        };
        Self {
            shape: Shape::star(32).expect("a switch has that many ports"),
            host_link: link,
            switch_link: link,
            clocks: ClockConfig::default(),
            react: React::Loss,
            flows: Vec::new(),
            pings: Vec::new(),
            seed: 1,
        }
    }
}
