//! After its beginning an arbiter takes nothing from the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use onepipe_arbiter::{Allocator, Config, Fabric, Paths, Policy, Schedule};

/// Counts what the calling thread allocates.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn neither_allocator_nor_paths_take_from_the_heap_however_much_is_wanted() {
    for policy in [Policy::MaxMinFair, Policy::ShortestFirst] {
        let config = Config { policy, ..Config::new(64) };
        let mut allocator = Allocator::new(config).expect("the settings are right");
        let fabric = Fabric { nodes: 64, rack_nodes: 16, paths: 4, is_strict: true };
        let mut paths = Paths::new(fabric).expect("there can be such a fabric");
        let mut schedule = Schedule::new(64);
        let before = ALLOCATIONS.get();
        assert!(before > 0, "it counts");
        let (mut seed, mut given) = (1u32, 0);
        for round in 0..400 {
            // Far too much for a while, then nothing.
            for _ in 0..if round % 100 < 60 { 600 } else { 0 } {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (src, dst, slots) = (seed >> 26, seed >> 20 & 63, seed >> 10 & 63);
                let _ = allocator.request(src, dst, slots);
            }
            if round % 50 == 49 {
                allocator.forget(round % 64);
            }
            schedule.fill(allocator.next_batch().grants());
            given += allocator.batch().given();
            assert_eq!(paths.assign(&schedule, 64), 0);
        }
        assert!(given > 100_000 && paths.stats().flips > 0);
        assert_eq!(ALLOCATIONS.get() - before, 0);
    }
}
