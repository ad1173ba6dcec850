//! Measurements: fail-over, and throughput against latency.

use std::sync::atomic::AtomicBool;

use onepipe_sim_amcast::{LoadPoint, Orderer, Victim, failover, failovers};
use onepipe_sim_engine::Seeds;

#[test]
fn group_recovers_after_detection_and_election() {
    for victim in [Victim::Member, Victim::Switch] {
        let seeds = Seeds { first: 0, count: 12, jobs: 1 };
        let all = failovers(victim, &seeds, &AtomicBool::new(false), |_| {});
        assert_eq!(all.len(), 12);
        for (seed, one) in all {
            let one =
                one.unwrap_or_else(|| panic!("{victim:?} {seed}: the group does not recover"));
            assert_eq!(Some(one), failover(victim, seed), "one seed, one history");
            // The timeout is 100 us, checked every 20 us; elections cannot finish earlier.
            assert!((60_000..1_000_000).contains(&one.new_ns), "{victim:?} {seed}: {one:?}");
            assert!(
                one.next_ns <= one.new_ns && one.gap_ns >= 60_000,
                "{victim:?} {seed}: {one:?}"
            );
        }
    }
}

#[test]
fn switches_keep_latency_where_hosts_are_overloaded() {
    let kernel = Orderer::Hosts { frame_ns: 800, entry_ns: 200 };
    let run = |orderer, offered_per_s| LoadPoint { orderer, packet_len: 150, offered_per_s }.run();
    let (idle, busy) = (run(Orderer::Switches, 10_000), run(Orderer::Switches, 1_000_000));
    assert!((3_000.0..12_000.0).contains(&idle.mean_ns), "{idle:?}");
    assert!(busy.mean_ns < 1.5 * idle.mean_ns && busy.delivered_per_s > 990_000.0, "{busy:?}");
    let (hosts, too_many) = (run(kernel, 10_000), run(kernel, 2_000_000));
    assert!(hosts.mean_ns > idle.mean_ns, "{hosts:?}");
    assert!(too_many.delivered_per_s < 900_000.0 && too_many.mean_ns > 100_000.0, "{too_many:?}");
}

#[test]
fn injector_link_is_bottleneck() {
    let poster =
        |packet_len| LoadPoint { orderer: Orderer::Switches, packet_len, offered_per_s: 1 };
    assert_eq!(
        (poster(150).line_rate_per_s(), poster(1_500).line_rate_per_s()),
        (5_787_037, 798_212)
    );
}
