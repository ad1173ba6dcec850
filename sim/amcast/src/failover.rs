//! Measures how long a group delivers no new messages after a crash of its leader.

use std::sync::atomic::AtomicBool;

use onepipe_sim_engine::{MICROSECOND, Random, Seeds};
use onepipe_topology::Shape;

use crate::env::SimEnv;
use crate::fault::FaultEvent;
use crate::setup::{Load, SendPattern, Setup};

/// Warm-up before the crash, in ns.
const WARM_NS: u64 = 500_000;
/// The crash is drawn from this interval after the warm-up, in ns, to hit any phase of the timers.
const SPREAD_NS: u64 = 400_000;
/// Limit of the recovery, in ns.
const END_NS: u64 = 20_000_000;

/// Component that crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Only the member; its switch continues.
    Member,
    /// The whole switch, which disconnects its rack.
    Switch,
}

/// One crash of a leader. Times are in ns from the crash, observed at the first live replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// Until the next delivery, possibly of a message that followers knew before the crash.
    pub next_ns: u64,
    /// Longest time without a delivery that includes or follows the crash.
    pub gap_ns: u64,
    /// Until the first delivery of a message sent after the crash.
    pub new_ns: u64,
}

/// Returns the setup: three leaves and two spines, one group of three members. Each of four clients
/// sends a message every 10 us and retransmits after 50 us. Coordinators probe every 20 us with a
/// timeout of 100 us.
pub fn failover_setup(seed: u64) -> Setup {
    let shape = Shape::leaf_spine(3, 2, 6).expect("a fabric");
    let base = Setup::new(shape);
    let pattern = SendPattern::Every(10 * MICROSECOND);
    let load = Load { messages: u32::MAX, is_subset: false, pattern, ..base.load };
    Setup { replicas: 3, clients: 4, window: 256, load, checks_frames: false, seed, ..base }
}

/// Runs one crash. Returns `None` if the group did not recover or an invariant was violated.
pub fn failover(victim: Victim, seed: u64) -> Option<Failover> {
    let mut env = SimEnv::new(&failover_setup(seed));
    let leader = env.layout().groups.groups[0].members[0];
    let crash_ns = WARM_NS + Random::named(seed, "crash", 0).below(SPREAD_NS);
    env.schedule(
        crash_ns,
        match victim {
            Victim::Member => FaultEvent::Member(leader),
            Victim::Switch => FaultEvent::Switch(env.layout().node(leader)),
        },
    );
    env.run_until(crash_ns);
    let replicas = env.layout().groups.groups[0].replicas.clone();
    let replica = replicas.iter().position(|replica| env.is_alive(*replica))?;
    let before = env.deliveries().len();
    let is_new = |env: &SimEnv| {
        env.deliveries()[before..]
            .iter()
            .any(|one| one.replica == replica && one.sent_ns > crash_ns)
    };
    while !is_new(&env) && env.now_ns() < crash_ns + END_NS {
        env.run_until(env.now_ns() + 20_000);
    }
    // Catch longer gaps that start after the recovery.
    env.run_until(env.now_ns() + 300_000);
    if env.checker().violations() > 0 {
        return None;
    }
    let here = || env.deliveries().iter().filter(|one| one.replica == replica);
    let mut last_ns = here().rfind(|one| one.at_ns <= crash_ns)?.at_ns;
    let mut gap_ns = 0;
    for one in here().filter(|one| one.at_ns > crash_ns) {
        gap_ns = gap_ns.max(one.at_ns - last_ns);
        last_ns = one.at_ns;
    }
    let next_ns = here().find(|one| one.at_ns > crash_ns)?.at_ns - crash_ns;
    let new_ns = here().find(|one| one.sent_ns > crash_ns)?.at_ns - crash_ns;
    Some(Failover { next_ns, gap_ns, new_ns })
}

/// Runs a crash per seed. Returns the results in ascending order of the seeds.
pub fn failovers(
    victim: Victim,
    seeds: &Seeds,
    stops: &AtomicBool,
    progress: impl Fn(u64) + Sync + Send,
) -> Vec<(u64, Option<Failover>)> {
    let mut all = Vec::new();
    seeds.for_each(
        stops,
        |seed| failover(victim, seed),
        |seed, measured| {
            all.push((seed, measured));
            progress(all.len() as u64);
        },
    );
    all.sort_unstable_by_key(|(seed, _)| *seed);
    all
}
