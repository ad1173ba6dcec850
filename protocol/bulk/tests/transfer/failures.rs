//! Members crash in every step, in groups of up to 16.

use onepipe_bulk::{
    Algorithm, Config, ConfigError, Delivery, Group, Link, Outcome, Plain, Reason, SendError,
};
use onepipe_wire::BulkRefused;

use crate::healthy::send_all;
use crate::world::{Dice, Faults, SECOND, World, config, object};

/// Time of a block of `config` in ns at one byte per ns, frame headers included.
const BLOCK_NS: u64 = 1_000 + 4 * 116;

/// Checks that all survivors agree: each object is complete at all of them or lost to all of them,
/// and complete objects are correct.
fn assert_agreed(world: &World, dead: &[usize], sizes: &[usize], story: &str) {
    let closed = |outcome| world.apps.iter().any(|app| app.closed == Some(outcome));
    if closed(Outcome::Complete) {
        // A clean outcome means that all members have everything; later failures cannot change it.
        for (rank, app) in world.apps.iter().enumerate().filter(|(rank, _)| !dead.contains(rank)) {
            assert!(!closed(Outcome::Left) && app.lost.is_empty(), "{story}: {rank}");
            for (number, bytes) in sizes.iter().enumerate() {
                let number = number as u32;
                assert!(
                    app.stable.get(&number) == Some(&object(number, *bytes)),
                    "{story}: {rank}"
                );
            }
        }
        return;
    }
    let survivors: Vec<usize> = (0..world.apps.len()).filter(|rank| !dead.contains(rank)).collect();
    let whole = |rank: usize, number: u32| {
        let app = &world.apps[rank];
        let delivered = app.delivered.iter().filter(|(found, _)| *found == number).count();
        assert!(delivered <= 1, "{story}: {rank} has {number} twice");
        if rank == 0 { app.stable.contains_key(&number) } else { delivered == 1 }
    };
    for rank in &survivors {
        let app = &world.apps[*rank];
        assert_eq!(app.closed, Some(Outcome::Failed), "{story}: {rank}");
        // Failures after the end do not matter.
        assert!(!app.failed.is_empty(), "{story}: {rank}");
        let is_dead = |failed: &u32| dead.contains(&(*failed as usize));
        assert!(app.failed.iter().all(is_dead), "{story}: {rank} of {:?}", app.failed);
        for (number, bytes) in &app.stable {
            assert!(*bytes == object(*number, sizes[*number as usize]), "{story}: {number}");
        }
        for number in 0..sizes.len() as u32 {
            let is_whole = whole(*rank, number);
            assert_eq!(is_whole, whole(survivors[0], number), "{story}: {number} at {rank}");
            assert!(is_whole || dead.contains(&0), "{story}: {rank} lacks {number}");
            assert!(!(is_whole && app.lost.contains(&number)), "{story}: {number} at {rank}");
        }
    }
}

/// Crashes `victim` after `at` ns; detected by a timeout, or reported to its neighbours.
fn die(world: &mut World, victim: usize, at: u64, is_told: bool) {
    let end = world.now + at;
    world.run_until(at, |world| world.now >= end);
    world.kill(victim);
    for rank in (0..world.groups.len()).filter(|rank| is_told && *rank != victim) {
        if world.groups[rank].is_some() {
            world.act(rank, |group| group.handle_link_down(victim as u32));
        }
    }
}

#[test]
fn any_member_may_die_in_any_step() {
    let sizes = [4_300];
    let (mut stories, mut were_over) = (0, 0);
    for n in 2..=16usize {
        let some = [0, 1, n / 2, n - 1];
        let victims: Vec<usize> = if n <= 8 { (0..n).collect() } else { some.to_vec() };
        // Steps for the blocks and for the latency, and some more.
        let steps = 5 + 4 * n.next_power_of_two().ilog2() as u64 + 12;
        for (victim, step) in victims.iter().flat_map(|victim| (0..steps).map(|at| (*victim, at))) {
            let link =
                if (n + step as usize).is_multiple_of(2) { Link::Lossy } else { Link::Reliable };
            let is_told = link == Link::Reliable;
            let story = format!("{victim} of {n} in step {step}");
            let mut world = World::new(n, link, 1, |_| {});
            send_all(&mut world, &sizes);
            die(&mut world, victim, step * BLOCK_NS, is_told);
            assert!(world.run(60 * SECOND), "{story}");
            stories += 1;
            were_over += u32::from(world.apps.iter().all(|app| app.failed.is_empty()));
            assert_agreed(&world, &[victim], &sizes, &story);
        }
    }
    assert!(0 < were_over && 3 * were_over < stories, "{were_over} of {stories} died afterwards");
}

