//! Detection of loss and of dead peers, and recovery from both.

use crate::harness;
use crate::testnet;

use harness::{Harness, ack};
use onepipe_base::{Address, Cause, Incarnation, Port, ProcessId, SwitchId};
use onepipe_endpoint::{Config, Endpoint, Outcome};
use onepipe_wire::{AckView, Frame, Opcode, Probe};
use testnet::{LinkAction, TestNet};

fn opcode(bytes: &[u8]) -> Opcode {
    Frame::parse(bytes).expect("sealed").opcode
}

//= spec/ordering.md#R28
#[test]
fn rejected_packet_behind_a_gap_is_probed_finitely() {
    let mut harness = Harness::new(|_| {});
    harness.scatter(&[(1, b"0")]);
    harness.receive(1, 1, &ack(Opcode::Grant, 0, &[], |_| {}));
    harness.scatter(&[(1, b"1")]);
    harness.scatter(&[(1, b"2")]);
    harness.take_sent(Opcode::Probe, 1);
    // Packet 0 is missing, 1 was received, 2 was late. The peer answers each probe at once.
    let mut probes = 0;
    harness.receive(1, 1, &ack(Opcode::Nak, 0, &[(0b010, 0b100)], |_| {}));
    for _ in 0..100 {
        for (_, body) in harness.take_sent(Opcode::Probe, 1) {
            probes += 1;
            let probe = Probe::parse(&body).expect("well formed");
            let rejected = if probe.until.0 > 0 { 0b101 } else { 0b100 };
            match probe.resolved.0 {
                0 => harness.receive(1, 1, &ack(Opcode::Nak, 0, &[(0b010, rejected)], |_| {})),
                resolved => harness.receive(1, 1, &ack(Opcode::Ack, resolved, &[], |_| {})),
            };
        }
        harness.wait(10_000);
    }
    harness.take_events();
    assert_eq!(harness.failed.len(), 2, "packets 0 and 2 are reported as lost within 1 ms");
    assert!(probes <= 4, "{probes} probes for two lost packets");
}

//= spec/ordering.md#R28
#[test]
fn detects_loss_under_continuous_traffic_with_reordering() {
    let mut net = TestNet::new(2, |config| config.reorder_packets = 0);
    net.scatter(0, &[(1, b"to open the connection")]);
    net.run(100_000);
    let mut is_lost = false;
    net.policy = Box::new(move |from, _, bytes| {
        let hit =
            from == 0 && opcode(bytes) == Opcode::Data && !std::mem::replace(&mut is_lost, true);
        if hit { LinkAction::Drop } else { LinkAction::Pass }
    });
    // Each packet is acknowledged on its own, so there is never a pause.
    for round in 0..2_000u32 {
        net.scatter(0, &[(1, &round.to_be_bytes())]);
        net.run(5_000);
        if !net.failed[0].is_empty() {
            return assert!(round < 400, "loss detected after {} us", 5 * round);
        }
    }
    panic!("a lost message was not reported");
}

#[test]
fn recovered_peer_regains_its_full_window() {
    let mut net = TestNet::new(2, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 100_000;
        config.processes_max = 4;
        config.probes_max = 2;
    });
    net.scatter(0, &[(1, b"to open the connection")]);
    net.run(400_000);
    // 100 kB arrive in a window of 128 KiB, but no acknowledgement returns and nothing is consumed.
    net.is_stalled[1] = true;
    net.policy = Box::new(|from, _, bytes| match from == 1 && opcode(bytes) != Opcode::Beacon {
        true => LinkAction::Drop,
        false => LinkAction::Pass,
    });
    for _ in 0..50 {
        net.scatter(0, &[(1, &[1; 936])]);
    }
    net.run(30_000_000);
    assert!(net.failed[0].iter().all(|failed| failed.outcome == Outcome::Unknown));
    assert_eq!(net.failed[0].len(), 50);
    net.failed[0].clear();
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    // The first messages may fail while the peer is being found again.
    for _ in 0..10 {
        net.scatter(0, &[(1, b"are you there?")]);
        net.run(5_000_000);
    }
    net.failed[0].clear();
    let before = net.ends[1].stats().window_violations;
    for _ in 0..300 {
        net.scatter(0, &[(1, &[2; 936])]);
    }
    net.run(5_000_000);
    assert_eq!(net.ends[1].stats().window_violations, before, "the window was exceeded");
    net.is_stalled[1] = false;
    net.run(50_000_000);
    assert_eq!(net.failed[0].len(), 0);
    let second = net.logs[1].iter().filter(|seen| seen.payload == [2; 936]).count();
    assert_eq!(second, 300, "waiting messages are sent when the window opens");
}

