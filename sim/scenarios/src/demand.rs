//! A scenario for beacons on demand: single messages between pauses, while beacons are lost and a
//! process restarts. Heartbeats are so far apart that whatever waits for one is noticed.

use onepipe_sim_engine::{NANOSECOND, Random};
use onepipe_sim_network::{LinkFaults, Loss, Placement};
use onepipe_topology::Shape;

use crate::{Fabric, Plan};

/// Heartbeat, in beacon intervals.
const HEARTBEAT_INTERVALS: u64 = 4_000;
/// Bound on the time until a message has an outcome at all its receivers, in beacon intervals
/// (spec/ordering.md R47): a few repeated solicits on each of the links of the longest path.
const BOUND_INTERVALS: u64 = 400;
/// Number of messages.
const MESSAGES: u32 = 24;

//= spec/ordering.md#R47
/// Runs the scenario of `seed`. Returns what has violated an invariant, or the bound on the time
/// until a message is delivered.
pub fn demand(seed: u64) -> Vec<String> {
    let mut random = Random::named(seed, "demand", 0);
    let shape = match random.below(2) {
        0 => Shape::star(random.between(3, 6) as u32),
        _ => Shape::leaf_spine(2, 2, 2),
    };
    let mut plan = Plan::new(shape.expect("small numbers are in range"), 1, seed, 1_000_000);
    let placement = *random.pick(&[Placement::Chip, Placement::Chip, Placement::Delegate]);
    plan.set_placement(placement);
    plan.set_on_demand(HEARTBEAT_INTERVALS);
    let interval_ns = plan.switch.beacon_interval_ns;
    let (bound_ns, timeout_ns) = (BOUND_INTERVALS * interval_ns, plan.switch.link_timeout_ns);
    let starts_ns = plan.load_starts_ns;
    let mut fabric = Fabric::new(plan);
    fabric.network().run_for(starts_ns * NANOSECOND);
    let beacon_ppm = *random.pick(&[0, 200_000, 200_000]);
    let loss = Loss { beacon_ppm, ..Loss::default() };
    fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
    let processes = fabric.members();
    // Before it has a connection: reopening one takes retransmission timeouts.
    let restarts = random.below(2) == 0;
    let mut overdue = Vec::new();
    for number in 0..MESSAGES {
        let pause_ns = random.between(10, 300) * interval_ns;
        fabric.network().run_for(pause_ns * NANOSECOND);
        if number == 0 && restarts {
            let process = random.below(u64::from(processes)) as u32;
            fabric.crash_process(process);
            fabric.network().run_for(random.between(1, 50) * interval_ns * NANOSECOND);
            fabric.restart_process(process);
            fabric.network().run_for((2 * timeout_ns + 20 * interval_ns) * NANOSECOND);
        }
        let (from, to) = (random.below(u64::from(processes)), random.below(u64::from(processes)));
        let scatter = match random.below(2) {
            0 => Fabric::scatter,
            _ => Fabric::scatter_reliably,
        };
        if scatter(&mut fabric, from as u32, &[(to as u32, 64)]).is_none_or(|sent| sent.is_err()) {
            continue;
        }
        let submitted_at = fabric.now();
        while fabric.report().open > 0 && fabric.now().since(submitted_at) < bound_ns * NANOSECOND {
            fabric.network().run_for(interval_ns * NANOSECOND);
        }
        if fabric.report().open > 0 {
            overdue.push(format!(
                "message {number} from {from} to {to} has no outcome after {bound_ns} ns ({placement:?})"
            ));
            break;
        }
    }
    overdue.extend(fabric.violations().first().iter().map(ToString::to_string));
    overdue
}
