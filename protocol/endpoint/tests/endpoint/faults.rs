//! Links that lose, duplicate, delay and corrupt frames; clocks that step; peers that die and
//! return.

use crate::testnet;

use onepipe_base::{Incarnation, Machine, Port, ProcessId};
use onepipe_endpoint::{Config, Endpoint, Outcome};
use onepipe_wire::{Opcode, parse_header};
use proptest::prelude::*;
use testnet::{LinkAction, TestNet};

const HOUR_NS: i64 = 3_600_000_000_000;

/// A small random number generator, so that a seed reproduces every case.
fn rng(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// Checks I4, I12 and the order: each message to another process was delivered once or reported.
fn check_every_message_is_accounted_for(net: &TestNet, sent: &[(usize, u32, Vec<u8>)]) {
    net.check_order();
    let mut outcomes = std::collections::BTreeMap::new();
    for (number, (from, to, payload)) in sent.iter().enumerate() {
        let log = &net.logs[*to as usize];
        let delivered = log.iter().filter(|seen| seen.payload == *payload).count();
        assert!(delivered <= 1, "message {number} was delivered {delivered} times");
        outcomes.insert((*from, *to, payload.clone()), delivered);
    }
    let delivered: usize = outcomes.values().sum();
    let total: usize = net.logs.iter().map(Vec::len).sum();
    assert_eq!(total, delivered, "a message was delivered that was never sent");
    let lost: usize = (0..net.ends.len()).map(|at| net.lost(at)).sum();
    let failed: usize = net.failed.iter().map(Vec::len).sum();
    assert_eq!(failed, lost, "an outcome is unknown although every peer responds");
    assert_eq!(delivered + lost, sent.len(), "delivered {delivered}, lost {lost}");
    for end in &net.ends {
        assert_eq!((end.send_buffer_bytes(), end.receive_buffer_bytes()), (0, 0));
    }
}

fn run_with_faults(seed: u64, loss: u64, twice: u64, late: u64, corrupt: u64) {
    let mut net = TestNet::new(3, |config| {
        config.message_len_max = 1 << 20;
        // Peers are slow, never dead: no outcome may be unknown.
        config.probes_max = 100;
    });
    net.run(20_000);
    let mut random = rng(seed);
    let mut sent = Vec::new();
    let mut link = rng(seed ^ 0xabcdef);
    net.policy = Box::new(move |_, _, _| match link(1000) {
        x if x < loss => LinkAction::Drop,
        x if x < loss + twice => LinkAction::Duplicate,
        x if x < loss + twice + late => LinkAction::Delay(link(20_000)),
        x if x < loss + twice + late + corrupt => LinkAction::Corrupt,
        _ => LinkAction::Pass,
    });
    for number in 0..300u64 {
        let from = random(3) as usize;
        let size = match random(20) {
            0 => 10_000 + random(500_000) as usize,
            _ => 8 + random(200) as usize,
        };
        let mut messages = Vec::new();
        for to in 0..3u32 {
            let mut payload = vec![to as u8; size];
            payload[..8].copy_from_slice(&number.to_be_bytes());
            if random(3) > 0 {
                messages.push((to, payload));
            }
        }
        if !messages.is_empty() {
            let refs: Vec<_> = messages.iter().map(|(to, p)| (*to, &p[..])).collect();
            net.scatter(from, &refs);
            sent.extend(messages.into_iter().map(|(to, payload)| (from, to, payload)));
        }
        net.run(random(5_000));
    }
    net.run(300_000_000);
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    net.run(200_000_000);
    check_every_message_is_accounted_for(&net, &sent);
}

//= spec/ordering.md#R27
#[test]
fn reports_every_message_lost_at_30_percent() {
    run_with_faults(1, 300, 0, 0, 0);
}

#[test]
fn duplication_reordering_and_corruption_keep_order() {
    run_with_faults(2, 0, 500, 0, 0);
    run_with_faults(3, 0, 0, 300, 0);
    run_with_faults(4, 0, 0, 0, 200);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_message_is_delivered_or_reported(seed in any::<u64>(), loss in 0u64..300, twice in 0u64..200, late in 0u64..200, corrupt in 0u64..100) {
        run_with_faults(seed, loss, twice, late, corrupt);
    }
}

//= spec/ordering.md#R5
#[test]
fn one_hour_clock_step_costs_nothing() {
    for step in [HOUR_NS, -HOUR_NS] {
        let mut net = TestNet::new(3, |_| {});
        net.run(20_000);
        net.skew[1] += step;
        for round in 0..50u8 {
            for from in 0..3 {
                net.scatter(from, &[(0, &[round]), (1, &[round]), (2, &[round])]);
            }
            net.run(2_000);
        }
        net.run(20_000);
        net.check_order();
        assert!(net.logs.iter().all(|log| log.len() == 150), "step {step}");
    }
}

//= spec/ordering.md#R1
//= spec/ordering.md#R23
#[test]
fn clock_wraps_at_48_bits() {
    let mut net = TestNet::new(2, |_| {});
    // The origin of time is a multiple of 2^48: start 50 us before the next one.
    let to_wrap = (1i64 << 48) - 50_000;
    net.skew = vec![to_wrap; 2];
    for round in 0..100u8 {
        net.scatter(0, &[(1, &[round]), (0, &[round])]);
        net.scatter(1, &[(0, &[round]), (1, &[round])]);
        net.run(1_000);
    }
    net.run(20_000);
    net.check_order();
    assert!(net.logs.iter().all(|log| log.len() == 200));
    assert!(net.failed.iter().all(Vec::is_empty));
}

//= spec/ordering.md#R15
//= spec/ordering.md#R27
#[test]
fn dead_peer_is_dropped_after_the_link_timeout() {
    let mut net = TestNet::new(3, |config| config.probes_max = 3);
    net.scatter(0, &[(1, b"a"), (2, b"a")]);
    net.run(400_000);
    net.is_dead[2] = true;
    net.scatter(0, &[(1, b"b"), (2, b"b")]);
    net.run(100_000);
    assert_eq!(net.links_lost[0], [Port(2)]);
    assert_eq!(net.logs[1].len(), 2, "live processes continue");
    net.run(100_000_000);
    let outcomes: Vec<_> = net.failed[0].iter().map(|f| (f.to.0, f.outcome)).collect();
    assert_eq!(outcomes, [(2, Outcome::Unknown)]);
    // A message sent now is certainly not delivered.
    net.scatter(0, &[(1, b"c"), (2, b"c")]);
    net.run(100_000_000);
    assert_eq!(net.failed[0].last().map(|f| f.outcome), Some(Outcome::Lost));
    assert_eq!(net.logs[1].len(), 3);
}

//= spec/ordering.md#R27
#[test]
fn peer_that_was_cut_off_is_asked_again() {
    const CUT_NS: u64 = 3_000_000_000;
    let mut net = TestNet::new(2, |config| {
        config.probes_max = 3;
        config.unknown_after_ns = 2 * CUT_NS;
        config.link_timeout_ns = 0;
    });
    net.scatter(0, &[(1, b"before")]);
    net.run(100_000);
    // The first message is lost, the second arrives, and no acknowledgement does.
    let mut data = 0;
    net.policy = Box::new(move |from, _, bytes| {
        let is_data = parse_header(bytes).is_ok_and(|(_, opcode)| opcode.has_messages());
        data += u32::from(is_data);
        if from == 0 && is_data && data == 2 { LinkAction::Pass } else { LinkAction::Drop }
    });
    for payload in [b"lost", b"came"] {
        net.scatter(0, &[(1, payload)]);
        net.run(1_000);
    }
    net.run(CUT_NS);
    assert!(net.failed[0].is_empty(), "no outcome is known");
    net.scatter(0, &[(1, b"refused")]);
    net.run(1_000_000);
    let outcomes = |net: &TestNet| -> Vec<_> {
        net.failed[0].iter().map(|failed| (failed.scattering.0, failed.outcome)).collect()
    };
    assert_eq!(outcomes(&net), [(3, Outcome::Lost)], "messages fail while the peer is away");
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    net.run(CUT_NS / 10);
    assert_eq!(outcomes(&net), [(3, Outcome::Lost), (1, Outcome::Lost)]);
    net.scatter(0, &[(1, b"after")]);
    net.run(1_000_000);
    assert_eq!((net.failed[0].len(), net.logs[1].len()), (2, 3));
    // Cut off for longer.
    net.policy = Box::new(|_, _, _| LinkAction::Drop);
    net.scatter(0, &[(1, b"unknown")]);
    net.run(3 * CUT_NS);
    assert_eq!(outcomes(&net)[2..], [(5, Outcome::Unknown)]);
}

//= spec/ordering.md#R36
#[test]
fn restarted_peer_is_a_new_incarnation() {
    let mut net = TestNet::new(2, |_| {});
    net.scatter(0, &[(1, b"to incarnation 1")]);
    net.scatter(1, &[(0, b"from incarnation 1")]);
    net.run(400_000);
    let config = Config { incarnation: Incarnation(2), ..testnet::config(1, 2) };
    net.ends[1] = Endpoint::new(config).expect("valid");
    net.run(100_000);
    net.scatter(0, &[(1, b"unknown outcome")]);
    net.run(100_000);
    net.scatter(0, &[(1, b"to incarnation 2")]);
    net.scatter(1, &[(0, b"from incarnation 2")]);
    net.run(1_000_000);
    net.check_order();
    let texts = |at: usize| -> Vec<_> {
        net.logs[at].iter().map(|s| String::from_utf8_lossy(&s.payload).into_owned()).collect()
    };
    assert_eq!(texts(0), ["from incarnation 1", "from incarnation 2"]);
    assert_eq!(texts(1), ["to incarnation 1", "to incarnation 2"]);
    assert_eq!(net.failed[0].len(), 1);
}

//= spec/ordering.md#R89
/// A packet to the previous incarnation arrives after the next one has granted a connection.
#[test]
fn restarted_peer_accepts_nothing_that_was_sent_before() {
    let mut net = TestNet::new(3, |_| {});
    // The promises of process 0 have not passed the packet when it arrives at last.
    net.skew[2] = 50_000_000;
    net.run(1_000_000);
    let mut has_delayed = false;
    net.policy = Box::new(move |from, _, bytes| {
        let is_data = parse_header(bytes).is_ok_and(|(_, opcode)| opcode == Opcode::Data);
        match from == 2 && is_data && !std::mem::replace(&mut has_delayed, is_data) {
            true => LinkAction::Delay(10_000_000),
            false => LinkAction::Pass,
        }
    });
    net.scatter(2, &[(1, b"to the previous incarnation")]);
    net.run(10_000);
    let config = Config { incarnation: Incarnation(2), ..net.ends[1].config().clone() };
    net.ends[1] = Endpoint::new(config).expect("a valid configuration");
    net.run(5_000_000);
    let outcomes: Vec<_> = net.failed[2].iter().map(|failed| failed.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unknown]);
    // No probe says that the packet has an outcome.
    net.policy = Box::new(|_, _, bytes| {
        let is_probe = parse_header(bytes).is_ok_and(|(_, opcode)| opcode == Opcode::Probe);
        if is_probe { LinkAction::Drop } else { LinkAction::Pass }
    });
    net.scatter(2, &[(1, b"b")]);
    net.run(100_000_000);
    assert_eq!(net.ends[1].stats().packets_late, 0);
    let delivered: Vec<_> = net.logs[1].iter().map(|seen| &seen.payload[..]).collect();
    assert_eq!(delivered, [b"b"]);
}

