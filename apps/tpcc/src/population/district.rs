//! The districts of the initial database, with their customers.

use alloc::vec;
use alloc::vec::Vec;

use rand_xoshiro::rand_core::Rng;

use super::{INITIAL_PAYMENT_CENTS, LOADED_AT, address};
use crate::database::Database;
use crate::random::{
    A_C_LAST, Constants, Stream, a_string, fill, is_chosen, last_name, n_string, nurand, stream,
    within,
};
use crate::scale::LAST_NAMES;
use crate::schema::{Credit, CustomerData, CustomerRow, DistrictRow, HistoryRow};
use crate::text::Text;
use crate::warehouse::{Activity, District};

/// Share of the customers with bad credit, in percent (clause 4.3.3.1).
const BAD_CREDIT_PERCENT: u8 = 10;

impl Database {
    pub(super) fn district(&self, w_id: u16, d_id: u8) -> District {
        let mut random = stream(self.seed, &[Stream::District as u64, w_id.into(), d_id.into()]);
        let row = DistrictRow {
            d_id,
            w_id,
            name: self.district_name(w_id, d_id),
            address: address(&mut random),
            tax_bp: within(&mut random, 0, 2_000) as u16,
            ytd_cents: self.district_ytd_cents(),
            next_o_id: self.scale.customers + 1,
        };
        let c_last = Constants::of_load(self.seed).c_last;
        let customers: Vec<CustomerRow> = (1..=self.scale.customers)
            .map(|c_id| customer(&mut random, c_last, (w_id, d_id, c_id)))
            .collect();
        let by_name = District::sort_by_name(&customers);
        let (orders, new_orders, lines) = self.orders(w_id, d_id);
        let mut activities = vec![Activity { last_o_id: 0, changed: None }; customers.len()];
        for order in &orders {
            // The orders' customers are a permutation of all.
            activities[order.c_id as usize - 1].last_o_id = order.o_id;
        }
        District { row, customers, activities, by_name, orders, new_orders, lines }
    }

    pub(super) fn history(&self, w_id: u16, d_id: u8) -> Vec<HistoryRow> {
        let key = [Stream::District as u64, w_id.into(), d_id.into(), 1];
        let mut random = stream(self.seed, &key);
        let row = |c_id| HistoryRow {
            c_id,
            c_d_id: d_id,
            c_w_id: w_id,
            d_id,
            w_id,
            date: LOADED_AT,
            amount_cents: INITIAL_PAYMENT_CENTS,
            data: a_string(&mut random, 12, 24),
        };
        (1..=self.scale.customers).map(row).collect()
    }
}

fn customer(random: &mut impl Rng, c_last: u64, (w_id, d_id, c_id): (u16, u8, u32)) -> CustomerRow {
    let names = u32::from(LAST_NAMES);
    let name = match c_id <= names {
        true => u64::from(c_id - 1),
        false => nurand(random, (A_C_LAST, c_last), (0, u64::from(LAST_NAMES) - 1)),
    };
    let mut data = vec![0; within(random, 300, 500) as usize];
    fill(random, &mut data);
    let is_bad = is_chosen(random, BAD_CREDIT_PERCENT);
    CustomerRow {
        c_id,
        d_id,
        w_id,
        first: a_string(random, 8, 16),
        middle: Text::of(b"OE").expect("two characters fit"),
        last: last_name(name as u16),
        address: address(random),
        phone: n_string(random, 16),
        since: LOADED_AT,
        credit: if is_bad { Credit::Bad } else { Credit::Good },
        credit_limit_cents: 5_000_000,
        discount_bp: within(random, 0, 5_000) as u16,
        balance_cents: -i64::from(INITIAL_PAYMENT_CENTS),
        ytd_payment_cents: INITIAL_PAYMENT_CENTS.into(),
        payment_count: 1,
        delivery_count: 0,
        data: CustomerData::new(data),
    }
}
