//! A seed decides everything: shape, clocks, load, faults and their rates. First a phase in which
//! anything may happen and nothing may be wrong, then healing, and everybody must come back.

use onepipe_base::HostId;
use onepipe_sim_engine::{NANOSECOND, Random};
use onepipe_sim_network::{
    ClockConfig, CpuConfig, Fault, LinkConfig, LinkFaults, LinkId, Load, Loss, NodeId, Pace,
    Workload,
};
use onepipe_topology::{Shape, Spread};

use crate::{Fabric, Plan, Report};

const HOUR_NS: i64 = 3_600_000_000_000;
/// How long anything may happen, in us.
const WILD_US: u64 = 400;
/// How long messages may wait for their fate after healing: a receiver that is given up costs eight
/// probes, each twice as long after the last, from 200 us on.
const SETTLE_US: u64 = 200_000;

/// What a seed stands for.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The fabric and its load.
    pub plan: Plan,
    /// What befalls it: us after the load has started, and what.
    pub timeline: Vec<(u64, Mishap)>,
}

/// Something that befalls a fabric; numbers are taken modulo what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Every link gets these fault switches.
    AllLinks(LinkFaults),
    /// One link gets these fault switches.
    OneLink(u64, LinkFaults),
    /// A link goes down, one direction only.
    Cut(u64),
    /// A link works again.
    Mend(u64),
    /// A host or switch stops.
    Crash(u64),
    /// A host or switch starts anew.
    Restart(u64),
    /// A process ends.
    CrashProcess(u64),
    /// A process starts anew.
    RestartProcess(u64),
    /// A node's clock jumps by so many ns.
    Step(u64, i64),
    /// A node stands still for so many us.
    Pause(u64, u64),
    /// A process stops to release what it receives.
    Slow(u64),
    /// The first so many hosts and their own switches are cut off from the rest.
    Partition(u64),
}

impl Swarm {
    /// What `seed` stands for.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::named(seed, "swarm", 0);
        let plan = draw_plan(seed, &mut random);
        let mut timeline = Vec::new();
        for _ in 0..random.between(2, 5) {
            draw_mishap(&mut random, &mut timeline);
        }
        timeline.sort_by_key(|(at_us, _)| *at_us);
        Self { plan, timeline }
    }

    /// Runs it and reports.
    pub fn run(&self) -> Report {
        self.play().finish()
    }

    /// Runs it, up to where [`Fabric::finish`] is due.
    pub fn play(&self) -> Fabric {
        let mut fabric = Fabric::new(self.plan.clone());
        fabric.network().run_for(self.plan.load_starts_ns * NANOSECOND);
        let mut now_us = 0;
        for (at_us, mishap) in &self.timeline {
            fabric.run_us(at_us - now_us);
            now_us = *at_us;
            befall(&mut fabric, *mishap);
        }
        fabric.run_us(WILD_US - now_us);
        fabric.stop_load();
        fabric.heal();
        fabric.expect_liveness();
        scatter_to_everybody(&mut fabric);
        fabric.settle_us(SETTLE_US);
        fabric
    }
}

/// Draws what `seed` stands for and runs it.
pub fn swarm(seed: u64) -> Report {
    Swarm::draw(seed).run()
}

