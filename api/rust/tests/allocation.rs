//! How often the heap is used for each message once everything has grown to its size: by a
//! threaded pipe only for payloads that the caller owns, by an embedded one never.

mod harness;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use harness::{DEADLINE, fabric, process, to};
use onepipe::{EmbeddedPipe, Event, Pipe};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, and `place` came from the system's allocator.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: u64 = 1_000;
/// Messages of a round.
const BATCH: u64 = 50;
const MESSAGES: u64 = ROUNDS * BATCH;
/// Bytes of a message: neither the shortest nor a fragment.
const LEN: usize = 200;
/// Parcels, sheets and the endpoints' queues may still grow when a thread was put off its core for
/// longer than ever before: some 3,000 times at the very most, however many messages there are.
const GROWTH: u64 = MESSAGES / 10;

/// Allocations in `ROUNDS` rounds after as many to warm up.
fn count(mut round: impl FnMut()) -> u64 {
    (0..ROUNDS).for_each(|_| round());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..ROUNDS).for_each(|_| round());
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// One test, because the counter is everybody's.
#[test]
fn heap_is_used_for_owned_payloads_only() {
    let payload = [7; LEN];
    let mut pipes = harness::meet(&fabric("heap"), 2);
    let [a, b] = &mut pipes[..] else { unreachable!() };
    let send = |a: &mut Pipe| {
        for _ in 0..BATCH {
            a.scatter_wait(&[to(1, &payload)], DEADLINE).expect("there will be room");
        }
    };

    let shown = count(|| {
        send(a);
        let mut seen = 0;
        while seen < BATCH {
            seen += b.poll(|event| assert!(matches!(event, Event::Message(_)))) as u64;
            // Four threads, perhaps on one core.
            std::thread::yield_now();
        }
    });
    assert!(shown < GROWTH, "{shown} allocations for {MESSAGES} messages that were shown");

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
        (0..2).map(|id| process(&name, id).embedded().expect("it is free")).collect();
    let [a, b] = &mut ends[..] else { unreachable!() };
    let embedded = count(|| {
        for _ in 0..BATCH {
            a.scatter(&[to(1, &payload)]).expect("there is room");
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
