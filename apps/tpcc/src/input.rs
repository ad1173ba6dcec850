//! The inputs of transactions, and their encoding.
//!
//! [`Transaction::parse`] never panics, and accepts the ranges of clauses 2.4.1, 2.5.1 and 2.6.1
//! only. [`Transaction::is_valid`] checks ids against the sizes of the tables.

use alloc::vec::Vec;

use crate::codec::{Code, Sink, code};
use crate::scale::{LAST_NAMES, Scale};

/// Minimum number of order lines (clause 2.4.1.3).
pub const LINES_MIN: usize = 5;
/// Maximum number of order lines (clause 2.4.1.3).
pub const LINES_MAX: usize = 15;
/// Maximum OL_QUANTITY (clause 2.4.1.5). The minimum is 1.
pub const QUANTITY_MAX: u8 = 10;
/// Minimum H_AMOUNT, in cents (clause 2.5.1.3).
pub const AMOUNT_MIN_CENTS: u32 = 100;
/// Maximum H_AMOUNT, in cents (clause 2.5.1.3).
pub const AMOUNT_MAX_CENTS: u32 = 500_000;
/// Maximum length of an encoded transaction, in bytes.
pub const TRANSACTION_MAX_BYTES: usize = 1 + 8 + LINES_MAX * 7;

/// A transaction's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Enters an order.
    NewOrder(NewOrder),
    /// Pays into a customer's account.
    Payment(Payment),
    /// Reads a customer's most recent order.
    OrderStatus(OrderStatus),
}

/// The input of New-Order (clause 2.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// W_ID of the home warehouse.
    pub w_id: u16,
    /// D_ID of the district and of the customer.
    pub d_id: u8,
    /// C_ID of the customer.
    pub c_id: u32,
    /// The lines; [`LINES_MIN`] to [`LINES_MAX`].
    pub lines: Vec<Line>,
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// OL_I_ID. An id that no item has rolls the whole order back (clause 2.4.2.3).
    pub i_id: u32,
    /// OL_SUPPLY_W_ID, the warehouse that supplies the item.
    pub supply_w_id: u16,
    /// OL_QUANTITY, 1 to [`QUANTITY_MAX`].
    pub quantity: u8,
}
code!(Line { i_id, supply_w_id, quantity });

/// How a transaction selects a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By C_ID.
    Id(u32),
    /// By C_LAST, given as the number of the name (clause 4.3.2.3), 0 to 999. The customer in the
    /// middle of those of the name is selected (clause 2.5.2.2).
    LastName(u16),
}

/// The input of Payment (clause 2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payment {
    /// W_ID of the home warehouse.
    pub w_id: u16,
    /// D_ID of the home district.
    pub d_id: u8,
    /// C_W_ID of the customer.
    pub c_w_id: u16,
    /// C_D_ID of the customer.
    pub c_d_id: u8,
    /// The customer.
    pub customer: Selector,
    /// H_AMOUNT, in cents, [`AMOUNT_MIN_CENTS`] to [`AMOUNT_MAX_CENTS`].
    pub amount_cents: u32,
}
code!(Payment { w_id, d_id, c_w_id, c_d_id, customer, amount_cents });

/// The input of Order-Status (clause 2.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStatus {
    /// C_W_ID of the customer.
    pub w_id: u16,
    /// C_D_ID of the customer.
    pub d_id: u8,
    /// The customer.
    pub customer: Selector,
}
code!(OrderStatus { w_id, d_id, customer });

impl Transaction {
    /// Returns the transaction that `bytes` encode; `None` if they do not encode one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        <Self as Code>::parse(bytes)
    }

    /// Returns the encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TRANSACTION_MAX_BYTES);
        self.encode(&mut bytes);
        bytes
    }

    /// Returns whether a database of this scale has all rows that the transaction names, apart from
    /// items. All shards decide alike, from the input and the scale alone.
    pub fn is_valid(&self, scale: &Scale) -> bool {
        let has = |w_id, d_id| scale.has_warehouse(w_id) && scale.has_district(d_id);
        match self {
            Self::NewOrder(order) => {
                has(order.w_id, order.d_id)
                    && scale.has_customer(order.c_id)
                    && order.lines.iter().all(|line| scale.has_warehouse(line.supply_w_id))
            }
            Self::Payment(payment) => {
                has(payment.w_id, payment.d_id)
                    && has(payment.c_w_id, payment.c_d_id)
                    && payment.customer.is_valid(scale)
            }
            Self::OrderStatus(status) => {
                has(status.w_id, status.d_id) && status.customer.is_valid(scale)
            }
        }
    }
}

impl NewOrder {
    /// Returns whether a line names an item that does not exist, so that the order has no effect on
    /// any shard (clause 2.4.2.3). All shards decide alike, from the input and the scale alone.
    pub fn is_rolled_back(&self, scale: &Scale) -> bool {
        self.lines.iter().any(|line| !scale.has_item(line.i_id))
    }
}

impl Selector {
    fn is_valid(self, scale: &Scale) -> bool {
        match self {
            Self::Id(c_id) => scale.has_customer(c_id),
            Self::LastName(number) => number < scale.last_names(),
        }
    }
}

impl Code for Transaction {
    fn encode(&self, sink: &mut impl Sink) {
        match self {
            Self::NewOrder(order) => {
                0u8.encode(sink);
                order.encode(sink);
            }
            Self::Payment(payment) => {
                1u8.encode(sink);
                payment.encode(sink);
            }
            Self::OrderStatus(status) => {
                2u8.encode(sink);
                status.encode(sink);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match u8::decode(bytes)? {
            0 => NewOrder::decode(bytes).map(Self::NewOrder),
            1 => Payment::decode(bytes)
                .filter(|it| (AMOUNT_MIN_CENTS..=AMOUNT_MAX_CENTS).contains(&it.amount_cents))
                .map(Self::Payment),
            2 => OrderStatus::decode(bytes).map(Self::OrderStatus),
            _ => None,
        }
    }
}

impl Code for NewOrder {
    fn encode(&self, sink: &mut impl Sink) {
        let Self { w_id, d_id, c_id, lines } = self;
        w_id.encode(sink);
        d_id.encode(sink);
        c_id.encode(sink);
        // More lines than the maximum are refused by the parser.
        (lines.len() as u8).encode(sink);
        lines.iter().for_each(|line| line.encode(sink));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (w_id, d_id, c_id) = (Code::decode(bytes)?, Code::decode(bytes)?, Code::decode(bytes)?);
        let length = usize::from(u8::decode(bytes)?);
        if !(LINES_MIN..=LINES_MAX).contains(&length) {
            return None;
        }
        let line = |_| Line::decode(bytes).filter(|it| (1..=QUANTITY_MAX).contains(&it.quantity));
        let lines = (0..length).map(line).collect::<Option<Vec<Line>>>()?;
        Some(Self { w_id, d_id, c_id, lines })
    }
}

impl Code for Selector {
    fn encode(&self, sink: &mut impl Sink) {
        match self {
            Self::Id(c_id) => {
                0u8.encode(sink);
                c_id.encode(sink);
            }
            Self::LastName(number) => {
                1u8.encode(sink);
                number.encode(sink);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match u8::decode(bytes)? {
            0 => u32::decode(bytes).map(Self::Id),
            1 => u16::decode(bytes).filter(|number| *number < LAST_NAMES).map(Self::LastName),
            _ => None,
        }
    }
}