fn draw_plan(seed: u64, random: &mut Random) -> Plan {
    let shape = match random.below(8) {
        0..3 => Shape::star(random.between(2, 6) as u32),
        3..6 => Shape::leaf_spine(random.between(2, 3) as u32, random.between(1, 3) as u32, 2),
        6 => Shape::fat_tree(4),
        _ => Ok(Shape::testbed()),
    };
    let shape = shape.expect("small numbers are in range");
    let per_host = random.between(1, if shape.host_count() > 8 { 2 } else { 4 }) as u16;
    let mut plan = Plan::new(shape, per_host, seed, (100 + WILD_US) * 1_000);
    let link = LinkConfig {
        rate_bits_per_s: *random.pick(&[10, 25, 100, 400]) * 1_000_000_000,
        propagation_ns: *random.pick(&[50, 500, 500, 2_000]),
        queue_octets_max: *random.pick(&[20_000, 100_000, 300_000]),
        mark_octets: *random.pick(&[10_000, 60_000, 1 << 30]),
        ..LinkConfig::default()
    };
    plan.network.host_link = link;
    plan.network.switch_link = LinkConfig { propagation_ns: link.propagation_ns / 2 + 1, ..link };
    plan.network.clocks = ClockConfig {
        offset_ns_max: *random.pick(&[0, 100, 1_000, 20_000, 200_000]),
        drift_ppb_max: *random.pick(&[0, 10_000, 500_000]),
    };
    if random.below(4) == 0 {
        plan.network.cpu = CpuConfig {
            receive_ns: random.between(0, 100),
            send_ns: random.between(0, 100),
            poll_ns: *random.pick(&[0, 100, 1_000]),
            ring_frames_max: 1_000,
        };
    }
    let beacon_interval_ns = *random.pick(&[1_000, 3_000, 3_000, 10_000]);
    plan.switch.beacon_interval_ns = beacon_interval_ns;
    plan.switch.link_timeout_ns = 10 * beacon_interval_ns;
    plan.switch.start_wait_ns = 3 * beacon_interval_ns;
    plan.endpoint.beacon_interval_ns = beacon_interval_ns;
    plan.endpoint.link_timeout_ns = 10 * beacon_interval_ns;
    if random.below(4) == 0 {
        plan.switch.spread = Spread::PerPacket;
        plan.endpoint.reorder_packets = 0;
    }
    if random.below(4) == 0 {
        plan.endpoint.receive_buffer_octets_max = 1 << 20;
        plan.endpoint.message_octets_max = 1 << 18;
        plan.endpoint.window_octets_max = 1 << 14;
        plan.endpoint.send_buffer_octets_max = 1 << 19;
    }
    plan.load = Some(draw_load(random, plan.endpoint.message_octets_max));
    plan
}

fn draw_load(random: &mut Random, message_octets_max: u32) -> Load {
    let octets_max = match random.below(40) {
        0 => message_octets_max.min(1 << 20),
        1..10 => message_octets_max.min(60_000),
        _ => 3_000,
    };
    let workload = match random.below(3) {
        0 => Workload::AllToAll { fan_out: random.between(1, 8) as u32, octets: 64 },
        1 => Workload::Random { fan_out_max: random.between(1, 8) as u32, octets_max },
        _ => Workload::Random { fan_out_max: 2, octets_max: 200 },
    };
    let pace = match random.below(2) {
        0 => Pace::ClosedLoop { messages_max: random.between(1, 64) as u32 },
        _ => Pace::Every { ns: random.between(1_000, 20_000) },
    };
    Load { workload, pace }
}

/// One kind of mishap, and where it ends by itself, its end.
fn draw_mishap(random: &mut Random, timeline: &mut Vec<(u64, Mishap)>) {
    let at_us = random.below(WILD_US - 100);
    let until_us = at_us + random.between(5, 99);
    let target = random.bits();
    let mut add = |mishap| timeline.push((at_us, mishap));
    match random.below(14) {
        0..4 => {
            let faults = draw_faults(random);
            add(Mishap::AllLinks(faults));
        }
        4 | 5 => {
            let faults = draw_faults(random);
            add(Mishap::OneLink(target, faults));
        }
        6 => {
            add(Mishap::Cut(target));
            timeline.push((until_us, Mishap::Mend(target)));
        }
        7 | 8 => {
            add(Mishap::Crash(target));
            timeline.push((until_us, Mishap::Restart(target)));
        }
        9 => {
            add(Mishap::CrashProcess(target));
            timeline.push((until_us, Mishap::RestartProcess(target)));
        }
        10 => {
            let choices = [HOUR_NS, -HOUR_NS, 1_000, -1_000, 1_000_000, -1_000_000];
            add(Mishap::Step(target, *random.pick(&choices)));
        }
        11 => {
            let us = random.between(1, 150);
            add(Mishap::Pause(target, us));
        }
        12 => add(Mishap::Slow(target)),
        _ => add(Mishap::Partition(target)),
    }
}

