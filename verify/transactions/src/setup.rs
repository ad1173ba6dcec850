//! Parameters of a cluster.

use std::collections::BTreeSet;

use onepipe_baselines::ClientOptions as RivalOptions;
use onepipe_sim_network::{ClockConfig, LinkConfig};
use onepipe_sim_scenarios::{ControlPlanePlan, Plan};
use onepipe_sim_traffic::CpuTimes;
use onepipe_topology::{Shape, ShapeError};
use onepipe_transaction::{ClientOptions, Placement, ReplicaOptions};

/// Parameters of a cluster. Equal setups with equal loads give equal histories.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Fabric, endpoints, switches, the seed, and at most one controller. The plan's load is not
    /// used. The controller has a host of its own, the last one.
    pub plan: Plan,
    /// Number of processes, a multiple of those on a host.
    pub processes: u32,
    /// Which processes have a replica of which shard.
    pub placement: Placement,
    /// Processes with a client.
    pub clients: BTreeSet<u32>,
    /// Number of transactions that a client has in flight.
    pub terminals: u32,
    /// Options of every client.
    pub client: ClientOptions,
    /// Options of every replica.
    pub replica: ReplicaOptions,
    /// Options of every client of a rival. Its `timeout_min_ns` is replaced by
    /// `plan.endpoint.probe_timeout_min_ns`.
    pub rival: RivalOptions,
    /// CPU times of a process.
    pub cpu: CpuTimes,
    /// CPU time of the controller for each process that it contacts, in ns: half for a frame that
    /// it sends and half for one that it receives. Beacons, Hello frames and announcements
    /// cost nothing.
    pub contact_ns: u64,
}

impl Setup {
    /// Creates a setup in which every process has a client with one terminal.
    pub fn new(plan: Plan, processes: u32, placement: Placement) -> Self {
        Self {
            plan,
            processes,
            placement,
            clients: (0..processes).collect(),
            terminals: 1,
            client: ClientOptions { is_durable: false, ..ClientOptions::default() },
            replica: ReplicaOptions::default(),
            rival: RivalOptions::default(),
            cpu: CpuTimes::NONE,
            contact_ns: 0,
        }
    }

    /// Creates the setup of 1Pipe's testbed with `processes` processes, spread as in its
    /// evaluation: up to 8 in one rack, 16 in two, 32 on one host each, then equally many on all
    /// 32 hosts. There is no controller.
    ///
    /// # Errors
    /// The shape is out of range.
    pub fn testbed(costs: &Costs, processes: u32, seed: u64) -> Result<Plan, ShapeError> {
        let shape = match processes {
            ..=8 => Shape::star(8)?,
            9..=16 => Shape::leaf_spine(2, 2, 8)?,
            _ => Shape::testbed(),
        };
        let per_host = processes.div_ceil(shape.host_count()).max(1) as u16;
        let mut plan = Plan::new(shape, per_host, seed, 1_000_000);
        // RoCE: pause frames instead of overflow (1Pipe section 7.1).
        let link = LinkConfig {
            propagation_ns: costs.link_ns,
            queue_bytes_max: 64 << 20,
            ..LinkConfig::default()
        };
        let propagation_ns = costs.link_ns + costs.host_ns;
        plan.network.host_link = LinkConfig { propagation_ns, ..link };
        plan.network.switch_link = link;
        plan.network.clocks = ClockConfig { offset_ns_max: costs.clock_ns, drift_ppb_max: 0 };
        plan.set_beacon_interval(costs.beacon_ns);
        Ok(plan)
    }

    /// Adds one controller to a plan.
    pub(crate) fn add_controller(plan: &mut Plan) {
        plan.set_control_plane(ControlPlanePlan::new(1, plan.switch.beacon_interval_ns));
    }
}

/// Costs of the testbed's components. Times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Link delay, including the switch at its end.
    pub link_ns: u64,
    /// Delay that a host adds on transmission and on reception.
    pub host_ns: u64,
    /// CPU times of a process.
    pub cpu: CpuTimes,
    /// Largest clock offset.
    pub clock_ns: u64,
    /// Beacon interval.
    pub beacon_ns: u64,
}

impl Costs {
    /// The testbed of 1Pipe, with the values that the figures of the total order use.
    pub const PAPER: Self =
        Self { link_ns: 762, host_ns: 338, cpu: CpuTimes::PAPER, clock_ns: 600, beacon_ns: 3_000 };
}
