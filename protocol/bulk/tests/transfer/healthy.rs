//! No faults: all members receive everything, and the group closes cleanly.

use onepipe_bulk::{Algorithm, Link, Outcome, Plain};

use crate::world::{SECOND, World, object};

/// Sends objects of these sizes, as many at a time as allowed, and closes.
pub fn send_all(world: &mut World, sizes: &[usize]) {
    for (number, bytes) in sizes.iter().enumerate() {
        let mut memory = Some(object(number as u32, *bytes));
        let is_sent = world.run_until(60 * SECOND, |world| {
            let Some(unsent) = memory.take() else { return true };
            memory = world.act(0, |root| root.send(unsent)).err().map(|unsent| unsent.memory);
            memory.is_none()
        });
        assert!(is_sent, "object {number} is not taken");
    }
    world.act(0, |root| root.close()).expect("the root closes");
}

/// Checks that every member received everything once, in order, and reports so (invariant K).
pub fn assert_complete(world: &World, sizes: &[usize]) {
    for (rank, app) in world.apps.iter().enumerate() {
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

#[test]
fn every_schedule_brings_every_size_to_everybody() {
    let sizes = [0, 1, 300, 301, 999, 1_000, 1_001, 7_500, 0, 20_000];
    for (n, link) in (1..=9).chain([16, 17]).flat_map(|n| [(n, Link::Reliable), (n, Link::Lossy)]) {
        for plain in PLAIN {
            for is_in_place in [false, true] {
                let mut world =
                    World::new(n, link, 1, |config| config.algorithm = Algorithm::Plain(plain));
                world.is_in_place = is_in_place;
                send_all(&mut world, &sizes);
                assert!(world.run(60 * SECOND), "{plain:?} of {n} over {link:?}");
                assert_complete(&world, &sizes);
            }
        }
    }
}

#[test]
fn a_member_whose_link_is_blocked_holds_nobody_up() {
    let mut world = World::new(4, Link::Reliable, 1, |_| {});
    world.group(0).set_blocked(3, true);
    world.act(0, |root| root.send(object(0, 9_000))).expect("it is taken");
    let has = |world: &World, rank: usize| !world.apps[rank].delivered.is_empty();
    assert!(world.run_until(SECOND, |world| has(world, 1) && has(world, 2)));
    assert!(world.group(3).stats().frames_received > 0, "others speak to it");
    world.act(0, |root| root.set_blocked(3, false));
    assert!(world.run_until(SECOND, |world| has(world, 3)));
}

/// Pending output to a member whose link is blocked sets no deadline: a driver that serves
/// deadlines would spin.
#[test]
fn nothing_is_due_over_a_blocked_link() {
    let mut world = World::new(4, Link::Reliable, 1, |config| config.keepalive_ns = SECOND / 100);
    let has = |world: &World, rank: usize, count| world.apps[rank].delivered.len() == count;
    world.act(0, |root| root.send(object(0, 9_000))).expect("it is taken");
    assert!(world.run_until(SECOND, |world| (1..4).all(|rank| has(world, rank, 1))));
    world.act(0, |root| root.set_blocked(3, true));
    let before = world.group(0).stats().frames_received;
    // The harness fails if time does not advance.
    world.run_until(SECOND / 20, |_| false);
    assert!(world.group(0).stats().frames_received > before, "others speak to it");
    world.act(0, |root| root.set_blocked(3, false));
    world.act(0, |root| root.send(object(1, 9_000))).expect("it is taken");
    assert!(world.run_until(SECOND, |world| (1..4).all(|rank| has(world, rank, 2))));
}
