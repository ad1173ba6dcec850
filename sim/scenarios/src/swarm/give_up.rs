//! Scenarios in which reliable scatterings end by a time limit: to an id that never joined, to a
//! process that is gone while there is no controller, or cancelled by their senders.

use onepipe_sim_engine::Random;
use onepipe_sim_network::{CpuConfig, LinkFaults, Load, Loss, SendPattern, Workload};

use super::{FaultEvent, Swarm};

/// Time after which a reliable scattering must have ended, in `give_up_after_ns`: it may have to
/// wait twice as long to be sent (failure R58), and for a receiver once more.
const ENDS_AFTER: u64 = 4;
/// Part of `give_up_after_ns` that is the shortest retransmission timeout: an assumed one is at
/// most 64 times as long.
const PROBES: u64 = 64;
/// Largest fabric, in hosts: the runs are long.
const HOSTS_MAX: u32 = 9;
/// Shortest beacon interval, in ns.
const BEACON_INTERVAL_NS_MIN: u64 = 3_000;

/// Turns, with probability 1/4, a small scenario that is not calm into one of these. Independent of
/// all other draws of the seed.
pub(super) fn draw(swarm: &mut Swarm, seed: u64) {
    let mut random = Random::named(seed, "give up", 0);
    let plan = &swarm.plan;
    let is_small = plan.shape.host_count() <= HOSTS_MAX
        && plan.switch.beacon_interval_ns >= BEACON_INTERVAL_NS_MIN;
    if random.below(4) == 0 && !swarm.is_calm && is_small {
        give_up(swarm, &mut random);
    }
}

fn give_up(swarm: &mut Swarm, random: &mut Random) {
    let plan = &mut swarm.plan;
    let limit_ns = *random.pick(&[4_000_000, 8_000_000]);
    plan.endpoint.give_up_after_ns = limit_ns;
    plan.endpoint.probe_timeout_min_ns = limit_ns / PROBES;
    plan.network.cpu = CpuConfig::default();
    plan.absent = 1;
    plan.reliable_percent = *random.pick(&[30, 70, 100]);
    let workload = Workload::AllToAll { fan_out: random.between(1, 3) as u32, bytes: 64 };
    let pattern = SendPattern::OpenLoop { interval_ns: random.between(20_000, 60_000) };
    plan.load = Some(Load { workload, pattern });
    let limit_us = limit_ns / 1_000;
    let replicas = plan.control_plane.as_ref().map_or(0, |plane| u64::from(plane.replicas));
    let ends_us = ENDS_AFTER * limit_us;
    swarm.ends_after_us = Some(ends_us);
    swarm.timeline.clear();
    let mut add = |at_us, fault| swarm.timeline.push((at_us, fault));
    if replicas == 0 && random.below(2) == 0 {
        add(0, FaultEvent::AllLinks(mild_faults(random)));
    }
    let down_us = 100 + random.below(300);
    for replica in 0..replicas {
        add(down_us, FaultEvent::CrashController(replica));
    }
    // What must end was submitted in this time.
    let phase_us = down_us + limit_us / 4;
    for _ in 0..random.between(1, 3) {
        let (at_us, target) = (random.below(phase_us), random.bits());
        match random.below(4) {
            0 => add(at_us, FaultEvent::ContactAbsent(target >> 1)),
            1 => add(at_us, FaultEvent::Cancel(target)),
            2 => {
                add(at_us, FaultEvent::CrashProcess(target));
                add(at_us + random.between(1, 600), FaultEvent::RestartProcess(target));
            }
            _ => add(at_us, FaultEvent::CrashProcess(target)),
        }
    }
    add(phase_us, FaultEvent::ContactAbsent(random.bits() >> 1));
    let until_us = phase_us + ends_us;
    add(until_us, FaultEvent::ExpectEnded(ends_us));
    for replica in 0..replicas {
        add(until_us, FaultEvent::RestartController(replica));
    }
    swarm.timeline.sort_by_key(|(at_us, _)| *at_us);
    swarm.fault_phase_us = until_us + random.below(2_000);
}

/// Draws faults of all links that take none of them down.
fn mild_faults(random: &mut Random) -> LinkFaults {
    LinkFaults {
        loss: Loss { data_ppm: random.below(50_000) as u32, ..Loss::default() },
        duplicate_ppm: random.below(100_000) as u32,
        ..LinkFaults::default()
    }
}
