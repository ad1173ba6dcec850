//! Acknowledgements are carried by other packets, with long timeslots as well.

use onepipe_base::ProcessId;

use super::net::TestNet;

const MS: u64 = 1_000_000;
/// At 600 Mbit/s: a batch lasts 1.3 ms, and its grants answer a request.
const LONG_SLOT_NS: u64 = 20_000;

/// Every endpoint always wants more of all others.
fn busy(net: &mut TestNet, ms: u64) {
    for _ in 0..ms {
        for (src, dst) in (0..8).flat_map(|src| (0..8).map(move |dst| (src, dst))) {
            while src != dst && net.clients[src as usize].queued(ProcessId(dst)) < 40 {
                assert!(net.enqueue(src, dst, 1_300));
            }
        }
        net.run_for(MS);
    }
}

//= spec/arbiter.md#R25
#[test]
fn acks_are_piggybacked_on_grants() {
    let mut net = TestNet::with_slots_of(LONG_SLOT_NS, 8);
    busy(&mut net, 20);
    let before = *net.arbiters[0].comm_stats();
    busy(&mut net, 200);
    let now = *net.arbiters[0].comm_stats();
    let (sent, acks) = (now.sent - before.sent, now.sent_acks - before.sent_acks);
    assert!(sent > 8 * 140 && acks * 50 < sent, "{acks} of {sent} packets");
    assert_eq!(now.bad + now.duplicates, 0);
}

/// All endpoints want the same destination, so most wait for several batches without any grant.
/// They retransmit what is not acknowledged in time, and reset the session if that does not help.
#[test]
fn delayed_acks_cause_no_reset() {
    let mut net = TestNet::with_slots_of(LONG_SLOT_NS, 24);
    for _ in 0..5 {
        for (src, _) in (1..24).flat_map(|src| (0..40).map(move |nth| (src, nth))) {
            assert!(net.enqueue(src, 0, 1_300));
        }
        net.run_for(40 * MS);
        net.assert_quiet();
    }
    for client in &net.clients {
        let stats = client.stats();
        assert_eq!((stats.resets, stats.control_bad), (1, 0), "{stats:?}");
    }
    let resets = net.arbiters[0].comm_stats().resets;
    assert_eq!(resets, 24, "when it began");
}
