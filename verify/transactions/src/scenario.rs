//! A random scenario: a cluster, its load, and the faults that it must tolerate.

use std::collections::BTreeSet;

use onepipe_base::ProcessId;
use onepipe_kv::Store;
use onepipe_sim_engine::Random;
use onepipe_sim_network::{ClockConfig, CpuConfig, Fault, LinkFaults, Loss, NodeId};
use onepipe_sim_scenarios::Plan;
use onepipe_topology::{Shape, Topology};
use onepipe_transaction::{ClientOptions, Placement, Replica};

use crate::cluster::Cluster;
use crate::recorded::{Mix, Recorded};
use crate::setup::Setup;

/// Time before the load, in us: all processes have joined by then.
pub(crate) const JOIN_US: u64 = 300;
/// Beacon intervals in a link timeout: a paused host is not removed for this long.
const TIMEOUT_INTERVALS: u64 = 40;
/// Longest pause of a switch, in link timeouts.
const PAUSE_TIMEOUTS_MAX: u64 = 10;
/// Limit on the steps of a run.
const STEPS_MAX: u64 = 60_000_000;

/// A fault of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// Replaces the fault settings of all links.
    Links(LinkFaults),
    /// Crashes a process.
    Crash(ProcessId),
    /// Restarts a process that has crashed: its replica has to catch up.
    Restart(ProcessId),
    /// Crashes a process if this other replica of its shard, which was restarted, has caught up.
    CrashAfter(ProcessId, ProcessId),
    /// Crashes a host with all its processes.
    CrashHost(u32),
    /// Restarts a host whose processes have crashed: their replicas have to catch up.
    RestartHost(u32),
    /// Pauses a host or a switch for this time in us.
    Pause(NodeId, u64),
    /// Steps the clock of a host by this time in ns.
    Step(u32, i64),
}

impl FaultEvent {
    /// Returns the name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Links(_) => "faulty links",
            Self::Crash(_) => "process crashed",
            Self::CrashAfter(..) => "last replica crashed after another has caught up",
            Self::Restart(_) => "process restarted",
            Self::CrashHost(_) => "host crashed",
            Self::RestartHost(_) => "host restarted",
            Self::Pause(..) => "node paused",
            Self::Step(..) => "clock stepped",
        }
    }

    /// Injects the fault.
    pub(crate) fn inject(self, cluster: &mut Cluster<Store, Recorded>) {
        match self {
            Self::Links(faults) => cluster.set_link_faults(faults),
            Self::Crash(process) => cluster.crash(process),
            Self::CrashAfter(process, other) => {
                if cluster.replica(other).is_some_and(Replica::is_serving) {
                    cluster.crash(process);
                }
            }
            Self::Restart(process) => cluster.restart(process),
            Self::CrashHost(host) => cluster.inject(Fault::Crash(NodeId(host))),
            Self::RestartHost(host) => cluster.inject(Fault::Restart(NodeId(host))),
            Self::Pause(node, us) => cluster.inject(Fault::Pause(node, us * 1_000)),
            Self::Step(host, ns) => cluster.inject(Fault::StepClock(NodeId(host), ns)),
        }
    }
}

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The cluster.
    pub setup: Setup,
    /// The transactions.
    pub mix: Mix,
    /// Length of the load, in us.
    pub load_us: u64,
    /// The faults, each with its time in us after the start of the load.
    pub timeline: Vec<(u64, FaultEvent)>,
    /// A client that no fault ends.
    pub reader: ProcessId,
}

