//! Large payloads without faults: their latency, and the effect on other traffic.

use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Report, Scattering, Setup, SimEnv};
use onepipe_topology::Shape;

const BEGIN_NS: u64 = 300_000;

/// Runs probes between 31 processes of the testbed, with and without a large payload of process 0.
fn run_with_probes(bytes: Option<usize>, receivers: u32, service: Service) -> Report {
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
    SimEnv::new(setup).run(BEGIN_NS + 700_000)
}

fn mean_ns(report: &Report) -> f64 {
    let all = report.probes_ns(BEGIN_NS..BEGIN_NS + 120_000);
    all.iter().sum::<u64>() as f64 / all.len() as f64
}

#[test]
fn one_mebibyte_delays_others_by_less_than_2_us() {
    for service in [Service::BestEffort, Service::Reliable] {
        let (alone, large) =
            (run_with_probes(None, 7, service), run_with_probes(Some(1 << 20), 7, service));
        let more_ns = mean_ns(&large) - mean_ns(&alone);
        assert!((-100.0..2_000.0).contains(&more_ns), "{service:?}: {more_ns} ns more");
        let took =
            large.delivered.iter().flatten().filter(|received| received.scattering.is_some());
        let took: Vec<u64> = took.map(|received| received.after_ns).collect();
        // The bytes alone take 84 us at 100 Gbit/s.
        assert!(
            took.len() == 7 && took.iter().all(|ns| (84_000..200_000).contains(ns)),
            "{took:?}"
        );
    }
}

#[test]
fn equal_setups_give_equal_reports() {
    let run = || run_with_probes(Some(100_000), 3, Service::Reliable);
    assert_eq!(run(), run());
}
