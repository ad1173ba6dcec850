//! TCP flows on shared links and queues.

mod net;

use net::{LINK, Net, Node, down_link, queue_lengths, received, stack, star};
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{LinkConfig, NodeId};
use onepipe_sim_traffic::{CongestionControl, FlowSpec, Incast, background};

const MS: u64 = 1_000_000 * NANOSECOND;
/// Payload rate of a saturated link: 1,448 of 1,538 bytes.
const STREAM_BITS_PER_S: f64 = 1e10 * 1_448.0 / 1_538.0;

fn endless(from: u32, to: u32) -> FlowSpec {
    FlowSpec { at_ns: 0, from, to, bytes: None }
}

/// Returns the goodput of each flow over `ms` milliseconds, bits/s.
fn rates(net: &mut Net, ms: u64) -> Vec<f64> {
    let before = received(net);
    net.run_for(ms * MS);
    let after = received(net);
    let rate = |(after, before): (&u64, &u64)| (after - before) as f64 * 8e3 / ms as f64;
    after.iter().zip(&before).map(rate).collect()
}

/// Jain's index: 1 for equal rates, 1/n if one flow has everything (Jain, Chiu and Hawe 1984).
fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn one_flow_reaches_line_rate() {
    for congestion_control in
        [CongestionControl::Reno, CongestionControl::RenoEcn, CongestionControl::Dctcp]
    {
        let mut net = star(2, LINK, congestion_control, vec![endless(0, 1)], 1);
        net.run_for(MS);
        let rate = rates(&mut net, 10)[0];
        assert!(rate > 0.99 * STREAM_BITS_PER_S, "{congestion_control:?}: {rate:e} bit/s");
        assert!(rate < 1.01 * STREAM_BITS_PER_S, "{congestion_control:?}: {rate:e} bit/s");
    }
}

#[test]
fn flows_to_one_receiver_share_its_link() {
    for congestion_control in
        [CongestionControl::Reno, CongestionControl::RenoEcn, CongestionControl::Dctcp]
    {
        for senders in [2, 5] {
            let specs = (1..=senders).map(|from| endless(from, 0)).collect();
            let mut net = star(senders + 1, LINK, congestion_control, specs, 1);
            net.run_for(50 * MS);
            let rates = rates(&mut net, 100);
            let (all, fairness) = (rates.iter().sum::<f64>(), fairness(&rates));
            assert!(
                all > 0.9 * STREAM_BITS_PER_S,
                "{congestion_control:?}, {senders} flows: {all:e} bit/s"
            );
            assert!(
                fairness > 0.9,
                "{congestion_control:?}, {senders} flows: {fairness} of {rates:?}"
            );
        }
    }
}

#[test]
fn dctcp_holds_the_marking_threshold_and_reno_overflows() {
    let queue = |congestion_control| {
        let specs = vec![endless(1, 0), endless(2, 0)];
        let mut net = star(3, LINK, congestion_control, specs, 1);
        net.run_for(20 * MS);
        let link = down_link(&net, 0);
        let lengths = queue_lengths(&mut net, link, 20_000);
        (lengths[lengths.len() / 2], lengths[lengths.len() - 1], net.stats().drops.queue_full)
    };
    let (median, most, drops) = queue(CongestionControl::Dctcp);
    assert!(
        (LINK.ecn_threshold_bytes / 2..2 * LINK.ecn_threshold_bytes).contains(&median),
        "{median}"
    );
    assert!(most < 3 * LINK.ecn_threshold_bytes, "{most}");
    // Segments may be lost at the start, before anything is marked.
    let (median, most, reno_drops) = queue(CongestionControl::Reno);
    assert!(median > LINK.queue_bytes_max / 2, "{median}");
    assert!(most > LINK.queue_bytes_max * 95 / 100, "{most}");
    assert!(reno_drops > drops, "{reno_drops} and {drops}");
}