//= spec/ordering.md#R33
#[test]
fn congestion_marks_slow_the_sender() {
    let frames_of = |is_marked: bool| {
        let mut net = TestNet::new(2, |_| {});
        net.delay_ns = 20_000;
        if is_marked {
            net.policy = Box::new(|_, _, _| LinkAction::MarkCongestion);
        }
        for _ in 0..4_000 {
            net.scatter(0, &[(1, &[1; 936])]);
        }
        net.run(600_000);
        net.logs[1].len()
    };
    let (free, marked) = (frames_of(false), frames_of(true));
    assert!(marked * 4 < free, "{marked} with marks, {free} without");
}

//= spec/ordering.md#R35
#[test]
fn random_bytes_are_dropped() {
    let mut net = TestNet::new(2, |_| {});
    net.run(10_000);
    let mut random = rng(7);
    let before = net.ends[1].clone();
    for _ in 0..10_000 {
        let mut junk: Vec<u8> = (0..random(200)).map(|_| random(256) as u8).collect();
        let now = net.now(1);
        let port = Port(random(4) as u16);
        let verdict = net.ends[1].handle_frame(now, port, &mut junk);
        assert_eq!(verdict, onepipe_base::Verdict::Dropped);
    }
    assert_eq!(net.ends[1].stats().frames_malformed, 10_000);
    assert_eq!(net.ends[1].barrier(), before.barrier());
}

