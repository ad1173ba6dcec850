//! What flows do to links, to queues and to each other.

mod world;

use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{LinkConfig, NodeId};
use onepipe_sim_traffic::{Demand, Incast, React, background};
use world::{LINK, Node, World, down_link, queue_lengths, received, stack, star};

const MS: u64 = 1_000_000 * NANOSECOND;
/// The share of the line that the streams themselves can have: 1,448 of 1,538 bytes.
const STREAM_BITS_PER_S: f64 = 1e10 * 1_448.0 / 1_538.0;

fn endless(from: u32, to: u32) -> Demand {
    Demand { at_ns: 0, from, to, bytes: None }
}

/// Bytes of each demand that come within so many ms.
fn rates(world: &mut World, ms: u64) -> Vec<f64> {
    let before = received(world);
    world.run_for(ms * MS);
    let after = received(world);
    let rate = |(after, before): (&u64, &u64)| (after - before) as f64 * 8e3 / ms as f64;
    after.iter().zip(&before).map(rate).collect()
}

/// 1: all equal; one over their number: one has everything (Jain, Chiu and Hawe 1984).
fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn one_flow_reaches_the_rate_of_the_line() {
    for react in [React::Loss, React::Marks, React::MarkedShare] {
        let mut world = star(2, LINK, react, vec![endless(0, 1)], 1);
        world.run_for(MS);
        let rate = rates(&mut world, 10)[0];
        assert!(rate > 0.99 * STREAM_BITS_PER_S, "{react:?}: {rate:e} bit/s");
        assert!(rate < 1.01 * STREAM_BITS_PER_S, "{react:?}: {rate:e} bit/s");
    }
}

#[test]
fn flows_to_one_receiver_share_its_link() {
    for react in [React::Loss, React::Marks, React::MarkedShare] {
        for senders in [2, 5] {
            let demands = (1..=senders).map(|from| endless(from, 0)).collect();
            let mut world = star(senders + 1, LINK, react, demands, 1);
            world.run_for(50 * MS);
            let rates = rates(&mut world, 100);
            let (all, fairness) = (rates.iter().sum::<f64>(), fairness(&rates));
            assert!(all > 0.9 * STREAM_BITS_PER_S, "{react:?}, {senders} flows: {all:e} bit/s");
            assert!(fairness > 0.9, "{react:?}, {senders} flows: {fairness} of {rates:?}");
        }
    }
}

#[test]
fn dctcp_keeps_the_queue_near_the_mark_and_reno_fills_it() {
    let queue = |react| {
        let demands = vec![endless(1, 0), endless(2, 0)];
        let mut world = star(3, LINK, react, demands, 1);
        world.run_for(20 * MS);
        let link = down_link(&world, 0);
        let lengths = queue_lengths(&mut world, link, 20_000);
        (lengths[lengths.len() / 2], lengths[lengths.len() - 1], world.stats().drops.queue_full)
    };
    let (median, most, drops) = queue(React::MarkedShare);
    assert!((LINK.mark_bytes / 2..2 * LINK.mark_bytes).contains(&median), "{median}");
    assert!(most < 3 * LINK.mark_bytes, "{most}");
    // While it started it may have lost some: nothing had been marked yet.
    let (median, most, reno_drops) = queue(React::Loss);
    assert!(median > LINK.queue_bytes_max / 2, "{median}");
    assert!(most > LINK.queue_bytes_max * 95 / 100, "{most}");
    assert!(reno_drops > drops, "{reno_drops} and {drops}");
}

#[test]
fn an_incast_overflows_a_short_queue_and_is_finished_all_the_same() {
    let short = LinkConfig { queue_bytes_max: 64 << 10, ..LINK };
    let incast = Incast { to: 0, senders: 16, bytes: 100_000, every_ns: 10_000_000, rounds: 3 };
    for react in [React::Loss, React::MarkedShare] {
        let mut world = star(17, short, react, incast.demands(17), 1);
        world.run_for(100 * MS);
        assert!(world.stats().drops.queue_full > 100, "{react:?}: {:?}", world.stats());
        assert_eq!(received(&world), [100_000; 48], "{react:?}");
        assert_eq!(world.application.done.len(), 48, "{react:?}");
        // Nobody is faster than the line: 1.6 MB of 10 Gbit/s are 1.36 ms with what goes round
        // them.
        let slowest = world.application.done.iter().map(|done| done.3).max().expect("48 of them");
        assert!(slowest > 1_360_000, "{react:?}: {slowest} ns");
    }
    let long = LinkConfig { queue_bytes_max: 4 << 20, ..LINK };
    let mut world = star(17, long, React::Loss, incast.demands(17), 1);
    world.run_for(100 * MS);
    assert_eq!(world.stats().drops.queue_full, 0, "a queue that is long enough drops nothing");
    assert_eq!(received(&world), [100_000; 48]);
}

