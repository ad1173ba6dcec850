//! Groups on fabrics: duration, traffic between switches, and agreement of the survivors.

use onepipe_bulk::{Algorithm, Delivery, Plain};
use onepipe_sim_bulk::{Outcome, Setup, SimEnv};
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;

const SECOND_NS: u64 = 1_000_000_000;

/// Returns the duration of a transfer in units of the time that its bytes take at 100 Gbit/s.
fn in_line_times(setup: &Setup, outcome: &Outcome) -> f64 {
    let bytes: usize = setup.objects.iter().sum();
    outcome.last_ns().expect("all members are complete") as f64 / (bytes as f64 * 0.08)
}

fn run(setup: &Setup) -> Outcome {
    let outcome = SimEnv::new(setup).run(2 * SECOND_NS);
    assert!(outcome.is_clean, "{:?}", outcome.ended);
    let objects = setup.objects.len() as u32;
    assert!(outcome.delivered[1..].iter().all(|delivered| *delivered == objects));
    outcome
}

#[test]
fn testbed_is_filled_at_nearly_line_rate() {
    for (members, most) in [(2, 1.10), (8, 1.25), (32, 1.40)] {
        let setup = Setup { objects: vec![4 << 20], ..Setup::new(Shape::testbed(), members) };
        let outcome = run(&setup);
        let found = in_line_times(&setup, &outcome);
        assert!((1.0..most).contains(&found), "{members} members: {found}");
    }
}

#[test]
fn racks_cross_narrow_core_once() {
    // Four racks of eight hosts, with uplinks of one eighth of the hosts' total rate.
    let setup = |algorithm, objects| Setup {
        algorithm: Algorithm::clone(algorithm),
        objects,
        ..Setup::new(Shape::leaf_spine(4, 1, 8).expect("valid members"), 32)
    };
    let pipeline = Algorithm::Plain(Plain::Pipeline);
    let racks =
        Algorithm::Racks { across: Plain::Pipeline, inside: Plain::Pipeline, sizes: vec![8; 4] };
    let (narrow, wide) = (setup(&racks, vec![4 << 20]), setup(&pipeline, vec![4 << 20]));
    let (by_racks, by_all) = (run(&narrow), run(&wide));
    // Three copies cross two links each; the rest is headers, states and acknowledgements.
    let copies = by_racks.core_bytes as f64 / (2.0 * 3.0 * (4 << 20) as f64);
    assert!((1.0..1.1).contains(&copies), "{copies}");
    assert!(by_all.core_bytes > 3 * by_racks.core_bytes);
    let (racks, all) = (in_line_times(&narrow, &by_racks), in_line_times(&wide, &by_all));
    // A leader sends each block twice, so twice the line time is the lower bound.
    assert!(racks < 2.4 && all > 1.4 * racks, "{racks} and {all}");
}

#[test]
fn transfer_to_512_members() {
    let shape = Shape::leaf_spine(16, 16, 32).expect("valid members");
    let setup = Setup { objects: vec![160 << 10], block_len: 8_192, ..Setup::new(shape, 512) };
    let found = in_line_times(&setup, &run(&setup));
    // 20 blocks of one frame take 28 steps, each of one frame time plus the latency.
    assert!(found < 6.0, "{found}");
}

#[test]
fn survivors_agree_after_any_crash() {
    for (rank, delivery) in [(0, Delivery::AtOnce), (3, Delivery::AtOnce), (0, Delivery::AllOrNone)]
    {
        for at_ns in [2_000, 15_000, 40_000, 90_000, 130_000] {
            let setup = Setup {
                objects: vec![1 << 19, 1 << 18],
                delivery,
                ..Setup::new(Shape::testbed(), 8)
            };
            let mut env = SimEnv::new(&setup);
            env.crash(rank, at_ns);
            let outcome = env.run(10 * SECOND_NS);
            let living = |of: usize| of != rank;
            let survivors: Vec<usize> = (1..8).filter(|rank| living(*rank)).collect();
            let first = survivors[0];
            for of in survivors {
                let scenario = format!("{rank} crashes after {at_ns} ns: {of} of {outcome:?}");
                assert!(outcome.ended[of].is_some(), "{scenario}");
                assert_eq!(outcome.delivered[of], outcome.delivered[first], "{scenario}");
                assert!(rank == 0 || outcome.delivered[of] == 2, "{scenario}");
            }
        }
    }
}

#[test]
fn retransmits_after_queue_overflow_without_failures() {
    let slow = LinkConfig {
        queue_bytes_max: 30_000,
        ecn_threshold_bytes: u64::MAX,
        ..LinkConfig::default()
    };
    let setup =
        Setup { objects: vec![2 << 20], host_link: slow, ..Setup::new(Shape::testbed(), 12) };
    let outcome = run(&setup);
    assert!(outcome.stats.frames_lost > 0, "queues of three frames overflow");
    assert_eq!(run(&setup).trace_hash, outcome.trace_hash, "equal setups, equal histories");
}
