//! Reliable scatterings that no acknowledgement ends: their receiver is dead or never joined, no
//! controller is there, or the application cancels them.

use crate::testnet;

use onepipe_base::{Controllers, Incarnation, ProcessId, ScatteringId};
use onepipe_endpoint::{Config, Endpoint, FailureReason, Outcome};
use onepipe_wire::{Opcode, parse_header};
use testnet::{LinkAction, TestNet};

/// How long scatterings wait in these tests, in ns.
const GIVE_UP_NS: u64 = 20_000_000;

fn net(processes: u32) -> TestNet {
    TestNet::new(processes, |config| {
        config.give_up_after_ns = GIVE_UP_NS;
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 100_000;
    })
}

/// Receiver, outcome and reason of each failure at process 0.
fn failures(net: &TestNet) -> Vec<(u32, Outcome, FailureReason)> {
    let mut all: Vec<_> =
        net.failed[0].iter().map(|failed| (failed.to.0, failed.outcome, failed.reason)).collect();
    all.sort_by_key(|(to, ..)| *to);
    all
}

fn delivered(net: &TestNet, at: usize) -> Vec<&[u8]> {
    net.reliable_logs[at].iter().map(|seen| &seen.payload[..]).collect()
}

//= spec/failure.md#R55
#[test]
fn receiver_that_never_joined_is_given_up() {
    let mut net = net(3);
    net.is_dead[2] = true;
    net.scatter_reliably(0, &[(1, b"both"), (2, b"both")]);
    net.run(GIVE_UP_NS / 2);
    assert!(net.failed[0].is_empty(), "a process may still join");
    let open = net.ends[0].open_scatterings();
    assert_eq!((open.len(), open[0].timestamp), (1, None));
    assert_eq!(open[0].receivers, [ProcessId(1), ProcessId(2)]);
    net.run(GIVE_UP_NS);
    let lost = |to| (to, Outcome::Lost, FailureReason::NeverJoined);
    assert_eq!(failures(&net), [lost(1), lost(2)]);
    net.scatter_reliably(0, &[(1, b"alone")]);
    net.run(100_000);
    assert_eq!(delivered(&net, 1), [b"alone"]);
    assert!(net.ends[0].is_drained() && net.ends[0].send_buffer_bytes() == 0);
}

/// Processes 1 and 2 have received `a` from process 0, and process 2 is dead since.
fn net_with_dead_receiver() -> TestNet {
    let mut net = net(3);
    net.scatter_reliably(0, &[(1, b"a"), (2, b"a")]);
    net.run(100_000);
    net.is_dead[2] = true;
    net
}

//= spec/failure.md#R55
//= spec/failure.md#R56
#[test]
fn scattering_to_dead_receiver_is_recalled_at_others() {
    let mut net = net_with_dead_receiver();
    let torn = net.scatter_reliably(0, &[(0, b"b"), (1, b"b"), (2, b"b")]);
    net.scatter_reliably(0, &[(1, b"c")]);
    net.scatter_reliably(1, &[(0, b"d"), (1, b"d")]);
    net.run(GIVE_UP_NS / 2);
    let open = net.ends[0].open_scatterings();
    assert_eq!((open.len(), open[0].scattering), (1, torn));
    assert_eq!(open[0].receivers, [ProcessId(2)]);
    assert_eq!(net.ends[0].oldest_open(), open[0].timestamp);
    assert_eq!(delivered(&net, 1), [b"a"], "later messages wait");
    net.run(GIVE_UP_NS);
    let failed = |to, outcome| (to, outcome, FailureReason::NoController);
    let expected =
        [failed(0, Outcome::Lost), failed(1, Outcome::Lost), failed(2, Outcome::Unknown)];
    assert_eq!(failures(&net), expected);
    assert_eq!(
        (delivered(&net, 1), delivered(&net, 0)),
        (vec![&b"a"[..], b"c", b"d"], vec![&b"d"[..]])
    );
    assert!(net.ends[0].open_scatterings().is_empty() && net.ends[0].is_drained());
    net.check_order();
}

//= spec/failure.md#R56
/// The promise stays at the scattering until the last reachable receiver has acknowledged the
/// recall; a receiver that dies meanwhile may deliver the message.
#[test]
fn outcome_is_unknown_where_the_recall_is_not_acked() {
    let mut net = net(4);
    net.scatter_reliably(0, &[(1, b"a"), (2, b"a"), (3, b"a")]);
    net.run(100_000);
    net.is_dead[2] = true;
    net.scatter_reliably(0, &[(1, b"b"), (2, b"b"), (3, b"b")]);
    net.run(GIVE_UP_NS / 2);
    net.is_dead[3] = true;
    net.run(GIVE_UP_NS);
    let failed = |to, outcome| (to, outcome, FailureReason::NoController);
    assert_eq!(failures(&net), [failed(2, Outcome::Unknown)], "a recall is not acknowledged");
    assert!(net.ends[0].oldest_open().is_some() && net.ends[0].open_scatterings()[0].is_recalled);
    net.run(GIVE_UP_NS);
    let expected =
        [failed(1, Outcome::Lost), failed(2, Outcome::Unknown), failed(3, Outcome::Unknown)];
    assert_eq!(failures(&net), expected);
    assert!(net.ends[0].is_drained());
    assert_eq!(delivered(&net, 1), [b"a"]);
}

