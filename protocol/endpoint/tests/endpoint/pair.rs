//! Endpoints connected by fault-free links: the data path.

use crate::testnet;

use onepipe_endpoint::{Config, Endpoint, SendError};
use testnet::TestNet;

//= spec/ordering.md#R2
#[test]
fn scattering_shares_one_timestamp() {
    let mut net = TestNet::new(3, |_| {});
    net.scatter(0, &[(0, b"zero"), (1, b"one"), (2, b"two"), (2, b"again")]);
    net.run(20_000);
    let stamps: Vec<_> = net.logs.iter().flatten().map(|seen| seen.timestamp).collect();
    assert_eq!(stamps.len(), 4);
    assert!(stamps.iter().all(|ts| *ts == stamps[0]));
    let texts: Vec<_> = net.logs[2].iter().map(|seen| &seen.payload[..]).collect();
    assert_eq!(texts, [&b"two"[..], b"again"]);
}

//= spec/ordering.md#R20
#[test]
fn receivers_agree_on_the_order() {
    let mut net = TestNet::new(4, |_| {});
    net.skew = vec![0, 700, -900, 5_000];
    // Until the slow clocks have caught up, their messages are late and reported as lost.
    net.run(20_000);
    for round in 0..200u32 {
        for from in 0..4 {
            let text = format!("{from}:{round}");
            let messages: Vec<_> = (0..4).map(|to| (to, text.as_bytes())).collect();
            net.scatter(from, &messages);
        }
        net.run(700);
    }
    net.run(50_000);
    net.check_order();
    assert!(net.logs.iter().all(|log| log.len() == 800), "{:?}", lengths(&net));
    // The index in the scattering differs between receivers, nothing else does.
    let order = |log: &[testnet::Seen]| {
        log.iter().map(|seen| (seen.timestamp, seen.payload.clone())).collect::<Vec<_>>()
    };
    assert!(net.logs.iter().all(|log| order(log) == order(&net.logs[0])));
}

//= spec/ordering.md#R34
#[test]
fn small_messages_share_packets() {
    let mut net = TestNet::new(2, |_| {});
    for _ in 0..1_000 {
        net.scatter(0, &[(1, &[7; 64])]);
    }
    net.run(100_000);
    assert_eq!(net.logs[1].len(), 1_000);
    assert!(net.frames < 150, "{} frames for 1000 messages", net.frames);
}

#[test]
fn delivers_messages_of_every_size() {
    let mut net = TestNet::new(2, |_| {});
    let sizes = [0, 1, 1_407, 1_408, 1_409, 5_000, 65_535, 65_536, 700_000, 16 << 20];
    let payload = |size: usize| (0..size).map(|at| (at * 31 + size) as u8).collect::<Vec<_>>();
    for size in sizes {
        net.scatter(0, &[(1, &payload(size))]);
        net.run(1_000_000);
        net.scatter(0, &[(0, &payload(size))]);
        net.run(10_000);
    }
    net.run(5_000_000);
    for log in &net.logs {
        let got: Vec<_> = log.iter().map(|seen| seen.payload.len()).collect();
        assert_eq!(got, sizes);
        assert!(log.iter().all(|seen| seen.payload == payload(seen.payload.len())));
    }
    assert_eq!(net.ends[1].receive_buffer_bytes(), 0);
    assert_eq!(net.ends[0].send_buffer_bytes(), 0);
}

//= spec/ordering.md#R31
#[test]
fn large_scatterings_do_not_deadlock() {
    let mut net = TestNet::new(4, |config| {
        config.receive_buffer_bytes_max = 8 << 20;
        config.message_len_max = 2 << 20;
    });
    let large = vec![5; 2 << 20];
    for _ in 0..3 {
        for from in 0..4 {
            net.scatter(from, &[(3, &large), (1, &large), (2, b"small"), (0, &large)]);
            net.scatter(from, &[(2, b"between")]);
        }
    }
    net.run(60_000_000);
    net.check_order();
    let expected = [12, 12, 24, 12];
    assert_eq!(lengths(&net), expected);
}

//= spec/ordering.md#R32
#[test]
fn full_send_buffer_refuses_without_loss() {
    let mut net = TestNet::new(2, |config| {
        config.send_buffer_bytes_max = 100_000;
        config.message_len_max = 10_000;
    });
    let mut accepted = 0;
    let refusal = loop {
        let message =
            onepipe_endpoint::Message { to: onepipe_base::ProcessId(1), payload: &[1; 936] };
        match net.ends[0].scatter(&[message]) {
            Ok(_) => accepted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, SendError::BufferFull { need: 1_000, free: 0 });
    assert_eq!(accepted, 100);
    net.run(500_000);
    assert_eq!(net.logs[1].len(), 100);
    net.scatter(0, &[(1, b"space again")]);
}

//= spec/ordering.md#R32
#[test]
fn slow_receiver_closes_its_window_without_loss() {
    let mut net = TestNet::new(2, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 100_000;
    });
    net.is_stalled[1] = true;
    for _ in 0..2_000 {
        net.scatter(0, &[(1, &[9; 936])]);
    }
    net.run(20_000_000);
    let held = net.ends[1].receive_buffer_bytes();
    assert!(held <= 1 << 20 && held > 100_000, "{held} bytes held");
    assert!(net.ends[0].send_buffer_bytes() > 1_000_000, "the rest waits in the send buffer");
    net.is_stalled[1] = false;
    net.run(20_000_000);
    assert_eq!((net.logs[1].len(), net.failed[0].len()), (2_000, 0));
    assert_eq!(net.ends[1].stats().window_violations, 0);
}

