//! Calm scenarios: switches pause, or restart at once, hosts pause for less than the link timeout,
//! and processes restart; or all roles restart, one after another. No process that runs may lose
//! its incarnation.

use onepipe_sim_engine::Random;
use onepipe_sim_network::{Load, SendPattern, Workload};

use super::{FaultEvent, Swarm};

/// Beacon intervals in a link timeout: more than a message waits behind others.
const TIMEOUT_INTERVALS: u64 = 40;
/// Longest pause of a switch, in link timeouts.
const PAUSE_TIMEOUTS_MAX: u64 = 20;
/// Number of probes to a receiver that does not answer before its messages fail: they take less
/// than the shortest pause.
const PROBES_MAX: u32 = 2;
/// Restarts of a flood for which a scattering to a process that has failed waits at least.
const RESTARTS: u64 = 10;
/// Time between two faults, in link timeouts: longer than the fabric takes to connect again.
const CALM_TIMEOUTS: u64 = 12;
/// Number of switches, and of processes, that restart in a rolling restart.
const ROLLED: u64 = 3;
/// Limit on the product of processes and link timeout in us for a rolling restart, which would
/// otherwise take more steps than a run may.
const ROLLED_US_MAX: u64 = 10_000;
/// Longest time for which a process leaves, in link timeouts: it delivers what it has acknowledged.
const LEAVE_TIMEOUTS: u64 = 14;

/// Steps for each process and microsecond above which a run counts as endless: a fabric of 64
/// processes with a beacon every 10 us takes 3 (seed 7000977).
const STEPS_PER_PROCESS_US: u64 = 10;

/// Returns the step limit of a calm scenario, whose pauses last for milliseconds under load.
pub(super) fn steps_max(swarm: &Swarm) -> u64 {
    let plan = &swarm.plan;
    let processes = u64::from(plan.shape.host_count()) * u64::from(plan.processes_per_host);
    plan.network.steps_max.max(STEPS_PER_PROCESS_US * processes * swarm.fault_phase_us)
}

/// Turns, with probability 1/8, a scenario with controllers into a calm one. Independent of
/// all other draws of the seed.
pub(super) fn draw(swarm: &mut Swarm, seed: u64) {
    let mut random = Random::named(seed, "calm", 0);
    if random.below(8) == 0 && swarm.plan.control_plane.is_some() {
        calm(swarm, &mut random);
    }
}

