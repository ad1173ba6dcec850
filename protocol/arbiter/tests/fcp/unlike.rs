//! Endpoints and arbiters that were set up differently: both say so, and others are served.

use onepipe_arbiter::{ArbiterConfig, ClientConfig, FcpParams, Unlike};
use onepipe_base::ProcessId;

use crate::world::{SLOT_NS, World, arbiter_config, client_config};

const MS: u64 = 1_000_000;

#[test]
fn an_endpoint_with_other_timeslots_is_told_and_others_are_served() {
    let client = |process| {
        let slot_ns = if process == 3 { 2 * SLOT_NS } else { SLOT_NS };
        ClientConfig { slot_ns, ..client_config(process, 4, 1) }
    };
    let clients = (0..4).map(client).collect();
    let mut world = World::of(clients, vec![arbiter_config(0, 4, 1)], 1);
    (0..20).for_each(|_| assert!(world.enqueue(3, 0, 200) && world.enqueue(2, 0, 200)));
    world.run_for(1_000 * MS);
    let terms = |slot_ns| FcpParams { slot_ns, nodes: 4 };
    let unlike = Unlike { arbiter: ProcessId(4), its: terms(1_250), own: terms(2_500) };
    assert_eq!(world.clients[3].unlike(), Some(unlike));
    let said = "arbiter 4 has timeslots of 1250 ns and 4 endpoints, and this endpoint was set up \
                for 2500 ns and 4";
    assert_eq!(unlike.to_string(), said);
    assert_eq!((world.clients[2].unlike(), world.clients[2].backlog()), (None, 0));
    let (stats, own) = (*world.arbiters[0].comm_stats(), *world.clients[3].stats());
    assert!(stats.unlike > 10 && own.unlike > 10, "{stats:?} {own:?}");
    assert_eq!((stats.bad, stats.strangers, own.control_bad, own.granted), (0, 0, 0, 0));
    assert!(stats.sent < 1_000, "{stats:?}");
    // It is set up as it should.
    let config = ClientConfig { slot_ns: SLOT_NS, ..world.clients[3].config().clone() };
    world.clients[3] = onepipe_arbiter::Client::new(config).expect("right");
    world.run_for(10 * MS);
    assert!(world.enqueue(3, 1, 200));
    world.run_for(10 * MS);
    assert_eq!((world.clients[3].unlike(), world.clients[3].backlog()), (None, 0));
}

#[test]
fn an_endpoint_that_an_arbiter_does_not_serve_is_told() {
    let clients: Vec<_> = (0..6).map(|process| client_config(process, 6, 1)).collect();
    let arbiter = ArbiterConfig::new(ProcessId(6), 4, (2, 2), SLOT_NS);
    let mut world = World::of(clients, vec![arbiter], 1);
    world.fate = Box::new(|_, from, to, _| from.0.min(to.0) < 5);
    assert!(world.enqueue(5, 1, 200));
    world.run_for(100 * MS);
    let terms = |nodes| FcpParams { slot_ns: 1_250, nodes };
    let unlike = Unlike { arbiter: ProcessId(6), its: terms(4), own: terms(6) };
    assert_eq!(world.clients[5].unlike(), Some(unlike));
    let stats = *world.arbiters[0].comm_stats();
    assert!(stats.strangers > 5 && stats.unknown == 0, "{stats:?}");
}

#[test]
fn who_has_a_clock_seconds_away_can_tell_and_is_served_once_it_is_set() {
    for skew_ns in [-5_000 * MS as i64, 5_000 * MS as i64] {
        let mut world = World::new(4, 1, 1);
        world.skew_ns[3] = skew_ns;
        (0..20).for_each(|_| assert!(world.enqueue(3, 0, 200) && world.enqueue(2, 0, 200)));
        world.run_for(1_000 * MS);
        assert_eq!((world.clients[2].backlog(), world.clients[2].stats().clock_apart), (0, 0));
        let own = *world.clients[3].stats();
        assert!(own.clock_apart > 5 && own.granted == 0, "{own:?}");
        world.skew_ns[3] = 0;
        world.run_for(6_000 * MS);
        assert_eq!(world.clients[3].backlog(), 0, "{:?}", world.clients[3].stats());
    }
}
