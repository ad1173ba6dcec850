//! The reliable service without failures: under loss, beside best effort, merged with it.

use crate::testnet;

use onepipe_base::{Cause, Port, ProcessId, ScatteringId};
use onepipe_endpoint::{Config, Message, ReceiveMode, Service};
use onepipe_wire::{Opcode, parse_header};
use testnet::{LinkAction, Seen, TestNet};

const PROCESSES: u32 = 4;

fn to_all(payload: &[u8]) -> Vec<(u32, &[u8])> {
    (0..PROCESSES).map(|to| (to, payload)).collect()
}

/// What receivers must agree on. Not the index: each receives its own message of a scattering.
fn shared(log: &[Seen]) -> Vec<(u64, u32, &[u8])> {
    log.iter().map(|seen| (seen.timestamp, seen.from, &seen.payload[..])).collect()
}

/// Drops a share of all frames, chosen by a generator of its own.
fn lossy(percent: u64) -> impl FnMut(usize, usize, &[u8]) -> LinkAction {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |_, _, _| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state % 100 < percent { LinkAction::Drop } else { LinkAction::Pass }
    }
}

fn is_of(bytes: &[u8], opcode: Opcode) -> bool {
    parse_header(bytes).is_ok_and(|(_, found)| found == opcode)
}

//= spec/failure.md#R2
#[test]
fn delivers_exactly_once_under_33_percent_loss() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.policy = Box::new(lossy(33));
    for round in 0..100u8 {
        for from in 0..PROCESSES as usize {
            net.scatter_reliably(from, &to_all(&[round; 90]));
        }
        net.run(20_000);
    }
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    net.run(400_000_000);
    net.check_order();
    for at in 0..PROCESSES as usize {
        assert_eq!(net.reliable_logs[at].len(), 400, "at {at}");
        let agree = shared(&net.reliable_logs[at]) == shared(&net.reliable_logs[0]);
        assert!(agree, "at {at}");
        assert!(net.failed[at].is_empty() && net.ends[at].is_drained());
    }
    assert!(net.ends[0].stats().packets_retransmitted > 0);
    assert_eq!(net.ends[0].send_buffer_bytes(), 0);
}

//= spec/failure.md#R4
#[test]
fn delivers_only_after_all_receivers_acked() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.policy = Box::new(|from, _, bytes| {
        let is_held = from == 2 && is_of(bytes, Opcode::ReliableAck);
        if is_held { LinkAction::Drop } else { LinkAction::Pass }
    });
    net.scatter_reliably(0, &to_all(b"one"));
    net.scatter(0, &to_all(b"other"));
    net.run(3_000_000);
    for at in 0..PROCESSES as usize {
        assert!(net.reliable_logs[at].is_empty(), "delivered before the commit at {at}");
        assert_eq!(net.logs[at].len(), 1, "best effort does not wait");
        assert!(net.ends[at].commit_barrier() < net.ends[at].barrier());
    }
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    net.run(3_000_000);
    assert!((0..4).all(|at| net.reliable_logs[at].len() == 1));
}

//= spec/failure.md#R2
#[test]
fn retransmits_fragments_until_complete() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.policy = Box::new(lossy(10));
    let long: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7) as u8).collect();
    net.scatter_reliably(1, &[(0, &long), (2, b"short"), (3, &long[..70_000])]);
    net.run(600_000_000);
    assert_eq!(net.reliable_logs[0][0].payload, long);
    assert_eq!(net.reliable_logs[2][0].payload, b"short");
    assert_eq!(net.reliable_logs[3][0].payload, long[..70_000]);
}

//= spec/failure.md#R2
#[test]
fn retransmits_a_gap_before_the_rto() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.scatter_reliably(0, &[(1, b"opens")]);
    net.run(200_000);
    let mut data = 0;
    net.policy = Box::new(move |from, to, bytes| {
        let is_data = (from, to) == (0, 1) && is_of(bytes, Opcode::ReliableData);
        data += u32::from(is_data);
        if is_data && data == 2 { LinkAction::Drop } else { LinkAction::Pass }
    });
    for _ in 0..8 {
        net.scatter_reliably(0, &[(1, b"x")]);
        net.run(3_000);
    }
    net.run(30_000);
    assert_eq!(net.reliable_logs[1].len(), 9, "the gap is filled before the RTO");
    assert_eq!(net.ends[0].stats().packets_retransmitted, 1);
}

//= spec/ordering.md#R21
#[test]
fn duplicates_are_delivered_once() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.policy = Box::new(|_, _, _| LinkAction::Duplicate);
    for _ in 0..50 {
        net.scatter_reliably(3, &to_all(b"once"));
        net.run(5_000);
    }
    net.run(2_000_000);
    assert!((0..4).all(|at| net.reliable_logs[at].len() == 50));
}

