//! Large payloads without faults: their latency, and the effect on other traffic.

use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Scattering, Setup, Story, World};
use onepipe_topology::Shape;

const BEGIN_NS: u64 = 300_000;

/// Runs probes between 31 processes of the testbed, with and without a large payload of process 0.
fn beside(bytes: Option<usize>, receivers: u32, service: Service) -> Story {
    let to = (1..=receivers).collect();
    let large =
        bytes.map(|bytes| Scattering { service, ..Scattering::new(BEGIN_NS, 0, to, bytes) });
    let probes = Probes {
        every_ns: 4_000,
        from_ns: BEGIN_NS - 100_000,
        until_ns: BEGIN_NS + 150_000,
        service,
    };
    let setup = Setup {
        scatterings: large.into_iter().collect(),
        probes: Some(probes),
        ..Setup::new(Shape::testbed(), 31)
    };
    World::new(setup).run(BEGIN_NS + 700_000)
}

fn mean_ns(story: &Story) -> f64 {
    let all = story.probes_ns(BEGIN_NS..BEGIN_NS + 120_000);
    all.iter().sum::<u64>() as f64 / all.len() as f64
}

#[test]
fn a_mebibyte_in_the_order_delays_others_by_less_than_two_microseconds() {
    for service in [Service::BestEffort, Service::Reliable] {
        let (alone, large) = (beside(None, 7, service), beside(Some(1 << 20), 7, service));
        let more_ns = mean_ns(&large) - mean_ns(&alone);
        assert!((-100.0..2_000.0).contains(&more_ns), "{service:?}: {more_ns} ns more");
        let took = large.delivered.iter().flatten().filter(|seen| seen.scattering.is_some());
        let took: Vec<u64> = took.map(|seen| seen.after_ns).collect();
        // The bytes alone take 84 us at 100 Gbit/s.
        assert!(
            took.len() == 7 && took.iter().all(|ns| (84_000..200_000).contains(ns)),
            "{took:?}"
        );
    }
}

#[test]
fn equal_setups_live_through_equal_histories() {
    let run = || beside(Some(100_000), 3, Service::Reliable);
    assert_eq!(run(), run());
}