#[test]
fn incast_overflows_a_short_queue_and_completes() {
    let short = LinkConfig { queue_bytes_max: 64 << 10, ..LINK };
    let incast = Incast { to: 0, senders: 16, bytes: 100_000, every_ns: 10_000_000, rounds: 3 };
    for congestion_control in [CongestionControl::Reno, CongestionControl::Dctcp] {
        let mut net = star(17, short, congestion_control, incast.specs(17), 1);
        net.run_for(100 * MS);
        assert!(net.stats().drops.queue_full > 100, "{congestion_control:?}: {:?}", net.stats());
        assert_eq!(received(&net), [100_000; 48], "{congestion_control:?}");
        assert_eq!(net.application.done.len(), 48, "{congestion_control:?}");
        // At least the transmission time: 1.6 MB at 10 Gbit/s are 1.36 ms with overhead.
        let slowest = net.application.done.iter().map(|done| done.3).max().expect("48 of them");
        assert!(slowest > 1_360_000, "{congestion_control:?}: {slowest} ns");
    }
    let long = LinkConfig { queue_bytes_max: 4 << 20, ..LINK };
    let mut net = star(17, long, CongestionControl::Reno, incast.specs(17), 1);
    net.run_for(100 * MS);
    assert_eq!(net.stats().drops.queue_full, 0, "a queue that is long enough drops nothing");
    assert_eq!(received(&net), [100_000; 48]);
}

#[test]
fn every_byte_and_segment_is_accounted_for() {
    let short = LinkConfig { queue_bytes_max: 48 << 10, ..LINK };
    for congestion_control in
        [CongestionControl::Reno, CongestionControl::RenoEcn, CongestionControl::Dctcp]
    {
        let incast = Incast { to: 2, senders: 7, bytes: 123_457, every_ns: 700_000, rounds: 5 };
        let mut specs = incast.specs(8);
        let rest = background(8, 2, 5);
        specs.extend(rest.into_iter().map(|one| FlowSpec { bytes: Some(333_333), ..one }));
        let all: Vec<u64> = specs.iter().filter_map(|one| one.bytes).collect();
        let mut net = star(8, short, congestion_control, specs, 1);
        net.run_for(500 * MS);
        assert_eq!(received(&net), all, "{congestion_control:?}");
        assert_eq!(net.in_flight(), 0, "{congestion_control:?}");
        let sum = |of: fn(&onepipe_sim_traffic::Stats) -> u64| {
            (0..8).map(|host| of(stack(&net, host).stats())).sum::<u64>()
        };
        let sent = sum(|stats| stats.data_sent + stats.acks_sent);
        let acked = sum(|stats| stats.data_received + stats.acks_received);
        let dropped = net.stats().drops.queue_full;
        assert!(dropped > 0, "{congestion_control:?}: nothing was put to the test");
        assert_eq!(sent, acked + dropped, "{congestion_control:?}");
        assert_eq!(
            sum(|stats| stats.bytes_received),
            all.iter().sum::<u64>(),
            "{congestion_control:?}"
        );
        assert_eq!(sum(|stats| stats.refused), 0, "{congestion_control:?}");
        let done = &net.application.done;
        assert_eq!(done.iter().map(|one| one.2).sum::<u64>(), all.iter().sum::<u64>());
        for (host, flow, ..) in done {
            assert_eq!(
                stack(&net, *host).in_flight_bytes(*flow),
                Some(0),
                "{congestion_control:?}"
            );
        }
    }
}

#[test]
fn closed_flow_delivers_what_was_sent() {
    for congestion_control in [CongestionControl::Reno, CongestionControl::Dctcp] {
        let mut net = star(3, LINK, congestion_control, vec![endless(1, 0), endless(2, 0)], 1);
        net.run_for(5 * MS);
        let flow = net.application.opened[0].expect("the flow is open");
        net.command(NodeId(1), |at, machine, _| {
            if let Node::Host(stack) = machine {
                stack.close(at.now, flow);
                stack.close(at.now, flow);
            }
        });
        net.run_for(20 * MS);
        let done = net.application.done.clone();
        assert_eq!(done.len(), 1, "{congestion_control:?}: once");
        assert_eq!((done[0].0, done[0].1), (1, flow));
        assert_eq!(received(&net)[0], done[0].2, "{congestion_control:?}: all that was sent");
        let before = received(&net);
        net.run_for(5 * MS);
        let after = received(&net);
        assert_eq!(before[0], after[0], "{congestion_control:?}: nothing more");
        let alone = (after[1] - before[1]) as f64 * 8e3 / 5.0;
        assert!(
            alone > 0.9 * STREAM_BITS_PER_S,
            "{congestion_control:?}: the other has all: {alone:e}"
        );
    }
}

#[test]
fn equal_seeds_have_equal_trace_hashes() {
    let hash = |seed| {
        let mut net = star(8, LINK, CongestionControl::Dctcp, background(8, 3, seed), seed);
        net.run_for(3 * MS);
        (net.trace_hash(), net.stats().hops)
    };
    let first = hash(4);
    assert!(first.1 > 10_000, "much has happened: {first:?}");
    assert_eq!(first, hash(4));
    assert_ne!(first.0, hash(5).0);
}
