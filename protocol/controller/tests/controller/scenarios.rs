//! Scenarios with one failure each.

use crate::fabric;

use fabric::{Fabric, process, switch};
use onepipe_base::{Incarnation, ProcessId, Psn};
use onepipe_controller::{Event, Stats};
use onepipe_wire::{HEADER_LEN, Header, Opcode, seal};

const MS: u64 = 1_000_000;

fn ready_fabric(mut fabric: Fabric) -> Fabric {
    fabric.run(fabric.now + MS);
    fabric.campaign(0);
    fabric.run(fabric.now + MS);
    fabric.check_liveness().expect("nothing has happened");
    assert!(fabric.decided.is_empty(), "{:?}", fabric.decided);
    fabric
}

fn stats(fabric: &Fabric) -> Stats {
    let active = fabric.active.expect("one is active");
    *fabric.replicas[active].machine.as_ref().expect("it is running").stats()
}

fn assert_healthy(fabric: &Fabric) {
    fabric.check_safety().expect("safe");
    fabric.check_liveness().expect("alive");
}

//= spec/failure.md#R21
//= spec/failure.md#R22
#[test]
fn process_failure() {
    for flat in [false, true] {
        let mut fabric = Fabric::leaf_spine(3, 2, 3, 1);
        fabric.flat = flat;
        fabric.start_replica(0);
        let mut fabric = ready_fabric(fabric);
        let victim = fabric.find(process(5));
        let instance = fabric.nodes[victim].instance();
        fabric.kill(victim);
        fabric.run(fabric.now + 2 * MS);
        assert_eq!(fabric.decided.keys().copied().collect::<Vec<_>>(), [instance]);
        assert_healthy(&fabric);
    }
}

#[test]
fn leaf_failure_fails_all_processes_below() {
    for flat in [false, true] {
        let mut fabric = Fabric::leaf_spine(4, 2, 3, 2);
        fabric.flat = flat;
        fabric.start_replica(0);
        let mut fabric = ready_fabric(fabric);
        let leaf = fabric.find(switch(2));
        fabric.kill(leaf);
        fabric.run(fabric.now + 3 * MS);
        assert_eq!(fabric.decided.len(), 3);
        let failed = |event: &&Event| matches!(event, Event::Failed { .. });
        assert_eq!(fabric.events.iter().filter(failed).count(), 4);
        for number in [6, 7, 8] {
            let node = fabric.find(process(number));
            fabric.kill(node);
        }
        assert_healthy(&fabric);
    }
}

#[test]
fn process_failure_in_a_mesh() {
    for flat in [false, true] {
        let mut fabric = Fabric::mesh(4, 3);
        fabric.flat = flat;
        fabric.start_replica(0);
        let mut fabric = ready_fabric(fabric);
        let instance = fabric.nodes[2].instance();
        fabric.kill(2);
        fabric.run(fabric.now + 2 * MS);
        assert_eq!(fabric.decided.keys().copied().collect::<Vec<_>>(), [instance]);
        assert_healthy(&fabric);
    }
}

//= spec/failure.md#R21
#[test]
fn spine_failure_fails_no_process() {
    let mut fabric = ready_fabric(Fabric::leaf_spine(3, 2, 2, 4));
    let spine = fabric.find(switch(4));
    fabric.kill(spine);
    fabric.run(fabric.now + 2 * MS);
    assert!(fabric.decided.is_empty());
    assert_eq!((stats(&fabric).failures, stats(&fabric).switch_failures), (0, 1));
    assert_eq!(stats(&fabric).partitions, 0);
    assert_healthy(&fabric);
}

/// Returns three leaves below two spines, of which leaves 1 and 2 share no spine once the two
/// returned links are cut, each given as a node and its port.
fn leaves_with_two_paths(inexact_after_ns: u64) -> (Fabric, [(usize, usize); 2]) {
    let mut fabric = Fabric::leaf_spine(3, 2, 2, 5);
    fabric.inexact_after_ns = inexact_after_ns;
    fabric.start_replica(0);
    let fabric = ready_fabric(fabric);
    // Ports 0 and 1 lead to processes, 2 and 3 to the spines.
    let links = [(fabric.find(switch(1)), 2), (fabric.find(switch(2)), 3)];
    (fabric, links)
}

//= spec/failure.md#R41
#[test]
fn severs_single_links_and_counts_partitions() {
    let (mut fabric, [left, right]) = leaves_with_two_paths(5 * MS);
    fabric.cut(left.0, left.1, true);
    fabric.run(fabric.now + MS);
    assert_healthy(&fabric);
    assert_eq!((stats(&fabric).failures, stats(&fabric).partitions), (0, 0));
    fabric.cut(right.0, right.1, true);
    fabric.run(fabric.now + 4 * MS);
    assert!(fabric.check_liveness().is_err(), "commits are held");
    assert_eq!(stats(&fabric).partitions, 0);
    fabric.run(fabric.now + 2 * MS);
    assert!(fabric.decided.is_empty());
    assert!(stats(&fabric).partitions > 0, "leaves 1 and 2 share no spine");
    fabric.check_liveness().expect("alive");
    [left, right].into_iter().for_each(|(node, port)| fabric.cut(node, port, false));
    fabric.run(fabric.now + MS);
    fabric.check_liveness().expect("alive");
}