#[test]
fn several_may_die_while_links_lose_and_objects_overlap() {
    // 3827: an object that no survivor knew, between objects that some knew.
    for seed in (0..150).chain([3827]) {
        let mut dice = Dice::new(seed);
        let n = 3 + dice.below(10) as usize;
        let link = if dice.falls(500) { Link::Lossy } else { Link::Reliable };
        let sizes: Vec<usize> =
            (0..1 + dice.below(4)).map(|_| dice.below(15_000) as usize).collect();
        let plain = [Plain::Pipeline, Plain::Chain, Plain::Tree, Plain::Sequential];
        let algorithm = Algorithm::Plain(plain[dice.below(4) as usize]);
        let mut world = World::new(n, link, seed, |config| config.algorithm = algorithm.clone());
        world.faults = Faults {
            loss: dice.below(100),
            duplication: dice.below(100),
            reordering: dice.below(200),
            corruption: dice.below(20),
        };
        send_all(&mut world, &sizes);
        let mut dead = Vec::new();
        for _ in 0..1 + dice.below(n as u64 / 2) {
            let (victim, at) = (dice.below(n as u64) as usize, dice.below(60_000));
            let is_told = dice.falls(500);
            if !dead.contains(&victim) {
                die(&mut world, victim, at, is_told);
                dead.push(victim);
            }
        }
        let story = format!("seed {seed}: {dead:?} of {n}, {sizes:?} by {algorithm:?}");
        assert!(world.run(120 * SECOND), "{story}");
        assert_agreed(&world, &dead, &sizes, &story);
    }
}

#[test]
fn what_a_dead_member_has_delivered_all_survivors_deliver() {
    // 1417: probes were too rare to reach a live member.
    for seed in (0..120).chain([1417]) {
        let mut dice = Dice::new(seed);
        let n = 4 + dice.below(6) as usize;
        let link = if dice.falls(500) { Link::Lossy } else { Link::Reliable };
        let mut world = World::new(n, link, seed, |config| config.delivery = Delivery::AllOrNone);
        world.faults.loss = dice.below(150);
        send_all(&mut world, &[3_000, 2_000]);
        let mut dead = Vec::new();
        // A minority fails.
        for _ in 0..1 + dice.below((n as u64 - 1) / 2) {
            let (victim, at) = (dice.below(n as u64) as usize, dice.below(40_000));
            if !dead.contains(&victim) {
                die(&mut world, victim, at, false);
                dead.push(victim);
            }
        }
        assert!(world.run(120 * SECOND), "seed {seed}");
        let delivered = |rank: usize| world.apps[rank].delivered.len();
        let most = (1..n).map(delivered).max();
        for rank in (1..n).filter(|rank| !dead.contains(rank)) {
            assert_eq!(Some(delivered(rank)), most, "seed {seed}: {rank} of {n} without {dead:?}");
        }
    }
}

#[test]
fn half_a_group_delivers_nothing_where_all_or_none_is_asked_for() {
    let mut world =
        World::new(4, Link::Reliable, 1, |config| config.delivery = Delivery::AllOrNone);
    send_all(&mut world, &[3_000]);
    let has = |world: &mut World, rank| world.group(rank).progress(0) == Some((3, 3));
    assert!(world.run_until(SECOND, |world| has(world, 2) && has(world, 3)));
    world.kill(0);
    world.kill(1);
    assert!(world.run(60 * SECOND));
    for app in &world.apps[2..] {
        assert_eq!((app.closed, app.delivered.len()), (Some(Outcome::Failed), 0));
        assert_eq!(app.lost, [0]);
    }
}

#[test]
fn a_root_that_dies_before_it_sends_is_missed() {
    let mut world = World::new(4, Link::Lossy, 1, |_| {});
    die(&mut world, 0, 1_000, false);
    assert!(world.run(60 * SECOND));
    assert_agreed(&world, &[0], &[], "before it sends");
}