//= spec/failure.md#R55
#[test]
fn stopped_receiver_that_returns_in_time_delivers() {
    let mut net = net_with_dead_receiver();
    net.scatter_reliably(0, &[(1, b"b"), (2, b"b")]);
    net.run(GIVE_UP_NS * 3 / 4);
    net.is_dead[2] = false;
    net.run(GIVE_UP_NS);
    assert!(net.failed[0].is_empty(), "{:?}", net.failed[0]);
    assert_eq!(delivered(&net, 1), [b"a", b"b"]);
    assert_eq!(delivered(&net, 2), [b"a", b"b"]);
}

//= spec/failure.md#R55
/// What this process itself has slept does not count: its receivers could not answer it.
#[test]
fn own_pause_does_not_count() {
    let mut net = TestNet::new(2, |config| {
        (config.give_up_after_ns, config.link_timeout_ns) = (GIVE_UP_NS, 0);
    });
    net.scatter_reliably(0, &[(1, b"a")]);
    net.run(100_000);
    net.is_dead[1] = true;
    net.scatter_reliably(0, &[(1, b"b")]);
    net.run(GIVE_UP_NS / 4);
    net.is_dead[0] = true;
    net.run(4 * GIVE_UP_NS);
    (net.is_dead[0], net.is_dead[1]) = (false, false);
    net.run(GIVE_UP_NS);
    assert!(net.failed[0].is_empty(), "{:?}", net.failed[0]);
    assert_eq!(delivered(&net, 1), [b"a", b"b"]);
}

//= spec/failure.md#R57
#[test]
fn given_up_receiver_that_returns_has_its_whole_window() {
    let mut net = net(2);
    net.scatter_reliably(0, &[(1, b"a")]);
    net.run(100_000);
    net.is_dead[1] = true;
    for _ in 0..50 {
        net.scatter_reliably(0, &[(1, &[1; 936])]);
    }
    net.run(3 * GIVE_UP_NS);
    assert_eq!(net.failed[0].len(), 50);
    assert_eq!(net.ends[0].send_buffer_bytes(), 0);
    net.failed[0].clear();
    net.is_dead[1] = false;
    // The first probes are lost, too.
    let mut probes = 0;
    net.policy = Box::new(move |_, _, bytes| {
        let is_probe =
            parse_header(bytes).is_ok_and(|(_, opcode)| opcode.in_best_effort() == Opcode::Probe);
        probes += u32::from(is_probe);
        if is_probe && probes < 4 { LinkAction::Drop } else { LinkAction::Pass }
    });
    net.run(GIVE_UP_NS);
    // More than the window.
    for _ in 0..800 {
        net.scatter_reliably(0, &[(1, &[2; 936])]);
    }
    net.run(10 * GIVE_UP_NS);
    assert!(net.failed[0].is_empty(), "{:?}", net.failed[0].first());
    assert_eq!(net.reliable_logs[1].len(), 801);
    assert!(net.ends[0].is_drained() && net.ends[0].send_buffer_bytes() == 0);
    assert_eq!(net.ends[1].stats().window_violations, 0);
}

//= spec/failure.md#R57
#[test]
fn first_scattering_to_restarted_receiver_arrives() {
    let mut net = net(2);
    net.scatter_reliably(0, &[(1, b"a")]);
    net.run(100_000);
    net.is_dead[1] = true;
    net.scatter_reliably(0, &[(1, b"lost with the process")]);
    net.run(100_000);
    let config = Config { incarnation: Incarnation(2), ..net.ends[1].config().clone() };
    net.ends[1] = Endpoint::new(config).expect("a valid configuration");
    net.is_dead[1] = false;
    // A retransmission shows that the receiver has restarted.
    net.run(5_000_000);
    net.scatter_reliably(0, &[(1, b"b")]);
    net.run(100_000);
    assert_eq!(failures(&net), [(1, Outcome::Unknown, FailureReason::ReceiverFailed)]);
    assert_eq!(delivered(&net, 1), [&b"a"[..], b"b"]);
}