impl Scenario {
    /// Draws the scenario of `seed`.
    pub fn draw(seed: u64) -> Self {
        let random = &mut Random::named(seed, "transactions", 0);
        let (shards, replicas) = (random.between(1, 4) as u16, random.between(1, 3) as u16);
        let per_host = random.between(1, 2) as u16;
        let servers = u32::from(shards) * u32::from(replicas);
        let clients = random.between(2, 4) as u32;
        let processes = (servers + clients).next_multiple_of(per_host.into());
        // The controller has the last host.
        let hosts = processes / u32::from(per_host) + 1;
        let shape = match random.below(3) {
            0 => Shape::star(hosts),
            1 => Shape::leaf_spine(2, 2, hosts.div_ceil(2)),
            _ => Shape::leaf_spine(3, 2, hosts.div_ceil(3)),
        };
        let shape = shape.expect("small numbers are in range");
        let load_us = random.between(1_000, 3_000);
        let mut plan = Plan::new(shape, per_host, seed, (JOIN_US + load_us) * 1_000);
        draw_network(&mut plan, random);
        let placement = Placement::consecutive(0, shards, replicas).expect("small numbers");
        let mut setup = Setup::new(plan, processes, placement);
        if random.below(2) == 0 {
            // Replicas and clients are apart.
            setup.clients = (servers..processes).collect();
        }
        setup.terminals = random.between(1, 3) as u32;
        let timeout_ns = *random.pick(&[200_000, 1_000_000]);
        setup.client = ClientOptions {
            // All parts to each replica, or its own alone.
            is_durable: timeout_ns > 200_000,
            timeout_ns,
            timeout_min_ns: timeout_ns / 10,
            snapshot_attempts_max: random.below(4) as u32,
            ..ClientOptions::default()
        };
        let mix = Mix {
            shards,
            keys: random.between(1, 6) as u32,
            operations_max: random.between(1, 4),
            reads_percent: *random.pick(&[30, 50, 70]),
            pause_ns_max: *random.pick(&[3_000, 20_000, 60_000]),
        };
        let reader = ProcessId(processes - 1);
        let mut faults = Faults::new(&setup, reader, load_us, random);
        for _ in 0..random.between(0, 5) {
            faults.draw(random);
        }
        if replicas > 1 && random.below(3) == 0 {
            faults.replace(&setup.placement, random);
        }
        // With one reply, a write is complete before another replica has it, so that reads of that
        // replica have to wait.
        setup.client.acks_min = *random.pick(&[1, usize::MAX]);
        let load_us = faults.load_us;
        let mut timeline = faults.timeline;
        timeline.sort_by_key(|(at_us, _)| *at_us);
        Self { setup, mix, load_us, timeline, reader }
    }
}

/// Draws clocks, CPU costs and intervals, and sets timeouts that tolerate the pauses.
pub fn draw_network(plan: &mut Plan, random: &mut Random) {
    plan.network.steps_max = STEPS_MAX;
    plan.network.clocks = ClockConfig {
        offset_ns_max: *random.pick(&[0, 300, 5_000, 100_000]),
        drift_ppb_max: *random.pick(&[0, 10_000, 200_000]),
    };
    if random.below(4) == 0 {
        plan.network.cpu = CpuConfig {
            receive_ns: random.between(0, 100),
            send_ns: random.between(0, 100),
            poll_ns: *random.pick(&[0, 500]),
            ring_frames_max: 1_000,
        };
    }
    plan.set_beacon_interval(*random.pick(&[3_000, 3_000, 5_000]));
    if random.below(3) == 0 {
        plan.set_on_demand(*random.pick(&[5, 20]));
    }
    Setup::add_controller(plan);
    // As in the calm scenarios of ordered scattering, no pause makes a process count as failed.
    let timeout_ns =
        (TIMEOUT_INTERVALS * plan.switch.beacon_interval_ns).max(plan.switch.link_timeout_ns);
    (plan.switch.link_timeout_ns, plan.endpoint.link_timeout_ns) = (timeout_ns, timeout_ns);
    let silent_ns = timeout_ns.max(10 * plan.switch.heartbeat_interval_ns);
    (plan.endpoint.probes_max, plan.endpoint.probe_timeout_min_ns) = (2, timeout_ns / 20);
    plan.endpoint.unknown_after_ns = 10 * PAUSE_TIMEOUTS_MAX * silent_ns;
    if let Some(control_plane) = &mut plan.control_plane {
        let controller = &mut control_plane.controller;
        plan.endpoint.rejoin_wait_ns =
            (PAUSE_TIMEOUTS_MAX * silent_ns).max(10 * controller.restart_ns);
        controller.silent_after_ns = silent_ns;
        controller.switch_wait_ns = 3 * PAUSE_TIMEOUTS_MAX * silent_ns;
        controller.grace_ns = 10 * silent_ns;
        controller.ping_timeout_ns = controller.ping_timeout_ns.max(2 * silent_ns);
    }
}

/// Draws faults that end neither the reader nor, for each shard, one replica.
struct Faults {
    timeline: Vec<(u64, FaultEvent)>,
    processes: u32,
    per_host: u32,
    hosts: u32,
    nodes: u32,
    protected: BTreeSet<u32>,
    load_us: u64,
    timeout_us: u64,
}

