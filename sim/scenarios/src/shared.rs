//! A scenario for shared payloads: all messages of a scattering have one payload, on links that
//! lose nothing, so that a message below a promise is a violation.

use onepipe_sim_engine::{NANOSECOND, Random};
use onepipe_sim_network::{Load, SendPattern, Workload};
use onepipe_topology::Shape;

use crate::{Fabric, Plan, Report};

/// Length of the load, in us.
const LOAD_US: u64 = 100;

/// Runs the scenario of `seed`.
pub fn shared(seed: u64) -> Report {
    let mut random = Random::named(seed, "shared", 0);
    let shape = match random.below(2) {
        0 => Shape::star(random.between(3, 6) as u32),
        _ => Shape::leaf_spine(2, 2, 2),
    };
    let per_host = random.between(1, 2) as u16;
    let mut plan = Plan::new(shape.expect("small numbers are in range"), per_host, seed, 300_000);
    plan.repeats_payloads = true;
    plan.reliable_percent = *random.pick(&[0, 50]);
    plan.load = Some(Load {
        workload: Workload::AllToAll { fan_out: 3, bytes: *random.pick(&[64, 1_024]) },
        pattern: SendPattern::ClosedLoop { messages_max: 12 },
    });
    let starts_ns = plan.load_starts_ns;
    let mut fabric = Fabric::new(plan);
    fabric.network().run_for(starts_ns * NANOSECOND);
    fabric.set_strict();
    fabric.run_us(LOAD_US);
    crate::end(fabric)
}
