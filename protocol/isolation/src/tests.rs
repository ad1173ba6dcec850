//! Tests of fault isolation.

use alloc::vec::Vec;

use onepipe_base::Mono;

use crate::{Config, Fault, Isolation, Layout, Loss, Spines, Timing};

const MS: u64 = 1_000_000;
/// At 10 Gbit/s with batches of 64.
const TIMING: Timing = Timing {
    window_ns: MS,
    grace_ns: 2 * MS,
    check_interval_ns: MS / 10,
    retry_ns_first: 10 * MS,
    retry_ns_max: 1_000 * MS,
};
/// Four racks of four endpoints with four paths.
const RACKS: Layout = Layout::of_racks(16, 4, 4);
const SLOTS: u16 = 64;

/// Returns a path that looks random.
fn draw(src: u16, slot: u16, paths: u32) -> u8 {
    let drawn = (u32::from(src) * 64 + u32::from(slot)).wrapping_mul(0x9e37_79b9);
    ((drawn >> 16) % paths) as u8
}

fn lose(isolation: &mut Isolation, now: u64, (src, dst): (u16, u16), path: u8, lost: u16) {
    isolation.on_lost(Mono::from_ns(now), Loss { src, dst, path, lost });
    isolation.check_invariants();
}

/// Sends packets between four racks of four endpoints by four paths, from every endpoint in every
/// timeslot to another rack, and reports those for which `is_lost` holds.
fn run(isolation: &mut Isolation, now: u64, is_lost: impl Fn(usize, usize, u8) -> bool) {
    let packets = (0..SLOTS).flat_map(|slot| (0..16).map(move |src| (src, slot)));
    let packets = packets.map(|(src, slot)| (src, (src + 4 * (1 + slot % 3) + slot) % 16, slot));
    let packets: Vec<_> = packets.filter(|(src, dst, _)| src / 4 != dst / 4).collect();
    for (src, dst, slot) in &packets {
        isolation.on_granted(*src, *dst, draw(*src, *slot, 4));
    }
    for (src, dst, slot) in packets {
        let (path, [from, to]) = (draw(src, slot, 4), [src, dst].map(|node| usize::from(node) / 4));
        if is_lost(from, to, path) {
            isolation.on_lost(Mono::from_ns(now), Loss { src, dst, path, lost: 1 });
        }
    }
    isolation.check_invariants();
}

fn find(is_lost: impl Fn(usize, usize, u8) -> bool) -> Vec<Fault> {
    let mut isolation = Isolation::new(RACKS, TIMING);
    isolation.on_timeout(Mono::from_ns(0));
    run(&mut isolation, 10, |_, _, _| false);
    run(&mut isolation, 20, is_lost);
    core::iter::from_fn(|| isolation.find(Mono::from_ns(30))).collect()
}

//= spec/arbiter.md#R32
#[test]
fn finds_the_link_with_the_highest_loss_rate() {
    let one = |rack, path| Fault::Link { rack, path };
    assert_eq!(find(|from, _, path| (from, path) == (2, 1)), [one(2, 1)], "up");
    assert_eq!(find(|_, to, path| (to, path) == (0, 3)), [one(0, 3)], "down");
    let both = find(|from, to, path| path == 2 && (from == 3 || to == 3));
    assert_eq!(both, [one(3, 2)]);
    assert_eq!(find(|_, _, path| path == 1), [Fault::Path(1)], "all that is between");
    let mut two = find(|from, to, path| (from, path) == (2, 1) || (to, path) == (0, 3));
    two.sort();
    assert_eq!(two, [one(0, 3), one(2, 1)]);
    assert_eq!(find(|_, _, _| false), []);
}

