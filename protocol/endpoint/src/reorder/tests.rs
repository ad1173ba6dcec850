//! The reorder stage against a sorted map.

use alloc::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn entry(ts: u64, order: u64) -> Entry<u64> {
    Entry { timestamp: Timestamp::from_ns(ts), order, value: ts ^ order }
}

/// One step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// Inserts this many entries this far behind the barrier, this far apart.
    Insert { ahead: u64, apart: u64, count: u64 },
    /// Moves the barrier on and pops at most this many.
    Pop { jump: u64, count: usize },
}

/// Distances of every magnitude, from 0 to 39 h and beyond.
fn distance() -> impl Strategy<Value = u64> {
    (0u32..52, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (distance(), 0u64..300, 1u64..200).prop_map(|(ahead, apart, count)| Step::Insert {
            ahead,
            apart,
            count
        }),
        (0u64..3_000, 0u64..100, 1u64..5).prop_map(|(ahead, apart, count)| Step::Insert {
            ahead,
            apart,
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
            Step::Insert { ahead, apart, count } => {
                for n in 0..count {
                    // Orders come neither ascending nor descending.
                    order += 1;
                    let order = order ^ 5;
                    let new = entry(barrier + ahead + n * apart, order);
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
    fn entries_come_out_as_from_a_sorted_map(
        start in prop_oneof![Just(0), Just((1u64 << 48) - 1_000), Just((1 << 50) + 12_345), any::<u64>().prop_map(|n| n >> 2)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(start, &steps);
    }
}
