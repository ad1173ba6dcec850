//! Endpoints that start long after the others.

use onepipe_arbiter::{Arbiter, ArbiterConfig, Client, ClientConfig, Core, FailoverConfig, Role};
use onepipe_base::{Incarnation, ProcessId};

use super::net::{TestNet, arbiter_config, client_config, first_arbiter};

const MS: u64 = 1_000_000;
const NODES: u32 = 8;

/// Runs two arbiters, the second of which is the primary because the first is down or does not
/// receive it, and then starts an endpoint.
fn join(slot_ns: u64, is_first_down: bool, after_ns: u64) -> TestNet {
    let first = first_arbiter(NODES);
    let client = |process| ClientConfig {
        arbiters: vec![first, ProcessId(first.0 + 1)],
        ..ClientConfig::new(ProcessId(process), NODES, first, slot_ns)
    };
    let arbiter = |nth: u32| {
        let mut config =
            ArbiterConfig::new(ProcessId(first.0 + nth), Core::racks(NODES, NODES, 1), slot_ns);
        // Of two that start at once the second becomes the primary, as its number is higher.
        let role = if is_first_down && nth == 0 { Role::Secondary } else { Role::Primary };
        let peers = vec![ProcessId(first.0 + 1 - nth)];
        config.failover = FailoverConfig { role, peers, ..FailoverConfig::ALONE };
        config.allocator.batch_slots = 16;
        config
    };
    let clients: Vec<_> = (0..NODES).map(client).collect();
    let late = ClientConfig { incarnation: Incarnation(9), ..clients[3].clone() };
    let mut net = TestNet::of(clients, vec![arbiter(0), arbiter(1)], 1);
    net.is_down[0] = is_first_down;
    net.drop_filter = Box::new(|_, from, to, _| from.0 == 3 || to.0 == 3);
    net.run_for(after_ns);
    net.drop_filter = Box::new(|_, _, _, _| false);
    assert!(net.arbiters[1].is_primary() && !net.arbiters[0].is_primary());
    net.clients[3] = Client::new(late).expect("right");
    net
}

/// At once, or after the endpoint has asked an absent arbiter for a while.
#[test]
fn endpoint_started_after_takeover_is_served() {
    for slot_ns in [1_250, 12_500, 50_000, 100_000] {
        for (is_first_down, idle_ns) in [(true, 0), (false, 0), (true, 500 * MS), (false, 500 * MS)]
        {
            let mut net = join(slot_ns, is_first_down, 50 * MS);
            net.run_for(idle_ns);
            (0..20).for_each(|_| assert!(net.enqueue(3, 5, 200)));
            // Five losses at the interval of control packets, and a round trip to the other one.
            net.run_for(5 * MS + 1_000 * slot_ns);
            let stats = net.clients[3].stats();
            let what = format!("{slot_ns} ns, {is_first_down}, {idle_ns}: {stats:?}");
            assert_eq!(net.clients[3].backlog(), 0, "{what}");
            net.run_for(5 * MS + 1_000 * slot_ns);
            net.assert_all_arrived();
        }
    }
}

/// An endpoint without traffic connects to the primary, although nothing it sends is answered.
#[test]
fn idle_endpoint_started_after_takeover_connects() {
    for is_first_down in [true, false] {
        let mut net = join(100_000, is_first_down, 50 * MS);
        net.run_for(100 * MS);
        assert_eq!(net.arbiters[1].comm().known(), NODES);
        assert_eq!(net.clients[3].arbiter(), ProcessId(first_arbiter(NODES).0 + 1));
        let resets = net.clients[3].stats().resets;
        net.run_for(1_000 * MS);
        assert_eq!(net.clients[3].stats().resets, resets, "and that is all");
    }
}

//= spec/arbiter.md#R23
/// Round trips longer than five minimum retransmission timeouts.
#[test]
fn long_round_trip_is_not_taken_for_loss() {
    for delay_ns in [450_000, 600_000, MS, 5 * MS] {
        let mut net = TestNet::new(4, 1, 1);
        net.delay_ns = delay_ns;
        let lead_ns = 4 * delay_ns;
        let config = ArbiterConfig { lead_ns, ..arbiter_config(0, 4, 1) };
        net.arbiters[0] = Arbiter::new(config).expect("right");
        for at in 0..4 {
            let ahead_slots_max = 2 * (lead_ns / net.slot_ns) as u32;
            let config = ClientConfig { ahead_slots_max, ..client_config(at, 4, 1) };
            net.clients[at as usize] = Client::new(config).expect("right");
        }
        // The first requests travel with a reset and yield a sample of the round trip; later
        // requests must use it.
        (0..20).for_each(|_| assert!(net.enqueue(2, 1, 200)));
        net.run_for(50 * MS);
        (0..20).for_each(|_| assert!(net.enqueue(3, 1, 200)));
        net.run_for(10 * lead_ns);
        net.assert_all_arrived();
        let resets = net.clients[3].stats().resets;
        assert!(resets <= 7, "{delay_ns}: {resets} resets");
        (0..20).for_each(|_| assert!(net.enqueue(3, 1, 200)));
        net.run_for(10 * lead_ns);
        net.assert_all_arrived();
        assert_eq!(net.clients[3].stats().resets, resets, "{delay_ns}: it knows");
    }
}