#[test]
fn slow_receiver_applies_backpressure_without_loss() {
    let mut net = TestNet::new(PROCESSES, |config: &mut Config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 64 << 10;
    });
    net.run(200_000);
    net.is_stalled[2] = true;
    for _ in 0..1_000 {
        net.scatter_reliably(0, &[(1, &[7; 900]), (2, &[8; 900])]);
    }
    net.run(20_000_000);
    let delivered = net.reliable_logs[1].len();
    assert!(delivered < 1_000, "the window did not close: {delivered} delivered");
    assert!(net.ends[2].receive_buffer_bytes() <= 1 << 20);
    net.is_stalled[2] = false;
    net.run(40_000_000);
    assert_eq!([net.reliable_logs[1].len(), net.reliable_logs[2].len()], [1_000, 1_000]);
}

//= spec/ordering.md#R24
#[test]
fn merged_mode_gives_one_total_order() {
    let mut net = TestNet::new(PROCESSES, |config: &mut Config| {
        config.receive_mode = ReceiveMode::Merged;
    });
    net.run(200_000);
    for round in 0..200u8 {
        for from in 0..PROCESSES as usize {
            match (usize::from(round) + from) % 2 {
                0 => net.scatter(from, &to_all(&[round])),
                _ => net.scatter_reliably(from, &to_all(&[round])),
            };
        }
        net.run(1_000);
    }
    net.run(3_000_000);
    for at in 0..PROCESSES as usize {
        let merged = &net.merged_logs[at];
        assert_eq!(merged.len(), 800);
        assert!(merged.windows(2).all(|pair| pair[0] < pair[1]), "at {at}");
        assert!(shared(merged) == shared(&net.merged_logs[0]), "at {at}");
    }
    assert!(!net.logs[0].is_empty() && !net.reliable_logs[0].is_empty());
}

//= spec/failure.md#R4
#[test]
fn local_message_waits_for_its_siblings() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.policy = Box::new(|from, to, bytes| {
        let is_ack = (from, to) == (1, 0) && is_of(bytes, Opcode::ReliableAck);
        if is_ack { LinkAction::Delay(500_000) } else { LinkAction::Pass }
    });
    net.scatter_reliably(0, &[(0, b"own"), (1, b"other")]);
    net.run(300_000);
    assert!(net.reliable_logs[0].is_empty());
    net.scatter_reliably(3, &[(0, b"later")]);
    net.run(1_000_000);
    let order: Vec<_> = net.reliable_logs[0].iter().map(|seen| seen.from).collect();
    assert_eq!(order, [0, 3]);
    assert_eq!(net.reliable_logs[0][0].payload, b"own");
}

#[test]
fn steady_state_leaves_no_buffered_bytes() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    for _ in 0..500 {
        net.scatter_reliably(0, &to_all(&[3; 200]));
        net.run(2_000);
    }
    net.run(1_000_000);
    assert_eq!((net.ends[0].send_buffer_bytes(), net.ends[0].pending()), (0, 0));
    let promises = net.ends[0].promises().expect("the clock was read before");
    assert_eq!(promises.commit, promises.barrier, "nothing is open");
}

#[test]
fn services_have_separate_ids_and_deliveries() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    let message = [Message { to: ProcessId(1), payload: b"m" }];
    let ids = [
        net.ends[0].scatter(&message).expect("the send buffer is large enough"),
        net.ends[0].scatter_reliably(&message).expect("the send buffer is large enough"),
    ];
    assert_eq!(ids[0], ids[1], "each service numbers its own scatterings");
    net.run(1_000_000);
    assert_eq!((net.logs[1].len(), net.reliable_logs[1].len()), (1, 1));
    assert_ne!(Service::BestEffort, Service::Reliable);
    net.ends[1].handle_link_down(Port(0), Cause::Refused);
}

/// What has failed was not resolved before, and all is resolved in the end.
#[test]
fn resolved_ids_have_no_later_failure() {
    let mut net = TestNet::new(PROCESSES, |_| {});
    net.run(200_000);
    net.policy = Box::new(lossy(20));
    let (mut below, mut seen) = ([ScatteringId(0); 2], 0);
    let services = [Service::BestEffort, Service::Reliable];
    for round in 0..500u64 {
        if round < 200 {
            net.scatter(0, &to_all(&[round as u8; 90]));
            net.scatter_reliably(0, &to_all(&[round as u8; 90]));
        } else if round == 400 {
            net.policy = Box::new(|_, _, _| LinkAction::Pass);
        }
        net.run(if round < 400 { 5_000 } else { 1_000_000 });
        for failed in &net.failed[0][seen..] {
            let (service, id) = (failed.service as usize, failed.scattering);
            assert!(id >= below[service], "{id:?} fails below {:?} in round {round}", below);
        }
        seen = net.failed[0].len();
        below = services.map(|service| net.ends[0].resolved_below(service));
    }
    assert!(seen > 100, "{seen} failures");
    assert!(net.ends[0].is_drained());
    assert_eq!(below, [ScatteringId(200); 2], "all outcomes are known");
}
