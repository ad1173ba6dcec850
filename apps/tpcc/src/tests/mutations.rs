//! Each condition fails for a corrupted row: the checks can fail.

use super::{SCALE, Shards};
use crate::random::stream;
use crate::{Condition, Warehouse};

/// Corrupts warehouse 3 after a run. Returns the condition that fails, its warehouse and its row.
fn failed(corrupt: impl Fn(&mut Warehouse)) -> (Condition, u16, Option<u32>) {
    let mut shards = Shards::new(SCALE, 8);
    shards.run_random(&mut stream(8, &[]), 400);
    assert_eq!(shards.check(), Ok(()));
    corrupt(&mut shards.warehouses[2]);
    let violation = shards.check().expect_err("a row is corrupted");
    assert_ne!(violation.left, violation.right);
    (violation.condition, violation.w_id, violation.row)
}

#[test]
fn condition_1_fails_without_a_cent_in_w_ytd() {
    let found = failed(|warehouse| warehouse.row.ytd_cents -= 1);
    assert_eq!(found, (Condition::One, 3, None));
}

#[test]
fn condition_2_fails_when_an_order_id_is_skipped() {
    let found = failed(|warehouse| warehouse.districts[1].row.next_o_id += 1);
    assert_eq!(found, (Condition::Two, 3, Some(2)));
}

#[test]
fn condition_2_fails_when_the_last_new_order_is_lost() {
    let found = failed(|warehouse| {
        warehouse.districts[0].new_orders.pop();
    });
    assert_eq!(found, (Condition::Two, 3, Some(1)));
}

#[test]
fn condition_3_fails_when_a_new_order_is_lost() {
    let found = failed(|warehouse| {
        warehouse.districts[2].new_orders.remove(4);
    });
    assert_eq!(found, (Condition::Three, 3, Some(3)));
}

#[test]
fn condition_4_fails_when_an_order_line_is_lost() {
    let found = failed(|warehouse| {
        warehouse.districts[0].lines.pop();
    });
    assert_eq!(found, (Condition::Four, 3, Some(1)));
}

#[test]
fn condition_8_fails_when_a_payment_has_no_history() {
    let found = failed(|warehouse| {
        let local = warehouse.history.iter().rposition(|row| row.w_id == 3);
        warehouse.history.remove(local.expect("customers pay at home"));
    });
    assert_eq!(found, (Condition::Eight, 3, None));
}

#[test]
fn condition_9_fails_when_history_names_another_district() {
    let found = failed(|warehouse| {
        let local = warehouse.history.iter_mut().rfind(|row| row.w_id == 3 && row.d_id == 2);
        local.expect("customers pay at home").d_id = 3;
    });
    assert_eq!(found, (Condition::Nine, 3, Some(2)));
}

#[test]
fn stock_fails_when_a_remote_part_is_lost() {
    let found = failed(|warehouse| warehouse.stock[6].remote_count += 1);
    assert_eq!(found, (Condition::Stock, 3, Some(7)));
}