//= spec/arbiter.md#R32
#[test]
fn losses_beyond_grants_are_ignored() {
    let (mut isolation, now) = (Isolation::new(RACKS, TIMING), Mono::from_ns(20));
    isolation.on_timeout(Mono::from_ns(0));
    // Five packets for 15, all others for 14.
    for slot in 0..SLOTS {
        isolation.on_granted(0, if slot < 5 { 15 } else { 14 }, draw(0, slot, 4));
    }
    for dst in [13, 15, 15, 16, u16::MAX] {
        lose(&mut isolation, 20, (0, dst), 1, u16::MAX);
        lose(&mut isolation, 20, (0, dst), 1, 1);
    }
    assert_eq!(isolation.find(now), None, "at most 5 losses of 15, none of 13, and 16 is unknown");
    lose(&mut isolation, 20, (0, 14), 1, 16);
    assert_eq!(isolation.find(now), None, "evaluated just before");
    let now = now.after_ns(MS / 10);
    assert_eq!(isolation.due(), Some(now));
    assert_eq!(isolation.find(now), Some(Fault::Link { rack: 0, path: 1 }));
}

//= spec/arbiter.md#R32
#[test]
fn never_cuts_off_a_rack() {
    let found = find(|from, _, _| from == 1);
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|fault| matches!(fault, Fault::Link { rack: 1, .. })));
    assert_eq!(find(|_, _, _| true), [], "the overall loss rate is as high");
    // Racks 0 and 1 would be left with different paths, and so without one in common.
    let two = find(|from, to, path| {
        (path != 0 && (from == 0 || to == 0)) || (path == 0 && (from == 1 || to == 1))
    });
    assert_eq!(two.len(), 3, "{two:?}");
}

//= spec/arbiter.md#R33
#[test]
fn retries_avoided_links_with_exponential_backoff() {
    let mut isolation = Isolation::new(RACKS, TIMING);
    isolation.on_timeout(Mono::from_ns(0));
    let (mut now, mut waits) = (0, Vec::new());
    for _ in 0..4 {
        run(&mut isolation, now, |from, _, path| (from, path) == (2, 1));
        let fault = isolation.find(Mono::from_ns(now)).expect("a fault is found");
        assert_eq!(fault, Fault::Link { rack: 2, path: 1 });
        run(&mut isolation, now + 1, |from, _, path| (from, path) == (2, 1));
        assert_eq!(isolation.find(Mono::from_ns(now + 1)), None, "known");
        let begin = now;
        while isolation.on_timeout(Mono::from_ns(now)).is_none() {
            now += MS;
        }
        waits.push((now - begin) / MS);
        now += 3 * MS;
        isolation.on_timeout(Mono::from_ns(now));
    }
    assert_eq!(waits, [10, 20, 40, 80]);
    // Repaired, and in use from now on.
    for _ in 0..300 {
        now += MS;
        isolation.on_timeout(Mono::from_ns(now));
        run(&mut isolation, now, |_, _, _| false);
    }
    run(&mut isolation, now, |from, _, path| (from, path) == (2, 1));
    assert!(isolation.find(Mono::from_ns(now)).is_some());
    assert_eq!(isolation.find(Mono::from_ns(now)), None, "nothing else");
    assert_eq!(isolation.due(), Some(Mono::from_ns(now + 10 * MS)), "as the first time");
    assert!(isolation.repair(Fault::Link { rack: 2, path: 1 }));
    assert_eq!(isolation.due(), None);
}

#[test]
fn timing_scales_with_timeslot_and_lead() {
    let of = |slot_ns, lead_ns, slots| Config::DEFAULT.timing(slot_ns, lead_ns, slots);
    assert_eq!(of(1_230, 65_000, 64), TIMING);
    let slow =
        Timing { window_ns: 80 * MS, grace_ns: 6_200_000, retry_ns_first: 31 * MS, ..TIMING };
    assert_eq!(of(100_000, 2 * MS, 16), slow);
    assert_eq!(of(1_230, 2 * MS, 16).window_ns, 4 * MS);
    let longest = of(u64::MAX, u64::MAX, 64);
    assert_eq!((longest.retry_ns_first, longest.retry_ns_max), (u64::MAX, u64::MAX));
}

