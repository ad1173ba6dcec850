//! Payment (clause 2.5.2) at one shard.
//!
//! The home part adds the amount to W_YTD and D_YTD; the customer part updates the customer and
//! inserts the HISTORY row. H_C_ID of a payment by last name is known at the customer's shard only,
//! so this shard has the row: HISTORY is partitioned by H_C_W_ID, which clause 1.4.4 allows. H_DATA
//! consists of W_NAME and D_NAME, which no transaction writes; the customer's shard computes them
//! from the seed of the load ([`crate::Database::history_data`]).

use alloc::format;

use onepipe_base::Timestamp;

use crate::answer::{PayeeAnswer, PayerAnswer, PaymentAnswer};
use crate::input::{Payment, Selector};
use crate::schema::{Credit, CustomerRow, HistoryRow};
use crate::text::Text;
use crate::warehouse::Warehouse;

/// Executes the part of a payment that concerns `warehouse`. Returns `None`, and changes nothing,
/// if none does.
pub(crate) fn execute(
    warehouse: &mut Warehouse,
    at: Timestamp,
    payment: &Payment,
) -> Option<PaymentAnswer> {
    let w_id = warehouse.w_id();
    let is_home = payment.w_id == w_id;
    let is_of_customer = payment.c_w_id == w_id;
    if !is_home && !is_of_customer {
        return None;
    }
    let customer = match is_of_customer {
        true => Some(pay(warehouse, at, payment)?),
        false => None,
    };
    let home = match is_home {
        true => Some(receive(warehouse, at, payment)?),
        false => None,
    };
    Some(PaymentAnswer { home, customer })
}

/// Adds the amount to the balances of the warehouse and the district.
fn receive(warehouse: &mut Warehouse, at: Timestamp, payment: &Payment) -> Option<PayeeAnswer> {
    let amount_cents = i64::from(payment.amount_cents);
    let row = &mut warehouse.district_mut(payment.d_id)?.row;
    row.ytd_cents = row.ytd_cents.saturating_add(amount_cents);
    let district = row.address;
    let row = &mut warehouse.row;
    row.ytd_cents = row.ytd_cents.saturating_add(amount_cents);
    Some(PayeeAnswer { warehouse: row.address, district, date: at })
}

/// Updates the customer, and inserts the HISTORY row.
fn pay(warehouse: &mut Warehouse, at: Timestamp, payment: &Payment) -> Option<PayerAnswer> {
    let Payment { w_id, d_id, c_w_id, c_d_id, customer, amount_cents } = *payment;
    let data = warehouse.database.history_data(w_id, d_id);
    let district = warehouse.district_mut(c_d_id)?;
    let c_id = match customer {
        Selector::Id(c_id) => c_id,
        Selector::LastName(number) => district.customer_by_last_name(number)?,
    };
    let row = district.customer_mut(c_id)?;
    row.balance_cents = row.balance_cents.saturating_sub(amount_cents.into());
    row.ytd_payment_cents = row.ytd_payment_cents.saturating_add(amount_cents.into());
    row.payment_count = row.payment_count.saturating_add(1);
    if row.credit == Credit::Bad {
        let (whole, cents) = (amount_cents / 100, amount_cents % 100);
        let entry = format!("{c_id} {c_d_id} {c_w_id} {d_id} {w_id} {whole}.{cents:02}|");
        row.data.insert_left(entry.as_bytes());
    }
    let answer = answer(row);
    district.activity_mut(c_id)?.changed = Some(at);
    warehouse.history.push(HistoryRow {
        c_id,
        c_d_id,
        c_w_id,
        d_id,
        w_id,
        date: at,
        amount_cents,
        data,
    });
    Some(answer)
}

fn answer(row: &CustomerRow) -> PayerAnswer {
    let mut data = Text::new();
    if row.credit == Credit::Bad {
        data.push(row.data.as_bytes());
    }
    PayerAnswer {
        c_id: row.c_id,
        first: row.first,
        middle: row.middle,
        last: row.last,
        address: row.address,
        phone: row.phone,
        since: row.since,
        credit: row.credit,
        credit_limit_cents: row.credit_limit_cents,
        discount_bp: row.discount_bp,
        balance_cents: row.balance_cents,
        data,
    }
}
