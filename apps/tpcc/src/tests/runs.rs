//! Random runs: consistency, equality of replicas, saved states.

use alloc::vec::Vec;

use onepipe_transaction::State;

use super::{SCALE, Shards};
use crate::random::stream;
use crate::{Mix, Outcome, RowUse, Scale, Transaction};

#[test]
fn conditions_hold_after_the_load_and_random_runs() {
    for seed in 0..4 {
        let mut shards = Shards::new(SCALE, seed);
        assert_eq!(shards.check(), Ok(()), "seed {seed}");
        let mut random = stream(seed, &[99]);
        for _ in 0..3 {
            shards.run_random(&mut random, 1_000);
            assert_eq!(shards.check(), Ok(()), "seed {seed}");
        }
    }
}

#[test]
fn conditions_hold_at_the_smallest_scale() {
    let smallest = Scale { warehouses: 1, districts: 1, customers: 1, items: 1 };
    let mut shards = Shards::new(smallest, 3);
    shards.run_random(&mut stream(3, &[]), 200);
    assert_eq!(shards.check(), Ok(()));
}

#[test]
fn replicas_have_equal_digests() {
    let (mut one, mut other) = (Shards::new(SCALE, 5), Shards::new(SCALE, 5));
    assert_eq!(one.digests(), other.digests());
    one.run_random(&mut stream(1, &[]), 500);
    assert_ne!(one.digests(), other.digests());
    other.run_random(&mut stream(1, &[]), 500);
    assert_eq!(one.digests(), other.digests());
    assert_eq!(one, other);
    assert_ne!(Shards::new(SCALE, 6).digests(), Shards::new(SCALE, 5).digests());
}

#[test]
fn saved_states_load_and_continue_equally() {
    let mut shards = Shards::new(SCALE, 5);
    let mut fresh = shards.clone();
    shards.run_random(&mut stream(1, &[]), 500);
    for (to, from) in fresh.warehouses.iter_mut().zip(&shards.warehouses) {
        let mut bytes = Vec::new();
        from.save(&mut bytes);
        assert!(to.load(&bytes));
    }
    fresh.at_ns = shards.at_ns;
    assert_eq!(fresh, shards);
    for shards in [&mut fresh, &mut shards] {
        shards.run_random(&mut stream(2, &[]), 500);
    }
    assert_eq!(fresh.digests(), shards.digests());
}

#[test]
fn states_of_other_warehouses_are_refused() {
    let mut shards = Shards::new(SCALE, 5);
    let before = shards.digests();
    let mut bytes = Vec::new();
    shards.warehouses[1].save(&mut bytes);
    assert!(!shards.warehouses[0].load(&bytes), "another warehouse");
    bytes.clear();
    Shards::new(SCALE, 6).warehouses[0].save(&mut bytes);
    assert!(!shards.warehouses[0].load(&bytes), "another seed");
    bytes.clear();
    Shards::new(Scale { items: 201, ..SCALE }, 5).warehouses[0].save(&mut bytes);
    assert!(!shards.warehouses[0].load(&bytes), "another scale");
    assert_eq!(shards.digests(), before);
}

#[test]
fn all_kinds_of_outcomes_occur() {
    let mut shards = Shards::new(SCALE, 5);
    let mut random = stream(1, &[]);
    let terminal = shards.terminal(2, Default::default());
    let (mut ordered, mut rolled_back, mut paid) = (0, 0, 0);
    for _ in 0..2_000 {
        match shards.run(&terminal.transaction(&mut random)).expect("the input is valid") {
            Outcome::Ordered(_) => ordered += 1,
            Outcome::RolledBack(_) => rolled_back += 1,
            Outcome::Paid(_) => paid += 1,
            Outcome::Status(_) => unreachable!("the mix has no Order-Status"),
        }
    }
    assert!(ordered > 900 && rolled_back > 0 && paid > 900, "{ordered} {rolled_back} {paid}");
}

/// Executes two transactions in this order, each at its own timestamp in any order.
fn in_order(start: &Shards, order: [(&Transaction, u64); 2]) -> Vec<u64> {
    let mut shards = start.clone();
    for (transaction, at_ns) in order {
        shards.at_ns = at_ns;
        shards.run(transaction).expect("the input is valid");
    }
    shards.digests()
}

#[test]
fn transactions_without_common_keys_commute() {
    let scale = Scale { warehouses: 3, districts: 2, customers: 20, items: 30 };
    let start = Shards::new(scale, 9);
    let often_remote =
        Mix { remote_line_percent: 30, remote_payment_percent: 50, ..Mix::default() };
    let terminals = [1, 2].map(|w_id| start.terminal(w_id, often_remote));
    let mut random = stream(9, &[]);
    let (mut free, mut differing) = (0, 0);
    for pair in 0..400 {
        let one = terminals[0].transaction(&mut random);
        let other = terminals[pair % 2].transaction(&mut random);
        let orders = [[(&one, 10), (&other, 20)], [(&other, 20), (&one, 10)]];
        let [forward, backward] = orders.map(|order| in_order(&start, order));
        let has_conflict = start.warehouses.iter().any(|warehouse| {
            let (one, other) = (warehouse.keys(&one), warehouse.keys(&other));
            let is_shared = |a: &RowUse, b: &RowUse| a.key == b.key && (a.is_write || b.is_write);
            one.iter().any(|a| other.iter().any(|b| is_shared(a, b)))
        });
        free += u32::from(!has_conflict);
        differing += u32::from(forward != backward);
        assert!(has_conflict || forward == backward, "{one:?} {other:?}");
    }
    assert!(free > 50 && differing > 10, "{free} {differing}");
}
