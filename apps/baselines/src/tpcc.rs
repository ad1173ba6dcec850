//! The rows of TPC-C.

use alloc::vec::Vec;

use onepipe_tpcc::{Transaction, Warehouse};

use crate::keyed::{KeyUse, Keyed};

impl Keyed for Warehouse {
    fn uses(part: &[u8]) -> (bool, bool) {
        let writes = Transaction::parse(part).is_none_or(|transaction| transaction.is_write());
        (true, writes)
    }

    fn keys(&self, part: &[u8]) -> Vec<KeyUse> {
        let Some(transaction) = Transaction::parse(part) else { return Vec::new() };
        let rows = Warehouse::keys(self, &transaction).into_iter();
        rows.map(|row| KeyUse { key: row.key, is_write: row.is_write }).collect()
    }

    /// Appends nothing: the results of New-Order and Payment are those of their execution. Of rows
    /// that they do not write they read columns that no transaction writes: W_TAX, C_DISCOUNT,
    /// C_LAST and C_CREDIT.
    fn read_values(&self, _: &[u8], _: &mut Vec<u8>) {}
}
