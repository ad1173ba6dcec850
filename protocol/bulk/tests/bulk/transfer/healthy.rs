//! No faults: all members receive everything, and the group closes cleanly.

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_bulk::{
    Algorithm, Config, ConfigError, Group, GroupId, Link, Member, Outcome, PIECE_FRONT_LEN, Plain,
};

use super::harness::{Harness, SECOND, object};

/// Sends objects of these sizes, as many at a time as allowed, and closes.
pub fn send_all(harness: &mut Harness, sizes: &[usize]) {
    for (number, bytes) in sizes.iter().enumerate() {
        let mut memory = Some(object(number as u32, *bytes));
        let is_sent = harness.run_until(60 * SECOND, |harness| {
            let Some(unsent) = memory.take() else { return true };
            memory = harness.act(0, |root| root.send(unsent)).err().map(|unsent| unsent.memory);
            memory.is_none()
        });
        assert!(is_sent, "object {number} is not accepted");
    }
    harness.act(0, |root| root.close()).expect("the root closes");
}

/// Checks that every member received everything once, in order, and reports so (invariant K).
pub fn assert_complete(harness: &Harness, sizes: &[usize]) {
    for (rank, app) in harness.apps.iter().enumerate() {
        assert_eq!(app.closed, Some(Outcome::Complete), "{rank}");
        assert_eq!((app.lost.len(), app.failed.len()), (0, 0), "{rank}");
        let numbers: Vec<u32> = app.delivered.iter().map(|(number, _)| *number).collect();
        let all: Vec<u32> = (0..sizes.len() as u32).collect();
        assert_eq!(numbers, if rank == 0 { vec![] } else { all.clone() }, "{rank}");
        assert!(app.stable.keys().copied().eq(all), "{rank} has its memory back");
        for (number, bytes) in sizes.iter().enumerate() {
            assert!(app.stable[&(number as u32)] == object(number as u32, *bytes), "{rank}");
        }
    }
}

const PLAIN: [Plain; 4] = [Plain::Sequential, Plain::Chain, Plain::Tree, Plain::Pipeline];

//= spec/bulk.md#R10
//= spec/bulk.md#R13
//= spec/bulk.md#R28
#[test]
fn every_schedule_delivers_objects_of_every_size() {
    let sizes = [0, 1, 300, 301, 999, 1_000, 1_001, 7_500, 0, 20_000];
    for (n, link) in (1..=9).chain([16, 17]).flat_map(|n| [(n, Link::Reliable), (n, Link::Lossy)]) {
        for plain in PLAIN {
            for is_zero_copy in [false, true] {
                let mut harness =
                    Harness::new(n, link, 1, |config| config.algorithm = Algorithm::Plain(plain));
                harness.is_zero_copy = is_zero_copy;
                send_all(&mut harness, &sizes);
                assert!(harness.run(60 * SECOND), "{plain:?} of {n} over {link:?}");
                assert_complete(&harness, &sizes);
            }
        }
    }
}

//= spec/bulk.md#R7
#[test]
fn blocked_link_does_not_delay_others() {
    let mut harness = Harness::new(4, Link::Reliable, 1, |_| {});
    harness.group(0).set_blocked(3, true);
    harness.act(0, |root| root.send(object(0, 9_000))).expect("the object is accepted");
    let has = |harness: &Harness, rank: usize| !harness.apps[rank].delivered.is_empty();
    assert!(harness.run_until(SECOND, |harness| has(harness, 1) && has(harness, 2)));
    assert!(harness.group(3).stats().frames_received > 0, "other members send to it");
    harness.act(0, |root| root.set_blocked(3, false));
    assert!(harness.run_until(SECOND, |harness| has(harness, 3)));
}

/// Pending output to a member whose link is blocked sets no deadline: a driver that serves
/// deadlines would spin.
#[test]
fn blocked_link_has_no_deadline() {
    let mut harness =
        Harness::new(4, Link::Reliable, 1, |config| config.keepalive_ns = SECOND / 100);
    let has = |harness: &Harness, rank: usize, count| harness.apps[rank].delivered.len() == count;
    harness.act(0, |root| root.send(object(0, 9_000))).expect("the object is accepted");
    assert!(harness.run_until(SECOND, |harness| (1..4).all(|rank| has(harness, rank, 1))));
    harness.act(0, |root| root.set_blocked(3, true));
    let before = harness.group(0).stats().frames_received;
    // The harness fails if time does not advance.
    harness.run_until(SECOND / 20, |_| false);
    assert!(harness.group(0).stats().frames_received > before, "other members send to it");
    harness.act(0, |root| root.set_blocked(3, false));
    harness.act(0, |root| root.send(object(1, 9_000))).expect("the object is accepted");
    assert!(harness.run_until(SECOND, |harness| (1..4).all(|rank| has(harness, rank, 2))));
}

/// A length that is set afterwards is as good as a configured one, until the group has begun.
//= spec/bulk.md#R31
#[test]
fn frame_length_is_set_only_before_the_group_begins() {
    let member =
        |at: u32| Member { process: ProcessId(at), port: Port(at as u16), link: Link::Lossy };
    let config = |frame_len_max: usize| Config {
        piece_len: (frame_len_max - PIECE_FRONT_LEN) as u32,
        frame_len_max,
        ..Config::new(GroupId(1), (0..3).map(member).collect(), 0, Incarnation(1))
    };
    let group = |frame_len| Group::<Vec<u8>>::new(config(frame_len)).expect("a valid length");
    let mut changed = group(1_472);
    for frame_len in [0, PIECE_FRONT_LEN, 511, 66_000, usize::MAX] {
        let refused = changed.set_frame_len(frame_len).expect_err("it is out of range");
        assert!(matches!(refused, ConfigError::Value { .. }), "{frame_len}: {refused}");
        assert!(changed == group(1_472), "nothing has changed");
    }
    for frame_len in [512, 61_512, 65_000] {
        changed.set_frame_len(frame_len).expect("it is in range");
        assert!(changed == group(frame_len));
    }
    let mut sender = changed.clone();
    sender.send(vec![1]).expect("the object is accepted");
    changed.handle_timeout(Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1) });
    for mut begun in [sender, changed] {
        assert_eq!(begun.set_frame_len(1_472), Err(ConfigError::Begun));
        assert_eq!(begun.config().frame_len_max, 65_000);
    }
}
