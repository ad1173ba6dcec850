//! Further faults of a calm scenario: a store that is unavailable for long while a process crashes,
//! receivers that stop and resume, and slow machines. No process that runs may lose its
//! incarnation.

use onepipe_sim_engine::Random;
use onepipe_sim_network::CpuConfig;

use super::{FaultEvent, Swarm};
use crate::Plan;

/// Time between two faults, in link timeouts: longer than the fabric takes to connect again.
const CALM_TIMEOUTS: u64 = 12;
/// Longest time for which the store is unavailable, and for which a receiver releases nothing, in
/// link timeouts.
const STOP_TIMEOUTS_MAX: u64 = 20;
/// Factor by which a controller waits longer for a silent process where receivers stop for longer
/// than the link timeout, once or as often as needed.
const WAIT: u64 = 4;
/// Longest first and second pause of a slow process, in tenths of its controllers' wait for a
/// silent process.
const PAUSES_MAX: [u64; 2] = [8, 19];
/// How many times longer than the lateness of a process its controllers wait (failure R64).
const LENGTHENED: u64 = 4;
/// Time that a slow process takes to announce itself again, at most, in tenths of the wait.
const RETURN: u64 = 1;
/// Largest fabric of slow machines, in hosts: in a larger one the load of all fills their CPUs.
const SLOW_HOSTS_MAX: u32 = 9;
/// Time between the two in such waits: the lateness is remembered for at least ten.
const REMEMBERED: u64 = 4;

/// Adds some of these faults to a calm scenario that is no rolling restart. Independent of all
/// other draws of the seed.
pub(super) fn draw(swarm: &mut Swarm, seed: u64) {
    let rolls = swarm.timeline.iter().any(|(_, fault)| matches!(fault, FaultEvent::Leave(_)));
    let Some(control_plane) = &swarm.plan.control_plane else { return };
    if !swarm.is_calm || rolls {
        return;
    }
    let silent_us = control_plane.controller.silent_after_ns.div_ceil(1_000);
    let random = &mut Random::named(seed, "stop", 0);
    if random.below(3) == 0 {
        fail_store(swarm, random, silent_us);
    }
    match random.below(6) {
        0 | 1 => stop_receivers(swarm, random, silent_us),
        2 | 3 => slow_machines(swarm, random, silent_us),
        _ => {}
    }
}

//= spec/failure.md#R52
/// Makes the store unavailable, as on a full disk, from shortly before a process crashes on.
/// Nothing can be decided before it is back, and afterwards no controller restarts.
fn fail_store(swarm: &mut Swarm, random: &mut Random, silent_us: u64) {
    let crash = |(_, fault): &(u64, FaultEvent)| matches!(fault, FaultEvent::CrashProcess(_));
    let Some(position) = swarm.timeline.iter().position(crash) else { return };
    let lasts_us = silent_us * random.between(1, 2 * STOP_TIMEOUTS_MAX) / 2;
    let at_us = swarm.timeline[position].0 - random.below(silent_us);
    swarm.timeline.insert(position, (at_us, FaultEvent::FailStore(lasts_us)));
    // The next incarnation of the process is not registered before.
    swarm.plan.endpoint.rejoin_wait_ns += lasts_us * 1_000;
    swarm.fault_phase_us += lasts_us;
}

//= spec/ordering.md#R27
/// Lets a process release nothing, and stops one for longer than the link timeout and all probes
/// take. What was sent to both has a known outcome once they are back.
fn stop_receivers(swarm: &mut Swarm, random: &mut Random, silent_us: u64) {
    let mut at_us = swarm.fault_phase_us;
    let (slow, slow_us) = (random.bits(), silent_us * random.between(1, STOP_TIMEOUTS_MAX));
    let stopped_us = silent_us * random.between(11, 25) / 10;
    let unseen_us = announcement_gap_us(&swarm.plan) + stopped_us;
    let mut wait_us = silent_us;
    while wait_us == silent_us || unseen_us + RETURN * wait_us / 10 >= wait_us {
        wait_longer(&mut swarm.plan);
        wait_us *= WAIT;
    }
    swarm.timeline.push((at_us, FaultEvent::Slow(slow)));
    at_us += slow_us;
    swarm.timeline.push((at_us, FaultEvent::Resume(slow)));
    let stopped = random.bits();
    swarm.timeline.push((at_us, FaultEvent::Stop(stopped)));
    at_us += stopped_us;
    swarm.timeline.push((at_us, FaultEvent::Resume(stopped)));
    swarm.fault_phase_us = at_us + CALM_TIMEOUTS * silent_us;
}