/// With timeslots of 1 ms, a dead link loses five packets of one sender in two milliseconds.
#[test]
fn finds_a_dead_link_with_long_timeslots() {
    let mut isolation = Isolation::new(RACKS, Config::DEFAULT.timing(MS, 2 * MS, 4));
    let found = (0..32).find_map(|batch| {
        let now = Mono::from_ns(4 * u64::from(batch) * MS);
        isolation.on_timeout(now);
        let paths = [0, 1, 2, 3].map(|slot| draw(0, 4 * batch + slot, 4));
        paths.iter().for_each(|path| isolation.on_granted(0, 4, *path));
        for _ in paths.iter().filter(|path| **path == 2) {
            isolation.on_lost(now, Loss { src: 0, dst: 4, path: 2, lost: 1 });
        }
        isolation.find(now)
    });
    assert_eq!(found, Some(Fault::Link { rack: 0, path: 2 }));
    assert_eq!(isolation.avoided().collect::<Vec<_>>(), [Fault::Link { rack: 0, path: 2 }]);
}

//= spec/arbiter.md#R32
#[test]
fn few_or_old_losses_are_ignored() {
    let mut isolation = Isolation::new(RACKS, TIMING);
    isolation.on_timeout(Mono::from_ns(0));
    run(&mut isolation, 0, |_, _, _| false);
    let record_loss = |isolation: &mut Isolation, now, lost| {
        lose(isolation, now, (0, 5), 1, lost);
    };
    record_loss(&mut isolation, 0, 5);
    assert_eq!(isolation.find(Mono::from_ns(0)), None);
    for turn in 1..=3 {
        isolation.on_timeout(Mono::from_ns(turn * MS));
    }
    run(&mut isolation, 3 * MS, |_, _, _| false);
    record_loss(&mut isolation, 3 * MS, 5);
    assert_eq!(isolation.find(Mono::from_ns(3 * MS)), None);
    record_loss(&mut isolation, 3 * MS, 1);
    assert!(isolation.find(Mono::from_ns(3 * MS + MS / 10)).is_some());
    assert_eq!(isolation.find(Mono::from_ns(3 * MS + MS / 10)), None, "nothing else");
    // An unknown source, an unknown path, and a packet within a rack.
    lose(&mut isolation, 3 * MS, (16, 0), 1, 100);
    lose(&mut isolation, 3 * MS, (0, 5), 4, 100);
    lose(&mut isolation, 3 * MS, (0, 1), 1, 100);
    assert_eq!(isolation.find(Mono::from_ns(4 * MS)), None);
}

/// The testbed with one more pod: six racks of eight in three pods, with two spines of eight upper
/// links each. With only two pods a packet goes up and down through links of equal numbers, which
/// could not be distinguished.
const TREE: Layout =
    Layout::of_racks(48, 8, 8).with_spines(Spines { pod_racks: 2, count: 2, links: 8 });

/// As [`find`], through three tiers: all endpoints send to other racks all the time. `is_lost`
/// takes the source, the destination and the path of a packet.
fn find_in_tree(is_lost: impl Fn(u16, u16, u8) -> bool) -> Vec<Fault> {
    let mut isolation = Isolation::new(TREE, TIMING);
    isolation.on_timeout(Mono::from_ns(0));
    for round in 0..8 {
        for (src, slot) in (0..SLOTS).flat_map(|slot| (0..48).map(move |src| (src, slot))) {
            let dst = (src + 8 * (1 + slot % 5) + slot / 5) % 48;
            let links = if src / 16 == dst / 16 { 8 } else { 64 };
            let path = draw(src, 64 * round + slot, links);
            if src / 8 != dst / 8 {
                isolation.on_granted(src, dst, path);
                if is_lost(src, dst, path) {
                    isolation.on_lost(Mono::from_ns(20), Loss { src, dst, path, lost: 1 });
                }
            }
        }
    }
    isolation.check_invariants();
    core::iter::from_fn(|| isolation.find(Mono::from_ns(30))).collect()
}