/// Both links of the only paths between two leaves die at once, and all switches report that they
/// have lost them. What the leaves have committed is held until a link is back.
//= spec/failure.md#R41
#[test]
fn holds_links_between_cut_off_processes_until_they_return() {
    let (leaves, cut) = leaves_with_two_paths(1_000 * MS);
    let mesh = ready_fabric(Fabric::mesh(4, 5));
    for (mut fabric, cut) in [(leaves, cut.to_vec()), (mesh, vec![(2, 0)])] {
        cut.iter().for_each(|(node, port)| fabric.cut(*node, *port, true));
        fabric.run(fabric.now + MS);
        assert!(fabric.check_liveness().is_err(), "commits are held");
        cut.iter().for_each(|(node, port)| fabric.cut(*node, *port, false));
        fabric.run(fabric.now + MS);
        assert!(fabric.decided.is_empty());
        assert_healthy(&fabric);
        assert_eq!(stats(&fabric).partitions, 0);
    }
}

#[test]
fn unreachable_spine_restarts_with_a_new_incarnation() {
    let mut fabric = ready_fabric(Fabric::leaf_spine(3, 2, 2, 6));
    let (leaf, spine) = (fabric.find(switch(0)), fabric.find(switch(3)));
    let previous = fabric.nodes[spine].instance();
    fabric.cut(leaf, 2, true);
    fabric.run(fabric.now + 3 * MS);
    assert!(fabric.decided.is_empty() && fabric.nodes[spine].instance() > previous);
    assert_healthy(&fabric);
    fabric.cut(leaf, 2, false);
    fabric.run(fabric.now + MS);
    assert_healthy(&fabric);
}

//= spec/failure.md#R34
#[test]
fn excluded_process_rejoins_with_a_new_incarnation() {
    let mut fabric = ready_fabric(Fabric::leaf_spine(2, 2, 2, 7));
    let node = fabric.find(process(3));
    let previous = fabric.nodes[node].instance();
    fabric.cut(node, 0, true);
    fabric.run(fabric.now + MS);
    assert!(fabric.decided.contains_key(&previous) && !fabric.nodes[node].known.is_excluded);
    fabric.cut(node, 0, false);
    fabric.run(fabric.now + MS);
    assert!(fabric.nodes[node].known.is_excluded);
    fabric.kill(node);
    fabric.start(node);
    fabric.run(fabric.now + MS);
    assert!(fabric.nodes[node].known.is_welcome);
    assert_eq!(fabric.decided.len(), 1);
    assert_healthy(&fabric);
}

//= spec/failure.md#R23
#[test]
fn sends_nothing_before_the_store_has_it() {
    let mut fabric = ready_fabric(Fabric::leaf_spine(2, 2, 2, 8));
    fabric.store.set_available(false);
    let node = fabric.find(process(3));
    fabric.kill(node);
    fabric.run(fabric.now + MS);
    assert!(fabric.nodes.iter().all(|node| node.known.failures.is_empty()));
    assert!(fabric.events.contains(&Event::StoreFailed));
    fabric.store.set_available(true);
    fabric.run(fabric.now + MS);
    assert_eq!(fabric.decided.len(), 1);
    assert_healthy(&fabric);
}

//= spec/failure.md#R21
#[test]
fn detects_failures_that_happened_without_a_controller() {
    let mut fabric = ready_fabric(Fabric::leaf_spine(3, 2, 2, 9));
    fabric.crash_replica(0);
    fabric.crash_replica(1);
    let leaf = fabric.find(switch(2));
    fabric.kill(leaf);
    fabric.run(fabric.now + MS);
    fabric.start_replica(1);
    fabric.campaign(1);
    fabric.run(fabric.now + 10 * MS);
    assert_eq!(fabric.decided.len(), 2, "both processes below it");
    for number in [4, 5] {
        let node = fabric.find(process(number));
        fabric.kill(node);
    }
    assert_healthy(&fabric);
}

//= spec/failure.md#R29
#[test]
fn relay_target_fails_without_a_pong() {
    for mesh in [false, true] {
        let fabric = if mesh { Fabric::mesh(4, 10) } else { Fabric::leaf_spine(2, 2, 2, 10) };
        let mut fabric = ready_fabric(fabric);
        let (sender, rude) = (fabric.find(process(0)), fabric.find(process(3)));
        let instance = fabric.nodes[rude].instance();
        fabric.nodes[rude].known.is_unresponsive = true;
        // The process announces itself no more, either.
        fabric.nodes[rude].backoff = onepipe_base::Backoff::new(1, 1);
        let mut inner = [0; 100];
        let header = Header::new(Opcode::ReliableData, ProcessId(0), ProcessId(3), Incarnation(1));
        let now = onepipe_base::Timestamp::from_ns(fabric.now);
        let header = header.stamped(now, onepipe_base::Promises::both(now), Psn::FIRST);
        let bytes = seal(&mut inner, header, 100 - HEADER_LEN);
        fabric.send_to_controller(sender, 0, Opcode::Relay, |buf| {
            buf[..bytes].copy_from_slice(&inner[..bytes]);
            bytes
        });
        fabric.run(fabric.now + 10 * MS);
        // In a mesh its missing announcements are noticed before the ping times out.
        assert_eq!(fabric.events.contains(&Event::PingTimedOut(instance)), !mesh);
        assert_eq!(fabric.decided.keys().copied().collect::<Vec<_>>(), [instance]);
        assert_eq!((stats(&fabric).relayed, stats(&fabric).inexact), (1, 0));
        fabric.kill(rude);
        assert_healthy(&fabric);
    }
}