/// Makes `swarm`, which has controllers, a scenario in which nothing dies but single processes that
/// restart.
pub(super) fn calm(swarm: &mut Swarm, random: &mut Random) {
    let plan = &mut swarm.plan;
    let workload = Workload::AllToAll { fan_out: 2, bytes: 64 };
    plan.load = Some(Load { workload, pattern: SendPattern::OpenLoop { interval_ns: 40_000 } });
    let timeout_ns =
        (TIMEOUT_INTERVALS * plan.switch.beacon_interval_ns).max(plan.switch.link_timeout_ns);
    (plan.switch.link_timeout_ns, plan.endpoint.link_timeout_ns) = (timeout_ns, timeout_ns);
    // An idle link is lost after ten heartbeats.
    let silent_ns = timeout_ns.max(10 * plan.switch.heartbeat_interval_ns);
    // A receiver that is stopped, or behind a stopped switch, does not answer the probes, and is
    // asked again until it is back.
    (plan.endpoint.probes_max, plan.endpoint.probe_timeout_min_ns) = (PROBES_MAX, timeout_ns / 20);
    plan.endpoint.unknown_after_ns = 10 * PAUSE_TIMEOUTS_MAX * silent_ns;
    let Some(control_plane) = &mut plan.control_plane else { return };
    let controller = &mut control_plane.controller;
    // A process is registered after notices, whose floods may be lost and restart.
    plan.endpoint.rejoin_wait_ns =
        (PAUSE_TIMEOUTS_MAX * silent_ns).max(RESTARTS * controller.restart_ns);
    controller.silent_after_ns = silent_ns;
    controller.switch_wait_ns = 3 * PAUSE_TIMEOUTS_MAX * silent_ns;
    controller.grace_ns = 10 * silent_ns;
    controller.ping_timeout_ns = controller.ping_timeout_ns.max(2 * silent_ns);
    (swarm.timeline, swarm.removed, swarm.is_calm) = (Vec::new(), None, true);
    let us = |ns: u64| ns.div_ceil(1_000);
    let mut at_us = us(silent_ns);
    for _ in 0..random.between(1, 3) {
        let target = random.bits();
        let pause_ns = silent_ns / 2 * random.between(1, 2 * PAUSE_TIMEOUTS_MAX);
        let short_ns = timeout_ns / 10 * random.between(3, 8);
        let mut lasts_us = us(pause_ns);
        match random.below(3) {
            0 => swarm.timeline.push((at_us, FaultEvent::PauseSwitch(target, us(pause_ns)))),
            1 => {
                swarm.timeline.push((at_us, FaultEvent::PauseHost(target, us(short_ns))));
                lasts_us = us(short_ns);
            }
            _ => {
                // A host sleeps while the switch restarts.
                lasts_us = us(short_ns);
                let down_us = lasts_us * random.below(4) / 8;
                let host = random.bits();
                swarm.timeline.push((at_us, FaultEvent::PauseHost(host, us(short_ns))));
                swarm.timeline.push((at_us, FaultEvent::CrashSwitch(target)));
                swarm.timeline.push((at_us + down_us, FaultEvent::RestartSwitch(target)));
            }
        }
        at_us += lasts_us + CALM_TIMEOUTS * us(silent_ns);
    }
    // A process restarts; the first reliable scattering of each other one to it must arrive.
    let (target, down_us) = (random.bits(), us(silent_ns) * random.between(1, 40) / 10);
    swarm.timeline.push((at_us, FaultEvent::CrashProcess(target)));
    swarm.timeline.push((at_us + down_us, FaultEvent::RestartProcess(target)));
    swarm.timeline.push((at_us + down_us, FaultEvent::Contact(target)));
    at_us += down_us + CALM_TIMEOUTS * us(silent_ns);
    swarm.fault_phase_us = at_us;
    let processes =
        u64::from(swarm.plan.shape.host_count()) * u64::from(swarm.plan.processes_per_host);
    if random.below(8) == 0 && processes * us(silent_ns) <= ROLLED_US_MAX {
        roll(swarm, random, us(silent_ns));
    }
}

/// Makes the faults of `swarm` a rolling restart: controllers, switches and processes restart, one
/// after another, the first ones at random. A process leaves first, and the first reliable
/// scattering of each other one to its next incarnation must arrive.
fn roll(swarm: &mut Swarm, random: &mut Random, silent_us: u64) {
    let replicas = swarm.plan.control_plane.as_ref().map_or(0, |plane| u64::from(plane.replicas));
    type Step = fn(u64) -> FaultEvent;
    let roles: [(u64, Step, Step); 3] = [
        (replicas, FaultEvent::CrashController, FaultEvent::RestartController),
        (ROLLED, FaultEvent::CrashSwitch, FaultEvent::RestartSwitch),
        (ROLLED, FaultEvent::Leave, FaultEvent::RestartProcess),
    ];
    swarm.plan.endpoint.rejoin_wait_ns += 2 * LEAVE_TIMEOUTS * silent_us * 1_000;
    swarm.timeline.clear();
    let mut at_us = silent_us;
    for (count, stop, start) in roles {
        let first = random.below(1 << 32);
        for target in first..first + count {
            swarm.timeline.push((at_us, stop(target)));
            at_us += silent_us * random.between(1, 40) / 10;
            let leaves = matches!(stop(target), FaultEvent::Leave(_));
            at_us += if leaves { LEAVE_TIMEOUTS * silent_us } else { 0 };
            swarm.timeline.push((at_us, start(target)));
            if leaves {
                swarm.timeline.push((at_us, FaultEvent::Contact(target)));
            }
            at_us += CALM_TIMEOUTS * silent_us;
        }
    }
    swarm.fault_phase_us = at_us;
}
