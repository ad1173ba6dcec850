//! Acknowledgements that travel with data.

use crate::testnet::{LinkAction, TestNet};

const PROCESSES: usize = 4;

/// Returns the acknowledgements that were sent in frames of their own and with data, and the
/// probes.
fn sent(net: &TestNet) -> [u64; 3] {
    let mut sums = [0; 3];
    for end in &net.ends {
        let stats = end.stats();
        let counts = [stats.acks_sent, stats.acks_piggybacked, stats.probes_sent];
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// Every process scatters to all others, once in each `pause_ns`.
fn scatter_to_all(net: &mut TestNet, times: u32, pause_ns: u64) {
    for _ in 0..times {
        for from in 0..PROCESSES {
            let others = (0..PROCESSES as u32).filter(|to| *to as usize != from);
            let messages: Vec<_> = others.map(|to| (to, &b"to all"[..])).collect();
            net.scatter(from, &messages);
        }
        net.run(pause_ns);
    }
}

//= spec/ordering.md#R87
#[test]
fn data_carries_acknowledgements_of_seldom_peers() {
    let mut net = TestNet::new(PROCESSES as u32, |_| {});
    scatter_to_all(&mut net, 1, 1_000_000);
    // A message in more than a quarter of the delay: each carries the acknowledgement of another.
    // Two in a quarter: one of two does.
    for (pause_ns, carriers) in [(80_000, 95..=100), (40_000, 45..=55)] {
        let before = sent(&net);
        scatter_to_all(&mut net, 100, pause_ns);
        let [acks, piggybacked, probes] = [0, 1, 2].map(|at| sent(&net)[at] - before[at]);
        assert!(acks < 2 * (PROCESSES * PROCESSES) as u64, "{acks} frames with acknowledgements");
        let of_a_hundred = piggybacked / (PROCESSES * (PROCESSES - 1)) as u64;
        assert!(carriers.contains(&of_a_hundred), "{of_a_hundred} of 100 with {pause_ns} ns");
        assert_eq!(probes, 0, "nothing is taken for lost");
    }
    net.run(1_000_000);
    assert!(net.ends.iter().all(|end| end.is_drained()), "every outcome is known");
    net.check_order();
}

//= spec/ordering.md#R87
#[test]
fn stream_is_acknowledged_once_in_many_frames() {
    let mut net = TestNet::new(2, |_| {});
    let message = [7; 1_300];
    for _ in 0..1_000 {
        net.scatter(0, &[(1, &message)]);
        net.scatter(1, &[(0, &message)]);
        net.run(1_000);
    }
    let [acks, piggybacked, probes] = sent(&net);
    assert!((100..=600).contains(&(acks + piggybacked)), "{acks} + {piggybacked} for 2,000 frames");
    assert_eq!(probes, 0);
}

//= spec/ordering.md#R29
//= spec/ordering.md#R87
#[test]
fn lost_packets_are_reported_although_acknowledgements_travel() {
    let mut net = TestNet::new(PROCESSES as u32, |_| {});
    scatter_to_all(&mut net, 1, 1_000_000);
    let mut frames = 0;
    net.policy = Box::new(move |_, _, _| {
        frames += 1;
        if frames % 13 == 0 { LinkAction::Drop } else { LinkAction::Pass }
    });
    scatter_to_all(&mut net, 200, 40_000);
    net.policy = Box::new(|_, _, _| LinkAction::Pass);
    net.run(50_000_000);
    let delivered: usize = net.logs.iter().map(Vec::len).sum();
    let failed: usize = net.failed.iter().map(Vec::len).sum();
    assert!(failed > 50, "{failed} messages were lost");
    assert_eq!(delivered + failed, 201 * PROCESSES * (PROCESSES - 1), "each has one outcome");
    net.check_order();
}