#[test]
fn dead_peer_does_not_slow_down_others() {
    let mut net = TestNet::new(3, |_| {});
    net.scatter(0, &[(1, b"a"), (2, b"a")]);
    net.run(100_000);
    net.is_dead[2] = true;
    net.scatter(0, &[(1, b"b"), (2, b"b")]);
    net.run(100_000_000);
    let before = net.logs[1].len();
    for _ in 0..1_000 {
        net.scatter(0, &[(1, b"c"), (2, b"c")]);
        net.run(20_000);
    }
    assert!(net.logs[1].len() - before >= 990, "{} of 1000", net.logs[1].len() - before);
    assert!(net.failed[0].len() >= 990, "unsendable messages are reported at once");
}

#[test]
fn unlinked_peer_is_reported_at_once() {
    let mut net = TestNet::new(3, |_| {});
    net.scatter(0, &[(1, b"a"), (2, b"a")]);
    net.run(400_000);
    net.is_dead[2] = true;
    net.scatter(0, &[(1, b"b"), (2, b"b")]);
    net.run(1_000);
    net.ends[0].handle_link_down(Port(2), Cause::Refused);
    net.run(1_000);
    assert_eq!(net.failed[0].iter().map(|f| f.outcome).collect::<Vec<_>>(), [Outcome::Unknown]);
}

#[test]
fn leaves_in_bounded_time_with_a_dead_peer() {
    let mut net = TestNet::new(3, |_| {});
    net.scatter(0, &[(1, b"a"), (2, b"a")]);
    net.run(400_000);
    net.is_dead[2] = true;
    for _ in 0..100 {
        net.scatter(0, &[(1, b"b"), (2, &[0; 5_000])]);
    }
    net.ends[0].leave();
    net.run(100_000_000);
    assert!(net.ends[0].has_left());
    assert_eq!(net.logs[1].len(), 101);
    assert_eq!(net.failed[0].len(), 100);
}

#[test]
fn congestion_control_survives_a_peer_restart() {
    let mut net = TestNet::new(2, |_| {});
    for _ in 0..20_000 {
        net.scatter(0, &[(1, &[1; 936])]);
    }
    net.run(50_000_000);
    let config = Config { incarnation: Incarnation(2), ..testnet::config(1, 2) };
    net.ends[1] = Endpoint::new(config).expect("valid");
    net.scatter(0, &[(1, b"unknown outcome")]);
    net.run(1_000_000);
    // From now on every packet is marked: the sender must react.
    net.policy = Box::new(|_, _, _| LinkAction::MarkCongestion);
    net.delay_ns = 20_000;
    let before = net.logs[1].len();
    for _ in 0..16_000 {
        net.scatter(0, &[(1, &[1; 936])]);
    }
    net.run(1_500_000);
    let count = net.logs[1].len() - before;
    assert!(count < 14_000, "{count} messages in 1.5 ms over a congested link");
}