fn draw_faults(random: &mut Random) -> LinkFaults {
    let mut faults = LinkFaults { delay_ns_max: random.between(10, 20_000), ..Default::default() };
    for _ in 0..random.between(1, 2) {
        match random.below(6) {
            0 => faults.loss = Loss::every(random.below(300_000) as u32),
            1 => faults.loss.beacon_ppm = random.below(500_000) as u32,
            2 => {
                (faults.burst_ppm, faults.burst_frames) =
                    (random.below(5_000) as u32, random.between(2, 40) as u32);
            }
            3 => faults.corrupt_ppm = random.below(200_000) as u32,
            4 => faults.duplicate_ppm = random.below(500_000) as u32,
            _ => faults.reorder_ppm = random.below(300_000) as u32,
        }
    }
    faults
}

fn befall(fabric: &mut Fabric, mishap: Mishap) {
    let links = fabric.network().links().count() as u64;
    let nodes = u64::from(fabric.network().nodes());
    let processes = u64::from(fabric.members());
    let link = |number: u64| LinkId((number % links) as u32);
    let node = |number: u64| NodeId((number % nodes) as u32);
    let process = |number: u64| (number % processes) as u32;
    match mishap {
        Mishap::AllLinks(faults) => fabric.switch_faults(faults),
        Mishap::OneLink(number, faults) => fabric.inflict(Fault::Switches(link(number), faults)),
        Mishap::Cut(number) => fabric.inflict(Fault::Cut(link(number))),
        Mishap::Mend(number) => fabric.inflict(Fault::Mend(link(number))),
        Mishap::Crash(number) => fabric.inflict(Fault::Crash(node(number))),
        Mishap::Restart(number) => fabric.inflict(Fault::Restart(node(number))),
        Mishap::CrashProcess(number) => fabric.crash_process(process(number)),
        Mishap::RestartProcess(number) => fabric.restart_process(process(number)),
        Mishap::Step(number, ns) => fabric.inflict(Fault::StepClock(node(number), ns)),
        Mishap::Pause(number, us) => fabric.inflict(Fault::Pause(node(number), us * 1_000)),
        Mishap::Slow(number) => fabric.be_slow(process(number), true),
        Mishap::Partition(number) => partition(fabric, number),
    }
}

/// Cuts the first hosts, and the switches that serve only them, off.
fn partition(fabric: &mut Fabric, number: u64) {
    let hosts = fabric.topology().hosts();
    let inside = 1 + (number % u64::from(hosts)) as u32;
    let tors: Vec<NodeId> = (0..hosts)
        .filter_map(|host| {
            let card = onepipe_topology::End {
                node: onepipe_topology::Node::Host(HostId(host)),
                port: fabric.topology().network_card(),
            };
            (host < inside).then(|| fabric.topology().peer(card)).flatten()
        })
        .map(|end| fabric.node(end.node))
        .collect();
    let cut = fabric.network().border(|node| node.0 < inside || tors.contains(&node));
    cut.into_iter().for_each(|link| fabric.inflict(Fault::Cut(link)));
}

/// After healing the fabric must still work: everybody scatters to everybody.
fn scatter_to_everybody(fabric: &mut Fabric) {
    let processes = fabric.members();
    let everybody: Vec<(u32, u32)> = (0..processes).map(|to| (to, 64)).collect();
    for from in 0..processes {
        if let Some(Err(error)) = fabric.scatter(from, &everybody) {
            // A send buffer that is still full is lawful; the load's own messages must clear it.
            debug_assert!(
                matches!(error, onepipe_endpoint::SendError::BufferFull { .. }),
                "{error}"
            );
        }
    }
}
