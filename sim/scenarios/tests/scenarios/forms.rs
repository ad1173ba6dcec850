//! The placements of in-network processing: the same guarantees, different latencies.

use onepipe_sim_network::{Load, SendPattern, Workload};
use onepipe_sim_scenarios::{Options, Placement, Report, run};
use onepipe_topology::Shape;

fn ping(placement: Placement, shape: Shape) -> Report {
    let load = Load {
        workload: Workload::Ping { bytes: 64 },
        pattern: SendPattern::OpenLoop { interval_ns: 20_000 },
    };
    let options = Options { placement, load, ..Options::new(shape, 16, 5, 500_000) };
    run(&options, |_| {}).expect("sixteen processes fit the shape")
}

/// No message is lost, no message lies below a promise, and every switch on the path adds its
/// detour.
#[test]
fn placements_add_their_detour_per_switch() {
    let shapes = ["star:16", "testbed"].map(|text| text.parse::<Shape>().expect("well-formed"));
    for (shape, switches) in shapes.into_iter().zip([1, 5]) {
        let reports = Placement::ALL.map(|placement| ping(placement, shape));
        for (report, placement) in reports.iter().zip(Placement::ALL) {
            let name = placement.name();
            assert_eq!(report.first_violations, Vec::<String>::new(), "{name}, {shape}");
            assert_eq!((report.messages.lost, report.open), (0, 0), "{name}, {shape}");
            assert!(report.messages.delivered > 300, "{name}, {shape}");
        }
        let us = |report: &Report| report.latency.p50_ns as f64 / 1e3;
        let [chip, cpu, delegate] = [us(&reports[0]), us(&reports[1]), us(&reports[2])];
        let detour = 2.0 * f64::from(switches);
        assert!((delegate - chip - detour).abs() < 2.0, "{shape}: {chip} us, {delegate} us");
        assert!(cpu > chip + 5.0 * detour, "{shape}: {chip} us, {cpu} us");
    }
}

/// All-to-all traffic at full load.
#[test]
fn placements_keep_invariants_under_load() {
    for placement in Placement::ALL {
        let shape = "leaf-spine:2x2x4".parse().expect("well-formed");
        let options = Options { placement, ..Options::new(shape, 16, 3, 200_000) };
        let report = run(&options, |_| {}).expect("sixteen processes fit the shape");
        assert_eq!(report.first_violations, Vec::<String>::new(), "{}", placement.name());
        assert!(report.messages.delivered > 2_000, "{}", placement.name());
    }
}
