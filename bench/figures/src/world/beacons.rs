//! What beacons take of links that carry nothing else.

use anyhow::Result;
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Config, HopKind, LinkConfig, Network};
use onepipe_topology::{Shape, Topology};
use onepipe_wire::HEADER_LEN;

use super::application::Bench;
use super::{Setup, System, Traffic};
use crate::Calibration;
use crate::experiment::Values;

/// Beacon intervals before anything is counted, and while it is.
const INTERVALS: u64 = 100;

/// The testbed with 32 processes that say nothing, all links with so many Gbit/s. Answers
/// `percent_of_link`, how much of a link beacons take in the mean, with what they cost on the wire,
/// and `beacons_per_interval`, how many a link carries.
pub(crate) fn beacon_share(interval_ns: u64, gbps: u32) -> Result<Values> {
    let calibration = Calibration { beacon_ns: interval_ns, ..Calibration::PAPER };
    let traffic = Traffic::Idle { every_ns: 1 << 40 };
    let setup = Setup { calibration, ..Setup::new(System::BestEffort, 32, traffic) };
    let topology = Topology::new(Shape::testbed(), 1)?;
    let Config { host_link, switch_link, .. } = calibration.network();
    let rate_bits_per_s = u64::from(gbps) * 1_000_000_000;
    let network = Config {
        host_link: LinkConfig { rate_bits_per_s, ..host_link },
        switch_link: LinkConfig { rate_bits_per_s, ..switch_link },
        ..calibration.network()
    };
    let bench = Bench::new(setup, topology.clone(), None)?;
    let mut network = Network::new(topology, network, 1, bench);
    let links = network.links().count() as f64;
    let kind = HopKind::ALL.iter().position(|kind| *kind == HopKind::Beacon);
    let kind = kind.expect("beacons are one of them");
    network.run_for(INTERVALS * interval_ns * NANOSECOND);
    let before = network.stats().hops_by_kind[kind];
    network.run_for(INTERVALS * interval_ns * NANOSECOND);
    let beacons = (network.stats().hops_by_kind[kind] - before) as f64;
    let each = beacons / links / INTERVALS as f64;
    let bytes = HEADER_LEN as f64 + host_link.overhead_bytes as f64;
    let percent = 100.0 * each * bytes * 8.0 / (interval_ns as f64 * f64::from(gbps));
    let values = [("percent_of_link", percent), ("beacons_per_interval", each)];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}
