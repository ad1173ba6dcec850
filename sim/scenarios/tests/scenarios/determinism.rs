//! Equal seeds give equal histories: in one process, in the next one, and in every build.

use onepipe_sim_scenarios::{Options, Swarm, run};
use onepipe_topology::Shape;

/// Trace hashes of a few seeds, as every build must compute them. A change of a machine, of the
/// simulator or of the draws of a seed changes them: review the difference, then run the test with
/// ONEPIPE_PIN=1 to update the file.
const PINNED: &str = include_str!("../../testdata/trace_hashes.txt");
const PINNED_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/trace_hashes.txt");

#[test]
fn equal_seeds_give_equal_reports() {
    for seed in [0, 5, 12] {
        let swarm = Swarm::draw(seed);
        let (first, second) = (swarm.run(), swarm.run());
        assert_eq!(first, second, "seed {seed}");
    }
    let hash = |seed| Swarm::draw(seed).run().trace_hash;
    assert_ne!(hash(0), hash(5));
}

#[test]
fn trace_hashes_match_the_pinned_file() {
    let mut found = String::new();
    for seed in 0..8 {
        let report = Swarm::draw(seed).run();
        found += &format!("swarm {seed} {:016x} {}\n", report.trace_hash, report.network.hops);
    }
    let options = Options::new(Shape::testbed(), 64, 3, 100_000);
    let report = run(&options, |_| ()).expect("the processes fit the shape");
    found += &format!("testbed-64 3 {:016x} {}\n", report.trace_hash, report.network.hops);
    if std::env::var_os("ONEPIPE_PIN").is_some() {
        std::fs::write(PINNED_FILE, &found).expect("the source tree is writable");
    } else {
        assert_eq!(found, PINNED);
    }
}
