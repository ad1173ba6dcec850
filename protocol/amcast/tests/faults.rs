//! Random histories with loss, crashes and elections; checks agreement, total order, validity,
//! integrity and genuineness.

mod world;

use onepipe_amcast::GroupSet;
use world::{Plan, World};

#[test]
fn everything_holds_under_every_fault() {
    let (mut elections, mut delivered, mut busy) = (0, 0, 0);
    for seed in 0..400 {
        let mut world = World::new(Plan::draw(seed));
        let wrong = world.run();
        assert_eq!(wrong, None, "seed {seed}: {:?}", world.plan);
        elections += world.leads;
        delivered += world.delivered.iter().map(Vec::len).sum::<usize>();
        busy += world.members.iter().flatten().map(|member| member.stats().busy).sum::<u64>();
    }
    assert!(elections > 100 && delivered > 5_000 && busy > 100, "{elections} {delivered} {busy}");
}

#[test]
fn a_message_is_delivered_four_packets_after_it_was_sent() {
    let mut world = World::new(Plan { members: vec![3, 3], ..Plan::calm() });
    assert!(world.send_one(0, GroupSet::from_bits(0b11)));
    // Start, proposal, acknowledgement and delivery: four sequential packets.
    world.run_until(4 * world::DELAY_NS + 1_000);
    assert!(world.delivered.iter().all(|all| all.len() == 1), "{:?}", world.delivered);
}

/// A leader crashed with the positions that only it had accepted, and no live member that was asked
/// had the message.
#[test]
fn what_another_group_has_lost_is_told_it_again() {
    assert_eq!(World::new(Plan::draw(5_077)).run(), None);
}

/// The client had moved on, and its next message had taken the cell of the requested one.
#[test]
fn what_another_group_needs_is_found_behind_later_messages() {
    assert_eq!(World::new(Plan::draw(2_543)).run(), None);
}

/// A new leader knew of a later message of the client, whose cell is that of an open message.
#[test]
fn what_is_only_heard_of_makes_room_for_what_is_in_the_log() {
    assert_eq!(World::new(Plan::draw(5_107)).run(), None);
}

/// The client had moved on, its next message took the cell of a message undecided here, and the
/// member that had decided that message had crashed.
#[test]
fn what_is_not_decided_keeps_its_votes_when_the_client_goes_on() {
    assert_eq!(World::new(Plan::draw(882)).run(), None);
}

/// A cell was given back to a completed message, and then a message between the two arrived late
/// and was proposed again.
#[test]
fn what_comes_late_is_not_proposed_again() {
    assert_eq!(World::new(Plan::draw(3_962)).run(), None);
}

/// The replica had all messages and timestamps, but the barrier was lost and never requested.
#[test]
fn a_replica_that_lacks_nothing_but_the_barrier_asks_for_it() {
    assert_eq!(World::new(Plan::draw(17_617)).run(), None);
}

/// A member without the log of its epoch replied with its count in that epoch, and its leader
/// concluded that the member had the log.
#[test]
fn who_has_not_the_log_of_its_epoch_tells_no_count_in_it() {
    assert_eq!(World::new(Plan::draw(816)).run(), None);
}
