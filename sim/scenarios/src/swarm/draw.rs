//! Draws a scenario from a seed.

use onepipe_controller::Recovery;
use onepipe_endpoint::ReceiveMode;
use onepipe_sim_engine::{Random, Span};
use onepipe_sim_network::{
    ClockConfig, CpuConfig, LinkConfig, LinkFaults, Load, Loss, Placement, SendPattern, Workload,
};
use onepipe_switch::Form;
use onepipe_topology::{Shape, Spread};

use super::{FaultEvent, Swarm};
use crate::{ControlPlanePlan, Plan};

const HOUR_NS: i64 = 3_600_000_000_000;
/// Length of the phase in which faults are injected, in us.
const FAULT_PHASE_US: u64 = 400;
/// Length of that phase with controllers, in us: longer, so that a second failure may occur during
/// the first recovery.
const FAULT_PHASE_WITH_CONTROLLERS_US: u64 = 1_000;
/// Largest fabric in which a process may be removed, in hosts.
const REMOVAL_HOSTS_MAX: u32 = 9;
/// How often a process that leaves is asked to come back.
const RETURNS_MAX: u64 = 10;
/// Step limit of a run. On fast links to 32 hosts without CPU costs a closed loop takes 25 million
/// steps (seeds 30000871, 80002228).
const STEPS_MAX: u64 = 60_000_000;

/// Draws the placement of the switches' machines. Independent of all other draws of the seed.
pub(super) fn placement(seed: u64) -> Placement {
    use Placement::{Chip, Delegate, SwitchCpu};
    *Random::named(seed, "placement", 0).pick(&[Chip, Chip, SwitchCpu, Delegate])
}

/// Draws whether controllers may be alone in a rack or on a host, with probability 1/4. Independent
/// of all other draws of the seed.
pub(super) fn isolates_controllers(seed: u64) -> bool {
    Random::named(seed, "seats", 0).below(4) == 0
}

/// Draws the interval of heartbeats in beacon intervals, with probability 1/2; otherwise beacons
/// leave at the fixed interval. Also draws who keeps the fixed interval all the same: switches (0),
/// processes (1) or, mostly, none. Independent of all other draws of the seed.
fn heartbeat_intervals(seed: u64) -> Option<(u64, u64)> {
    let mut random = Random::named(seed, "beacons", 0);
    (random.below(2) == 0).then(|| (*random.pick(&[5, 20, 50]), random.below(8)))
}

/// Draws how long chips hold acknowledgements for others to the same host, in ns: not at all with
/// probability 1/2. Independent of all other draws of the seed.
pub(super) fn ack_bundles(plan: &mut Plan, seed: u64) {
    let mut random = Random::named(seed, "bundles", 0);
    if plan.switch.form == Form::Chip {
        plan.switch.ack_bundle_ns = *random.pick(&[0, 0, 0, 500, 2_000, 10_000]);
    }
}

