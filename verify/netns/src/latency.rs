//! Measures the latency of commits over trees of aggregators, on the loopback of one machine.
//!
//! One thread polls all nodes in turn, so that the measurement shows the work on the path and the
//! wait for beacons, but not the scheduling of a busy machine.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use onepipe_base::{Incarnation, ProcessId};
use onepipe_daemon_switch::{Config as SwitchConfig, SoftwareSwitch};
use onepipe_endpoint::{Event, Message};
use onepipe_transport_driver::Idle;

use crate::node::{Node, connect_node};

/// Beacon interval of processes and aggregators, in ns; the 3 us of 1Pipe are for hardware.
const BEACON_INTERVAL_NS: u64 = 20_000;
const LEAVES: usize = 2;
const PROCESSES: u32 = 4;
/// Link timeout in ns: no node times out while others are polled.
const LINK_TIMEOUT_NS: u64 = 20_000_000_000;
const WARM_UP: usize = 200;

struct Overlay {
    aggregators: Vec<SoftwareSwitch>,
    nodes: Vec<Node>,
    delivered: u32,
}

impl Overlay {
    /// Builds a tree of aggregators: a single one, or leaves below a chain that ends in a root.
    fn new(levels: usize) -> Result<Self> {
        let mut overlay = Self { aggregators: vec![], nodes: vec![], delivered: 0 };
        let mut up = None;
        for _ in 1..levels {
            up = Some(overlay.aggregator(up)?);
        }
        let leaves = if levels == 1 { 1 } else { LEAVES };
        let parents = (0..leaves).map(|_| overlay.aggregator(up)).collect::<Result<Vec<_>>>()?;
        for process in 0..PROCESSES {
            let parent = parents[process as usize % leaves];
            let tune = |config: &mut onepipe_endpoint::Config| {
                config.beacon_interval_ns = BEACON_INTERVAL_NS;
            };
            overlay.nodes.push(connect_node(parent, process, Incarnation(1), tune, Idle::Spin)?);
        }
        Ok(overlay)
    }

    fn aggregator(&mut self, up: Option<SocketAddr>) -> Result<SocketAddr> {
        let config = SwitchConfig {
            up,
            beacon_interval_ns: BEACON_INTERVAL_NS,
            link_timeout_ns: LINK_TIMEOUT_NS,
            idle: Idle::Spin,
            ..SwitchConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)))
        };
        let aggregator = SoftwareSwitch::new(&config).context("cannot start an aggregator")?;
        let at = aggregator.local_addr();
        self.aggregators.push(aggregator);
        Ok(at)
    }

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

    /// Scatters to all processes and waits for all deliveries. Returns the time in ns.
    fn scatter(&mut self, from: usize) -> Result<u64> {
        let message = |to| Message { to: ProcessId(to), payload: b"a message of sixteen" };
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
}

/// Prints the time from a scattering to its last delivery for each number of levels.
pub(crate) fn run(count: usize) -> Result<()> {
    println!("reliable scatterings to {PROCESSES} processes, one at a time, beacons every 20 us");
    for levels in 1..=3 {
        let mut overlay = Overlay::new(levels)?;
        for round in 0..WARM_UP {
            overlay.scatter(round % PROCESSES as usize)?;
        }
        let mut times = (0..count)
            .map(|round| overlay.scatter(round % PROCESSES as usize))
            .collect::<Result<Vec<u64>>>()?;
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        let (direct, tree) = overlay.nodes.iter().fold((0, 0), |(direct, tree), node| {
            let stats = node.transport().overlay_stats();
            (direct + stats.frames_direct, tree + stats.frames_by_tree)
        });
        println!(
            "{levels} levels: p50 {:.0} us, p90 {:.0} us, p99 {:.0} us; {direct} frames direct, \
             {tree} by the tree",
            at(0.5),
            at(0.9),
            at(0.99)
        );
    }
    Ok(())
}
