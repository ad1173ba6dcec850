//! The tables of a shard, and the look-ups in them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use onepipe_base::Timestamp;

use crate::database::Database;
use crate::random;
use crate::scale::Scale;
use crate::schema::{
    CustomerRow, DistrictRow, HistoryRow, ItemRow, NewOrderRow, OrderLineRow, OrderRow, StockRow,
    WarehouseRow,
};

/// The table ITEM. No transaction writes it, so all shards have the same rows, and the shards of
/// one process can share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue(pub(crate) Vec<ItemRow>);

impl Catalogue {
    /// Returns the item of this id; `None` if the id is not used.
    pub fn item(&self, i_id: u32) -> Option<&ItemRow> {
        self.0.get(index(i_id)?)
    }
}

/// A warehouse with the rows that belong to it: the state of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warehouse {
    pub(crate) database: Database,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) row: WarehouseRow,
    /// By D_ID - 1.
    pub(crate) districts: Vec<District>,
    /// By S_I_ID - 1.
    pub(crate) stock: Vec<StockRow>,
    /// The payments of this warehouse's customers, in the order of their timestamps.
    pub(crate) history: Vec<HistoryRow>,
}

/// A district with the rows that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct District {
    pub row: DistrictRow,
    /// By C_ID - 1.
    pub customers: Vec<CustomerRow>,
    /// By C_ID - 1.
    pub activities: Vec<Activity>,
    /// Indices of `customers`, ordered by C_LAST and C_FIRST. No transaction changes names.
    pub by_name: Vec<u32>,
    /// By ascending O_ID.
    pub orders: Vec<OrderRow>,
    /// By ascending NO_O_ID.
    pub new_orders: Vec<NewOrderRow>,
    /// By ascending OL_O_ID and OL_NUMBER.
    pub lines: Vec<OrderLineRow>,
}

/// What Order-Status needs to know of a customer and no column contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// O_ID of the customer's most recent order.
    pub last_o_id: u32,
    /// Timestamp of the last transaction that wrote the customer or an order of the customer.
    /// `None` if there was none since the load.
    pub changed: Option<Timestamp>,
}

/// Returns the index of the row of an id that counts from 1; `None` for 0.
fn index(id: u32) -> Option<usize> {
    usize::try_from(id.checked_sub(1)?).ok()
}

impl Warehouse {
    /// Returns W_ID.
    pub fn w_id(&self) -> u16 {
        self.row.w_id
    }

    /// Returns the sizes of the tables.
    pub fn scale(&self) -> &Scale {
        &self.database.scale
    }

    /// Returns the row of WAREHOUSE.
    pub fn row(&self) -> &WarehouseRow {
        &self.row
    }

    /// Returns a row of DISTRICT.
    pub fn district_row(&self, d_id: u8) -> Option<&DistrictRow> {
        self.district(d_id).map(|district| &district.row)
    }

    /// Returns a row of CUSTOMER.
    pub fn customer(&self, d_id: u8, c_id: u32) -> Option<&CustomerRow> {
        self.district(d_id)?.customers.get(index(c_id)?)
    }

    /// Returns a row of STOCK.
    pub fn stock_row(&self, i_id: u32) -> Option<&StockRow> {
        self.stock.get(index(i_id)?)
    }

    /// Returns the rows of HISTORY of this warehouse's customers, oldest first.
    pub fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    /// Returns a row of ORDER.
    pub fn order(&self, d_id: u8, o_id: u32) -> Option<&OrderRow> {
        self.district(d_id)?.order(o_id)
    }

    /// Returns the rows of ORDER-LINE of an order, by OL_NUMBER; none if there is no such order.
    pub fn order_lines(&self, d_id: u8, o_id: u32) -> &[OrderLineRow] {
        self.district(d_id).map(|district| district.lines_of(o_id)).unwrap_or_default()
    }

    /// Returns the id of the customer that a last name selects: of the n customers of that name,
    /// sorted by C_FIRST, the one at position n/2, rounded up (clause 2.5.2.2). `None` if no
    /// customer of the district has the name.
    pub fn customer_by_last_name(&self, d_id: u8, last_name: u16) -> Option<u32> {
        self.district(d_id)?.customer_by_last_name(last_name)
    }

    pub(crate) fn district(&self, d_id: u8) -> Option<&District> {
        self.districts.get(index(d_id.into())?)
    }

    pub(crate) fn district_mut(&mut self, d_id: u8) -> Option<&mut District> {
        self.districts.get_mut(index(d_id.into())?)
    }

    pub(crate) fn stock_row_mut(&mut self, i_id: u32) -> Option<&mut StockRow> {
        self.stock.get_mut(index(i_id)?)
    }
}

impl District {
    /// Returns the indices of `customers`, ordered by last name, first name and id.
    pub fn sort_by_name(customers: &[CustomerRow]) -> Vec<u32> {
        let mut named: Vec<(&CustomerRow, u32)> = customers.iter().zip(0..).collect();
        named.sort_by_key(|(customer, _)| (customer.last, customer.first, customer.c_id));
        named.into_iter().map(|(_, at)| at).collect()
    }

    pub fn customer_mut(&mut self, c_id: u32) -> Option<&mut CustomerRow> {
        self.customers.get_mut(index(c_id)?)
    }

    pub fn activity(&self, c_id: u32) -> Option<&Activity> {
        self.activities.get(index(c_id)?)
    }

    pub fn activity_mut(&mut self, c_id: u32) -> Option<&mut Activity> {
        self.activities.get_mut(index(c_id)?)
    }

    pub fn order(&self, o_id: u32) -> Option<&OrderRow> {
        let at = self.orders.binary_search_by_key(&o_id, |order| order.o_id).ok()?;
        self.orders.get(at)
    }

    pub fn lines_of(&self, o_id: u32) -> &[OrderLineRow] {
        let from = self.lines.partition_point(|line| line.o_id < o_id);
        let to = self.lines.partition_point(|line| line.o_id <= o_id);
        self.lines.get(from..to).unwrap_or_default()
    }

    pub fn customer_by_last_name(&self, last_name: u16) -> Option<u32> {
        let name = random::last_name(last_name);
        let last = |at: &u32| self.customers.get(*at as usize).map(|customer| customer.last);
        let from = self.by_name.partition_point(|at| last(at) < Some(name));
        let to = self.by_name.partition_point(|at| last(at) <= Some(name));
        let named = self.by_name.get(from..to)?;
        // Position n/2, rounded up and counted from 1, has the index (n - 1)/2.
        let middle = named.get(named.len().checked_sub(1)? / 2)?;
        self.customers.get(*middle as usize).map(|customer| customer.c_id)
    }
}
