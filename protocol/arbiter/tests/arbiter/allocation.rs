//! Arbiters and endpoints do not allocate heap memory after their creation.

use allocation_counter::measure;
use onepipe_arbiter::{Arbiter, ArbiterConfig, Client, ClientConfig, Core};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_wire::parse_header;

/// Delivers the frames of `from` to their destinations.
fn deliver(from: usize, now: Now, clients: &mut [Client], arbiters: &mut [Arbiter; 2]) {
    let nodes = clients.len();
    let mut slot = [0; 1_472];
    let mut drops = 0u32;
    loop {
        let sent = match from.checked_sub(nodes) {
            None => clients[from].poll_transmit(now, &mut slot),
            Some(index) => arbiters[index].poll_transmit(now, &mut slot),
        };
        let Some(transmit) = sent else { return };
        let frame = &mut slot[..transmit.bytes];
        let to = parse_header(frame).expect("sealed").0.dst().index();
        drops += 1;
        if (now.mono.as_ns() / 1_250 + u64::from(drops)).is_multiple_of(7) {
            continue;
        }
        match to.checked_sub(nodes) {
            None => clients[to].handle_frame(now, Port(0), frame),
            Some(index) => arbiters[index].handle_frame(now, Port(0), frame),
        };
    }
}

//= spec/arbiter.md#R38
#[test]
fn clients_and_arbiters_do_not_allocate_under_loss() {
    const NODES: u32 = 8;
    let [first, second] = [NODES, NODES + 1].map(ProcessId);
    let config = |process| ClientConfig {
        arbiters: vec![first, second],
        slots_max: 64,
        ..ClientConfig::new(ProcessId(process), NODES, first, 1_250)
    };
    let mut clients: Vec<Client> =
        (0..NODES).map(|process| Client::new(config(process)).expect("right")).collect();
    let mut arbiters = [(first, second), (second, first)].map(|(own, other)| {
        let mut config = ArbiterConfig::new(own, Core::racks(NODES, 4, 2), 1_250);
        config.failover.peers = vec![other];
        Arbiter::new(config).expect("right")
    });
    let taken = measure(|| {
        for step in 0..20_000u64 {
            let ns = step * 1_250;
            let sync = Timestamp::from_ns(1_125_900_000_000_000 + ns);
            let now = Now { mono: Mono::from_ns(ns), sync };
            for index in 0..clients.len() {
                let dst = ProcessId((index as u32 + 1 + (step % 7) as u32) % NODES);
                let _ = clients[index].enqueue(dst, &[0; 700]);
                clients[index].handle_timeout(now);
                deliver(index, now, &mut clients, &mut arbiters);
                while clients[index].poll_event().is_some() {}
            }
            // One of the arbiters is down from time to time.
            for index in (0..2).filter(|index| step / 3_000 % 4 != 1 + 2 * *index as u64) {
                arbiters[index].handle_timeout(now);
                deliver(clients.len() + index, now, &mut clients, &mut arbiters);
                while arbiters[index].poll_event().is_some() {}
            }
        }
        let sent: u64 = clients.iter().map(|client| client.stats().slots_sent).sum();
        let lost: u64 = clients.iter().map(|client| client.stats().slots_lost).sum();
        let takeovers: u64 = arbiters.iter().map(|arbiter| arbiter.stats().takeovers).sum();
        assert!(sent > 20_000 && lost > 1_000 && takeovers > 2, "{sent} {lost} {takeovers}");
    });
    assert_eq!(taken.count_total, 0);
}
