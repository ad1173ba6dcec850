//! Lost, duplicated, reordered, stale and corrupt control packets cost time and nothing else.

use onepipe_arbiter::{Arbiter, Timeslot};
use onepipe_base::ProcessId;
use onepipe_wire::{Fcp, Opcode, SHORT_HEADER_LEN};

use super::net::{Channel, Draws, SLOT_NS, TestNet, arbiter_config};

const MS: u64 = 1_000_000;

/// Runs random traffic under faults for a while, then lets everything finish without.
fn survive(seed: u64, control: Channel) -> TestNet {
    let nodes = 3 + (seed % 6) as u32;
    let mut net = TestNet::new(nodes, 1, seed);
    net.control = control;
    let mut draws = Draws(seed ^ 0x5eed);
    for _ in 0..300 {
        for _ in 0..draws.below(4) {
            let (src, dst) = (draws.below(u64::from(nodes)), draws.below(u64::from(nodes)));
            if src != dst {
                net.enqueue(src as u32, dst as u32, 12 + draws.below(200) as usize);
            }
        }
        net.run_for(draws.below(20 * SLOT_NS));
    }
    net.control = Channel::default();
    net.run_for(30 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
    net
}

//= spec/arbiter.md#R1
#[test]
fn control_packet_faults_only_cost_time() {
    let (mut lost, mut duplicate_count, mut bad) = (0, 0, 0);
    for seed in 0..40 {
        let mut draws = Draws(seed);
        let mut some = || draws.below(3) * (2 + draws.below(6));
        let control = Channel {
            lose: some(),
            repeat: some(),
            corrupt: some(),
            jitter_ns: some() * 10_000,
            stale_ns: some() * 300_000,
        };
        let net = survive(seed, control);
        lost += net.clients.iter().map(|client| client.stats().late).sum::<u64>();
        duplicate_count += net.arbiters[0].comm_stats().duplicates;
        bad += net.arbiters[0].comm_stats().bad;
    }
    assert!(lost > 0 && duplicate_count > 100 && bad > 100, "{lost} {duplicate_count} {bad}");
}

#[test]
fn each_kind_of_fault_alone_only_costs_time() {
    for seed in 100..110 {
        let none = Channel::default();
        survive(seed, Channel { lose: 2, ..none });
        survive(seed, Channel { repeat: 1, stale_ns: 2 * MS, ..none });
        survive(seed, Channel { jitter_ns: 300_000, ..none });
        survive(seed, Channel { corrupt: 2, ..none });
    }
}

//= spec/arbiter.md#R20
//= spec/arbiter.md#R21
#[test]
fn burst_of_bad_checks_resets_in_one_round_trip() {
    let mut net = TestNet::new(3, 1, 7);
    net.enqueue(0, 2, 200);
    net.run_for(2 * MS);
    net.assert_quiet();
    // Ten packets of a sender that is out of step.
    let now = net.now;
    for number in 1..=10 {
        let mut bytes = [0; 100];
        let mut buffer = [0; 48];
        let writer = onepipe_wire::FcpWriter::new(&mut buffer, 0, u64::MAX).expect("a front");
        let length = writer.finish(4_711);
        bytes[SHORT_HEADER_LEN..][..length].copy_from_slice(&buffer[..length]);
        let header = onepipe_wire::Header::new(
            Opcode::Fcp,
            ProcessId(0),
            ProcessId(3),
            onepipe_base::Incarnation(1),
        );
        let header = header.with_psn(onepipe_base::Psn(number));
        let length = onepipe_wire::seal(&mut bytes, header, length);
        net.post(now + 100, ProcessId(3), bytes[..length].to_vec());
    }
    let before = net.arbiters[0].comm_stats().resets;
    net.run_for(99);
    assert_eq!(net.arbiters[0].comm_stats().resets, before);
    net.run_for(1);
    assert_eq!(net.arbiters[0].comm_stats().resets, before + 1);
    // The answer to the reset requests what waits.
    net.enqueue(0, 1, 200);
    net.run_for(2 * net.delay_ns + 1);
    assert_eq!(
        net.arbiters[0].comm().pending(0),
        1,
        "demand is reported again within one round trip"
    );
    net.run_for(2 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

//= spec/arbiter.md#R21
#[test]
fn crossing_resets_converge_on_the_newer() {
    let mut net = TestNet::new(3, 1, 7);
    net.enqueue(0, 2, 200);
    net.run_for(2 * MS);
    // Both ends are new, and have no session.
    net.restart_arbiter(0);
    net.restart_client(0);
    net.enqueue(0, 1, 200);
    net.enqueue(1, 2, 200);
    net.run_for(MS);
    net.assert_quiet();
    net.assert_all_arrived();
    assert!(net.clients.iter().all(|client| client.stats().resets <= 2));
}

#[test]
fn demand_of_a_previous_incarnation_is_dropped() {
    let mut net = TestNet::new(4, 1, 3);
    (0..200).for_each(|_| assert!(net.enqueue(0, 3, 200)));
    net.run_for(100_000);
    net.restart_client(0);
    let from = Timeslot(net.timeslot());
    net.run_for(5 * MS);
    net.assert_quiet();
    assert!(net.granted_to(0, from) < 150, "only what was granted before");
    net.enqueue(0, 3, 200);
    net.run_for(MS);
    net.assert_all_arrived();
}

//= spec/arbiter.md#R20
//= spec/arbiter.md#R21
#[test]
fn restarted_arbiter_learns_demand_again() {
    let mut net = TestNet::new(4, 1, 3);
    for src in 0..3 {
        (0..200).for_each(|_| assert!(net.enqueue(src, 3, 200)));
    }
    net.run_for(200_000);
    // While granted timeslots are still ahead.
    net.restart_arbiter(0);
    net.run_for(20 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

//= spec/arbiter.md#R1
#[test]
fn totals_continue_across_the_16_bit_wrap() {
    let mut net = TestNet::new(2, 1, 9);
    net.control = Channel { lose: 50, ..Channel::default() };
    let mut taken = 0u32;
    while taken < 70_000 {
        for _ in 0..200 {
            taken += u32::from(net.enqueue(0, 1, 220));
        }
        net.run_for(100 * SLOT_NS);
    }
    net.run_for(30 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
    let (requested, _) = net.clients[0].totals(ProcessId(1));
    assert!(net.arbiters[0].comm_stats().advertised > 70_000 && u32::from(requested) < 70_000);
}

#[test]
fn retransmission_ends_when_acked() {
    let mut net = TestNet::new(4, 1, 3);
    net.enqueue(0, 3, 200);
    net.run_for(20 * MS);
    let count = |net: &TestNet| {
        let clients = net.clients.iter().map(|client| client.stats().control_sent);
        clients.sum::<u64>() + net.arbiters[0].comm_stats().sent
    };
    let before = count(&net);
    net.run_for(200 * MS);
    assert_eq!(count(&net), before, "idle endpoints send nothing");
}

#[test]
fn control_packet_number_is_in_the_header() {
    let mut net = TestNet::new(3, 1, 3);
    let mut last = [0; 4];
    net.drop_filter = Box::new(move |_, from, _, frame| {
        if frame.opcode == Opcode::Fcp && from == ProcessId(0) {
            let number = frame.header.psn().0;
            assert!(Fcp::parse(number, frame.payload).is_ok_and(|fcp| fcp.sequence == number));
            assert_eq!(number, last[from.index()] + 1);
            last[from.index()] = number;
        }
        false
    });
    net.run_for(MS);
    net.enqueue(0, 2, 200);
    net.run_for(MS);
    net.assert_all_arrived();
}

//= spec/arbiter.md#R23
#[test]
fn lost_control_packets_are_retransmitted_soon() {
    for lost in 0..3 {
        let mut net = TestNet::new(3, 1, 3);
        net.run_for(MS);
        let (mut met, is_request) = (0, lost == 0);
        net.drop_filter = Box::new(move |_, from, _, frame| {
            let is_it = frame.opcode == Opcode::Fcp && (from == ProcessId(0)) == is_request;
            met += u32::from(is_it);
            // The request, the first grant, or both the first grant and the next.
            is_it && met <= lost.max(1)
        });
        assert!(net.enqueue(0, 2, 200));
        // Each loss costs 200 us beside the usual time.
        net.run_for(u64::from(lost.max(1)) * 320_000 + 200_000);
        net.assert_all_arrived();
    }
}

//= spec/arbiter.md#R2
/// More destinations than the arbiter can resend totals for: the endpoint requests them.
#[test]
fn lost_grants_of_many_destinations_are_recovered() {
    let mut net = TestNet::new(45, 1, 3);
    let mut config = arbiter_config(0, 45, 1);
    config.allocator.batch_slots = 64;
    net.arbiters[0] = Arbiter::new(config).expect("right");
    net.run_for(MS);
    let until = net.now + 500_000;
    net.drop_filter = Box::new(move |now, from, _, _| from == ProcessId(45) && now < until);
    (1..45).for_each(|dst| assert!(net.enqueue(0, dst, 200)));
    net.run_for(20 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
}

//= spec/arbiter.md#R2
//= spec/arbiter.md#R5
#[test]
fn late_grants_are_requested_again() {
    let mut net = TestNet::new(3, 1, 3);
    (0..100).for_each(|_| assert!(net.enqueue(0, 2, 200)));
    for _ in 0..8 {
        net.run_for(70_000);
        // All nodes pause; the network checks how late packets leave.
        net.now += 40_000;
    }
    net.run_for(10 * MS);
    net.assert_quiet();
    net.assert_all_arrived();
    assert!(net.clients[0].stats().late > 0);
}