#[test]
fn a_member_without_memory_leaves_and_all_are_told_why() {
    for link in [Link::Reliable, Link::Lossy] {
        let mut world = World::new(6, link, 1, |_| {});
        world.apps[2].declines = true;
        send_all(&mut world, &[9_000]);
        assert!(world.run(60 * SECOND));
        assert_eq!(world.apps[2].closed, Some(Outcome::Left));
        assert_agreed(&world, &[2], &[9_000], "no memory");
        for rank in [0, 1, 3, 4, 5] {
            let failure = world.group(rank).failures()[0];
            assert_eq!((failure.rank, failure.by, failure.reason), (2, 2, Reason::Memory));
        }
    }
}

#[test]
fn whoever_leaves_is_gone_and_the_root_takes_no_more() {
    let mut world = World::new(5, Link::Reliable, 1, |_| {});
    world.act(0, |root| root.send(object(0, 8_000))).expect("it is taken");
    world.run_until(SECOND, |world| world.group(3).progress(0).is_some_and(|(held, _)| held > 2));
    world.act(3, |group| group.leave());
    assert!(world.run_until(SECOND, |world| !world.group(0).failures().is_empty()));
    let refused = world.act(0, |root| root.send(vec![1]));
    assert_eq!(
        refused.map_err(|unsent| (unsent.error, unsent.memory)),
        Err((SendError::Failed, vec![1]))
    );
    world.act(0, |root| root.close()).expect("the root closes");
    assert!(world.run(60 * SECOND));
    assert_agreed(&world, &[3], &[8_000], "left");
}

#[test]
fn who_comes_too_late_is_told_so() {
    let mut world = World::new(4, Link::Lossy, 1, |_| {});
    let late = world.groups[3].take();
    send_all(&mut world, &[5_000]);
    assert!(world.run(60 * SECOND));
    assert_agreed(&world, &[3], &[5_000], "late");
    world.groups[3] = late;
    world.act(3, |_| ());
    world.run_until(SECOND, |world| world.apps[3].closed.is_some());
    assert_eq!(world.apps[3].closed, Some(Outcome::Refused(BulkRefused::Excluded)));
}

#[test]
fn who_has_another_plan_or_another_life_is_told_so() {
    let other = |own: usize, change: &dyn Fn(&mut Config)| {
        let mut config = config(4, own, Link::Lossy);
        change(&mut config);
        Group::new(config).expect("a group")
    };
    let mut world = World::new(4, Link::Lossy, 1, |_| {});
    world.groups[3] = Some(other(3, &|config| config.piece_len = 299));
    world.act(3, |_| ());
    world.run_until(SECOND, |world| world.apps[3].closed.is_some());
    assert_eq!(world.apps[3].closed, Some(Outcome::Refused(BulkRefused::OtherPlan)));

    let mut world = World::new(4, Link::Lossy, 1, |_| {});
    send_all(&mut world, &[50_000]);
    world.run_until(SECOND, |world| world.group(2).progress(0).is_some_and(|(held, _)| held > 2));
    world.groups[2] = Some(other(2, &|config| config.incarnation.0 += 1));
    world.act(2, |_| ());
    world.run_until(SECOND, |world| world.apps[2].closed.is_some());
    assert_eq!(world.apps[2].closed, Some(Outcome::Refused(BulkRefused::OtherIncarnation)));
    assert!(world.run(60 * SECOND));
    assert_eq!(world.group(1).failures()[0].reason, Reason::Restarted);
    assert_agreed(&world, &[2], &[50_000], "reborn");
}

#[test]
fn a_group_with_somebody_twice_or_without_us_cannot_be() {
    let with = |change: &dyn Fn(&mut Config)| {
        let mut config = config(3, 1, Link::Lossy);
        change(&mut config);
        Group::new(config).map(|_| ())
    };
    assert_eq!(with(&|_| ()), Ok(()));
    let twice = with(&|config| config.members[2].process = config.members[0].process);
    assert_eq!(twice, Err(ConfigError::DuplicateMember(onepipe_base::ProcessId(100))));
    assert!(matches!(with(&|config| config.own = 3), Err(ConfigError::Value { name: "own", .. })));
    assert!(with(&|config| config.members.clear()).is_err());
    assert!(with(&|config| config.piece_len = 0).is_err());
    assert!(with(&|config| config.piece_len = 600).is_err(), "it does not fit a frame");
    assert!(with(&|config| config.objects_max = 9).is_err());
}
