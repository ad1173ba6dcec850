//! The reorder stage allocates nothing in the steady state.

use allocation_counter::measure;
use onepipe_base::Timestamp;
use onepipe_endpoint::reorder::{Entry, Reorder, ReorderConfig};

/// 300 messages in 1 us, then one per us, then two that are hours ahead: slots of every width are
/// opened, sorted in each way, returned and resized.
fn round(reorder: &mut Reorder<[u32; 4]>, now: &mut u64, order: &mut u64) {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let mut insert = |reorder: &mut Reorder<_>, timestamp| {
        *order += 1;
        let timestamp = Timestamp::from_ns(timestamp);
        reorder.insert(Entry { timestamp, order: *order, value: [0; 4] });
    };
    for n in 0..300 {
        insert(reorder, *now + n * 211 % 1_000);
        while reorder.pop(Timestamp::from_ns(*now)).is_some() {}
    }
    for n in 0..300 {
        insert(reorder, *now + 125_000 + n * 7 % 50);
        *now += 1_000;
        while reorder.pop(Timestamp::from_ns(*now)).is_some() {}
    }
    insert(reorder, *now + HOUR_NS);
    insert(reorder, *now + 39 * HOUR_NS);
    *now += 40 * HOUR_NS;
    while reorder.pop(Timestamp::from_ns(*now)).is_some() {}
    assert!(reorder.is_empty());
}

#[test]
fn steady_state_allocates_nothing() {
    let mut reorder = Reorder::new(ReorderConfig { entries: 0 });
    let (mut now, mut order) = (1 << 50, 0);
    let mut rounds =
        |count| measure(|| (0..count).for_each(|_| round(&mut reorder, &mut now, &mut order)));
    assert!(rounds(3).count_total > 0, "the first rounds allocate entries");
    assert_eq!(rounds(100).count_total, 0);
}

#[test]
fn configured_capacity_avoids_allocation() {
    let mut reorder = Reorder::new(ReorderConfig { entries: 5_000 });
    let count = measure(|| {
        for n in 0..5_000u64 {
            let timestamp = Timestamp::from_ns(n * 4_999 % 1_000_000);
            reorder.insert(Entry { timestamp, order: n, value: [0; 4] });
        }
    });
    assert_eq!(count.count_total, 0);
}
