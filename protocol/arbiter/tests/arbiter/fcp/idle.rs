//! Unreachable endpoints are given up, and connect again.

use std::cell::Cell;
use std::rc::Rc;

use onepipe_base::ProcessId;

use super::net::TestNet;

const MS: u64 = 1_000_000;

/// Returns the control packets that the arbiter sends within the next second.
fn sent_in_a_second(net: &mut TestNet) -> u64 {
    let before = net.arbiters[0].comm_stats().sent;
    net.run_for(1_000 * MS);
    net.arbiters[0].comm_stats().sent - before
}

#[test]
fn idle_arbiter_is_quiet_and_accepts_new_endpoints() {
    let mut net = TestNet::new(8, 1, 1);
    let are_there = Rc::new(Cell::new(false));
    let come = are_there.clone();
    net.drop_filter = Box::new(move |_, from, to, _| !come.get() && from.0.min(to.0) >= 4);
    net.run_for(1_000 * MS);
    assert_eq!(net.arbiters[0].comm().known(), 4);
    let sent = sent_in_a_second(&mut net);
    assert!(sent <= 4, "{sent} packets in a second to 4 absent endpoints");
    are_there.set(true);
    assert!(net.enqueue(5, 6, 200));
    net.run_for(5 * MS);
    net.assert_all_arrived();
    net.run_for(10_000 * MS);
    assert_eq!((net.arbiters[0].comm().known(), sent_in_a_second(&mut net)), (8, 0));
    assert_eq!(net.arbiters[0].comm_stats().timed_out, 0, "they had never connected");
}

//= spec/arbiter.md#R26
#[test]
fn endpoint_that_dies_before_its_ack_is_given_up() {
    let mut net = TestNet::new(8, 1, 1);
    net.run_for(MS);
    let is_dead = Rc::new(Cell::new(false));
    let dead = is_dead.clone();
    net.drop_filter = Box::new(move |_, from, to, _| dead.get() && (from.0 == 3 || to.0 == 3));
    (0..20).for_each(|_| assert!(net.enqueue(3, 5, 200)));
    // All timeslots were granted and advertised, so nothing is pending.
    while net.arbiters[0].comm().totals(3, 5).1 < 20 {
        net.run_for(1_000);
        assert!(net.now < 2 * MS);
    }
    is_dead.set(true);
    net.run_for(50 * MS);
    assert_eq!((net.arbiters[0].comm().known(), net.arbiters[0].comm_stats().timed_out), (7, 1));
    let sent = sent_in_a_second(&mut net);
    assert!(sent <= 1, "{sent} packets in a second to one dead endpoint");
    // The endpoint was merely cut off; it has no session for one round trip.
    is_dead.set(false);
    (0..20).for_each(|_| assert!(net.enqueue(3, 5, 200)));
    net.run_for(MS);
    net.assert_quiet();
    assert_eq!(net.arbiters[0].comm().known(), 8);
}

/// The endpoint has all timeslots, and its acknowledgement is lost, so it is probed in vain. When
/// it sends again it is out of step, but need not send ten packets to be reset.
#[test]
fn probed_endpoint_reconnects_in_one_round_trip() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    assert!(net.enqueue(3, 2, 200));
    while net.clients[3].totals(ProcessId(2)) != (1, 1) {
        net.run_for(1_000);
        assert!(net.now < 2 * MS);
    }
    net.drop_filter = Box::new(|_, from, to, _| from.0.max(to.0) == 4 && from.0.min(to.0) == 3);
    net.run_for(6_000 * MS);
    assert_eq!(net.arbiters[0].comm_stats().timed_out, 1);
    net.drop_filter = Box::new(|_, _, _, _| false);
    let before = net.arbiters[0].comm_stats().resets;
    assert!(net.enqueue(3, 2, 200));
    net.run_for(2 * net.delay_ns + 1);
    assert_eq!(net.arbiters[0].comm_stats().resets, before + 1, "probed, and reset");
    assert_eq!(net.arbiters[0].comm().pending(3), 0);
    net.run_for(net.delay_ns);
    assert_eq!(net.arbiters[0].comm().pending(3), 1);
    net.run_for(MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

//= spec/arbiter.md#R26
/// A replaced switch has no table: an endpoint that only waits for packets must announce itself.
#[test]
fn idle_endpoint_sends_one_keepalive_per_second() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(100 * MS);
    let said = Rc::new(Cell::new(0));
    let count = said.clone();
    net.drop_filter = Box::new(move |_, from, _, _| {
        count.set(count.get() + u32::from(from.0 == 2));
        false
    });
    for seconds in 1..=5 {
        let sent = sent_in_a_second(&mut net);
        assert_eq!((said.get(), sent), (seconds, 0));
    }
}
