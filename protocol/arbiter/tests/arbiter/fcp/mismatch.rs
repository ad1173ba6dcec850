//! Endpoints and arbiters with different settings: both report it, and others are served.

use onepipe_arbiter::{ArbiterConfig, ClientConfig, Core, FcpParams, ParamsMismatch};
use onepipe_base::ProcessId;

use super::net::{SLOT_NS, TestNet, arbiter_config, client_config};

const MS: u64 = 1_000_000;

//= spec/arbiter.md#R22
#[test]
fn mismatched_timeslot_length_is_reported() {
    let client = |process| {
        let slot_ns = if process == 3 { 2 * SLOT_NS } else { SLOT_NS };
        ClientConfig { slot_ns, ..client_config(process, 4, 1) }
    };
    let clients = (0..4).map(client).collect();
    let mut net = TestNet::of(clients, vec![arbiter_config(0, 4, 1)], 1);
    (0..20).for_each(|_| assert!(net.enqueue(3, 0, 200) && net.enqueue(2, 0, 200)));
    net.run_for(1_000 * MS);
    let params = |slot_ns| FcpParams { slot_ns, nodes: 4 };
    let params_mismatch =
        ParamsMismatch { arbiter: ProcessId(4), theirs: params(1_250), own: params(2_500) };
    assert_eq!(net.clients[3].params_mismatch(), Some(params_mismatch));
    let said = "arbiter 4 has timeslots of 1250 ns and 4 endpoints, and this endpoint was set up \
                for 2500 ns and 4";
    assert_eq!(params_mismatch.to_string(), said);
    assert_eq!((net.clients[2].params_mismatch(), net.clients[2].backlog()), (None, 0));
    let (stats, own) = (*net.arbiters[0].comm_stats(), *net.clients[3].stats());
    assert!(stats.params_mismatch > 10 && own.params_mismatch > 10, "{stats:?} {own:?}");
    assert_eq!((stats.bad, stats.unknown_sources, own.control_bad, own.granted), (0, 0, 0, 0));
    assert!(stats.sent < 1_000, "{stats:?}");
    // The settings are corrected.
    let config = ClientConfig { slot_ns: SLOT_NS, ..net.clients[3].config().clone() };
    net.clients[3] = onepipe_arbiter::Client::new(config).expect("right");
    net.run_for(10 * MS);
    assert!(net.enqueue(3, 1, 200));
    net.run_for(10 * MS);
    assert_eq!((net.clients[3].params_mismatch(), net.clients[3].backlog()), (None, 0));
}

//= spec/arbiter.md#R22
#[test]
fn endpoint_beyond_nodes_is_rejected() {
    let clients: Vec<_> = (0..6).map(|process| client_config(process, 6, 1)).collect();
    let arbiter = ArbiterConfig::new(ProcessId(6), Core::racks(4, 2, 2), SLOT_NS);
    let mut net = TestNet::of(clients, vec![arbiter], 1);
    net.drop_filter = Box::new(|_, from, to, _| from.0.min(to.0) < 5);
    assert!(net.enqueue(5, 1, 200));
    net.run_for(100 * MS);
    let params = |nodes| FcpParams { slot_ns: 1_250, nodes };
    let params_mismatch =
        ParamsMismatch { arbiter: ProcessId(6), theirs: params(4), own: params(6) };
    assert_eq!(net.clients[5].params_mismatch(), Some(params_mismatch));
    let stats = *net.arbiters[0].comm_stats();
    assert!(stats.unknown_sources > 5 && stats.unknown_destinations == 0, "{stats:?}");
}

//= spec/arbiter.md#R21
#[test]
fn skewed_clock_is_counted_until_corrected() {
    for skew_ns in [-5_000 * MS as i64, 5_000 * MS as i64] {
        let mut net = TestNet::new(4, 1, 1);
        net.skew_ns[3] = skew_ns;
        (0..20).for_each(|_| assert!(net.enqueue(3, 0, 200) && net.enqueue(2, 0, 200)));
        net.run_for(1_000 * MS);
        assert_eq!((net.clients[2].backlog(), net.clients[2].stats().clock_skewed), (0, 0));
        let own = *net.clients[3].stats();
        assert!(own.clock_skewed > 5 && own.granted == 0, "{own:?}");
        net.skew_ns[3] = 0;
        net.run_for(6_000 * MS);
        assert_eq!(net.clients[3].backlog(), 0, "{:?}", net.clients[3].stats());
    }
}