/// Returns the longest time between two announcements of a process to one controller, in us. When
/// the process stops, nothing may have been received of it for that long.
fn announcement_gap_us(plan: &Plan) -> u64 {
    let controllers = plan.control_plane.as_ref().map_or(0, |plane| u64::from(plane.replicas));
    let rest_ns = plan.endpoint.heartbeat_interval_ns * controllers;
    rest_ns.max(plan.endpoint.announce_interval_ns).div_ceil(1_000)
}

/// Lets controllers wait longer for a silent process.
fn wait_longer(plan: &mut Plan) {
    let Some(control_plane) = &mut plan.control_plane else { return };
    let controller = &mut control_plane.controller;
    controller.silent_after_ns *= WAIT;
    controller.switch_wait_ns *= WAIT;
    controller.grace_ns *= WAIT;
    controller.ping_timeout_ns *= WAIT;
    plan.endpoint.rejoin_wait_ns *= WAIT;
}

//= spec/failure.md#R64
/// Lets hosts pay CPU time for each frame. With heartbeats, a process stops for nearly as long as a
/// controller waits, and soon afterwards for longer: by then the controller waits longer, too.
fn slow_machines(swarm: &mut Swarm, random: &mut Random, mut silent_us: u64) {
    let plan = &mut swarm.plan;
    if plan.shape.host_count() > SLOW_HOSTS_MAX {
        return;
    }
    plan.network.cpu = CpuConfig {
        receive_ns: random.between(0, 100),
        send_ns: random.between(0, 100),
        poll_ns: *random.pick(&[100, 1_000]),
        ring_frames_max: 1_000,
    };
    let target = random.bits();
    if plan.switch.heartbeat_interval_ns == 0 || plan.endpoint.heartbeat_interval_ns == 0 {
        return;
    }
    let gap_us = announcement_gap_us(plan);
    let pauses = loop {
        if let Some(pauses) = pauses(gap_us, silent_us) {
            break pauses;
        }
        wait_longer(plan);
        silent_us *= WAIT;
    };
    let mut at_us = swarm.fault_phase_us;
    for tenths in pauses {
        swarm.timeline.push((at_us, FaultEvent::Stop(target)));
        at_us += silent_us * tenths / 10;
        swarm.timeline.push((at_us, FaultEvent::Resume(target)));
        at_us += REMEMBERED * silent_us;
    }
    swarm.fault_phase_us = at_us + CALM_TIMEOUTS * silent_us;
}

/// Returns two pauses of a slow process, in tenths of its controllers' wait: one for which they
/// wait anyway, and a longer one for which they wait because of the first. `None` if the first
/// cannot be so long that they do.
///
/// A process announces itself every `gap_us` at least. So the last announcement may be that old
/// when the process stops, and that much of its lateness may not be measured.
fn pauses(gap_us: u64, silent_us: u64) -> Option<[u64; 2]> {
    let gap = (10 * gap_us).div_ceil(silent_us);
    let first = 10u64.checked_sub(gap + RETURN)?.min(PAUSES_MAX[0]);
    let waits = LENGTHENED * first.checked_sub(gap)?;
    let second = waits.checked_sub(gap + 2 * RETURN)?.min(PAUSES_MAX[1]);
    (second > 10).then_some([first, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_wait_for_both_pauses_of_a_slow_process() {
        let all = [0, 100, 200, 201, 900, 2_000].map(|gap_us| pauses(gap_us, 1_000));
        assert_eq!(all, [Some(PAUSES_MAX), Some(PAUSES_MAX), Some([7, 16]), None, None, None]);
        for (gap, [first, second]) in (0..).zip(all.into_iter().flatten()) {
            assert!(first + gap < 10, "nothing is received for {first} + {gap} tenths");
            assert!(second + gap < LENGTHENED * (first - gap), "{gap}: {first}, {second}");
            assert!(second > 10, "the controllers would wait anyway");
        }
    }
}
