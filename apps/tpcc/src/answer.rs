//! The results that one shard returns for a part, and their encoding.

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Code, Sink, code, decode_all, encode_all};
use crate::input::LINES_MAX;
use crate::schema::{Address, Credit, DistInfo, OrderLineRow};
use crate::text::Text;

/// The results of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The part is malformed, names rows that the database does not have, or does not concern the
    /// shard. The part has changed nothing.
    Refused,
    /// Results of New-Order.
    NewOrder(NewOrderAnswer),
    /// Results of Payment.
    Payment(Box<PaymentAnswer>),
    /// Results of Order-Status.
    OrderStatus(OrderStatusAnswer),
}

/// The results of New-Order at one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrderAnswer {
    /// Whether an item id is not used, so that nothing has changed (clause 2.4.2.3).
    pub is_rolled_back: bool,
    /// Results of the home part; `None` at other shards.
    pub home: Option<HomeAnswer>,
    /// The stock of each line that this shard supplies, by line.
    pub stock: Vec<StockAnswer>,
}

/// The results of the home part of New-Order (clause 2.4.3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeAnswer {
    /// O_ID; after a rollback, the id that the order would have had.
    pub o_id: u32,
    /// O_ENTRY_D, the timestamp of the transaction that entered the order.
    pub entry: Timestamp,
    /// W_TAX, in basis points.
    pub w_tax_bp: u16,
    /// D_TAX, in basis points.
    pub d_tax_bp: u16,
    /// C_LAST, the last name.
    pub c_last: Text<16>,
    /// C_CREDIT, the credit status.
    pub credit: Credit,
    /// C_DISCOUNT, in basis points.
    pub discount_bp: u16,
    /// The lines; none after a rollback.
    pub lines: Vec<LineAnswer>,
}

/// What the home part of New-Order returns of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineAnswer {
    /// I_NAME, the name of the item.
    pub name: Text<24>,
    /// I_PRICE, in cents.
    pub price_cents: u32,
    /// OL_AMOUNT, in cents.
    pub amount_cents: u32,
}
code!(LineAnswer { name, price_cents, amount_cents });

/// What the supplying shard returns of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockAnswer {
    /// OL_NUMBER, from 1.
    pub number: u8,
    /// S_QUANTITY after the order.
    pub quantity: i16,
    /// Whether both I_DATA and S_DATA contain "ORIGINAL": brand-generic is "B", not "G" (clause
    /// 2.4.2.2).
    pub is_brand: bool,
    /// S_DIST_xx of the order's district.
    pub dist_info: DistInfo,
}
code!(StockAnswer { number, quantity, is_brand, dist_info });

/// The results of Payment at one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentAnswer {
    /// Results of the home part; `None` at another shard.
    pub home: Option<PayeeAnswer>,
    /// Results of the customer part; `None` at another shard.
    pub customer: Option<PayerAnswer>,
}
code!(PaymentAnswer { home, customer });

/// The results of the home part of Payment (clause 2.5.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayeeAnswer {
    /// Address of the warehouse.
    pub warehouse: Address,
    /// Address of the district.
    pub district: Address,
    /// H_DATE, the timestamp of the payment.
    pub date: Timestamp,
}
code!(PayeeAnswer { warehouse, district, date });

/// The results of the customer part of Payment (clause 2.5.3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayerAnswer {
    /// C_ID, the customer that was selected.
    pub c_id: u32,
    /// C_FIRST, the first name.
    pub first: Text<16>,
    /// C_MIDDLE, the middle name.
    pub middle: Text<2>,
    /// C_LAST, the last name.
    pub last: Text<16>,
    /// C_STREET_1 to C_ZIP.
    pub address: Address,
    /// C_PHONE, the telephone number, 16 digits.
    pub phone: Text<16>,
    /// C_SINCE, the date of the load.
    pub since: Timestamp,
    /// C_CREDIT, the credit status.
    pub credit: Credit,
    /// C_CREDIT_LIM, in cents.
    pub credit_limit_cents: i64,
    /// C_DISCOUNT, in basis points.
    pub discount_bp: u16,
    /// C_BALANCE after the payment, in cents.
    pub balance_cents: i64,
    /// The first 200 bytes of C_DATA after the payment, if the credit is bad; otherwise empty.
    pub data: Text<200>,
}
code!(PayerAnswer {
    c_id,
    first,
    middle,
    last,
    address,
    phone,
    since,
    credit,
    credit_limit_cents,
    discount_bp,
    balance_cents,
    data,
});

/// The results of Order-Status (clause 2.6.3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderStatusAnswer {
    /// C_ID, the customer that was selected.
    pub c_id: u32,
    /// C_FIRST, the first name.
    pub first: Text<16>,
    /// C_MIDDLE, the middle name.
    pub middle: Text<2>,
    /// C_LAST, the last name.
    pub last: Text<16>,
    /// C_BALANCE, in cents.
    pub balance_cents: i64,
    /// O_ID of the customer's most recent order.
    pub o_id: u32,
    /// O_ENTRY_D, the timestamp of the transaction that entered the order.
    pub entry: Timestamp,
    /// O_CARRIER_ID, the carrier. `None` until the order is delivered.
    pub carrier_id: Option<u8>,
    /// The lines of the order.
    pub lines: Vec<OrderLineRow>,
}

impl Answer {
    /// Returns the answer that `bytes` encode; `None` if they do not encode one. Never panics.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        <Self as Code>::parse(bytes)
    }

    /// Appends the encoding to `bytes`.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        self.encode(bytes);
    }
}

impl Code for Answer {
    fn encode(&self, sink: &mut impl Sink) {
        match self {
            Self::Refused => 0u8.encode(sink),
            Self::NewOrder(answer) => {
                1u8.encode(sink);
                answer.encode(sink);
            }
            Self::Payment(answer) => {
                2u8.encode(sink);
                answer.encode(sink);
            }
            Self::OrderStatus(answer) => {
                3u8.encode(sink);
                answer.encode(sink);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        match u8::decode(bytes)? {
            0 => Some(Self::Refused),
            1 => NewOrderAnswer::decode(bytes).map(Self::NewOrder),
            2 => PaymentAnswer::decode(bytes).map(Box::new).map(Self::Payment),
            3 => OrderStatusAnswer::decode(bytes).map(Self::OrderStatus),
            _ => None,
        }
    }
}

/// A list of at most one value per order line.
impl<T: Code> Code for Vec<T> {
    fn encode(&self, sink: &mut impl Sink) {
        encode_all(self, sink);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        decode_all(bytes, LINES_MAX)
    }
}

code!(NewOrderAnswer { is_rolled_back, home, stock });
code!(HomeAnswer { o_id, entry, w_tax_bp, d_tax_bp, c_last, credit, discount_bp, lines });
code!(OrderStatusAnswer {
    c_id,
    first,
    middle,
    last,
    balance_cents,
    o_id,
    entry,
    carrier_id,
    lines,
});
