//! Throughput against latency in the testbed of P4mCast's poster.
//!
//! An injector of up to 10 Gbit/s, a leaf with the leader, spines with the followers, and a host
//! that delivers. The poster has one spine, and its group is "hypothetically" of three; here are
//! two spines.

use onepipe_sim_engine::SECOND;
use onepipe_sim_network::{CpuConfig, LinkConfig};
use onepipe_topology::Shape;
use onepipe_wire::{AMCAST_LEN, SHORT_HEADER_LEN};

use crate::env::SimEnv;
use crate::setup::{Load, SendPattern, Setup};

/// Rate of the poster's injector ("UDP traffic over 10Gb speed link"), the upper bound of the load.
/// The other network cards of its servers have 25 Gbit/s (Intel E810-XXVAM2), which all hosts have
/// here.
const INJECTOR_BITS_PER_S: u64 = 10_000_000_000;
const HOST_BITS_PER_S: u64 = 25_000_000_000;
/// Latency of a link in ns including a switch's pipeline, and of a host: 1Pipe's testbed
/// (`Calibration::PAPER` in `bench/figures`).
const LINK_NS: u64 = 762;
const HOST_NS: u64 = 338;
/// Warm-up and duration of the measurement, in ns.
const WARM_NS: u64 = 300_000;
const MEASURE_NS: u64 = 1_000_000;
/// Length of the headers in front of a message, in bytes: the frame's and the packet's.
const FRONT_LEN: usize = SHORT_HEADER_LEN + AMCAST_LEN;

/// System that orders the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orderer {
    /// Members in switches.
    Switches,
    /// Processes on three hosts, with CPU costs in ns for each frame sent or received and for each
    /// entry in it.
    Hosts {
        /// Cost per frame.
        frame_ns: u64,
        /// Cost per entry.
        entry_ns: u64,
    },
}

/// Point of the figure.
#[derive(Clone, Copy, Debug)]
pub struct LoadPoint {
    /// System that orders the messages.
    pub orderer: Orderer,
    /// Length of a request on the wire, without the 66 bytes for Ethernet, IP and UDP.
    pub packet_len: usize,
    /// Offered load in messages per second.
    pub offered_per_s: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadResult {
    /// Messages delivered at a replica, per second.
    pub delivered_per_s: f64,
    /// Mean latency from the request to the delivery, in ns.
    pub mean_ns: f64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// Messages refused because the window was full.
    pub refused: u64,
    /// Frames dropped because a queue was full.
    pub overflowed: u64,
}

impl LoadPoint {
    /// Returns the rate of the injector's link in messages per second.
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
            // Longer than any queueing delay: late messages are not lost.
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

    /// Runs the simulation.
    ///
    /// # Panics
    /// If messages were delivered out of order.
    pub fn run(&self) -> LoadResult {
        let mut env = SimEnv::new(&self.setup());
        let end_ns = WARM_NS + MEASURE_NS;
        env.run_until(end_ns);
        assert_eq!(env.checker().descriptions(), &[] as &[String]);
        // With the rival all members deliver: use the last one.
        let replica = env.deliveries().iter().map(|one| one.replica).max().unwrap_or_default();
        let here = env.deliveries().iter().filter(|one| one.replica == replica);
        let counted = here.filter(|one| one.at_ns >= WARM_NS && one.at_ns < end_ns);
        let mut latencies: Vec<u64> = counted.map(|one| one.at_ns - one.sent_ns).collect();
        latencies.sort_unstable();
        let at = |part: f64| {
            let index = (latencies.len() as f64 * part) as usize;
            latencies.get(index.min(latencies.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let count = latencies.len() as f64;
        LoadResult {
            delivered_per_s: count * 1e9 / MEASURE_NS as f64,
            mean_ns: latencies.iter().sum::<u64>() as f64 / count.max(1.0),
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            refused: env.refused(),
            overflowed: env.stats().drops.queue_full + env.stats().drops.ring_full,
        }
    }
}
