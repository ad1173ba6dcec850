//! New-Order (clause 2.4.2) at one shard.
//!
//! The home part enters the order; the part of each supplying warehouse takes the items from its
//! stock. No part needs an output of another:
//! - Prices, and whether an item id is used, are read from the shard's own copy of ITEM.
//! - OL_DIST_INFO is the column S_DIST_xx of the supplying warehouse's stock row. No transaction
//!   of the specification writes this column. So the home shard computes a remote one from the seed
//!   of the load ([`crate::Database::dist_info`]), as if the column were replicated at all shards,
//!   which clause 1.4.6 allows. The supplying shard returns its stored column, too.
//!
//! An order with an unused item id is rolled back. As clause 2.4.2.3 demands, all its other items
//! are processed; the results are dropped instead of stored, so there is nothing to undo.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::answer::{HomeAnswer, LineAnswer, NewOrderAnswer, StockAnswer};
use crate::input::{Line, NewOrder};
use crate::schema::{DistInfo, NewOrderRow, OrderLineRow, OrderRow, StockRow, is_original};
use crate::warehouse::Warehouse;

/// S_QUANTITY stays at least this much above what an order takes, or is refilled (clause 2.4.2.2).
const RESERVE: i16 = 10;
/// What a refill adds to S_QUANTITY (clause 2.4.2.2).
const REFILL: i16 = 91;

/// Executes the part of an order that concerns `warehouse`. Returns `None`, and changes nothing, if
/// none does.
pub(crate) fn execute(
    warehouse: &mut Warehouse,
    at: Timestamp,
    order: &NewOrder,
) -> Option<NewOrderAnswer> {
    let is_home = order.w_id == warehouse.w_id();
    if !is_home && !order.lines.iter().any(|line| line.supply_w_id == warehouse.w_id()) {
        return None;
    }
    let is_rolled_back = order.is_rolled_back(warehouse.scale());
    let home = match is_home {
        true => Some(enter(warehouse, at, order, is_rolled_back)?),
        false => None,
    };
    let stock = supply(warehouse, order, is_rolled_back);
    Some(NewOrderAnswer { is_rolled_back, home, stock })
}

/// Reads the columns that the home part returns, without the lines.
fn read_home_columns(warehouse: &Warehouse, at: Timestamp, order: &NewOrder) -> Option<HomeAnswer> {
    let district = warehouse.district_row(order.d_id)?;
    let customer = warehouse.customer(order.d_id, order.c_id)?;
    Some(HomeAnswer {
        o_id: district.next_o_id,
        entry: at,
        w_tax_bp: warehouse.row.tax_bp,
        d_tax_bp: district.tax_bp,
        c_last: customer.last,
        credit: customer.credit,
        discount_bp: customer.discount_bp,
        lines: Vec::new(),
    })
}

/// Inserts the order with its lines, and increments D_NEXT_O_ID. A rollback processes all valid
/// items, too, and writes nothing.
fn enter(
    warehouse: &mut Warehouse,
    at: Timestamp,
    order: &NewOrder,
    is_rolled_back: bool,
) -> Option<HomeAnswer> {
    let NewOrder { w_id, d_id, c_id, ref lines } = *order;
    let mut answer = read_home_columns(warehouse, at, order)?;
    let o_id = answer.o_id;
    let mut rows = Vec::with_capacity(lines.len());
    for (line, number) in lines.iter().zip(1..) {
        let Some(item) = warehouse.catalogue.item(line.i_id) else { continue };
        let amount_cents = item.price_cents * u32::from(line.quantity);
        let price_cents = item.price_cents;
        answer.lines.push(LineAnswer { name: item.name, price_cents, amount_cents });
        rows.push(OrderLineRow {
            o_id,
            d_id,
            w_id,
            number,
            i_id: line.i_id,
            supply_w_id: line.supply_w_id,
            delivery: None,
            quantity: line.quantity,
            amount_cents,
            dist_info: dist_info(warehouse, d_id, line)?,
        });
    }
    if is_rolled_back {
        answer.lines.clear();
        return Some(answer);
    }
    let district = warehouse.district_mut(d_id)?;
    let activity = district.activity_mut(c_id)?;
    activity.last_o_id = o_id;
    activity.changed = Some(at);
    // Memory is exhausted long before a district has 2^32 orders.
    district.row.next_o_id = o_id.saturating_add(1);
    district.orders.push(OrderRow {
        o_id,
        d_id,
        w_id,
        c_id,
        entry: at,
        carrier_id: None,
        line_count: rows.len() as u8,
        is_all_local: lines.iter().all(|line| line.supply_w_id == w_id),
    });
    district.new_orders.push(NewOrderRow { o_id, d_id, w_id });
    district.lines.extend(rows);
    Some(answer)
}

/// Returns S_DIST_xx of the stock row that supplies `line`.
fn dist_info(warehouse: &Warehouse, d_id: u8, line: &Line) -> Option<DistInfo> {
    match line.supply_w_id == warehouse.w_id() {
        true => dist_column(warehouse.stock_row(line.i_id)?, d_id),
        false => Some(warehouse.database.dist_info(line.supply_w_id, line.i_id, d_id)),
    }
}

fn dist_column(row: &StockRow, d_id: u8) -> Option<DistInfo> {
    row.dist.get(usize::from(d_id).checked_sub(1)?).copied()
}

/// Updates the stock row of each line that this warehouse supplies. A rollback updates copies, and
/// returns nothing.
fn supply(warehouse: &mut Warehouse, order: &NewOrder, is_rolled_back: bool) -> Vec<StockAnswer> {
    let w_id = warehouse.w_id();
    let mut answers = Vec::new();
    for (line, number) in order.lines.iter().zip(1..) {
        if line.supply_w_id != w_id {
            continue;
        }
        let is_original_item =
            warehouse.catalogue.item(line.i_id).is_some_and(|item| is_original(&item.data));
        let Some(row) = warehouse.stock_row_mut(line.i_id) else { continue };
        let mut copy;
        let row = if is_rolled_back {
            copy = *row;
            &mut copy
        } else {
            row
        };
        take(row, line.quantity, order.w_id != w_id);
        answers.push(StockAnswer {
            number,
            quantity: row.quantity,
            is_brand: is_original_item && is_original(&row.data),
            dist_info: dist_column(row, order.d_id).unwrap_or_default(),
        });
    }
    if is_rolled_back {
        answers.clear();
    }
    answers
}

/// Takes `quantity` from a stock row (clause 2.4.2.2).
fn take(row: &mut StockRow, quantity: u8, is_remote: bool) {
    let ordered = i16::from(quantity);
    let rest = row.quantity.saturating_sub(ordered);
    row.quantity = if rest >= RESERVE { rest } else { rest.saturating_add(REFILL) };
    row.ytd = row.ytd.saturating_add(quantity.into());
    row.order_count = row.order_count.saturating_add(1);
    row.remote_count = row.remote_count.saturating_add(is_remote.into());
}
