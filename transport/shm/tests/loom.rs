//! Model checking of the sources that the transport is built on: every interleaving.

/// Replaces `src/sync.rs` of the transport.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}

#[path = "../src/page_pool/claim.rs"]
mod claim;
#[path = "../src/promise.rs"]
#[allow(dead_code, reason = "only the paths that threads share are run here")]
mod promise;
#[path = "../src/ring.rs"]
#[allow(dead_code, reason = "only the paths that threads share are run here")]
mod ring;
#[path = "../src/sleep.rs"]
#[allow(dead_code, reason = "only the paths that threads share are run here")]
mod sleep;

use claim::Claim;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use promise::{Promise, PromiseWord, fence_after_clock};
use ring::{Consumer, Entry, INLINE, Producer, RingView};
use sleep::{FutexSlot, fence_before_wake};
use sync::{AtomicU32, AtomicU64, Ordering};

/// The shared memory of one sender and one receiver.
struct Segment {
    head: AtomicU64,
    entries: Vec<AtomicU64>,
    /// The arena: loom fails the test when two threads access a cell at once.
    arena: Vec<UnsafeCell<u64>>,
    /// The inline cell that all entries of the ring share.
    cell: UnsafeCell<u64>,
    promise_word: AtomicU64,
    futex_slot: AtomicU32,
    clock: AtomicU64,
}

impl Segment {
    fn new(entries: usize, slots: usize) -> Arc<Self> {
        Arc::new(Self {
            head: AtomicU64::new(0),
            entries: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            arena: (0..slots).map(|_| UnsafeCell::new(0)).collect(),
            cell: UnsafeCell::new(0),
            promise_word: AtomicU64::new(0),
            futex_slot: AtomicU32::new(0),
            clock: AtomicU64::new(100),
        })
    }

    fn view(&self) -> RingView<'_> {
        RingView { head: &self.head, entries: &self.entries }
    }

    /// Ticks the shared counter, which orders nothing else.
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    fn write(&self, slot: u32, value: u64) {
        // SAFETY: loom checks that no other thread accesses the slot meanwhile.
        self.arena[slot as usize].with_mut(|stored| unsafe { *stored = value });
    }

    fn read(&self, slot: u32) -> u64 {
        // SAFETY: as above.
        self.arena[slot as usize].with(|stored| unsafe { *stored })
    }
}

#[test]
fn slot_is_never_written_while_read() {
    loom::model(|| {
        const FRAMES: u64 = 3;
        // Two entries and two slots for three frames: the ring wraps and slots are reused.
        let segment = Segment::new(2, 2);
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || {
                let mut producer = Producer::resume(segment.view(), |_| true);
                let mut free = vec![0, 1];
                let mut sent = 0;
                while sent < FRAMES {
                    producer.reclaim(segment.view(), |slot| free.push(slot));
                    let Some(slot) = free.pop() else {
                        thread::yield_now();
                        continue;
                    };
                    segment.write(slot, sent);
                    assert!(producer.stage(Entry { slot, bytes: 1 }));
                    sent += 1;
                    // The first two are published together.
                    if sent != 1 {
                        producer.publish(segment.view());
                    }
                }
            })
        };
        let mut consumer = Consumer::new();
        for expected in 0..FRAMES {
            let entry = loop {
                if let Some(entry) = consumer.next(segment.view()) {
                    break entry;
                }
                consumer.release(segment.view());
                thread::yield_now();
            };
            assert_eq!(segment.read(entry.slot), expected);
        }
        consumer.release(segment.view());
        sender.join().expect("the sender has not panicked");
    });
}

#[test]
fn inline_cell_is_never_written_while_read() {
    loom::model(|| {
        const FRAMES: u64 = 3;
        // Two entries share one cell: a frame that finds it in use takes a slot.
        let segment = Segment::new(2, 1);
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || {
                let mut producer = Producer::resume(segment.view(), |_| true);
                let (mut free, mut sent) = (vec![0], 0);
                while sent < FRAMES {
                    producer.reclaim(segment.view(), |slot| free.push(slot));
                    if producer.cell(1).is_some() {
                        // SAFETY: loom checks that no other thread accesses the cell meanwhile.
                        segment.cell.with_mut(|stored| unsafe { *stored = sent });
                        assert!(producer.stage(Entry { slot: INLINE, bytes: 1 }));
                    } else if let Some(slot) = free.pop() {
                        segment.write(slot, sent);
                        assert!(producer.stage(Entry { slot, bytes: 1 }));
                    } else {
                        thread::yield_now();
                        continue;
                    }
                    sent += 1;
                    producer.publish(segment.view());
                }
            })
        };
        let mut consumer = Consumer::new();
        for expected in 0..FRAMES {
            let entry = loop {
                if let Some(entry) = consumer.next(segment.view()) {
                    break entry;
                }
                consumer.release(segment.view());
                thread::yield_now();
            };
            let value = match entry.slot {
                // SAFETY: as above.
                INLINE => segment.cell.with(|stored| unsafe { *stored }),
                slot => segment.read(slot),
            };
            assert_eq!(value, expected);
        }
        consumer.release(segment.view());
        sender.join().expect("the sender has not panicked");
    });
}

