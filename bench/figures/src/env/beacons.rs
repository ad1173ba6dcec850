//! Bandwidth of beacons on otherwise idle links.

use anyhow::Result;
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Config, HopKind, LinkConfig, Network};
use onepipe_topology::{Shape, Topology};
use onepipe_wire::HEADER_LEN;

use super::application::TestbedApp;
use super::{Setup, System, Traffic};
use crate::Calibration;
use crate::values::Values;

/// Number of beacon intervals of the warm-up, and again of the measurement.
const INTERVALS: u64 = 100;

/// Runs the testbed with 32 idle processes. Returns `percent_of_link`, the mean share of a link's
/// bandwidth that beacons take, including their overhead on the wire, and `beacons_per_interval`,
/// the number of beacons on a link.
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
    let app = TestbedApp::new(setup, topology.clone(), None)?;
    let mut network = Network::new(topology, network, 1, app);
    let links = network.links().count() as f64;
    let kind = HopKind::ALL.iter().position(|kind| *kind == HopKind::Beacon);
    let kind = kind.expect("beacons are one of the kinds");
    network.run_for(INTERVALS * interval_ns * NANOSECOND);
    let before = network.stats().hops_by_kind[kind];
    network.run_for(INTERVALS * interval_ns * NANOSECOND);
    let beacons = (network.stats().hops_by_kind[kind] - before) as f64;
    let per_interval = beacons / links / INTERVALS as f64;
    let bytes = HEADER_LEN as f64 + host_link.overhead_bytes as f64;
    let percent = 100.0 * per_interval * bytes * 8.0 / (interval_ns as f64 * f64::from(gbps));
    let values = [("percent_of_link", percent), ("beacons_per_interval", per_interval)];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}