#[test]
fn finds_faulty_links_of_both_tiers() {
    // Links 0 to 3 of a rack lead to the first spine of its pod.
    let spine = |node: u16, path: u8| node / 16 * 2 + u16::from(path % 8 / 4);
    let leaves_pod = |src: u16, dst: u16| src / 16 != dst / 16;
    assert_eq!(find_in_tree(|_, _, _| false), []);
    for rack in 0..6 {
        for link in [0, 5] {
            let up = find_in_tree(|src, _, path| (src / 8, path % 8) == (rack, link));
            let down = find_in_tree(|_, dst, path| (dst / 8, path % 8) == (rack, link));
            let fault = Fault::Link { rack: rack.into(), path: link.into() };
            assert_eq!((up, down), (alloc::vec![fault], alloc::vec![fault]));
        }
    }
    for of in 0..6 {
        for link in [0, 3] {
            let is_it = |node: u16, path: u8| (spine(node, path), path / 8) == (of, link);
            let up = find_in_tree(|src, dst, path| leaves_pod(src, dst) && is_it(src, path));
            let down = find_in_tree(|src, dst, path| leaves_pod(src, dst) && is_it(dst, path));
            let fault = Fault::SpineLink { spine: of.into(), link: link.into() };
            assert_eq!((up, down), (alloc::vec![fault], alloc::vec![fault]));
        }
    }
    // A spine loses everything that leaves its pod: one link stays in use.
    let most = find_in_tree(|src, dst, path| leaves_pod(src, dst) && spine(src, path) == 1);
    assert!((1..=7).contains(&most.len()), "{most:?}");
    assert!(most.iter().all(|fault| matches!(fault, Fault::SpineLink { spine: 1 | 3 | 5, .. })));
}

/// Grants `count` packets from endpoint 0 to each of the endpoints of rack 1 by path 1.
fn grant(isolation: &mut Isolation, count: usize) {
    for dst in 4..8 {
        (0..count).for_each(|_| isolation.on_granted(0, dst, 1));
        (0..count).for_each(|_| isolation.on_granted(0, dst, 2));
    }
}

//= spec/arbiter.md#R32
#[test]
fn losses_are_evaluated_over_two_windows() {
    // Five losses, and one at this time after them, when the window has ended before.
    let found_after = |ns: u64| {
        let mut isolation = Isolation::new(RACKS, TIMING);
        isolation.on_timeout(Mono::from_ns(0));
        grant(&mut isolation, 4);
        (0..5).for_each(|nth| lose(&mut isolation, 0, (0, 4 + nth % 4), 1, 1));
        assert_eq!(isolation.find(Mono::from_ns(0)), None, "too few");
        assert_eq!(isolation.due(), Some(Mono::from_ns(MS)), "the end of the window");
        isolation.on_timeout(Mono::from_ns(ns));
        grant(&mut isolation, 4);
        lose(&mut isolation, ns, (0, 4), 1, 1);
        isolation.find(Mono::from_ns(ns))
    };
    let fault = Some(Fault::Link { rack: 0, path: 1 });
    assert_eq!(
        [found_after(MS), found_after(2 * MS - 1), found_after(2 * MS)],
        [fault, fault, None]
    );
}

//= spec/arbiter.md#R33
#[test]
fn losses_of_an_avoided_link_are_not_reported_again() {
    let mut isolation = Isolation::new(RACKS, TIMING);
    isolation.on_timeout(Mono::from_ns(0));
    grant(&mut isolation, 9);
    lose(&mut isolation, 0, (0, 4), 1, 6);
    let fault = Fault::Link { rack: 0, path: 1 };
    assert_eq!(isolation.find(Mono::from_ns(0)), Some(fault));
    assert_eq!(isolation.find(Mono::from_ns(0)), None, "nothing else");
    // Avoided for long, and so no longer within the grace time.
    grant(&mut isolation, 9);
    lose(&mut isolation, 3 * MS, (0, 5), 1, 6);
    assert_eq!(isolation.due(), Some(Mono::from_ns(10 * MS)), "nothing to evaluate");
    assert!(!isolation.repair(Fault::Path(1)), "another fault");
    // Under trial, for twice the time for which the link was avoided.
    assert_eq!(isolation.on_timeout(Mono::from_ns(10 * MS)), Some(fault));
    assert_eq!(isolation.due(), Some(Mono::from_ns(30 * MS)), "the end of the trial");
    assert_eq!(isolation.avoided().count(), 0);
    assert!(!isolation.repair(fault), "the link is in use already");
    assert_eq!(isolation.due(), None, "and was forgotten");
}
