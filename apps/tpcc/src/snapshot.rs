//! The encoding of a whole warehouse.
//!
//! ITEM is not encoded: no transaction writes it, and the receiver has it. The sizes, the seed and
//! W_ID are encoded, so that a warehouse of another database is refused.

use alloc::sync::Arc;

use crate::codec::{Code, Sink, code, decode_all, encode_all};
use crate::schema::WarehouseRow;
use crate::warehouse::{Activity, District, Warehouse};

code!(Activity { last_o_id, changed });

impl Warehouse {
    /// Appends all rows but those of ITEM.
    pub(crate) fn encode_tables(&self, sink: &mut impl Sink) {
        self.encode_keyed_tables(sink);
        encode_all(&self.history, sink);
    }

    /// Appends all rows of tables with a primary key, but those of ITEM.
    pub(crate) fn encode_keyed_tables(&self, sink: &mut impl Sink) {
        let scale = self.scale();
        scale.warehouses.encode(sink);
        scale.districts.encode(sink);
        scale.customers.encode(sink);
        scale.items.encode(sink);
        self.database.seed.encode(sink);
        self.row.encode(sink);
        self.districts.iter().for_each(|district| district.encode(sink));
        encode_all(&self.stock, sink);
    }

    /// Returns the warehouse that `bytes` encode. `None` if they are malformed, or encode another
    /// warehouse than this one or one of another database. The result keeps the invariants that the
    /// look-ups rely on: dense or ascending ids.
    pub(crate) fn decode_tables(&self, mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let scale = self.scale();
        let is_same = u16::decode(bytes)? == scale.warehouses
            && u8::decode(bytes)? == scale.districts
            && u32::decode(bytes)? == scale.customers
            && u32::decode(bytes)? == scale.items
            && u64::decode(bytes)? == self.database.seed;
        if !is_same {
            return None;
        }
        let row = WarehouseRow::decode(bytes).filter(|row| row.w_id == self.w_id())?;
        let warehouse = Self {
            database: self.database,
            catalogue: Arc::clone(&self.catalogue),
            row,
            districts: (0..scale.districts)
                .map(|_| District::decode(bytes, scale.customers as usize))
                .collect::<Option<_>>()?,
            stock: decode_all(bytes, scale.items as usize)?,
            history: decode_all(bytes, usize::MAX)?,
        };
        (bytes.is_empty() && warehouse.is_well_formed()).then_some(warehouse)
    }

    fn is_well_formed(&self) -> bool {
        let w_id = self.w_id();
        let stock = self.stock.iter().zip(1..);
        let districts = self.districts.iter().zip(1..);
        self.stock.len() == self.scale().items as usize
            && stock.clone().all(|(row, i_id)| row.i_id == i_id && row.w_id == w_id)
            && districts.clone().all(|(district, d_id)| {
                district.row.d_id == d_id && district.row.w_id == w_id && district.is_well_formed()
            })
    }
}

impl District {
    fn encode(&self, sink: &mut impl Sink) {
        // `by_name` follows from the customers.
        self.row.encode(sink);
        encode_all(&self.customers, sink);
        encode_all(&self.activities, sink);
        encode_all(&self.orders, sink);
        encode_all(&self.new_orders, sink);
        encode_all(&self.lines, sink);
    }

    fn decode(bytes: &mut &[u8], customers: usize) -> Option<Self> {
        let row = Code::decode(bytes)?;
        let is_complete = |length: usize| (length == customers).then_some(());
        let customers = decode_all(bytes, customers)?;
        is_complete(customers.len())?;
        let activities = decode_all(bytes, customers.len())?;
        is_complete(activities.len())?;
        Some(Self {
            row,
            by_name: Self::sort_by_name(&customers),
            customers,
            activities,
            orders: decode_all(bytes, usize::MAX)?,
            new_orders: decode_all(bytes, usize::MAX)?,
            lines: decode_all(bytes, usize::MAX)?,
        })
    }

    fn is_well_formed(&self) -> bool {
        let mut customers = self.customers.iter().zip(1..);
        let next_o_id = self.row.next_o_id;
        customers.all(|(row, c_id)| row.c_id == c_id)
            && self.orders.is_sorted_by(|a, b| a.o_id < b.o_id)
            && self.orders.last().is_none_or(|order| order.o_id < next_o_id)
            && self.new_orders.is_sorted_by(|a, b| a.o_id < b.o_id)
            && self.lines.is_sorted_by(|a, b| (a.o_id, a.number) < (b.o_id, b.number))
            && self.lines.last().is_none_or(|line| line.o_id < next_o_id)
    }
}
