//! Messages without an order.

use crate::testnet;

use onepipe_base::{ProcessId, Timestamp};
use testnet::{LinkAction, TestNet};

const PROCESSES: u32 = 3;

/// Returns the texts of the messages that process 1 has delivered.
fn texts(net: &TestNet) -> Vec<&[u8]> {
    net.logs[1].iter().map(|seen| &seen.payload[..]).collect()
}

/// Returns a network whose connections from process 0 are open.
fn connected() -> TestNet {
    let mut net = TestNet::new(PROCESSES, |config| config.link_timeout_ns = 1 << 40);
    net.scatter(0, &[(1, b"first"), (2, b"first")]);
    net.run(50_000);
    assert_eq!(texts(&net), [b"first"]);
    net
}

//= spec/ordering.md#R85
#[test]
fn message_without_order_waits_for_no_barrier() {
    let mut net = connected();
    // The barrier waits for process 2, which has stopped.
    net.is_dead[2] = true;
    net.run(50_000);
    net.scatter(0, &[(1, b"ordered")]);
    net.send_unordered(0, 1, b"unordered");
    net.scatter(0, &[(1, b"ordered later")]);
    net.send_unordered(0, 1, &[8; 40_000]);
    net.run(50_000);
    assert_eq!(texts(&net), [&b"first"[..], b"unordered", &[8; 40_000]]);
    assert_eq!(net.ends[1].pending(), 2);

    net.is_dead[2] = false;
    net.run(50_000);
    assert_eq!(texts(&net)[3..], [&b"ordered"[..], b"ordered later"]);
    net.check_order();
    // The acknowledgements are delayed.
    net.run(300_000);
    assert!(net.ends[0].is_drained() && net.failed[0].is_empty());
}

//= spec/ordering.md#R85
#[test]
fn message_to_itself_without_order_is_delivered_at_once() {
    let mut net = connected();
    net.is_dead[2] = true;
    net.run(50_000);
    net.scatter(1, &[(1, b"ordered")]);
    net.send_unordered(1, 1, b"unordered");
    net.run(2_000);
    assert_eq!(texts(&net), [&b"first"[..], b"unordered"]);
}

//= spec/ordering.md#R86
/// A message that the barrier has passed on its way is late in the order, but not without one.
#[test]
fn late_message_without_order_is_delivered() {
    for is_unordered in [false, true] {
        let mut net = connected();
        net.policy = Box::new(|from, _, frame| {
            let header = onepipe_wire::header_unchecked(frame).expect("a whole frame");
            let is_data = header.opcode().is_ok_and(onepipe_wire::Opcode::has_messages);
            if from == 0 && is_data { LinkAction::Delay(30_000) } else { LinkAction::Pass }
        });
        match is_unordered {
            true => net.send_unordered(0, 1, b"late"),
            false => net.scatter(0, &[(1, b"late")]),
        };
        net.run(200_000);
        let (delivered, failed) = (texts(&net).len() - 1, net.failed[0].len());
        assert_eq!((delivered, failed), if is_unordered { (1, 0) } else { (0, 1) });
    }
}

//= spec/ordering.md#R85
//= spec/ordering.md#R21
/// Under loss, duplication and reordering each message is delivered once or reported as lost, and
/// the others stay in their order.
#[test]
fn faults_lose_or_deliver_each_message_without_order() {
    for seed in 1..40_u64 {
        let mut net = connected();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        net.policy = Box::new(move |_, _, _| {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match random % 16 {
                0 => LinkAction::Drop,
                1 => LinkAction::Duplicate,
                2 => LinkAction::Delay(random >> 8 & 0x3fff),
                _ => LinkAction::Pass,
            }
        });
        let mut unordered = 0;
        for round in 0..100_u32 {
            let bytes = vec![round as u8; [10, 700, 5_000][round as usize % 3]];
            if round % 3 == seed as u32 % 3 || round % 5 == 0 {
                net.scatter(0, &[(1, &bytes), (2, &bytes)]);
            } else {
                net.send_unordered(0, 1, &bytes);
                unordered += 1;
            }
            net.run(3_000);
        }
        net.policy = Box::new(|_, _, _| LinkAction::Pass);
        net.run(50_000_000);
        net.check_order();
        assert!(net.ends[0].is_drained(), "seed {seed}");
        let delivered = net.logs[1].iter().filter(|seen| seen.is_unordered);
        let mut keys: Vec<_> = delivered.map(|seen| (seen.timestamp, seen.index)).collect();
        keys.sort_unstable();
        let count = keys.len();
        keys.dedup();
        assert_eq!(count, keys.len(), "seed {seed}: delivered twice");
        let failed = |failed: &&onepipe_endpoint::SendFailed| {
            let at = failed.timestamp.map(Timestamp::as_ns);
            failed.to == ProcessId(1) && !net.logs[2].iter().any(|seen| Some(seen.timestamp) == at)
        };
        let lost = net.failed[0].iter().filter(failed).count();
        assert!(count <= unordered && count + lost >= unordered, "seed {seed}: {count} {lost}");
    }
}
