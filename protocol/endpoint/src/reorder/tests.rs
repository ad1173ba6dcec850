//! The reorder stage compared with a sorted map.

use alloc::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn entry(ts: u64, order: u64) -> Entry<u64> {
    Entry { timestamp: Timestamp::from_ns(ts), order, value: ts ^ order }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// Inserts `count` entries from `ahead` ns after the barrier on, `spacing` ns apart.
    Insert { ahead: u64, spacing: u64, count: u64 },
    /// Advances the barrier and pops at most `count` entries.
    Pop { jump: u64, count: usize },
}

/// Distances of every magnitude, from 0 to 39 h and beyond.
fn distance() -> impl Strategy<Value = u64> {
    (0u32..52, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (distance(), 0u64..300, 1u64..200).prop_map(|(ahead, spacing, count)| Step::Insert {
            ahead,
            spacing,
            count
        }),
        (0u64..3_000, 0u64..100, 1u64..5).prop_map(|(ahead, spacing, count)| Step::Insert {
            ahead,
            spacing,
            count
        }),
        (distance(), 0usize..300).prop_map(|(jump, count)| Step::Pop { jump, count }),
        (0u64..200, 0usize..10).prop_map(|(jump, count)| Step::Pop { jump, count }),
        (0u64..2_000, Just(usize::MAX)).prop_map(|(jump, count)| Step::Pop { jump, count }),
    ]
}

fn run(start: u64, steps: &[Step]) {
    let mut reorder = Reorder::new(ReorderConfig { entries: 4 });
    let mut model = BTreeMap::new();
    let mut barrier = start;
    let mut order = 0;
    let pop = |reorder: &mut Reorder<u64>, model: &mut BTreeMap<(u64, u64), u64>, barrier| {
        let expected = match model.first_key_value() {
            Some((&(ts, order), _)) if ts < barrier => model.remove(&(ts, order)),
            _ => None,
        };
        let popped = reorder.pop(Timestamp::from_ns(barrier));
        assert_eq!(popped.map(|entry| entry.value), expected);
        assert_eq!(reorder.len(), model.len());
        assert_eq!(reorder.is_empty(), model.is_empty());
        expected.is_some()
    };
    for step in steps {
        match *step {
            Step::Insert { ahead, spacing, count } => {
                for n in 0..count {
                    // Orders are neither ascending nor descending.
                    order += 1;
                    let order = order ^ 5;
                    let new = entry(barrier + ahead + n * spacing, order);
                    reorder.insert(new);
                    model.insert((new.timestamp.as_ns(), order), new.value);
                }
            }
            Step::Pop { jump, count } => {
                barrier += jump;
                let mut left = count;
                while left > 0 && pop(&mut reorder, &mut model, barrier) {
                    left -= 1;
                }
            }
        }
    }
    while pop(&mut reorder, &mut model, u64::MAX) {}
    assert!(reorder.is_empty());
}

proptest! {
    #[test]
    fn pops_entries_like_a_sorted_map(
        start in prop_oneof![
            Just(0),
            Just((1u64 << 48) - 1_000),
            Just((1 << 50) + 12_345),
            any::<u64>().prop_map(|n| n >> 2),
        ],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(start, &steps);
    }
}

#[test]
fn slot_filling_in_reverse_order_is_narrowed() {
    let mut reorder = Reorder::new(ReorderConfig::default());
    let start = 1 << 40;
    // Opens the slot, which is 1,024 ns wide.
    reorder.insert(entry(start, 0));
    assert!(reorder.pop(Timestamp::from_ns(start + 1)).is_some());
    let width_log2 = reorder.wheel.width_log2();
    for n in 0..1_000 {
        reorder.insert(entry(start + 1_001 - n, n));
        assert!(reorder.run.len() <= SHIFT_MAX + 2, "the run must not hold all entries");
    }
    assert!(reorder.wheel.width_log2() < width_log2);
    for n in (0..1_000).rev() {
        assert_eq!(reorder.pop(Timestamp::from_ns(u64::MAX)), Some(entry(start + 1_001 - n, n)));
    }
    assert!(reorder.is_empty());
}

#[test]
fn slot_width_follows_the_message_rate() {
    for (spacing_ns, least, most) in [(2, 3, 6), (100, 8, 12), (1_000_000, 12, 12)] {
        let mut reorder = Reorder::new(ReorderConfig::default());
        for n in 0..20_000 {
            let now = (1 << 40) + n * spacing_ns;
            reorder.insert(entry(now + 10 * spacing_ns, n));
            while reorder.pop(Timestamp::from_ns(now)).is_some() {}
        }
        let width_log2 = reorder.wheel.width_log2();
        assert!((least..=most).contains(&width_log2), "{spacing_ns} ns apart: 2^{width_log2}");
    }
}

#[test]
fn equal_timestamps_pop_in_order_at_any_count() {
    for count in [2, 64, 65, 5_000] {
        let mut reorder = Reorder::new(ReorderConfig::default());
        for n in 0..count {
            // Every order below `count` once, neither ascending nor descending.
            reorder.insert(entry(7, n * 4_999 % count));
        }
        let mut last = None;
        for _ in 0..count {
            let popped = reorder.pop(Timestamp::from_ns(8)).expect("`count` entries were inserted");
            assert!(last < Some(popped.order));
            last = Some(popped.order);
        }
        assert!(reorder.is_empty());
    }
}

//= spec/ordering.md#R19
#[test]
fn entry_at_the_barrier_is_not_popped() {
    let mut reorder = Reorder::new(ReorderConfig::default());
    reorder.insert(entry(1_000, 3));
    assert_eq!(reorder.pop(Timestamp::from_ns(1_000)), None);
    // The slot is open now: entries inserted into it are still sorted.
    reorder.insert(entry(1_000, 2));
    reorder.insert(entry(1_001, 1));
    let popped: Vec<_> = core::iter::from_fn(|| reorder.pop(Timestamp::from_ns(1_001))).collect();
    assert_eq!(popped, [entry(1_000, 2), entry(1_000, 3)]);
    assert_eq!(reorder.len(), 1);
}

#[test]
fn equal_histories_compare_equal_and_clones_diverge() {
    let mut one = Reorder::new(ReorderConfig::default());
    let mut other = Reorder::new(ReorderConfig::default());
    for n in 0..500 {
        one.insert(entry(n * 7_919 % 50_000, n));
        other.insert(entry(n * 7_919 % 50_000, n));
    }
    while one.pop(Timestamp::from_ns(20_000)).is_some() {}
    assert_ne!(one, other);
    while other.pop(Timestamp::from_ns(20_000)).is_some() {}
    assert_eq!(one, other);
    let mut clone = one.clone();
    assert_eq!(clone, one);
    let rest: Vec<_> = core::iter::from_fn(|| one.pop(Timestamp::from_ns(u64::MAX))).collect();
    let rest_of_clone: Vec<_> =
        core::iter::from_fn(|| clone.pop(Timestamp::from_ns(u64::MAX))).collect();
    assert_eq!(rest, rest_of_clone);
    assert_eq!(rest.len(), (0..500).filter(|n| n * 7_919 % 50_000 >= 20_000).count());
}
