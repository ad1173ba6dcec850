//! Service and overhead without loss.

use super::net::{SLOT_NS, TestNet};

const MS: u64 = 1_000_000;

//= spec/arbiter.md#R5
//= spec/arbiter.md#R6
#[test]
fn packets_arrive_once_in_order_in_granted_slots() {
    let mut net = TestNet::new(6, 1, 1);
    for round in 0..200u32 {
        for src in 0..6 {
            let dst = (src + 1 + round % 5) % 6;
            net.enqueue(src, dst, 150);
        }
        net.run_for(2 * SLOT_NS);
    }
    net.run_for(5 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
    let stats = net.clients[0].stats();
    assert_eq!((stats.packets, stats.packets_refused), (200, 0));
    assert_eq!((stats.late, stats.ahead, stats.duplicate, stats.resets), (0, 0, 0, 1));
}

#[test]
fn packet_leaves_within_a_lead_and_a_batch() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    assert!(net.enqueue(0, 3, 12));
    // The request, the next batch, the grant, and the timeslot.
    let most = 5_000 + 16 * SLOT_NS + 65_000 + 16 * SLOT_NS;
    net.run_for(most + 5_000);
    net.assert_all_arrived();
    assert_eq!(net.clients[0].stats().slots_sent, 1);
}

//= spec/arbiter.md#R6
#[test]
fn small_packets_share_a_timeslot() {
    let mut net = TestNet::new(4, 1, 1);
    net.run_for(MS);
    (0..30).for_each(|_| assert!(net.enqueue(0, 3, 12)));
    net.run_for(MS);
    net.assert_all_arrived();
    // A frame of 300 bytes has space for 236 bytes of packets, 14 each: 16 packets.
    assert_eq!(net.clients[0].stats().slots_sent, 2);
}

#[test]
fn senders_to_one_receiver_share_a_full_link() {
    let mut net = TestNet::new(5, 1, 1);
    net.run_for(MS);
    for src in 0..4 {
        (0..200).for_each(|_| assert!(net.enqueue(src, 4, 200)));
    }
    let from = net.now;
    net.run_for(400 * SLOT_NS);
    let arrived: Vec<usize> = (0..4).map(|src| net.arrived[&(src, 4)].len()).collect();
    let total: usize = arrived.iter().sum();
    let slots = ((net.now - from) / SLOT_NS) as usize;
    assert!(total > slots - 150 && total <= slots, "{total} of {slots}");
    // Each visit grants at most 16 timeslots.
    assert!(arrived.iter().all(|count| count.abs_diff(total / 4) <= 16), "{arrived:?}");
    net.run_for(2 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

//= spec/arbiter.md#R25
#[test]
fn control_traffic_is_a_small_share() {
    let mut net = TestNet::new(8, 1, 1);
    for _ in 0..8 {
        for src in 0..8u32 {
            (0..4).for_each(|at| {
                (0..32).for_each(|_| assert!(net.enqueue(src, (src + 1 + at) % 8, 200)));
            });
        }
        net.run_for(128 * SLOT_NS);
    }
    net.run_for(MS);
    net.assert_quiet();
    let sent: u64 = net.clients.iter().map(|client| client.stats().slots_sent).sum();
    let control: u64 = net.clients.iter().map(|client| client.stats().control_bytes).sum();
    let slots_bytes = sent * 1_500;
    assert!(control * 1_000 < slots_bytes * 3, "{control} for {slots_bytes}");
}

#[test]
fn control_traffic_share_is_the_same_on_slow_links() {
    // At 500 Mbit/s the interval of control packets is 1.5 ms, and acknowledgements obey it.
    let mut net = TestNet::with_slots_of(24_000, 8);
    for _ in 0..40 {
        for src in 0..8u32 {
            while net.enqueue(src, (src + 1) % 8, 900) && net.clients[src as usize].backlog() < 200
            {
            }
        }
        net.run_for(64 * 24_000);
    }
    let arbiter = &net.arbiters[0];
    let (sent, batches) = (arbiter.comm().stats().sent, arbiter.stats().batches);
    // One packet with grants per batch and endpoint, and one acknowledgement per request.
    assert!(sent <= 8 * 2 * (batches + 2), "{sent} to 8 endpoints in {batches} batches");
    net.run_for(20 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

/// After a clock step back no timeslot is granted until the clock is where it was, as none is
/// granted twice; a step forward costs a lead.
#[test]
fn traffic_resumes_at_once_after_a_clock_step() {
    for step_ns in [1_000_000, 10_000_000, 50_000_000, -1_000_000, -10_000_000] {
        let mut net = TestNet::new(8, 1, 1);
        net.run_for(5_000_000);
        net.enqueue(3, 5, 200);
        net.run_for(5_000_000);
        assert_eq!(net.clients[3].backlog(), 0);
        net.step_ns = step_ns;
        net.run_for(1_000_000);
        net.enqueue(3, 5, 200);
        let least_ns = step_ns.min(0).unsigned_abs();
        net.run_for(least_ns + 3_000_000);
        assert_eq!(net.clients[3].backlog(), 0, "3 ms after a step of {step_ns} ns");
    }
}