/// Draws the fabric and its load. Returns the plan and the length of the fault phase in us.
///
/// The order of the draws decides what a seed means: a new draw comes last, or uses a stream of its
/// own.
pub(super) fn plan(
    seed: u64,
    random: &mut Random,
    placement: Placement,
    isolates_controllers: bool,
) -> (Plan, u64) {
    let shape = match random.below(8) {
        0..3 => Shape::star(random.between(2, 6) as u32),
        3..6 => {
            let (leaves, spines) = (random.between(2, 3) as u32, random.between(1, 3) as u32);
            Shape::leaf_spine(leaves, spines, random.between(2, 3) as u32)
        }
        6 => Shape::fat_tree(4),
        _ => Ok(Shape::testbed()),
    };
    let shape = shape.expect("small numbers are in range");
    let per_host = random.between(1, if shape.host_count() > 8 { 2 } else { 4 }) as u16;
    // Isolated controllers may occupy whole racks or a host, as long as two processes remain.
    // Otherwise a process always shares their rack or host: see `FaultEvent::hits_last_process`.
    let replicas_max = match per_host {
        _ if isolates_controllers => shape.host_count() * u32::from(per_host) - 2,
        1 => shape.hosts_per_tor() - 1,
        _ => u32::from(per_host) - 1,
    };
    let replicas = match random.below(3) {
        0 => 0,
        _ => random.between(1, 3).min(u64::from(replicas_max)),
    };
    let fault_phase_us =
        if replicas > 0 { FAULT_PHASE_WITH_CONTROLLERS_US } else { FAULT_PHASE_US };
    let mut plan = Plan::new(shape, per_host, seed, (100 + fault_phase_us) * 1_000);
    plan.network.steps_max = STEPS_MAX;
    plan.network.queue_span = Span::SPARSE;
    let link = LinkConfig {
        rate_bits_per_s: *random.pick(&[10, 25, 100, 400]) * 1_000_000_000,
        propagation_ns: *random.pick(&[50, 500, 500, 2_000]),
        queue_bytes_max: *random.pick(&[20_000, 100_000, 300_000]),
        ecn_threshold_bytes: *random.pick(&[10_000, 60_000, 1 << 30]),
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
    plan.set_beacon_interval(*random.pick(&[1_000, 3_000, 3_000, 10_000]));
    plan.set_placement(placement);
    if let Some((intervals, fixed)) = heartbeat_intervals(seed) {
        plan.set_on_demand(intervals);
        match fixed {
            0 => plan.switch.heartbeat_interval_ns = 0,
            1 => plan.endpoint.heartbeat_interval_ns = 0,
            _ => {}
        }
    }
    let beacon_interval_ns = plan.switch.beacon_interval_ns;
    if random.below(4) == 0 {
        plan.switch.spread = Spread::PerPacket;
        plan.endpoint.reorder_packets = 0;
    }
    if random.below(4) == 0 {
        plan.endpoint.receive_buffer_bytes_max = 1 << 20;
        plan.endpoint.message_len_max = 1 << 18;
        plan.endpoint.window_bytes_max = 1 << 14;
        plan.endpoint.send_buffer_bytes_max = 1 << 19;
    }
    plan.load = Some(draw_load(random, plan.endpoint.message_len_max));
    if replicas > 0 {
        let mut control_plane = ControlPlanePlan::new(replicas as u32, beacon_interval_ns);
        control_plane.store_ns = *random.pick(&[1_000, 5_000, 50_000]);
        control_plane.reply_loss_ppm = *random.pick(&[0, 0, 200_000]);
        control_plane.controller.recovery = match random.below(4) {
            0 => Recovery::Flat,
            _ => Recovery::Tree,
        };
        plan.set_control_plane(control_plane);
        plan.reliable_percent = *random.pick(&[30, 70, 100]);
        plan.callback_ns = *random.pick(&[0, 0, 10_000, 60_000]);
        if random.below(3) == 0 {
            plan.endpoint.receive_mode = ReceiveMode::Merged;
        }
    }
    (plan, fault_phase_us)
}

/// Draws, with probability 1/3, the process to remove when everything else is healed. Only in small
/// fabrics: senders give a receiver up after some 50 ms, which would take a large fabric too many
/// steps.
pub(super) fn removed(plan: &Plan, random: &mut Random) -> Option<u32> {
    let hosts = plan.shape.host_count();
    let is_chosen = random.below(3) == 0;
    let replicas = plan.control_plane.as_ref().map_or(0, |control_plane| control_plane.replicas);
    let processes = hosts * u32::from(plan.processes_per_host) - replicas;
    let is_applicable = hosts <= REMOVAL_HOSTS_MAX && processes > 2;
    (is_chosen && is_applicable).then(|| random.below(processes.into()) as u32)
}

fn draw_load(random: &mut Random, message_len_max: u32) -> Load {
    let bytes_max = match random.below(40) {
        0 => message_len_max.min(1 << 20),
        1..10 => message_len_max.min(60_000),
        _ => 3_000,
    };
    let workload = match random.below(3) {
        0 => Workload::AllToAll { fan_out: random.between(1, 8) as u32, bytes: 64 },
        1 => Workload::Random { fan_out_max: random.between(1, 8) as u32, bytes_max },
        _ => Workload::Random { fan_out_max: 2, bytes_max: 200 },
    };
    let pattern = match random.below(2) {
        0 => SendPattern::ClosedLoop { messages_max: random.between(1, 64) as u32 },
        _ => SendPattern::OpenLoop { interval_ns: random.between(1_000, 20_000) },
    };
    Load { workload, pattern }
}

/// Draws one fault and, if it ends by itself, its end.
pub(super) fn fault(
    random: &mut Random,
    has_controllers: bool,
    fault_phase_us: u64,
    timeline: &mut Vec<(u64, FaultEvent)>,
) {
    let at_us = random.below(fault_phase_us - 100);
    let until_us = at_us
        + match random.below(if has_controllers { 4 } else { 2 }) {
            0 => random.between(1, 30),
            1 => random.between(5, 99),
            // Long enough for the failure to be resolved before it ends.
            _ => random.between(100, 600),
        };
    let target = random.bits();
    let mut add = |fault| timeline.push((at_us, fault));
    match random.below(if has_controllers { 19 } else { 16 }) {
        0..4 => {
            let faults = draw_link_faults(random);
            add(FaultEvent::AllLinks(faults));
        }
        4 | 5 => {
            let faults = draw_link_faults(random);
            add(FaultEvent::OneLink(target, faults));
        }
        6 => {
            add(FaultEvent::Cut(target));
            timeline.push((until_us, FaultEvent::Repair(target)));
        }
        7 | 8 => {
            add(FaultEvent::Crash(target));
            timeline.push((until_us, FaultEvent::Restart(target)));
        }
        9 => {
            add(FaultEvent::CrashProcess(target));
            timeline.push((until_us, FaultEvent::RestartProcess(target)));
        }
        10 => {
            let choices = [HOUR_NS, -HOUR_NS, 1_000, -1_000, 1_000_000, -1_000_000];
            add(FaultEvent::Step(target, *random.pick(&choices)));
        }
        11 => {
            let us = random.between(1, 150);
            add(FaultEvent::Pause(target, us));
        }
        12 => add(FaultEvent::Slow(target)),
        13 => add(FaultEvent::Partition(target)),
        14 => {
            let period_us = random.between(2, 60);
            for cycle in 0..random.between(2, 6) {
                timeline.push((at_us + 2 * cycle * period_us, FaultEvent::Unplug(target)));
                timeline.push((at_us + (2 * cycle + 1) * period_us, FaultEvent::Plug(target)));
            }
        }
        15 => add(FaultEvent::Leave(target)),
        16 => {
            add(FaultEvent::CrashController(target));
            timeline.push((until_us, FaultEvent::RestartController(target)));
        }
        17 => add(FaultEvent::LeaseExpired),
        _ => add(FaultEvent::FailStore(random.between(10, 400))),
    }
}

/// Draws, with probability 1/8, when an older copy of the store is put in its place. Independent of
/// all other draws of the seed.
pub(super) fn old_store(seed: u64, fault_phase_us: u64) -> Option<(u64, FaultEvent)> {
    let mut random = Random::named(seed, "old store", 0);
    let is_chosen = random.below(8) == 0;
    let fault = (random.below(fault_phase_us - 100), FaultEvent::OldStore(random.bits()));
    is_chosen.then_some(fault)
}

/// Lets, with probability 1/2, each process that leaves come back under its next incarnation before
/// the fabric heals: as soon as it has left, or later. Independent of all other draws of the seed.
pub(super) fn returning_leavers(swarm: &mut Swarm, seed: u64) {
    let mut random = Random::named(seed, "returning leavers", 0);
    if random.below(2) == 0 || swarm.is_calm {
        return;
    }
    let (timeline, fault_phase_us) = (&mut swarm.timeline, swarm.fault_phase_us);
    let leaves = timeline.iter().filter_map(|(at_us, fault)| match fault {
        FaultEvent::Leave(target) => Some((*at_us, *target)),
        _ => None,
    });
    for (at_us, target) in leaves.collect::<Vec<_>>() {
        let mut at_us = at_us;
        let interval_us = *random.pick(&[5, 20, 100]);
        // Before the process has left this does nothing.
        for _ in 0..RETURNS_MAX {
            at_us += interval_us;
            if at_us < fault_phase_us {
                timeline.push((at_us, FaultEvent::RestartProcess(target)));
            }
        }
    }
    timeline.sort_by_key(|(at_us, _)| *at_us);
}

fn draw_link_faults(random: &mut Random) -> LinkFaults {
    let mut faults = LinkFaults { delay_ns_max: random.between(10, 20_000), ..Default::default() };
    for _ in 0..random.between(1, 2) {
        match random.below(6) {
            0 => faults.loss = Loss::uniform(random.below(300_000) as u32),
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
