//! Everything that a run depends on.

use onepipe_base::{Incarnation, ProcessId};
use onepipe_sim_network::{Load, origin_of};
use onepipe_topology::{Route, Shape, Table};

use crate::Bug;

/// Everything that a run depends on: equal plans give equal histories.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The switches and hosts.
    pub shape: Shape,
    /// Processes on each host.
    pub processes_per_host: u16,
    /// Whatever is left to chance.
    pub seed: u64,
    /// Links, queues, CPUs and clocks.
    pub network: onepipe_sim_network::Config,
    /// Every endpoint; who it is is filled in.
    pub endpoint: onepipe_endpoint::Config,
    /// Every switch, virtual ones included; ports and routes are filled in.
    pub switch: onepipe_switch::Config,
    /// What the processes say of their own accord.
    pub load: Option<Load>,
    /// When the load starts, in ns: everybody has joined by then.
    pub load_starts_ns: u64,
    /// What is wrong on purpose.
    pub bug: Option<Bug>,
    /// Whether a pair's messages shall come in the order of submission, not only of timestamps.
    pub checks_submission_order: bool,
}

impl Plan {
    /// The defaults for a shape. `run_ns`: about how long the run will be, so that a wrap of the
    /// wire's clock can be put into its middle (every fourth seed).
    pub fn new(shape: Shape, processes_per_host: u16, seed: u64, run_ns: u64) -> Self {
        let network = onepipe_sim_network::Config {
            sync_origin: origin_of(seed, run_ns / 2),
            ..onepipe_sim_network::Config::default()
        };
        let route = Route::Table(Table::new(1, false));
        Self {
            shape,
            processes_per_host,
            seed,
            network,
            endpoint: onepipe_endpoint::Config::new(ProcessId(0), Incarnation(0)),
            switch: onepipe_switch::Config::new(1, 1, route),
            load: None,
            load_starts_ns: 100_000,
            bug: None,
            checks_submission_order: false,
        }
    }

    /// How long a healthy fabric takes to deliver, and a healed one to be healthy, in ns
    /// (testing.md, bounds for L): base delay + skew + beacon / 2, and detection (10 beacon
    /// intervals) + 6 diameters + 15 us a host.
    pub fn liveness_bound_ns(&self, hosts: u32, hops_max: u32, skew_ns: u64) -> u64 {
        let hop_ns = |link: &onepipe_sim_network::LinkConfig| {
            let octets = link.queue_octets_max + self.network.frame_octets_max as u64;
            link.propagation_ns + octets * 8 * 1_000_000_000 / link.rate_bits_per_s
        };
        let hop_ns = hop_ns(&self.network.host_link).max(hop_ns(&self.network.switch_link));
        let cpu = self.network.cpu;
        let cpu_ns = cpu.poll_ns + (cpu.receive_ns + cpu.send_ns) * cpu.ring_frames_max as u64;
        let diameter_ns = u64::from(hops_max) * hop_ns + 2 * cpu_ns;
        let beacon_ns = self.switch.beacon_interval_ns.max(self.endpoint.beacon_interval_ns);
        let healthy_ns = diameter_ns + skew_ns + beacon_ns / 2;
        healthy_ns + 10 * beacon_ns + 6 * diameter_ns + 15_000 * u64::from(hosts)
    }
}
