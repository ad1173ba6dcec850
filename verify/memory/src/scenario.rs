//! A random scenario: a cluster, its load, and the faults that it must tolerate.

use std::collections::BTreeSet;

use onepipe_base::ProcessId;
use onepipe_memory::ClientOptions;
use onepipe_sim_engine::Random;
use onepipe_sim_network::{Fault, LinkFaults, NodeId};
use onepipe_sim_scenarios::Plan;
use onepipe_sim_traffic::CpuTimes;
use onepipe_table::{Layout, TableOptions};
use onepipe_topology::{Shape, Topology};
use onepipe_verify_transactions::{draw_links, draw_network};

use crate::cluster::Cluster;
use crate::recorded::{Mix, Recorded};
use crate::setup::Setup;

/// Time before the load, in us: all processes have joined by then.
pub(crate) const JOIN_US: u64 = 300;
/// Longest pause of a switch, in link timeouts.
const PAUSE_TIMEOUTS_MAX: u64 = 10;

/// A fault of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// Replaces the fault settings of all links.
    Links(LinkFaults),
    /// Crashes a process. An owner never returns: its memory is lost.
    Crash(ProcessId),
    /// Restarts a process that has crashed, with a client of a new session.
    Restart(ProcessId),
    /// Crashes a host with all its processes.
    CrashHost(u32),
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
            Self::Restart(_) => "process restarted",
            Self::CrashHost(_) => "host crashed",
            Self::Pause(..) => "node paused",
            Self::Step(..) => "clock stepped",
        }
    }

    /// Injects the fault.
    pub(crate) fn inject(self, cluster: &mut Cluster<Recorded>) {
        match self {
            Self::Links(faults) => cluster.set_link_faults(faults),
            Self::Crash(process) => cluster.crash(process),
            Self::Restart(process) => cluster.restart(process),
            Self::CrashHost(host) => cluster.inject(Fault::Crash(NodeId(host))),
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
    /// The calls.
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
        let random = &mut Random::named(seed, "memory", 0);
        let (shards, replicas) = (random.between(1, 3) as u16, random.between(1, 4) as u32);
        let per_host = random.between(1, 2) as u16;
        let servers = u32::from(shards) * replicas;
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
        let load_us = random.between(500, 2_000);
        let mut plan = Plan::new(shape, per_host, seed, (JOIN_US + load_us) * 1_000);
        draw_network(&mut plan, random);
        let of_shard = |shard: u32| {
            (shard * replicas..(shard + 1) * replicas).map(ProcessId).collect::<Vec<_>>()
        };
        let mix = Mix {
            keys: random.between(1, 12),
            value_len: *random.pick(&[8, 24, 200]),
            look_ups_percent: *random.pick(&[20, 50, 80]),
            pause_ns_max: *random.pick(&[3_000, 20_000, 60_000]),
        };
        let layout = Layout {
            shards,
            buckets: random.between(1, 3) as u32,
            nodes: *random.pick(&[12, 200]),
            value_len: mix.value_len,
        };
        let timeout_ns = *random.pick(&[200_000, 1_000_000]);
        let memory = ClientOptions {
            timeout_ns,
            timeout_min_ns: timeout_ns / 10,
            ..ClientOptions::default()
        };
        let clients = match random.below(2) {
            0 => servers..processes,
            _ => 0..processes,
        };
        let setup = Setup {
            plan,
            processes,
            layout,
            replicas: (0..shards.into()).map(of_shard).collect(),
            clients: clients.collect(),
            terminals: random.between(1, 3) as u32,
            table: TableOptions { memory, reserved: random.between(1, 3) as u32 },
            cpu: CpuTimes::NONE,
        };
        let reader = ProcessId(processes - 1);
        let mut faults = Faults::new(&setup, reader, load_us, random);
        for _ in 0..random.between(0, 4) {
            faults.draw(random);
        }
        let mut timeline = faults.timeline;
        timeline.sort_by_key(|(at_us, _)| *at_us);
        Self { setup, mix, load_us, timeline, reader }
    }
}

/// Draws faults that end neither the reader nor, for each shard, one replica.
struct Faults {
    timeline: Vec<(u64, FaultEvent)>,
    processes: u32,
    per_host: u32,
    hosts: u32,
    nodes: u32,
    owners: u32,
    protected: BTreeSet<u32>,
    load_us: u64,
    timeout_us: u64,
}

impl Faults {
    fn new(setup: &Setup, reader: ProcessId, load_us: u64, random: &mut Random) -> Self {
        let topology = Topology::new(setup.plan.shape, setup.plan.processes_per_host);
        let topology = topology.expect("the processes fit the shape");
        let mut protected = BTreeSet::from([reader.0]);
        protected.extend(setup.replicas.iter().map(|replicas| random.pick(replicas).0));
        Self {
            timeline: Vec::new(),
            processes: setup.processes,
            per_host: setup.plan.processes_per_host.into(),
            hosts: topology.hosts(),
            nodes: topology.hosts() + topology.switches(),
            owners: setup.replicas.iter().map(|replicas| replicas.len() as u32).sum(),
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
                if process >= self.owners {
                    self.timeline.push((until_us, FaultEvent::Restart(ProcessId(process))));
                }
            }
            4 if !is_protected => self.timeline.push((at_us, FaultEvent::CrashHost(host))),
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
