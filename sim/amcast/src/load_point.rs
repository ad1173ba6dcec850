//! The testbed of P4mCast's poster: throughput against latency.
//!
//! An injector of up to 10 Gbit/s, a leaf that leads, spines that follow, a host that delivers.
//! The poster has one spine; its group is "hypothetically" of three. Here are two.

use onepipe_sim_engine::SECOND;
use onepipe_sim_network::{CpuConfig, LinkConfig};
use onepipe_topology::Shape;

use crate::setup::{Load, SendPattern, Setup};
use crate::world::World;

/// The poster's injector: "UDP traffic over 10Gb speed link": never more than that is offered. The
/// servers' other cards have 25 (Intel E810-XXVAM2), which is what all hosts are given here.
const INJECTOR_BITS_PER_S: u64 = 10_000_000_000;
const HOST_BITS_PER_S: u64 = 25_000_000_000;
/// From one end of a link to the other, a switch's pipeline included: 1Pipe's testbed
/// (`bench/figures`, `Calibration::PAPER`: link and host).
const LINK_NS: u64 = 762;
const HOST_NS: u64 = 338;
/// What is measured begins after so many ns and takes so many.
const WARM_NS: u64 = 300_000;
const MEASURE_NS: u64 = 1_000_000;
/// Bytes in front of a message of ours: the frame's header and the packet's.
const FRONT_LEN: usize = 52 + 64;

/// Who orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orderer {
    /// Members in switches.
    Switches,
    /// Processes on three hosts, whose processors need so much for each frame that they take or
    /// send, and for each thing said in it, in ns.
    Hosts {
        /// For each frame.
        frame_ns: u64,
        /// For each thing said.
        entry_ns: u64,
    },
}

/// One point of the figure.
#[derive(Clone, Copy, Debug)]
pub struct LoadPoint {
    /// Who orders.
    pub orderer: Orderer,
    /// Bytes of a request on the wire, without Ethernet, IP and UDP (66).
    pub packet_len: usize,
    /// Messages a second that the injector offers.
    pub offered_per_s: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadResult {
    /// Messages a second that were delivered at a replica.
    pub delivered_per_s: f64,
    /// From the request to the delivery, in ns: mean, median, and what 99 % take at most.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// What 99 % take at most.
    pub p99_ns: u64,
    /// Messages that the injector could not send, because too many were open.
    pub refused: u64,
    /// Frames that a queue had no room for.
    pub overflowed: u64,
}

impl LoadPoint {
    /// What the injector's link takes at most, in messages a second.
    pub fn line_rate_per_s(&self) -> u64 {
        INJECTOR_BITS_PER_S / 8 / (self.packet_len as u64 + 66)
    }

    fn setup(&self) -> Setup {
        let link = LinkConfig {
            propagation_ns: LINK_NS + HOST_NS,
            rate_bits_per_s: HOST_BITS_PER_S,
            ..LinkConfig::default()
        };
        let (is_rival, cpu, entry_ns) = match self.orderer {
            Orderer::Switches => (false, CpuConfig::default(), 0),
            Orderer::Hosts { frame_ns, entry_ns } => {
                let cpu =
                    CpuConfig { receive_ns: frame_ns, send_ns: frame_ns, ..CpuConfig::default() };
                (true, cpu, entry_ns)
            }
        };
        let bytes = self.packet_len.saturating_sub(FRONT_LEN).max(8);
        let pattern = SendPattern::Every(SECOND / self.offered_per_s.max(1));
        let shape = Shape::leaf_spine(1, 2, 8).expect("a fabric");
        Setup {
            host_link: link,
            switch_link: LinkConfig { propagation_ns: LINK_NS, ..LinkConfig::default() },
            cpu,
            entry_ns,
            is_rival,
            replicas: 1,
            window: 4_096,
            busy_threshold: 1 << 20,
            frame_len_max: 1_700,
            // Long behind the longest queue: what is late is not lost.
            rto_min_ns: 2_000_000,
            load: Load {
                messages: u32::MAX,
                bytes: (bytes, bytes),
                is_subset: false,
                pattern,
                shift: None,
            },
            checks_frames: false,
            ..Setup::new(shape)
        }
    }

    /// Runs it.
    ///
    /// # Panics
    /// When something was delivered out of order: then it measures nothing.
    pub fn run(&self) -> LoadResult {
        let mut world = World::new(&self.setup());
        let end_ns = WARM_NS + MEASURE_NS;
        world.run_until(end_ns);
        assert_eq!(world.checker().texts(), &[] as &[String]);
        // Of the rival every member delivers: the last of them.
        let replica = world.deliveries().iter().map(|one| one.replica).max().unwrap_or_default();
        let here = world.deliveries().iter().filter(|one| one.replica == replica);
        let counted = here.filter(|one| one.at_ns >= WARM_NS && one.at_ns < end_ns);
        let mut latencies: Vec<u64> = counted.map(|one| one.at_ns - one.sent_ns).collect();
        latencies.sort_unstable();
        let at = |part: f64| {
            let place = (latencies.len() as f64 * part) as usize;
            latencies.get(place.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let count = latencies.len() as f64;
        LoadResult {
            delivered_per_s: count * 1e9 / MEASURE_NS as f64,
            mean_ns: latencies.iter().sum::<u64>() as f64 / count.max(1.0),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            refused: world.refused(),
            overflowed: world.stats().drops.queue_full + world.stats().drops.ring_full,
        }
    }
}
