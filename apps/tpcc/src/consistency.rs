//! Consistency conditions on a set of warehouses.
//!
//! Conditions 1 to 4 of clause 3.3.2 concern one warehouse each. They would hold even if a
//! transaction was applied at some of its shards only. So a complete set of warehouses is checked
//! for two more conditions of the specification (8 and 9, whose HISTORY spans shards) and for one
//! of our own (stock).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use thiserror::Error;

use crate::warehouse::{District, Warehouse};

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Condition {
    /// Clause 3.3.2.1: W_YTD = sum(D_YTD).
    One,
    /// Clause 3.3.2.2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID).
    Two,
    /// Clause 3.3.2.3: max(NO_O_ID) - min(NO_O_ID) + 1 is the number of NEW-ORDER rows.
    Three,
    /// Clause 3.3.2.4: sum(O_OL_CNT) is the number of ORDER-LINE rows.
    Four,
    /// Clause 3.3.2.8: W_YTD = sum(H_AMOUNT).
    Eight,
    /// Clause 3.3.2.9: D_YTD = sum(H_AMOUNT).
    Nine,
    /// S_YTD, S_ORDER_CNT and S_REMOTE_CNT agree with the ORDER-LINE rows since the load that name
    /// the stock row.
    Stock,
}

/// A condition that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("condition {condition:?} fails in warehouse {w_id}, row {row:?}: {left} is not {right}")]
pub struct Violation {
    /// The condition.
    pub condition: Condition,
    /// W_ID, the warehouse.
    pub w_id: u16,
    /// D_ID, or S_I_ID for [`Condition::Stock`]. `None` for a condition on the warehouse.
    pub row: Option<u32>,
    /// Left-hand side of the equation; cents for sums of money.
    pub left: i128,
    /// Right-hand side of the equation.
    pub right: i128,
}

/// Returns the first condition that fails, in the order of warehouses and conditions. Conditions 8,
/// 9 and stock are checked if `warehouses` are all warehouses of their database.
pub fn check(warehouses: &[&Warehouse]) -> Result<(), Violation> {
    for warehouse in warehouses {
        check_warehouse(warehouse)?;
    }
    let Some(scale) = warehouses.first().map(|warehouse| *warehouse.scale()) else {
        return Ok(());
    };
    let mut w_ids: Vec<u16> = warehouses.iter().map(|warehouse| warehouse.w_id()).collect();
    w_ids.sort_unstable();
    if !w_ids.into_iter().eq(1..=scale.warehouses) {
        return Ok(());
    }
    check_history(warehouses)?;
    check_stock(warehouses)
}

fn equal(
    (condition, w_id, row): (Condition, u16, Option<u32>),
    left: i128,
    right: i128,
) -> Result<(), Violation> {
    match left == right {
        true => Ok(()),
        false => Err(Violation { condition, w_id, row, left, right }),
    }
}

/// Checks conditions 1 to 4.
fn check_warehouse(warehouse: &Warehouse) -> Result<(), Violation> {
    let w_id = warehouse.w_id();
    let sum: i128 =
        warehouse.districts.iter().map(|district| i128::from(district.row.ytd_cents)).sum();
    equal((Condition::One, w_id, None), warehouse.row.ytd_cents.into(), sum)?;
    warehouse.districts.iter().try_for_each(|district| check_district(w_id, district))
}

fn check_district(w_id: u16, district: &District) -> Result<(), Violation> {
    let at = |condition| (condition, w_id, Some(district.row.d_id.into()));
    let last = i128::from(district.row.next_o_id) - 1;
    let orders = district.orders.iter().map(|order| i128::from(order.o_id));
    equal(at(Condition::Two), last, orders.max().unwrap_or_default())?;

    let new_orders = || district.new_orders.iter().map(|order| i128::from(order.o_id));
    // Without new orders neither condition says anything about the district.
    if let (Some(min), Some(max)) = (new_orders().min(), new_orders().max()) {
        equal(at(Condition::Two), last, max)?;
        equal(at(Condition::Three), max - min + 1, district.new_orders.len() as i128)?;
    }

    let counted: i128 = district.orders.iter().map(|order| i128::from(order.line_count)).sum();
    equal(at(Condition::Four), counted, district.lines.len() as i128)
}

/// Checks conditions 8 and 9.
fn check_history(warehouses: &[&Warehouse]) -> Result<(), Violation> {
    let mut paid: BTreeMap<(u16, u8), i128> = BTreeMap::new();
    for row in warehouses.iter().flat_map(|warehouse| &warehouse.history) {
        *paid.entry((row.w_id, row.d_id)).or_default() += i128::from(row.amount_cents);
    }
    for warehouse in warehouses {
        let w_id = warehouse.w_id();
        let sum: i128 = paid.range((w_id, 0)..=(w_id, u8::MAX)).map(|(_, cents)| cents).sum();
        equal((Condition::Eight, w_id, None), warehouse.row.ytd_cents.into(), sum)?;
        for district in &warehouse.districts {
            let d_id = district.row.d_id;
            let sum = paid.get(&(w_id, d_id)).copied().unwrap_or_default();
            let at = (Condition::Nine, w_id, Some(d_id.into()));
            equal(at, district.row.ytd_cents.into(), sum)?;
        }
    }
    Ok(())
}

/// Sums over the order lines since the load that name one stock row.
#[derive(Clone, Copy, Debug, Default)]
struct Supplied {
    quantity: i128,
    lines: i128,
    remote_lines: i128,
}

fn check_stock(warehouses: &[&Warehouse]) -> Result<(), Violation> {
    let mut supplied: BTreeMap<(u16, u32), Supplied> = BTreeMap::new();
    for warehouse in warehouses {
        let loaded = warehouse.scale().customers;
        let lines = warehouse.districts.iter().flat_map(|district| &district.lines);
        for line in lines.filter(|line| line.o_id > loaded) {
            let row = supplied.entry((line.supply_w_id, line.i_id)).or_default();
            row.quantity += i128::from(line.quantity);
            row.lines += 1;
            row.remote_lines += i128::from(line.supply_w_id != line.w_id);
        }
    }
    for warehouse in warehouses {
        let w_id = warehouse.w_id();
        for row in &warehouse.stock {
            let expected = supplied.get(&(w_id, row.i_id)).copied().unwrap_or_default();
            let at = (Condition::Stock, w_id, Some(row.i_id));
            equal(at, row.ytd.into(), expected.quantity)?;
            equal(at, row.order_count.into(), expected.lines)?;
            equal(at, row.remote_count.into(), expected.remote_lines)?;
        }
    }
    Ok(())
}