//= spec/ordering.md#R18
#[test]
fn no_frame_arrives_below_the_promise() {
    loom::model(|| {
        let segment = Segment::new(2, 2);
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || {
                let mut producer = Producer::resume(segment.view(), |_| true);
                let promise_word = PromiseWord(&segment.promise_word);
                let mut floor = 1;
                for slot in 0..2 {
                    promise_word.announce(floor);
                    let now = segment.tick();
                    segment.write(slot, now);
                    assert!(producer.stage(Entry { slot, bytes: 1 }));
                    producer.publish(segment.view());
                    promise_word.set_idle();
                    floor = now + 1;
                }
            })
        };
        let mut consumer = Consumer::new();
        let mut barrier = 0;
        for _ in 0..2 {
            let read = segment.tick();
            fence_after_clock();
            let promise = PromiseWord(&segment.promise_word).load();
            while let Some(entry) = consumer.next(segment.view()) {
                let stamped = segment.read(entry.slot);
                assert!(stamped >= barrier, "{stamped} arrived after {barrier} was promised");
            }
            let promised = match promise {
                Promise::Idle => read,
                Promise::Active(floor) => floor,
            };
            barrier = barrier.max(promised);
        }
        sender.join().expect("the sender has not panicked");
        while let Some(entry) = consumer.next(segment.view()) {
            assert!(segment.read(entry.slot) >= barrier);
        }
    });
}

#[test]
fn sleeper_is_woken_or_sees_the_frame() {
    loom::model(|| {
        let segment = Segment::new(2, 1);
        let sender = {
            let segment = segment.clone();
            thread::spawn(move || {
                let mut producer = Producer::resume(segment.view(), |_| true);
                assert!(producer.stage(Entry { slot: 0, bytes: 1 }));
                producer.publish(segment.view());
                fence_before_wake();
                FutexSlot(&segment.futex_slot).take_wake()
            })
        };
        let mut consumer = Consumer::new();
        let futex_slot = FutexSlot(&segment.futex_slot);
        futex_slot.prepare_sleep(crate::sleep::ASLEEP);
        let has_slept = consumer.is_empty(segment.view());
        let is_woken = sender.join().expect("the sender has not panicked");
        // The sleeper blocks as long as the word says asleep: only the waker can end it.
        assert!(!has_slept || is_woken, "lost wake-up: asleep with a frame in the ring");
        futex_slot.finish_sleep();
        assert!(consumer.next(segment.view()).is_some());
    });
}

#[test]
fn restarted_receiver_skips_and_returns_old_entries() {
    loom::model(|| {
        let segment = Segment::new(2, 2);
        let mut producer = Producer::resume(segment.view(), |_| true);
        segment.write(0, 7);
        assert!(producer.stage(Entry { slot: 0, bytes: 1 }));
        producer.publish(segment.view());
        let receiver = {
            let segment = segment.clone();
            thread::spawn(move || {
                let mut consumer = Consumer::resume(segment.view());
                if let Some(entry) = consumer.next(segment.view()) {
                    assert_eq!(segment.read(entry.slot), 8, "the old frame must be skipped");
                }
                consumer.release(segment.view());
            })
        };
        segment.write(1, 8);
        assert!(producer.stage(Entry { slot: 1, bytes: 1 }));
        producer.publish(segment.view());
        let mut back = Vec::new();
        producer.reclaim(segment.view(), |slot| back.push(slot));
        for slot in &back {
            segment.write(*slot, 9);
        }
        receiver.join().expect("the receiver has not panicked");
        producer.reclaim(segment.view(), |slot| back.push(slot));
        assert!(back == [0] || back == [0, 1], "{back:?}");
    });
}

/// One region of a page pool.
struct Region {
    readers: AtomicU64,
    generation: AtomicU64,
    bytes: UnsafeCell<u64>,
}

impl Region {
    fn write(&self, word: u64) {
        // SAFETY: loom fails the test if another thread accesses the cell.
        self.bytes.with_mut(|bytes| unsafe { *bytes = word });
    }

    fn read(&self) -> u64 {
        // SAFETY: loom fails the test if another thread writes to the cell.
        self.bytes.with(|bytes| unsafe { *bytes })
    }

    fn claim(&self) -> Claim<'_> {
        Claim { readers: &self.readers, generation: &self.generation }
    }
}

#[test]
fn region_is_not_rewritten_while_it_is_read() {
    loom::model(|| {
        let region = Arc::new(Region {
            readers: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            bytes: UnsafeCell::new(0),
        });
        let first = region.claim().renew().expect("the region has no readers");
        region.write(first);
        // The reader knows the first generation, and comes late.
        let theirs = Arc::clone(&region);
        let reader = thread::spawn(move || {
            if theirs.claim().take(first) {
                assert_eq!(theirs.read(), first);
                theirs.claim().release();
            }
        });
        for _ in 0..2 {
            if let Some(next) = region.claim().renew() {
                region.write(next);
            }
        }
        reader.join().expect("the thread does not panic");
        assert!(region.claim().renew().is_some(), "no claim is left");
    });
}
