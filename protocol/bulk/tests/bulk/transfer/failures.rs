//! Members crash in every step, in groups of up to 16.

use onepipe_bulk::{
    Algorithm, Config, ConfigError, Delivery, Group, Link, Outcome, Plain, Reason, SendError,
};
use onepipe_wire::BulkRefused;

use super::harness::{Faults, Harness, Rng, SECOND, config, object};
use super::healthy::send_all;

/// Time of a block of `config` in ns at one byte per ns, frame headers included.
const BLOCK_NS: u64 = 1_000 + 4 * 102;

/// Checks that all survivors agree: each object is complete at all of them or lost to all of them,
/// and complete objects are correct.
fn assert_agreed(harness: &Harness, dead: &[usize], sizes: &[usize], scenario: &str) {
    let closed = |outcome| harness.apps.iter().any(|app| app.closed == Some(outcome));
    if closed(Outcome::Complete) {
        // A clean outcome means that all members have everything; later failures cannot change it.
        for (rank, app) in harness.apps.iter().enumerate().filter(|(rank, _)| !dead.contains(rank))
        {
            assert!(!closed(Outcome::Left) && app.lost.is_empty(), "{scenario}: {rank}");
            for (number, bytes) in sizes.iter().enumerate() {
                let number = number as u32;
                assert!(
                    app.stable.get(&number) == Some(&object(number, *bytes)),
                    "{scenario}: {rank}"
                );
            }
        }
        return;
    }
    let survivors: Vec<usize> =
        (0..harness.apps.len()).filter(|rank| !dead.contains(rank)).collect();
    let whole = |rank: usize, number: u32| {
        let app = &harness.apps[rank];
        let delivered = app.delivered.iter().filter(|(found, _)| *found == number).count();
        assert!(delivered <= 1, "{scenario}: {rank} has {number} twice");
        if rank == 0 { app.stable.contains_key(&number) } else { delivered == 1 }
    };
    for rank in &survivors {
        let app = &harness.apps[*rank];
        assert_eq!(app.closed, Some(Outcome::Failed), "{scenario}: {rank}");
        // Failures after the end do not matter.
        assert!(!app.failed.is_empty(), "{scenario}: {rank}");
        let is_dead = |failed: &u32| dead.contains(&(*failed as usize));
        assert!(app.failed.iter().all(is_dead), "{scenario}: {rank} of {:?}", app.failed);
        for (number, bytes) in &app.stable {
            assert!(*bytes == object(*number, sizes[*number as usize]), "{scenario}: {number}");
        }
        for number in 0..sizes.len() as u32 {
            let is_whole = whole(*rank, number);
            assert_eq!(is_whole, whole(survivors[0], number), "{scenario}: {number} at {rank}");
            assert!(is_whole || dead.contains(&0), "{scenario}: {rank} lacks {number}");
            assert!(!(is_whole && app.lost.contains(&number)), "{scenario}: {number} at {rank}");
        }
    }
}

/// Crashes `victim` after `at` ns; detected by a timeout, or reported to its neighbours.
fn die(harness: &mut Harness, victim: usize, at: u64, is_notified: bool) {
    let end = harness.now + at;
    harness.run_until(at, |harness| harness.now >= end);
    harness.kill(victim);
    for rank in (0..harness.groups.len()).filter(|rank| is_notified && *rank != victim) {
        if harness.groups[rank].is_some() {
            harness.act(rank, |group| group.handle_link_down(victim as u32));
        }
    }
}

//= spec/bulk.md#R24
//= spec/bulk.md#R26
//= spec/bulk.md#R27
//= spec/bulk.md#R28
#[test]
fn survivors_agree_after_crash_in_any_step() {
    let sizes = [4_300];
    let (mut scenarios, mut were_over) = (0, 0);
    for n in 2..=16usize {
        let some = [0, 1, n / 2, n - 1];
        let victims: Vec<usize> = if n <= 8 { (0..n).collect() } else { some.to_vec() };
        // Steps for the blocks and for the latency, and some more.
        let steps = 5 + 4 * n.next_power_of_two().ilog2() as u64 + 12;
        for (victim, step) in victims.iter().flat_map(|victim| (0..steps).map(|at| (*victim, at))) {
            let link =
                if (n + step as usize).is_multiple_of(2) { Link::Lossy } else { Link::Reliable };
            let is_notified = link == Link::Reliable;
            let scenario = format!("{victim} of {n} in step {step}");
            let mut harness = Harness::new(n, link, 1, |_| {});
            send_all(&mut harness, &sizes);
            die(&mut harness, victim, step * BLOCK_NS, is_notified);
            assert!(harness.run(60 * SECOND), "{scenario}");
            scenarios += 1;
            were_over += u32::from(harness.apps.iter().all(|app| app.failed.is_empty()));
            assert_agreed(&harness, &[victim], &sizes, &scenario);
        }
    }
    assert!(
        0 < were_over && 3 * were_over < scenarios,
        "{were_over} of {scenarios} crashed afterwards"
    );
}

