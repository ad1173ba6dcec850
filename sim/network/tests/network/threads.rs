//! Nodes on several threads.

use std::num::NonZeroUsize;

use onepipe_sim_network::{Config, LinkConfig, NodeId};
use onepipe_topology::Shape;

use crate::harness::{Log, PANIC, TestNetwork, network, ns, send};

fn on_threads(threads: usize) -> TestNetwork {
    let config =
        Config { uses_lookahead: true, threads: NonZeroUsize::new(threads), ..Config::default() };
    network(Shape::leaf_spine(3, 2, 4).expect("twelve hosts"), config, 1)
}

/// Every host sends to every other one at the same instant, so that many frames arrive at a switch
/// simultaneously.
fn send_to_all(network: &mut TestNetwork) {
    let hosts = network.topology().hosts();
    for from in 0..hosts {
        for to in (0..hosts).filter(|to| *to != from) {
            send(network, from, to, 0..5, 64);
        }
    }
}

#[test]
fn simultaneous_frames_keep_their_order() {
    let outcome = |threads| {
        let mut network = on_threads(threads);
        send_to_all(&mut network);
        network.run_until(ns(3_000));
        // A second run continues where the first one has stopped.
        network.run_until(ns(40_000));
        assert_eq!(network.in_flight(), 0);
        let Log { mut received, observed, departures, .. } =
            std::mem::take(&mut network.application);
        received.sort_unstable();
        (network.trace_hash(), *network.stats(), received, departures, observed)
    };
    let in_order = outcome(0);
    assert_eq!(in_order.2.len(), 12 * 11 * 5);
    let one = outcome(1);
    assert_eq!(
        (&one.0, &one.1, &one.2, &one.3),
        (&in_order.0, &in_order.1, &in_order.2, &in_order.3)
    );
    assert_eq!(one.4.len(), 12 * 11 * 5);
    for threads in 2..=4 {
        for _ in 0..20 {
            assert_eq!(outcome(threads), one, "{threads} threads");
        }
    }
}

#[test]
#[should_panic(expected = "an alarm that panics")]
fn a_panic_on_any_thread_ends_the_run() {
    let mut network = on_threads(3);
    send_to_all(&mut network);
    network.command(NodeId(7), |mut at, _, _| at.alarm(5_000_000, PANIC));
    network.run_until(ns(40_000));
}

#[test]
fn links_without_delay_run_in_order() {
    let no_delay = LinkConfig { propagation_ns: 0, ..LinkConfig::default() };
    let config = Config {
        host_link: no_delay,
        uses_lookahead: true,
        threads: NonZeroUsize::new(2),
        ..Config::default()
    };
    let mut network = network(Shape::star(4).expect("four hosts"), config, 1);
    send_to_all(&mut network);
    network.run_until(ns(40_000));
    assert_eq!(network.application.received.len(), 4 * 3 * 5);
    assert!(network.application.observed.is_empty());
}

#[test]
fn the_step_limit_ends_a_run_on_threads() {
    let config = Config {
        uses_lookahead: true,
        threads: NonZeroUsize::new(2),
        steps_max: 300,
        ..Config::default()
    };
    let mut network = network(Shape::leaf_spine(3, 2, 4).expect("twelve hosts"), config, 1);
    send(&mut network, 0, 11, 0..200, 64);
    network.run_until(ns(100_000));
    assert!(network.is_out_of_steps());
    assert!(network.application.received.len() < 200);
}