#[test]
fn no_byte_and_no_segment_is_lost_without_a_trace() {
    let short = LinkConfig { queue_bytes_max: 48 << 10, ..LINK };
    for react in [React::Loss, React::Marks, React::MarkedShare] {
        let incast = Incast { to: 2, senders: 7, bytes: 123_457, every_ns: 700_000, rounds: 5 };
        let mut demands = incast.demands(8);
        let rest = background(8, 2, 5);
        demands.extend(rest.into_iter().map(|one| Demand { bytes: Some(333_333), ..one }));
        let all: Vec<u64> = demands.iter().filter_map(|one| one.bytes).collect();
        let mut world = star(8, short, react, demands, 1);
        world.run_for(500 * MS);
        assert_eq!(received(&world), all, "{react:?}");
        assert_eq!(world.in_flight(), 0, "{react:?}");
        let sum = |of: fn(&onepipe_sim_traffic::Stats) -> u64| {
            (0..8).map(|host| of(stack(&world, host).stats())).sum::<u64>()
        };
        let sent = sum(|stats| stats.data_sent + stats.acks_sent);
        let came = sum(|stats| stats.data_received + stats.acks_received);
        let dropped = world.stats().drops.queue_full;
        assert!(dropped > 0, "{react:?}: nothing was put to the test");
        assert_eq!(sent, came + dropped, "{react:?}");
        assert_eq!(sum(|stats| stats.bytes_received), all.iter().sum::<u64>(), "{react:?}");
        assert_eq!(sum(|stats| stats.refused), 0, "{react:?}");
        let done = &world.application.done;
        assert_eq!(done.iter().map(|one| one.2).sum::<u64>(), all.iter().sum::<u64>());
        for (host, flow, ..) in done {
            assert_eq!(stack(&world, *host).in_flight_bytes(*flow), Some(0), "{react:?}");
        }
    }
}

#[test]
fn a_flow_that_is_closed_arrives_as_far_as_it_was_sent_and_is_done() {
    for react in [React::Loss, React::MarkedShare] {
        let mut world = star(3, LINK, react, vec![endless(1, 0), endless(2, 0)], 1);
        world.run_for(5 * MS);
        let flow = world.application.opened[0].expect("it is open");
        world.command(NodeId(1), |at, machine, _| {
            if let Node::Host(stack) = machine {
                stack.close(at.now, flow);
                stack.close(at.now, flow);
            }
        });
        world.run_for(20 * MS);
        let done = world.application.done.clone();
        assert_eq!(done.len(), 1, "{react:?}: once");
        assert_eq!((done[0].0, done[0].1), (1, flow));
        assert_eq!(received(&world)[0], done[0].2, "{react:?}: all that was sent");
        let before = received(&world);
        world.run_for(5 * MS);
        let after = received(&world);
        assert_eq!(before[0], after[0], "{react:?}: no more of it");
        let alone = (after[1] - before[1]) as f64 * 8e3 / 5.0;
        assert!(alone > 0.9 * STREAM_BITS_PER_S, "{react:?}: the other has all: {alone:e}");
    }
}

#[test]
fn equal_seeds_make_equal_histories() {
    let hash = |seed| {
        let mut world = star(8, LINK, React::MarkedShare, background(8, 3, seed), seed);
        world.run_for(3 * MS);
        (world.trace_hash(), world.stats().hops)
    };
    let first = hash(4);
    assert!(first.1 > 10_000, "much has happened: {first:?}");
    assert_eq!(first, hash(4));
    assert_ne!(first.0, hash(5).0);
}