//= spec/ordering.md#R88
/// The Connect to a restarted receiver names the oldest packet in flight to its previous
/// incarnation. The receiver waited for that one for ever, and acknowledged nothing beyond the
/// 1,024th packet behind it.
#[test]
fn restarted_receiver_does_not_wait_for_given_up_packets() {
    let mut net = net(2);
    net.scatter_reliably(0, &[(1, b"a")]);
    net.run(100_000);
    net.is_dead[1] = true;
    net.scatter_reliably(0, &[(1, b"lost with the process")]);
    net.run(100_000);
    let config = Config { incarnation: Incarnation(2), ..net.ends[1].config().clone() };
    net.ends[1] = Endpoint::new(config).expect("a valid configuration");
    net.is_dead[1] = false;
    net.run(5_000_000);
    // The first probes are lost.
    let mut probes = 0;
    net.policy = Box::new(move |_, _, bytes| {
        let is_probe =
            parse_header(bytes).is_ok_and(|(_, opcode)| opcode.in_best_effort() == Opcode::Probe);
        probes += u32::from(is_probe);
        if is_probe && probes < 4 { LinkAction::Drop } else { LinkAction::Pass }
    });
    for _ in 0..12 {
        for _ in 0..100 {
            net.scatter_reliably(0, &[(1, &[2; 936])]);
        }
        net.run(1_000_000);
    }
    assert_eq!(failures(&net), [(1, Outcome::Unknown, FailureReason::ReceiverFailed)]);
    assert_eq!(net.reliable_logs[1].len(), 1 + 1_200);
    assert!(net.ends[0].is_drained() && net.ends[0].send_buffer_bytes() == 0);
    assert_eq!(net.ends[0].stats().packets_retransmitted, 1, "only what the restart has lost");
}

//= spec/failure.md#R58
#[test]
fn scatterings_without_a_controller_are_lost() {
    let mut net = TestNet::new(3, |config| {
        config.give_up_after_ns = GIVE_UP_NS;
        if config.process != ProcessId(2) {
            config.controllers = Some(Controllers { first: ProcessId(2), count: 1 });
        }
    });
    net.is_dead[2] = true;
    net.scatter_reliably(0, &[(1, b"a")]);
    net.run(GIVE_UP_NS * 3 / 4);
    net.scatter_reliably(0, &[(1, b"b")]);
    assert!(net.failed[0].is_empty());
    net.run(GIVE_UP_NS / 2);
    let lost = (1, Outcome::Lost, FailureReason::NoController);
    assert_eq!(failures(&net), [lost]);
    net.run(GIVE_UP_NS);
    assert_eq!(failures(&net), [lost, lost]);
    assert!(net.ends[0].is_drained() && net.reliable_logs[1].is_empty());
}

//= spec/failure.md#R58
#[test]
fn scatterings_without_a_commit_barrier_are_lost() {
    let mut net = TestNet::new(2, |config| {
        (config.give_up_after_ns, config.awaits_commits) = (GIVE_UP_NS, true);
        config.links = onepipe_endpoint::Links::Uplink;
    });
    net.is_dead[0] = true;
    net.scatter_reliably(1, &[(0, b"a")]);
    net.run(2 * GIVE_UP_NS);
    let reasons: Vec<_> = net.failed[1].iter().map(|f| (f.outcome, f.reason)).collect();
    assert_eq!(reasons, [(Outcome::Lost, FailureReason::NoCommitBarrier)]);
}

//= spec/failure.md#R59
#[test]
fn cancelled_scattering_is_delivered_nowhere() {
    let mut net = net_with_dead_receiver();
    let sent = net.scatter_reliably(0, &[(1, b"b"), (2, b"b")]);
    net.run(100_000);
    assert!(net.ends[0].cancel(sent) && !net.ends[0].cancel(ScatteringId(99)));
    net.run(100_000);
    assert!(!net.ends[0].cancel(sent), "it is recalled");
    net.is_dead[2] = false;
    net.run(GIVE_UP_NS / 2);
    let lost = |to| (to, Outcome::Lost, FailureReason::Cancelled);
    assert_eq!(failures(&net), [lost(1), lost(2)]);
    net.failed[0].clear();
    let waiting = net.scatter_reliably(0, &[(1, b"c"), (2, b"c")]);
    assert!(net.ends[0].cancel(waiting) && net.ends[0].wants_transmit());
    net.run(100_000);
    assert_eq!(failures(&net), [lost(1), lost(2)]);
    net.scatter_reliably(0, &[(1, b"d"), (2, b"d")]);
    net.run(100_000);
    assert_eq!(delivered(&net, 1), [b"a", b"d"]);
    assert_eq!(delivered(&net, 2), [b"a", b"d"]);
    assert!(net.ends[0].is_drained() && !net.ends[0].wants_transmit());
}