//= spec/bulk.md#R26
//= spec/bulk.md#R27
//= spec/bulk.md#R28
#[test]
fn survivors_agree_after_several_crashes_and_losses() {
    // 3827: an object that no survivor knew, between objects that some knew.
    for seed in (0..150).chain([3827]) {
        let mut rng = Rng::new(seed);
        let n = 3 + rng.below(10) as usize;
        let link = if rng.happens(500) { Link::Lossy } else { Link::Reliable };
        let sizes: Vec<usize> = (0..1 + rng.below(4)).map(|_| rng.below(15_000) as usize).collect();
        let plain = [Plain::Pipeline, Plain::Chain, Plain::Tree, Plain::Sequential];
        let algorithm = Algorithm::Plain(plain[rng.below(4) as usize]);
        let mut harness =
            Harness::new(n, link, seed, |config| config.algorithm = algorithm.clone());
        harness.faults = Faults {
            loss: rng.below(100),
            duplication: rng.below(100),
            reordering: rng.below(200),
            corruption: rng.below(20),
        };
        send_all(&mut harness, &sizes);
        let mut dead = Vec::new();
        for _ in 0..1 + rng.below(n as u64 / 2) {
            let (victim, at) = (rng.below(n as u64) as usize, rng.below(60_000));
            let is_notified = rng.happens(500);
            if !dead.contains(&victim) {
                die(&mut harness, victim, at, is_notified);
                dead.push(victim);
            }
        }
        let scenario = format!("seed {seed}: {dead:?} of {n}, {sizes:?} by {algorithm:?}");
        assert!(harness.run(120 * SECOND), "{scenario}");
        assert_agreed(&harness, &dead, &sizes, &scenario);
    }
}

#[test]
fn survivors_deliver_what_failed_member_has_delivered() {
    // 1417: probes were too rare to reach a live member.
    for seed in (0..120).chain([1417]) {
        let mut rng = Rng::new(seed);
        let n = 4 + rng.below(6) as usize;
        let link = if rng.happens(500) { Link::Lossy } else { Link::Reliable };
        let mut harness =
            Harness::new(n, link, seed, |config| config.delivery = Delivery::AllOrNone);
        harness.faults.loss = rng.below(150);
        send_all(&mut harness, &[3_000, 2_000]);
        let mut dead = Vec::new();
        // A minority fails.
        for _ in 0..1 + rng.below((n as u64 - 1) / 2) {
            let (victim, at) = (rng.below(n as u64) as usize, rng.below(40_000));
            if !dead.contains(&victim) {
                die(&mut harness, victim, at, false);
                dead.push(victim);
            }
        }
        assert!(harness.run(120 * SECOND), "seed {seed}");
        let delivered = |rank: usize| harness.apps[rank].delivered.len();
        let most = (1..n).map(delivered).max();
        for rank in (1..n).filter(|rank| !dead.contains(rank)) {
            assert_eq!(Some(delivered(rank)), most, "seed {seed}: {rank} of {n} without {dead:?}");
        }
    }
}

//= spec/bulk.md#R29
#[test]
fn minority_delivers_nothing_with_all_or_none() {
    let mut harness =
        Harness::new(4, Link::Reliable, 1, |config| config.delivery = Delivery::AllOrNone);
    send_all(&mut harness, &[3_000]);
    let has = |harness: &mut Harness, rank| harness.group(rank).progress(0) == Some((3, 3));
    assert!(harness.run_until(SECOND, |harness| has(harness, 2) && has(harness, 3)));
    harness.kill(0);
    harness.kill(1);
    assert!(harness.run(60 * SECOND));
    for app in &harness.apps[2..] {
        assert_eq!((app.closed, app.delivered.len()), (Some(Outcome::Failed), 0));
        assert_eq!(app.lost, [0]);
    }
}

