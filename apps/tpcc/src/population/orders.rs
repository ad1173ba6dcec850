//! The orders of the initial database.

use alloc::vec::Vec;

use super::LOADED_AT;
use crate::database::Database;
use crate::random::{Stream, fill, permutation, stream, within};
use crate::schema::{NewOrderRow, OrderLineRow, OrderRow};

/// Maximum OL_AMOUNT of orders of the load that are not delivered (clause 4.3.3.1).
const AMOUNT_MAX_CENTS: u64 = 999_999;
/// OL_QUANTITY of the load (clause 4.3.3.1).
const QUANTITY: u8 = 5;

impl Database {
    /// Computes the tables ORDER, NEW-ORDER and ORDER-LINE of a district.
    pub(super) fn orders(
        &self,
        w_id: u16,
        d_id: u8,
    ) -> (Vec<OrderRow>, Vec<NewOrderRow>, Vec<OrderLineRow>) {
        let mut random = stream(self.seed, &[Stream::Orders as u64, w_id.into(), d_id.into()]);
        let delivered = self.scale.delivered_orders();
        let (mut orders, mut new_orders, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for (o_id, c_id) in (1..).zip(permutation(&mut random, self.scale.customers)) {
            let is_delivered = o_id <= delivered;
            let carrier_id = is_delivered.then(|| within(&mut random, 1, 10) as u8);
            let line_count = within(&mut random, 5, 15) as u8;
            orders.push(OrderRow {
                o_id,
                d_id,
                w_id,
                c_id,
                entry: LOADED_AT,
                carrier_id,
                line_count,
                is_all_local: true,
            });
            if !is_delivered {
                new_orders.push(NewOrderRow { o_id, d_id, w_id });
            }
            for number in 1..=line_count {
                let i_id = within(&mut random, 1, self.scale.items.into()) as u32;
                let amount_cents = match is_delivered {
                    true => 0,
                    false => within(&mut random, 1, AMOUNT_MAX_CENTS) as u32,
                };
                let mut dist_info = [0; 24];
                fill(&mut random, &mut dist_info);
                lines.push(OrderLineRow {
                    o_id,
                    d_id,
                    w_id,
                    number,
                    i_id,
                    supply_w_id: w_id,
                    delivery: is_delivered.then_some(LOADED_AT),
                    quantity: QUANTITY,
                    amount_cents,
                    dist_info,
                });
            }
        }
        (orders, new_orders, lines)
    }
}