#[test]
fn local_message_beyond_reservable_memory_is_refused() {
    let mut net = TestNet::new(2, |config| {
        config.send_buffer_bytes_max = 64 << 20;
        config.receive_buffer_bytes_max = 32 << 20;
        config.message_len_max = 8 << 20;
    });
    let large = vec![1; 8 << 20];
    // 24 MiB requested, but only 16 MiB can be reserved.
    net.scatter(0, &[(0, &large), (0, &large), (0, &large), (1, b"small")]);
    net.scatter(1, &[(0, &large)]);
    net.run(20_000_000);
    assert_eq!((net.failed[0].len(), net.logs[1].len()), (3, 1));
    assert_eq!(net.logs[0].len(), 1, "memory is left for other senders");
}

#[test]
fn reserved_loss_does_not_shrink_the_window() {
    let mut net = TestNet::new(2, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 250_000;
        config.processes_max = 4;
    });
    net.scatter(0, &[(1, b"to open the connection")]);
    net.run(1_000_000);
    for _ in 0..5 {
        // Every tenth packet of a message of 250 kB is lost.
        let mut count = 0;
        net.policy = Box::new(move |from, _, bytes| {
            let is_piece = from == 0 && opcode(bytes) == Opcode::Fragment;
            count += u32::from(is_piece);
            if is_piece && count % 10 == 0 { LinkAction::Drop } else { LinkAction::Pass }
        });
        net.scatter(0, &[(1, &vec![3; 250_000])]);
        net.run(5_000_000);
    }
    assert_eq!(net.lost(0), 5);
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    net.is_stalled[1] = true;
    for _ in 0..400 {
        net.scatter(0, &[(1, &[2; 936])]);
    }
    net.run(20_000_000);
    assert_eq!(net.ends[1].stats().window_violations, 0);
    net.is_stalled[1] = false;
    net.run(20_000_000);
    assert_eq!(net.logs[1].len(), 401);
}

#[test]
fn scattering_to_40000_dead_processes_fails_each_message() {
    let processes = 40_000;
    let mut config = Config::new(ProcessId(0), Incarnation(1));
    config.processes_max = processes;
    config.probes_max = 1;
    config.links = onepipe_endpoint::Links::Uplink;
    let mut harness = Harness::new(move |other| *other = config);
    let messages: Vec<_> = (1..processes).map(|to| (to, &b"x"[..])).collect();
    let beacon = harness::TestFrame { opcode: Opcode::Beacon, psn: 0, flags: 0, body: vec![] };
    let switch = Address::Switch(SwitchId(0)).to_bits();
    harness.receive(switch, 1, &beacon);
    harness.scatter(&messages);
    for _ in 0..300 {
        harness.receive(switch, 1, &beacon);
        harness.wait(10_000);
    }
    harness.take_events();
    assert_eq!(harness.failed.len(), messages.len());
}

#[test]
fn sends_65535_messages_in_one_scattering() {
    let mut net = TestNet::new(2, |config| {
        config.receive_buffer_bytes_max = 32 << 20;
        config.message_len_max = 8 << 20;
        config.window_bytes_max = 64 << 10;
        config.processes_max = 2;
    });
    let messages: Vec<_> = (0..65_535u32).map(|n| (n % 2, &b"x"[..])).collect();
    net.scatter(0, &messages);
    net.run(20_000_000);
    assert_eq!(net.logs[0].len() + net.logs[1].len(), 65_535);
    assert!(net.failed[0].is_empty());
}

//= spec/ordering.md#R29
#[test]
fn ack_words_stop_at_the_highest_psn() {
    let mut harness = Harness::new(|_| {});
    harness.connect(1, 1);
    harness.receive(1, 1, &harness::data(9, b"far ahead"));
    let mut sent = harness.take_sent(Opcode::Ack, 1);
    let (_, body) = sent.pop().expect("ACK_NOW requests an immediate ACK");
    let view = AckView::parse(&body).expect("well formed");
    assert_eq!(view.words().collect::<Vec<_>>(), [(1 << 9, 0)]);
}
