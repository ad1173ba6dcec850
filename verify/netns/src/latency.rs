//! Measures the latency of commits over trees of aggregators, on the loopback of one machine.
//!
//! One thread polls all nodes in turn, so that the measurement shows the work on the path and the
//! wait for beacons, but not the scheduling of a busy machine.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use onepipe_base::{Incarnation, ProcessId};
use onepipe_daemon_switch::{Config as SwitchConfig, SoftwareSwitch};
use onepipe_endpoint::{Event, Message};
use onepipe_transport_driver::Idle;

use crate::node::{Node, connect_node};

/// Beacon interval of processes and aggregators, in ns; the 3 us of 1Pipe are for hardware.
const BEACON_INTERVAL_NS: u64 = 20_000;
/// Interval of heartbeats with beacons on demand, in ns, as in the crate `onepipe`.
const HEARTBEAT_INTERVAL_NS: u64 = 100_000_000;
const LEAVES: usize = 2;
const PROCESSES: u32 = 4;
/// Link timeout in ns: long enough that no node times out while others are polled.
const LINK_TIMEOUT_NS: u64 = 20_000_000_000;
const WARM_UP: usize = 200;
/// Pause before a scattering to a fabric at rest: half a heartbeat, in which nothing is promised.
const PAUSE: Duration = Duration::from_nanos(HEARTBEAT_INTERVAL_NS / 2);
/// Number of scatterings one after the other for each one after a pause.
const SCATTERINGS_PER_PAUSE: usize = 50;

struct Overlay {
    heartbeat_interval_ns: u64,
    aggregators: Vec<SoftwareSwitch>,
    nodes: Vec<Node>,
    delivered: u32,
}

impl Overlay {
    /// Builds a tree of `levels` aggregators: one with all processes, or a chain from the root down
    /// with two leaves at its end, which have the processes. `heartbeat_interval_ns`: 0 for beacons
    /// at the fixed interval.
    fn new(levels: usize, heartbeat_interval_ns: u64) -> Result<Self> {
        let mut overlay =
            Self { heartbeat_interval_ns, aggregators: vec![], nodes: vec![], delivered: 0 };
        let mut parent = None;
        for _ in 1..levels {
            parent = Some(overlay.add_aggregator(parent)?);
        }
        let leaf_count = if levels == 1 { 1 } else { LEAVES };
        let leaves = (0..leaf_count).map(|_| overlay.add_aggregator(parent));
        let leaves = leaves.collect::<Result<Vec<_>>>()?;
        for process in 0..PROCESSES {
            let leaf = leaves[process as usize % leaf_count];
            let tune = |config: &mut onepipe_endpoint::Config| {
                config.beacon_interval_ns = BEACON_INTERVAL_NS;
                config.heartbeat_interval_ns = heartbeat_interval_ns;
            };
            overlay.nodes.push(connect_node(leaf, process, Incarnation(1), tune, Idle::Spin)?);
        }
        Ok(overlay)
    }

    /// Starts an aggregator below `parent`. Returns its address.
    fn add_aggregator(&mut self, parent: Option<SocketAddr>) -> Result<SocketAddr> {
        let config = SwitchConfig {
            up: parent,
            beacon_interval_ns: BEACON_INTERVAL_NS,
            heartbeat_interval_ns: self.heartbeat_interval_ns,
            link_timeout_ns: LINK_TIMEOUT_NS,
            idle: Idle::Spin,
            ..SwitchConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)))
        };
        let aggregator = SoftwareSwitch::new(&config).context("cannot start an aggregator")?;
        let address = aggregator.local_addr();
        self.aggregators.push(aggregator);
        Ok(address)
    }

    /// Runs one turn of every aggregator and every node, and counts deliveries.
    fn poll_all(&mut self) {
        for aggregator in &mut self.aggregators {
            aggregator.turn(|_| {});
        }
        let delivered = &mut self.delivered;
        for node in &mut self.nodes {
            node.turn(|endpoint, event| {
                if let Event::Delivered(delivery) = event {
                    *delivered += 1;
                    endpoint.release(delivery);
                }
            });
        }
    }

    /// Scatters from node `from` to all processes and polls until all have delivered. Returns the
    /// time that this took, in ns.
    fn scatter(&mut self, from: usize) -> Result<u64> {
        let message = |to| Message { to: ProcessId(to), payload: b"twenty bytes of data" };
        let messages: Vec<_> = (0..PROCESSES).map(message).collect();
        let began = Instant::now();
        self.delivered = 0;
        self.nodes[from].machine_mut().scatter_reliably(&messages)?;
        while self.delivered < PROCESSES {
            self.poll_all();
            ensure!(
                began.elapsed().as_secs() < 10,
                "timeout: {} of {PROCESSES} messages were delivered within 10 s",
                self.delivered
            );
        }
        Ok(began.elapsed().as_nanos() as u64)
    }

    /// Scatters `count` times, each time after a pause. Returns the quantiles as text.
    fn measure(&mut self, count: usize, pause: Duration) -> Result<String> {
        let mut times = Vec::with_capacity(count);
        for round in 0..count {
            let paused = Instant::now();
            while paused.elapsed() < pause {
                self.poll_all();
            }
            times.push(self.scatter(round % PROCESSES as usize)?);
        }
        times.sort_unstable();
        let quantile_us = |q: f64| times[((times.len() - 1) as f64 * q) as usize] as f64 / 1e3;
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(quantile_us);
        Ok(format!("p50 {p50:.0} us, p90 {p90:.0} us, p99 {p99:.0} us"))
    }
}

/// Prints the time from a scattering to its last delivery for each number of levels, both modes of
/// beacons, one scattering after the other and after pauses.
pub(crate) fn run(count: usize) -> Result<()> {
    println!("reliable scatterings to {PROCESSES} processes, one at a time; beacons every 20 us:");
    for levels in 1..=3 {
        for (mode, heartbeat_interval_ns) in
            [("at the fixed interval", 0), ("on demand", HEARTBEAT_INTERVAL_NS)]
        {
            let mut overlay = Overlay::new(levels, heartbeat_interval_ns)?;
            for round in 0..WARM_UP {
                overlay.scatter(round % PROCESSES as usize)?;
            }
            let times = overlay.measure(count, Duration::ZERO)?;
            let paused = overlay.measure(count.div_ceil(SCATTERINGS_PER_PAUSE), PAUSE)?;
            let (direct, tree) = overlay.nodes.iter().fold((0, 0), |(direct, tree), node| {
                let stats = node.transport().overlay_stats();
                (direct + stats.frames_direct, tree + stats.frames_by_tree)
            });
            println!(
                "{levels} levels, {mode}: {times}; after {PAUSE:?} of rest {paused}; \
                 {direct} frames direct, {tree} by the tree",
            );
        }
    }
    Ok(())
}