#[test]
fn invalid_scatterings_are_refused_with_reasons() {
    let mut net = TestNet::new(2, |_| {});
    let mut scatter = |messages: &[(u32, &[u8])]| {
        let messages: Vec<_> = messages
            .iter()
            .map(|(to, payload)| onepipe_endpoint::Message {
                to: onepipe_base::ProcessId(*to),
                payload,
            })
            .collect();
        net.ends[0].scatter(&messages).expect_err("refused").to_string()
    };
    assert_eq!(scatter(&[]), "a scattering has 1 to 65535 messages, not 0");
    assert_eq!(scatter(&[(0, b""), (2, b"")]), "message 1 is for process 2, but ids lie below 2");
    let long = vec![0; (16 << 20) + 1];
    assert_eq!(scatter(&[(1, &long)]), "message 0 has 16777217 bytes, more than 16777216");
    let half = vec![0; 12 << 20];
    let too_much = [(1, &half[..]), (1, &half[..]), (1, &half[..])];
    assert!(scatter(&too_much).starts_with("the scattering needs 37748928 bytes of send buffer"));
}

#[test]
fn out_of_range_config_names_the_field() {
    let config = Config { frame_len_max: 10, ..testnet::config(0, 2) };
    let refusal = Endpoint::new(config).expect_err("too small").to_string();
    assert_eq!(refusal, "frame_len_max = 10 is out of range");
    let refusal = Endpoint::new(testnet::config(2, 2)).expect_err("no such process").to_string();
    assert_eq!(refusal, "process = 2 is out of range");
}

#[test]
fn config_limits_are_usable() {
    let day = 86_400_000_000_000;
    let tunes: [fn(&mut Config); 9] = [
        |config| config.frame_len_max = 256,
        |config| config.frame_len_max = 65_000,
        |config| (config.window_bytes_max, config.congestion_window_bytes) = (4096, 4096),
        |config| config.window_bytes_max = u32::MAX,
        |config| (config.ack_packets, config.probes_max) = (u32::MAX, 1),
        |config| config.reorder_packets = 1 << 16,
        |config| (config.ack_delay_ns, config.probe_timeout_min_ns) = (0, 0),
        |config| (config.burst_bytes_max, config.reservation_timeout_ns) = (4096, 0),
        // The share of the buffer is less than one message, so every message uses a reservation.
        |config| config.processes_max = 65_535,
    ];
    for (number, tune) in tunes.iter().enumerate() {
        let mut net = TestNet::new(2, tune);
        for from in 0..2 {
            net.scatter(from, &[(0, &[1; 3_000]), (1, &[2; 3_000]), (1, b""), (0, b"")]);
        }
        net.run(3_000_000);
        assert_eq!(lengths(&net), [4, 4], "tune {number}");
    }
    for (field, tune) in [
        ("link_timeout_ns", (|config, ns| config.link_timeout_ns = ns) as fn(&mut Config, u64)),
        ("probe_timeout_min_ns", |config, ns| config.probe_timeout_min_ns = ns),
        ("beacon_interval_ns", |config, ns| config.beacon_interval_ns = ns),
    ] {
        let mut config = testnet::config(0, 2);
        tune(&mut config, day);
        assert!(Endpoint::new(config.clone()).is_ok());
        tune(&mut config, day + 1);
        let refusal = Endpoint::new(config).expect_err("more than a day").to_string();
        assert_eq!(refusal, format!("{field} = 86400000000001 is out of range"));
    }
}

//= spec/ordering.md#R38
#[test]
fn leave_waits_for_outstanding_messages() {
    let mut net = TestNet::new(3, |_| {});
    net.scatter(0, &[(1, b"last words")]);
    net.ends[0].leave();
    let refusal = net.ends[0].scatter(&[]).expect_err("the endpoint is leaving");
    assert_eq!(refusal, SendError::Left);
    net.run(300_000);
    assert!(net.ends[0].has_left());
    assert_eq!(net.logs[1].len(), 1);
}

fn lengths(net: &TestNet) -> Vec<usize> {
    net.logs.iter().map(Vec::len).collect()
}

#[test]
fn leave_flushes_delayed_acks() {
    let mut net = TestNet::new(2, |config| config.ack_delay_ns = 30_000_000);
    net.run(20_000);
    net.scatter(0, &[(1, b"received")]);
    net.run(20_000);
    assert_eq!(net.logs[1].len(), 1);
    assert!(!net.ends[0].is_drained(), "the acknowledgement is still delayed");
    net.ends[1].leave();
    net.run(20_000);
    assert!(net.ends[1].has_left());
    assert!(net.ends[0].is_drained());
}
