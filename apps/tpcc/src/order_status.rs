//! Order-Status (clause 2.6.2): a read of one shard.

use onepipe_base::Timestamp;

use crate::answer::OrderStatusAnswer;
use crate::input::{OrderStatus, Selector};
use crate::warehouse::Warehouse;

/// Returns the status of the customer's most recent order, and the timestamp of the transaction
/// that last changed a part of it. `None` if `warehouse` does not have the customer.
pub(crate) fn read(
    warehouse: &Warehouse,
    status: &OrderStatus,
) -> Option<(OrderStatusAnswer, Option<Timestamp>)> {
    if status.w_id != warehouse.w_id() {
        return None;
    }
    let district = warehouse.district(status.d_id)?;
    let c_id = match status.customer {
        Selector::Id(c_id) => c_id,
        Selector::LastName(number) => district.customer_by_last_name(number)?,
    };
    let customer = warehouse.customer(status.d_id, c_id)?;
    let activity = district.activity(c_id)?;
    let order = district.order(activity.last_o_id)?;
    let answer = OrderStatusAnswer {
        c_id,
        first: customer.first,
        middle: customer.middle,
        last: customer.last,
        balance_cents: customer.balance_cents,
        o_id: order.o_id,
        entry: order.entry,
        carrier_id: order.carrier_id,
        lines: district.lines_of(order.o_id).to_vec(),
    };
    Some((answer, activity.changed))
}
