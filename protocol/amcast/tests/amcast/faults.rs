//! Random histories with loss, crashes and elections; checks agreement, total order, validity,
//! integrity and genuineness.

use crate::harness;

use harness::{Harness, Plan};
use onepipe_amcast::GroupSet;

//= spec/amcast.md#R1
//= spec/amcast.md#R9
//= spec/amcast.md#R16
//= spec/amcast.md#R18
#[test]
fn invariants_hold_under_all_faults() {
    let (mut elections, mut delivered, mut busy) = (0, 0, 0);
    for seed in 0..400 {
        let mut harness = Harness::new(Plan::draw(seed));
        let wrong = harness.run();
        assert_eq!(wrong, None, "seed {seed}: {:?}", harness.plan);
        elections += harness.leads;
        delivered += harness.delivered.iter().map(Vec::len).sum::<usize>();
        busy += harness.members.iter().flatten().map(|member| member.stats().busy).sum::<u64>();
    }
    assert!(elections > 100 && delivered > 5_000 && busy > 100, "{elections} {delivered} {busy}");
}

//= spec/amcast.md#R1
#[test]
fn delivery_takes_four_packets() {
    let mut harness = Harness::new(Plan { members: vec![3, 3], ..Plan::calm() });
    assert!(harness.send_one(0, GroupSet::from_bits(0b11)));
    // Start, proposal, acknowledgement and delivery: four sequential packets.
    harness.run_until(4 * harness::DELAY_NS + 1_000);
    assert!(harness.delivered.iter().all(|all| all.len() == 1), "{:?}", harness.delivered);
}

//= spec/amcast.md#R3
/// A leader crashed with the positions that only it had accepted, and no live member that was asked
/// had the message.
#[test]
fn message_lost_in_other_group_is_retransmitted() {
    assert_eq!(Harness::new(Plan::draw(5_077)).run(), None);
}

/// The client had moved on, and its next message had taken the cell of the requested one.
#[test]
fn finds_requested_message_without_cell() {
    assert_eq!(Harness::new(Plan::draw(2_543)).run(), None);
}

/// A new leader knew of a later message of the client, whose cell is that of an open message.
#[test]
fn logged_message_takes_cell_from_unlogged_one() {
    assert_eq!(Harness::new(Plan::draw(5_107)).run(), None);
}

//= spec/amcast.md#R12
/// The client had moved on, its next message took the cell of a message undecided here, and the
/// member that had decided that message had crashed.
#[test]
fn undecided_message_keeps_its_votes() {
    assert_eq!(Harness::new(Plan::draw(882)).run(), None);
}

//= spec/amcast.md#R11
/// A cell was given back to a completed message, and then a message between the two arrived late
/// and was proposed again.
#[test]
fn late_request_is_not_proposed_again() {
    assert_eq!(Harness::new(Plan::draw(3_962)).run(), None);
}

//= spec/amcast.md#R16
/// The replica had all messages and timestamps, but the barrier was lost and never requested.
#[test]
fn replica_requests_missing_barrier() {
    assert_eq!(Harness::new(Plan::draw(17_617)).run(), None);
}

//= spec/amcast.md#R14
/// A member without the log of its epoch replied with its count in that epoch, and its leader
/// concluded that the member had the log.
#[test]
fn member_without_log_reports_no_count() {
    assert_eq!(Harness::new(Plan::draw(816)).run(), None);
}
