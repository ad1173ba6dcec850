//! The allocator and the path selection do not allocate heap memory after their creation.

use allocation_counter::measure;
use onepipe_timeslots::{Allocator, Config, Fabric, Paths, Policy, Schedule, Timeslot};

#[test]
fn allocator_and_paths_do_not_allocate_under_load() {
    for policy in [Policy::MaxMinFair, Policy::ShortestFirst] {
        let config = Config { policy, ..Config::new(64) };
        let mut allocator = Allocator::new(config).expect("the settings are right");
        let fabric = Fabric { nodes: 64, rack_nodes: 16, paths: 4, is_strict: true };
        let mut paths = Paths::new(fabric).expect("the fabric is valid");
        let mut schedule = Schedule::new(64);
        let taken = measure(|| {
            let (mut seed, mut granted) = (1u32, 0);
            for round in 0..400 {
                // Overload for a while, then nothing.
                for _ in 0..if round % 100 < 60 { 600 } else { 0 } {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let (src, dst, slots) = (seed >> 26, seed >> 20 & 63, seed >> 10 & 63);
                    let _ = allocator.request(src, dst, slots);
                }
                if round % 50 == 49 {
                    allocator.forget(round % 64);
                }
                schedule.fill(allocator.next_batch().grants());
                granted += allocator.batch().granted();
                assert_eq!(paths.assign(&schedule, Timeslot(0), 64), 0);
            }
            assert!(granted > 100_000 && paths.stats().flips > 0);
        });
        assert_eq!(taken.count_total, 0);
    }
}
