//! The rows of the nine tables, with all columns of clause 1.3.1 of the specification.
//!
//! Money is in cents. Rates are in basis points (ten-thousandths), the precision that the
//! specification gives to them. Dates are timestamps of transactions.

use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::codec::{Code, Sink, code};
use crate::text::Text;

/// Maximum length of C_DATA, in bytes (clause 1.3.1).
pub const C_DATA_MAX: usize = 500;

/// The text of a column S_DIST_xx or OL_DIST_INFO (clause 1.3.1: fixed text, size 24).
pub type DistInfo = [u8; 24];

/// The columns `*_STREET_1` to `*_ZIP` of WAREHOUSE, DISTRICT and CUSTOMER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// First line of the street.
    pub street_1: Text<20>,
    /// Second line of the street.
    pub street_2: Text<20>,
    /// Name of the city.
    pub city: Text<20>,
    /// Two letters.
    pub state: Text<2>,
    /// Four digits and "11111" (clause 4.3.2.7).
    pub zip: Text<9>,
}
code!(Address { street_1, street_2, city, state, zip });

/// The row of WAREHOUSE that a shard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarehouseRow {
    /// W_ID, from 1.
    pub w_id: u16,
    /// W_NAME, the name of the warehouse.
    pub name: Text<10>,
    /// W_STREET_1 to W_ZIP.
    pub address: Address,
    /// W_TAX, in basis points.
    pub tax_bp: u16,
    /// W_YTD, the year-to-date balance, in cents.
    pub ytd_cents: i64,
}
code!(WarehouseRow { w_id, name, address, tax_bp, ytd_cents });

/// A row of DISTRICT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistrictRow {
    /// D_ID, from 1.
    pub d_id: u8,
    /// D_W_ID, the warehouse of the district.
    pub w_id: u16,
    /// D_NAME, the name of the district.
    pub name: Text<10>,
    /// D_STREET_1 to D_ZIP.
    pub address: Address,
    /// D_TAX, in basis points.
    pub tax_bp: u16,
    /// D_YTD, the year-to-date balance, in cents.
    pub ytd_cents: i64,
    /// D_NEXT_O_ID, the id of the next order.
    pub next_o_id: u32,
}
code!(DistrictRow { d_id, w_id, name, address, tax_bp, ytd_cents, next_o_id });

/// C_CREDIT: whether payments add to C_DATA (clause 2.5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    /// C_CREDIT is "GC".
    Good,
    /// C_CREDIT is "BC".
    Bad,
}

impl Code for Credit {
    fn encode(&self, sink: &mut impl Sink) {
        (*self == Self::Bad).encode(sink);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        bool::decode(bytes).map(|is_bad| if is_bad { Self::Bad } else { Self::Good })
    }
}

/// C_DATA: at most [`C_DATA_MAX`] bytes of miscellaneous information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomerData(Vec<u8>);

impl CustomerData {
    /// Returns a column with the first [`C_DATA_MAX`] of `bytes`.
    pub fn new(mut bytes: Vec<u8>) -> Self {
        bytes.truncate(C_DATA_MAX);
        Self(bytes)
    }

    /// Inserts `bytes` at the left, and discards what is shifted out at the right (clause 2.5.2.2).
    pub fn insert_left(&mut self, bytes: &[u8]) {
        self.0.splice(..0, bytes.iter().copied());
        self.0.truncate(C_DATA_MAX);
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Code for CustomerData {
    fn encode(&self, sink: &mut impl Sink) {
        // `C_DATA_MAX` bounds the length.
        (self.0.len() as u16).encode(sink);
        sink.put(&self.0);
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let length = usize::from(u16::decode(bytes)?);
        let (data, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        (length <= C_DATA_MAX).then(|| Self(data.to_vec()))
    }
}

/// A row of CUSTOMER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomerRow {
    /// C_ID, from 1.
    pub c_id: u32,
    /// C_D_ID, the district that the customer belongs to.
    pub d_id: u8,
    /// C_W_ID, the warehouse that the customer belongs to.
    pub w_id: u16,
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
    /// C_BALANCE, in cents.
    pub balance_cents: i64,
    /// C_YTD_PAYMENT, in cents.
    pub ytd_payment_cents: i64,
    /// C_PAYMENT_CNT, the number of payments.
    pub payment_count: u32,
    /// C_DELIVERY_CNT, the number of deliveries.
    pub delivery_count: u32,
    /// C_DATA, miscellaneous information.
    pub data: CustomerData,
}
code!(CustomerRow {
    c_id,
    d_id,
    w_id,
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
    ytd_payment_cents,
    payment_count,
    delivery_count,
    data,
});

/// A row of HISTORY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRow {
    /// H_C_ID, the customer that paid.
    pub c_id: u32,
    /// H_C_D_ID, the district of the customer.
    pub c_d_id: u8,
    /// H_C_W_ID, the warehouse of the customer.
    pub c_w_id: u16,
    /// H_D_ID, the district that was paid to.
    pub d_id: u8,
    /// H_W_ID, the warehouse that was paid to.
    pub w_id: u16,
    /// H_DATE, the timestamp of the payment.
    pub date: Timestamp,
    /// H_AMOUNT, in cents.
    pub amount_cents: u32,
    /// H_DATA, the names of the warehouse and the district, or any text after the load.
    pub data: Text<24>,
}
code!(HistoryRow { c_id, c_d_id, c_w_id, d_id, w_id, date, amount_cents, data });

/// A row of NEW-ORDER: an order that is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOrderRow {
    /// NO_O_ID, the order.
    pub o_id: u32,
    /// NO_D_ID, the district of the order.
    pub d_id: u8,
    /// NO_W_ID, the warehouse of the order.
    pub w_id: u16,
}
code!(NewOrderRow { o_id, d_id, w_id });

