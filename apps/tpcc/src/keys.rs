//! The rows that a rival protocol (2PL, OCC) locks or validates.
//!
//! Two transactions conflict exactly if they share a key on a shard and one of them writes it. ITEM
//! has no keys, as no transaction writes it. Inserted rows have none: the rows of an order are
//! found through D_NEXT_O_ID, which is in the key of the district.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::input::{Selector, Transaction};
use crate::plan::shard_of;
use crate::warehouse::Warehouse;

/// The use of a row by a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowUse {
    /// The shard that has the row.
    pub shard: u16,
    /// The row, unique in its shard.
    pub key: u64,
    /// Whether the transaction writes the row; it may read it in any case.
    pub is_write: bool,
}

/// A table with keys: the highest byte of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Warehouse,
    District,
    Customer,
    /// The most recent order of a customer, which Order-Status reads.
    CustomerOrder,
    Stock,
}

/// Returns the key of a row: 8 bits for the table, 8 for D_ID, and 32 for C_ID or S_I_ID.
fn key(table: Table, d_id: u8, id: u32) -> u64 {
    (table as u64) << 56 | u64::from(d_id) << 48 | u64::from(id)
}

impl Transaction {
    /// Returns the rows that the transaction uses, ascending by shard and key, each once.
    ///
    /// `resolve` returns C_ID of the customer that a last name selects, from C_W_ID, C_D_ID and the
    /// number of the name ([`Warehouse::customer_by_last_name`]); a customer for which it returns
    /// `None` is left out. An order that will be rolled back has the keys of all its lines, as a
    /// rival finds the unused item while it executes.
    pub fn keys(&self, resolve: impl Fn(u16, u8, u16) -> Option<u32>) -> Vec<RowUse> {
        let mut uses: BTreeMap<(u16, u64), bool> = BTreeMap::new();
        let mut add = |w_id, key, is_write| {
            *uses.entry((shard_of(w_id), key)).or_default() |= is_write;
        };
        let id_of = |w_id, d_id, customer| match customer {
            Selector::Id(c_id) => Some(c_id),
            Selector::LastName(number) => resolve(w_id, d_id, number),
        };
        match self {
            Self::NewOrder(order) => {
                let (w_id, d_id) = (order.w_id, order.d_id);
                add(w_id, key(Table::Warehouse, 0, 0), false);
                add(w_id, key(Table::District, d_id, 0), true);
                add(w_id, key(Table::Customer, d_id, order.c_id), false);
                add(w_id, key(Table::CustomerOrder, d_id, order.c_id), true);
                for line in &order.lines {
                    add(line.supply_w_id, key(Table::Stock, 0, line.i_id), true);
                }
            }
            Self::Payment(payment) => {
                add(payment.w_id, key(Table::Warehouse, 0, 0), true);
                add(payment.w_id, key(Table::District, payment.d_id, 0), true);
                let (w_id, d_id) = (payment.c_w_id, payment.c_d_id);
                if let Some(c_id) = id_of(w_id, d_id, payment.customer) {
                    add(w_id, key(Table::Customer, d_id, c_id), true);
                }
            }
            Self::OrderStatus(status) => {
                let (w_id, d_id) = (status.w_id, status.d_id);
                if let Some(c_id) = id_of(w_id, d_id, status.customer) {
                    add(w_id, key(Table::Customer, d_id, c_id), false);
                    add(w_id, key(Table::CustomerOrder, d_id, c_id), false);
                }
            }
        }
        let uses = uses.into_iter();
        uses.map(|((shard, key), is_write)| RowUse { shard, key, is_write }).collect()
    }
}

impl Warehouse {
    /// Returns the rows of this shard that a transaction uses, ascending by key.
    pub fn keys(&self, transaction: &Transaction) -> Vec<RowUse> {
        let mut keys = transaction.keys(|w_id, d_id, number| {
            (w_id == self.w_id()).then(|| self.customer_by_last_name(d_id, number)).flatten()
        });
        keys.retain(|row| row.shard == shard_of(self.w_id()));
        keys
    }
}