#[test]
fn detects_root_crash_before_first_object() {
    let mut harness = Harness::new(4, Link::Lossy, 1, |_| {});
    die(&mut harness, 0, 1_000, false);
    assert!(harness.run(60 * SECOND));
    assert_agreed(&harness, &[0], &[], "before the first object");
}

//= spec/bulk.md#R14
#[test]
fn member_without_memory_leaves_with_reason() {
    for link in [Link::Reliable, Link::Lossy] {
        let mut harness = Harness::new(6, link, 1, |_| {});
        harness.apps[2].declines = true;
        send_all(&mut harness, &[9_000]);
        assert!(harness.run(60 * SECOND));
        assert_eq!(harness.apps[2].closed, Some(Outcome::Left));
        assert_agreed(&harness, &[2], &[9_000], "no memory");
        for rank in [0, 1, 3, 4, 5] {
            let failure = harness.group(rank).failures()[0];
            assert_eq!((failure.rank, failure.by, failure.reason), (2, 2, Reason::Memory));
        }
    }
}

//= spec/bulk.md#R12
//= spec/bulk.md#R24
#[test]
fn root_rejects_objects_after_leave() {
    let mut harness = Harness::new(5, Link::Reliable, 1, |_| {});
    harness.act(0, |root| root.send(object(0, 8_000))).expect("the object is accepted");
    harness.run_until(SECOND, |harness| {
        harness.group(3).progress(0).is_some_and(|(held, _)| held > 2)
    });
    harness.act(3, |group| group.leave());
    assert!(harness.run_until(SECOND, |harness| !harness.group(0).failures().is_empty()));
    let refused = harness.act(0, |root| root.send(vec![1]));
    assert_eq!(
        refused.map_err(|unsent| (unsent.error, unsent.memory)),
        Err((SendError::Failed, vec![1]))
    );
    harness.act(0, |root| root.close()).expect("the root closes");
    assert!(harness.run(60 * SECOND));
    assert_agreed(&harness, &[3], &[8_000], "left");
}

//= spec/bulk.md#R24
//= spec/bulk.md#R25
#[test]
fn late_member_is_refused() {
    let mut harness = Harness::new(4, Link::Lossy, 1, |_| {});
    let late = harness.groups[3].take();
    send_all(&mut harness, &[5_000]);
    assert!(harness.run(60 * SECOND));
    assert_agreed(&harness, &[3], &[5_000], "late");
    harness.groups[3] = late;
    harness.act(3, |_| ());
    harness.run_until(SECOND, |harness| harness.apps[3].closed.is_some());
    assert_eq!(harness.apps[3].closed, Some(Outcome::Refused(BulkRefused::Excluded)));
}

//= spec/bulk.md#R8
//= spec/bulk.md#R24
//= spec/bulk.md#R25
#[test]
fn other_plan_or_incarnation_is_refused() {
    let other = |own: usize, change: &dyn Fn(&mut Config)| {
        let mut config = config(4, own, Link::Lossy);
        change(&mut config);
        Group::new(config).expect("a group")
    };
    let mut harness = Harness::new(4, Link::Lossy, 1, |_| {});
    harness.groups[3] = Some(other(3, &|config| config.piece_len = 299));
    harness.act(3, |_| ());
    harness.run_until(SECOND, |harness| harness.apps[3].closed.is_some());
    assert_eq!(harness.apps[3].closed, Some(Outcome::Refused(BulkRefused::OtherConfig)));

    let mut harness = Harness::new(4, Link::Lossy, 1, |_| {});
    send_all(&mut harness, &[50_000]);
    harness.run_until(SECOND, |harness| {
        harness.group(2).progress(0).is_some_and(|(held, _)| held > 2)
    });
    harness.groups[2] = Some(other(2, &|config| config.incarnation.0 += 1));
    harness.act(2, |_| ());
    harness.run_until(SECOND, |harness| harness.apps[2].closed.is_some());
    assert_eq!(harness.apps[2].closed, Some(Outcome::Refused(BulkRefused::OtherIncarnation)));
    assert!(harness.run(60 * SECOND));
    assert_eq!(harness.group(1).failures()[0].reason, Reason::Restarted);
    assert_agreed(&harness, &[2], &[50_000], "reborn");
}

#[test]
fn rejects_duplicate_and_missing_members() {
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
    assert!(with(&|config| config.piece_len = 600).is_err(), "a piece must fit a frame");
    assert!(with(&|config| config.objects_max = 9).is_err());
}
