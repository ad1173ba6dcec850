//! How long a group delivers nothing new when its leader dies.

use std::sync::atomic::AtomicBool;

use onepipe_sim_engine::{MICROSECOND, Random, Seeds};
use onepipe_topology::Shape;

use crate::fault::FaultEvent;
use crate::setup::{Load, SendPattern, Setup};
use crate::world::World;

/// Before this nobody dies, in ns: connections are warm, clocks have run.
const WARM_NS: u64 = 500_000;
/// The leader dies within so many ns behind that: at any point of whatever repeats.
const SPREAD_NS: u64 = 400_000;
/// After so many ns everything must go on, or it never does.
const END_NS: u64 = 20_000_000;

/// What dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The member alone: its program, not its switch.
    Member,
    /// The whole switch, with its rack.
    Switch,
}

/// One crash of a leader. Times in ns from the crash, at the first replica that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// Until the next delivery: what followers know already is delivered meanwhile.
    pub next_ns: u64,
    /// The longest time without a delivery that the crash falls into or that begins later.
    pub gap_ns: u64,
    /// Until the first delivery of a message that was sent after the crash.
    pub new_ns: u64,
}

/// The world in which leaders die: two leaves and two spines, one group of three; each of four
/// clients sends a message to it every 10 us. Coordinators ask every 20 us and wait for 100; a
/// client sends again after 50.
pub fn failover_setup(seed: u64) -> Setup {
    let shape = Shape::leaf_spine(3, 2, 6).expect("a fabric");
    let base = Setup::new(shape);
    let pattern = SendPattern::Every(10 * MICROSECOND);
    let load = Load { messages: u32::MAX, is_subset: false, pattern, ..base.load };
    Setup { replicas: 3, clients: 4, window: 256, load, checks_frames: false, seed, ..base }
}

/// Has the leader die once. `None` if the group does not go on, or something was wrong.
pub fn failover(victim: Victim, seed: u64) -> Option<Failover> {
    let mut world = World::new(&failover_setup(seed));
    let leader = world.layout().groups.groups[0].members[0];
    let crash_ns = WARM_NS + Random::named(seed, "crash", 0).below(SPREAD_NS);
    world.schedule(
        crash_ns,
        match victim {
            Victim::Member => FaultEvent::Member(leader),
            Victim::Switch => FaultEvent::Switch(world.layout().node(leader)),
        },
    );
    world.run_until(crash_ns);
    let replicas = world.layout().groups.groups[0].replicas.clone();
    let replica = replicas.iter().position(|replica| world.is_alive(*replica))?;
    let before = world.deliveries().len();
    let is_new = |world: &World| {
        world.deliveries()[before..]
            .iter()
            .any(|one| one.replica == replica && one.sent_ns > crash_ns)
    };
    while !is_new(&world) && world.now_ns() < crash_ns + END_NS {
        world.run_until(world.now_ns() + 20_000);
    }
    // Gaps that begin later: there is none that is longer, or the group has not settled.
    world.run_until(world.now_ns() + 300_000);
    if world.checker().wrong() > 0 {
        return None;
    }
    let here = || world.deliveries().iter().filter(|one| one.replica == replica);
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

/// Has leaders die at all these seeds. Answers each crash by its seed, ascending.
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
