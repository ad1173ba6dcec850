//! An arbiter crashes, or is taken for crashed: no timeslot is granted twice (checked by the
//! network), and waiting packets are sent nevertheless.

use onepipe_wire::Opcode;

use super::net::{Channel, Draws, SLOT_NS, TestNet, first_arbiter};

const MS: u64 = 1_000_000;

/// Generates random traffic for a while.
fn load(net: &mut TestNet, draws: &mut Draws, ns: u64) {
    let nodes = u64::from(net.nodes());
    let end = net.now + ns;
    while net.now < end {
        let (src, dst) = (draws.below(nodes) as u32, draws.below(nodes) as u32);
        if src != dst {
            net.enqueue(src, dst, 200);
        }
        net.run_for(draws.below(SLOT_NS));
    }
}

fn is_primary(net: &TestNet) -> [bool; 2] {
    [0, 1].map(|index| net.arbiters[index].is_primary())
}

//= spec/arbiter.md#R27
//= spec/arbiter.md#R28
#[test]
fn secondary_takes_over_1_ms_after_a_crash() {
    for seed in 0..12 {
        let (mut net, mut draws) = (TestNet::new(6, 2, seed), Draws(seed));
        load(&mut net, &mut draws, 2 * MS);
        assert_eq!(is_primary(&net), [true, false]);
        net.control = Channel { lose: seed % 3 * 8, ..Channel::default() };
        let a_while = draws.below(MS);
        load(&mut net, &mut draws, a_while);
        net.is_down[0] = true;
        let died = net.now;
        while !net.arbiters[1].is_primary() {
            load(&mut net, &mut draws, 10_000);
        }
        let took = net.now - died;
        let is_early = took < 9 * MS / 10 && seed % 3 == 0;
        assert!(took < MS + 100_000 && !is_early, "{took} ns");
        let slots_sent = |net: &TestNet| -> u64 {
            net.clients.iter().map(|client| client.stats().slots_sent).sum()
        };
        let before = slots_sent(&net);
        load(&mut net, &mut draws, MS);
        assert!(slots_sent(&net) > before + 100, "traffic resumes within another millisecond");
        net.control = Channel::default();
        net.run_for(30 * MS);
        net.assert_quiet();
        net.assert_all_arrived();
        // A restarted arbiter does not depose the primary.
        net.restart_arbiter(0);
        load(&mut net, &mut draws, 3 * MS);
        assert_eq!(is_primary(&net), [false, true]);
        net.run_for(10 * MS);
        net.assert_quiet();
        net.assert_all_arrived();
    }
}

//= spec/arbiter.md#R28
//= spec/arbiter.md#R29
#[test]
fn one_way_watchdog_loss_resolves_within_a_lead() {
    for seed in 0..12 {
        let (mut net, mut draws) = (TestNet::new(6, 2, seed), Draws(seed));
        net.delay_ns = 5_000 + seed % 4 * 10_000;
        load(&mut net, &mut draws, 2 * MS);
        let (first, cut) = (first_arbiter(6), net.now);
        net.drop_filter = Box::new(move |now, from, _, frame| {
            now > cut && from == first && frame.opcode == Opcode::Watchdog
        });
        let mut both_ns = 0;
        for _ in 0..3_000 {
            load(&mut net, &mut draws, 1_000);
            both_ns += if is_primary(&net) == [true, true] { 1_000 } else { 0 };
        }
        assert_eq!(is_primary(&net), [false, true]);
        assert!(both_ns < 65_000, "{both_ns} ns");
        let (second, start) = net.starts[1];
        assert_eq!((net.starts.len(), second), (2, 1));
        assert!(net.last[0] < start, "{} and {start}", net.last[0]);
        net.run_for(20 * MS);
        net.assert_quiet();
        net.assert_all_arrived();
    }
}

