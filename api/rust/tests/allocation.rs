//! Heap allocations per message in the steady state: a threaded pipe allocates only owned payloads,
//! an embedded one nothing.

#[path = "api/harness/mod.rs"]
mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use harness::{DEADLINE, fabric, process, to};
use onepipe::{EmbeddedPipe, Event, Pipe};

/// The system's allocator with a counter.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, and `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: u64 = 1_000;
/// Messages per round.
const BATCH: u64 = 50;
const MESSAGES: u64 = ROUNDS * BATCH;
/// Length of a message: neither the shortest nor fragmented.
const LEN: usize = 200;
/// Requests, batches and the endpoints' queues may still grow when a thread is descheduled for
/// longer than before: at most about 3,000 times, however many messages there are.
const GROWTH: u64 = MESSAGES / 10;

/// Counts allocations of `ROUNDS` rounds after as many rounds of warm-up.
fn count(mut round: impl FnMut()) -> u64 {
    (0..ROUNDS).for_each(|_| round());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| round());
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// A single test, because the counter is global.
#[test]
fn heap_is_used_for_owned_payloads_only() {
    let payload = [7; LEN];
    let mut pipes = harness::meet(&fabric("heap"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    let send = |a: &mut Pipe| {
        for _ in 0..BATCH {
            a.scatter_wait(&[to(1, &payload)], DEADLINE).expect("the buffer drains");
        }
    };

    let shown = count(|| {
        send(a);
        let mut seen = 0;
        while seen < BATCH {
            seen += b.poll(|event| assert!(matches!(event, Event::Message(_)))) as u64;
            // Four threads may share one core.
            std::thread::yield_now();
        }
    });
    assert!(shown < GROWTH, "{shown} allocations for {MESSAGES} borrowed messages");

    let owned = count(|| {
        send(a);
        for _ in 0..BATCH {
            assert_eq!(harness::message(b).payload.len(), LEN);
        }
    });
    let expected = MESSAGES..MESSAGES + GROWTH;
    assert!(expected.contains(&owned), "{owned} allocations for {MESSAGES} owned messages");
    drop(pipes);

    let name = fabric("heap-embedded");
    let mut ends: Vec<EmbeddedPipe> =
        (0..2).map(|id| process(&name, id).embedded().expect("the id is free")).collect();
    let [a, b] = &mut ends[..] else { unreachable!() };
    let embedded = count(|| {
        for _ in 0..BATCH {
            a.scatter(&[to(1, &payload)]).expect("there is capacity");
        }
        let mut seen = 0;
        while seen < BATCH {
            a.turn();
            b.poll(|_| seen += 1);
        }
    });
    assert_eq!(embedded, 0, "allocations for {MESSAGES} embedded messages");
    while !a.is_drained() {
        a.turn();
        b.turn();
    }
}