impl Faults {
    fn new(setup: &Setup, reader: ProcessId, load_us: u64, random: &mut Random) -> Self {
        let topology = Topology::new(setup.plan.shape, setup.plan.processes_per_host);
        let topology = topology.expect("the processes fit the shape");
        let mut protected = BTreeSet::from([reader.0]);
        for shard in 0..setup.placement.shards() {
            protected.insert(random.pick(setup.placement.replicas(shard)).0);
        }
        Self {
            timeline: Vec::new(),
            processes: setup.processes,
            per_host: setup.plan.processes_per_host.into(),
            hosts: topology.hosts(),
            nodes: topology.hosts() + topology.switches(),
            protected,
            load_us,
            timeout_us: setup.plan.switch.link_timeout_ns / 1_000,
        }
    }

    fn draw(&mut self, random: &mut Random) {
        let at_us = random.below(self.load_us);
        let until_us = at_us + random.between(50, 1_500);
        let process = random.below(self.processes.into()) as u32;
        let host = process / self.per_host;
        let ids = host * self.per_host..(host + 1) * self.per_host;
        let is_protected = self.protected.range(ids).next().is_some();
        match random.below(8) {
            0..3 => {
                self.timeline.push((at_us, FaultEvent::Links(draw_links(random))));
                self.timeline.push((until_us, FaultEvent::Links(LinkFaults::default())));
            }
            3 if !self.protected.contains(&process) => {
                self.timeline.push((at_us, FaultEvent::Crash(ProcessId(process))));
                if random.below(2) == 0 {
                    self.timeline.push((until_us, FaultEvent::Restart(ProcessId(process))));
                }
            }
            4 if !is_protected => {
                self.timeline.push((at_us, FaultEvent::CrashHost(host)));
                if random.below(2) == 0 {
                    self.timeline.push((until_us, FaultEvent::RestartHost(host)));
                }
            }
            5 => {
                let switches = u64::from(self.nodes - self.hosts);
                let switch = self.hosts + random.below(switches) as u32;
                let us = self.timeout_us * random.between(1, 2 * PAUSE_TIMEOUTS_MAX) / 2;
                self.timeline.push((at_us, FaultEvent::Pause(NodeId(switch), us)));
            }
            6 => {
                let ns = *random.pick(&[-1_000_000, -5_000, 5_000, 1_000_000]);
                self.timeline.push((at_us, FaultEvent::Step(host, ns)));
            }
            _ => {
                // A longer pause would end the process.
                let most = if is_protected { 7 } else { 40 };
                let us = self.timeout_us * random.between(1, most) / 10;
                self.timeline.push((at_us, FaultEvent::Pause(NodeId(host), us)));
            }
        }
    }
}

impl Faults {
    /// Replaces the replicas of a shard one by one, so that at the end none has had its state from
    /// the beginning.
    fn replace(&mut self, placement: &Placement, random: &mut Random) {
        let shard = random.below(placement.shards().into()) as u16;
        let mut replicas = placement.replicas(shard).to_vec();
        // The reader is no replica; the protected one comes last.
        replicas.sort_by_key(|process| self.protected.contains(&process.0));
        let mut at_us = random.below(self.load_us / 4);
        let mut replaced: Option<ProcessId> = None;
        for process in replicas {
            self.timeline.push((
                at_us,
                match replaced {
                    None => FaultEvent::Crash(process),
                    Some(other) => FaultEvent::CrashAfter(process, other),
                },
            ));
            at_us += random.between(50, 500);
            self.timeline.push((at_us, FaultEvent::Restart(process)));
            at_us += random.between(200, 1_500);
            replaced = Some(process);
        }
        self.load_us = self.load_us.max(at_us);
    }
}

/// Draws faults of all links.
pub fn draw_links(random: &mut Random) -> LinkFaults {
    let mut faults = LinkFaults { delay_ns_max: random.between(10, 10_000), ..Default::default() };
    match random.below(4) {
        0 => faults.loss = Loss::uniform(random.below(30_000) as u32),
        1 => faults.loss.data_ppm = random.below(100_000) as u32,
        2 => faults.corrupt_ppm = random.below(30_000) as u32,
        _ => {
            faults.duplicate_ppm = random.below(200_000) as u32;
            faults.reorder_ppm = random.below(100_000) as u32;
        }
    }
    faults
}