//= spec/arbiter.md#R29
/// Neither arbiter receives packets of the other, but endpoints see both and forward the claims.
#[test]
fn endpoints_send_the_epoch_to_partitioned_arbiters() {
    for seed in 0..12 {
        let (mut net, mut draws) = (TestNet::new(6, 2, seed), Draws(seed));
        net.delay_ns = 1_000 + seed % 4 * 2_000;
        load(&mut net, &mut draws, 2 * MS);
        let first = first_arbiter(6);
        net.drop_filter = Box::new(move |_, from, to, _| from >= first && to >= first);
        let (mut both_ns, mut changes) = (0, 0);
        for _ in 0..4_000 {
            let before = is_primary(&net);
            load(&mut net, &mut draws, 1_000);
            both_ns += if is_primary(&net) == [true, true] { 1_000 } else { 0 };
            changes += u64::from(before != is_primary(&net));
        }
        assert!(changes >= 2 && both_ns < changes * 50_000, "{both_ns} ns, {changes} times");
        // The link between them is repaired.
        net.drop_filter = Box::new(|_, _, _, _| false);
        load(&mut net, &mut draws, 2 * MS);
        assert_ne!(net.arbiters[0].is_primary(), net.arbiters[1].is_primary());
        net.run_for(20 * MS);
        net.assert_quiet();
        net.assert_all_arrived();
    }
}

#[test]
fn watchdogs_lost_towards_the_primary_are_harmless() {
    let (mut net, mut draws) = (TestNet::new(4, 2, 5), Draws(5));
    let second = onepipe_base::ProcessId(first_arbiter(4).0 + 1);
    net.drop_filter = Box::new(move |_, from, _, _| from == second);
    load(&mut net, &mut draws, 5 * MS);
    assert_eq!((is_primary(&net), net.arbiters[0].epoch()), ([true, false], 1));
    net.run_for(10 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

//= spec/arbiter.md#R24
#[test]
fn unanswered_endpoint_switches_arbiter() {
    let mut net = TestNet::new(4, 2, 5);
    net.run_for(2 * MS);
    // The primary is down, and the secondary cannot reach the endpoints.
    net.is_down[0] = true;
    let (second, until) = (onepipe_base::ProcessId(first_arbiter(4).0 + 1), net.now + 3 * MS);
    net.drop_filter = Box::new(move |now, from, _, _| from == second && now < until);
    assert!(net.enqueue(0, 3, 200));
    net.run_for(30 * MS);
    net.assert_all_arrived();
    assert_eq!(net.clients[0].arbiter(), second);
}

//= spec/arbiter.md#R29
#[test]
fn endpoint_with_one_way_link_deposes_no_arbiter() {
    for for_ns in [1_000_000, 1_500_000, 2_000_000, 3_000_000, 4_500_000, 6_000_000] {
        let (mut net, mut draws) = (TestNet::new(4, 2, 5), Draws(5));
        load(&mut net, &mut draws, 2 * MS);
        let (first, isolated) = (first_arbiter(4), onepipe_base::ProcessId(0));
        let (begin, end) = (net.now, net.now + for_ns);
        net.drop_filter = Box::new(move |now, from, to, _| {
            (begin..end).contains(&now) && from == first && to == isolated
        });
        load(&mut net, &mut draws, 10 * MS);
        assert_eq!((is_primary(&net), net.arbiters[0].epoch()), ([true, false], 1));
        net.drop_filter = Box::new(|_, _, _, _| false);
        net.run_for(20 * MS);
        net.assert_quiet();
        net.assert_all_arrived();
    }
}

//= spec/arbiter.md#R21
#[test]
fn grants_of_a_dead_arbiter_are_still_used() {
    let (mut net, mut draws) = (TestNet::new(4, 2, 5), Draws(5));
    load(&mut net, &mut draws, 2 * MS);
    net.is_down[0] = true;
    load(&mut net, &mut draws, 3 * MS);
    let duplicate: u64 = net.clients.iter().map(|client| client.stats().duplicate).sum();
    let ahead: u64 = net.clients.iter().map(|client| client.stats().ahead).sum();
    assert_eq!((duplicate, ahead), (0, 0));
}