/// A row of ORDER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRow {
    /// O_ID, from 1.
    pub o_id: u32,
    /// O_D_ID, the district of the order.
    pub d_id: u8,
    /// O_W_ID, the warehouse of the order.
    pub w_id: u16,
    /// O_C_ID, the customer.
    pub c_id: u32,
    /// O_ENTRY_D, the timestamp of the transaction that entered the order.
    pub entry: Timestamp,
    /// O_CARRIER_ID. `None` until the order is delivered.
    pub carrier_id: Option<u8>,
    /// O_OL_CNT, the number of order lines.
    pub line_count: u8,
    /// O_ALL_LOCAL: whether the home warehouse supplies all lines.
    pub is_all_local: bool,
}
code!(OrderRow { o_id, d_id, w_id, c_id, entry, carrier_id, line_count, is_all_local });

/// A row of ORDER-LINE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLineRow {
    /// OL_O_ID, the order.
    pub o_id: u32,
    /// OL_D_ID, the district of the order.
    pub d_id: u8,
    /// OL_W_ID, the warehouse of the order.
    pub w_id: u16,
    /// OL_NUMBER, from 1.
    pub number: u8,
    /// OL_I_ID, the item.
    pub i_id: u32,
    /// OL_SUPPLY_W_ID, the warehouse that supplies the item.
    pub supply_w_id: u16,
    /// OL_DELIVERY_D. `None` until the order is delivered.
    pub delivery: Option<Timestamp>,
    /// OL_QUANTITY, the number of pieces.
    pub quantity: u8,
    /// OL_AMOUNT, in cents.
    pub amount_cents: u32,
    /// OL_DIST_INFO, S_DIST_xx of the stock row, with xx = OL_D_ID.
    pub dist_info: DistInfo,
}
code!(OrderLineRow {
    o_id,
    d_id,
    w_id,
    number,
    i_id,
    supply_w_id,
    delivery,
    quantity,
    amount_cents,
    dist_info,
});

/// A row of ITEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemRow {
    /// I_ID, from 1.
    pub i_id: u32,
    /// I_IM_ID, the id of the item's image.
    pub image_id: u16,
    /// I_NAME, the name of the item.
    pub name: Text<24>,
    /// I_PRICE, in cents.
    pub price_cents: u32,
    /// I_DATA, the brand information of the item.
    pub data: Text<50>,
}

/// A row of STOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockRow {
    /// S_I_ID, the item, from 1.
    pub i_id: u32,
    /// S_W_ID, the warehouse of the stock.
    pub w_id: u16,
    /// S_QUANTITY, the number of pieces in stock.
    pub quantity: i16,
    /// S_DIST_01 to S_DIST_10.
    pub dist: [DistInfo; 10],
    /// S_YTD, the quantity that was ordered.
    pub ytd: u32,
    /// S_ORDER_CNT, the number of order lines that were supplied.
    pub order_count: u32,
    /// S_REMOTE_CNT, the number of order lines that were supplied to other warehouses.
    pub remote_count: u32,
    /// S_DATA, the brand information of the stock.
    pub data: Text<50>,
}

code!(StockRow { i_id, w_id, quantity, dist, ytd, order_count, remote_count, data });

impl Code for [DistInfo; 10] {
    fn encode(&self, sink: &mut impl Sink) {
        self.iter().for_each(|info| info.encode(sink));
    }

    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let mut all = [[0; 24]; 10];
        for info in &mut all {
            *info = Code::decode(bytes)?;
        }
        Some(all)
    }
}

/// Returns whether a column I_DATA or S_DATA contains "ORIGINAL" (clauses 2.4.2.2 and 4.3.3.1).
pub fn is_original(data: &Text<50>) -> bool {
    data.as_bytes().windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}

/// What 10 % of the items and of the stock rows contain (clause 4.3.3.1).
pub const ORIGINAL: &[u8] = b"ORIGINAL";