#[test]
fn frames_of_unknown_processes_are_dropped() {
    let mut net = TestNet::new(2, |_| {});
    net.run(10_000);
    let now = net.now(1);
    let mut send = |opcode, src, dst, port, payload: &[u8]| {
        let header =
            onepipe_wire::Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
        let promises = onepipe_base::Promises::both(now.sync);
        let header = header.stamped(now.sync, promises, onepipe_base::Psn(5));
        let mut bytes = vec![0; 64 + payload.len()];
        bytes[onepipe_wire::HEADER_LEN..][..payload.len()].copy_from_slice(payload);
        let length = onepipe_wire::seal(&mut bytes, header, payload.len());
        net.ends[1].handle_frame(now, Port(port), &mut bytes[..length]);
        (net.ends[1].stats().frames_misrouted, net.ends[1].stats().frames_malformed)
    };
    use onepipe_wire::Opcode;
    assert_eq!(send(Opcode::Data, 0, 7, 0, b""), (1, 0), "for an unknown process");
    assert_eq!(send(Opcode::Data, 9, 1, 9, b""), (2, 0), "from an unknown process");
    assert_eq!(send(Opcode::Data, 0, 1, 1, b""), (3, 0), "over the link of another process");
    assert_eq!(send(Opcode::Ack, 0, 1, 0, b"short"), (3, 1));
    assert_eq!(send(Opcode::Probe, 0, 1, 0, b"short"), (3, 2));
    assert_eq!(send(Opcode::Connect, 0, 1, 0, b"short"), (3, 3));
}
