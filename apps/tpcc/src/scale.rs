//! The sizes of the tables.

use thiserror::Error;

/// Maximum number of districts: a stock row has ten columns S_DIST_xx (clause 1.3.1).
pub const DISTRICTS_MAX: u8 = 10;
/// Maximum number of customers per district (clause 4.2.2).
pub const CUSTOMERS_MAX: u32 = 3_000;
/// Maximum number of items (clause 4.2.2).
pub const ITEMS_MAX: u32 = 100_000;
/// Number of different last names (clause 4.3.2.3).
pub const LAST_NAMES: u16 = 1_000;

/// The sizes of the tables. The default has the cardinalities of clause 4.2.2; tests run smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    /// Number of warehouses, each on its own shard; 1 to 65,535. Default: 4, as in 1Pipe section
    /// 7.3.2.
    pub warehouses: u16,
    /// Number of districts per warehouse; 1 to [`DISTRICTS_MAX`]. Default: 10.
    pub districts: u8,
    /// Number of customers per district, and of orders per district after the load; 1 to
    /// [`CUSTOMERS_MAX`]. Default: 3,000.
    pub customers: u32,
    /// Number of items, and of stock rows per warehouse; 1 to [`ITEMS_MAX`]. Default: 100,000.
    pub items: u32,
}

impl Default for Scale {
    fn default() -> Self {
        Self { warehouses: 4, districts: DISTRICTS_MAX, customers: CUSTOMERS_MAX, items: ITEMS_MAX }
    }
}

impl Scale {
    /// Returns an error if a size is out of its range.
    pub fn validate(&self) -> Result<(), ScaleError> {
        let is_within = |size: u32, max: u32| (1..=max).contains(&size);
        if self.warehouses == 0 {
            return Err(ScaleError::Warehouses);
        }
        if !is_within(self.districts.into(), DISTRICTS_MAX.into()) {
            return Err(ScaleError::Districts { is: self.districts });
        }
        if !is_within(self.customers, CUSTOMERS_MAX) {
            return Err(ScaleError::Customers { is: self.customers });
        }
        if !is_within(self.items, ITEMS_MAX) {
            return Err(ScaleError::Items { is: self.items });
        }
        Ok(())
    }

    /// Returns the number of last names that at least one customer of each district has. The first
    /// 1,000 customers of a district have the names 0 to 999 (clause 4.3.3.1).
    pub fn last_names(&self) -> u16 {
        let customers = u16::try_from(self.customers).unwrap_or(LAST_NAMES);
        customers.min(LAST_NAMES)
    }

    /// Returns the highest order id that is delivered after the load: 2,100 of 3,000 (clause
    /// 4.3.3.1), and the same share of a smaller number.
    pub fn delivered_orders(&self) -> u32 {
        self.customers * 7 / 10
    }

    /// Returns an item id that no item has, for the orders that are rolled back (clause 2.4.1.5).
    pub fn unused_item(&self) -> u32 {
        self.items + 1
    }

    /// Returns whether a warehouse has this id.
    pub fn has_warehouse(&self, w_id: u16) -> bool {
        (1..=self.warehouses).contains(&w_id)
    }

    /// Returns whether each warehouse has a district of this id.
    pub fn has_district(&self, d_id: u8) -> bool {
        (1..=self.districts).contains(&d_id)
    }

    /// Returns whether each district has a customer of this id.
    pub fn has_customer(&self, c_id: u32) -> bool {
        (1..=self.customers).contains(&c_id)
    }

    /// Returns whether an item has this id.
    pub fn has_item(&self, i_id: u32) -> bool {
        (1..=self.items).contains(&i_id)
    }
}

/// A size that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// There is no warehouse.
    #[error("a database needs at least one warehouse")]
    Warehouses,
    /// The number of districts is out of range.
    #[error("{is} districts per warehouse, not 1 to {DISTRICTS_MAX}")]
    Districts {
        /// The number.
        is: u8,
    },
    /// The number of customers is out of range.
    #[error("{is} customers per district, not 1 to {CUSTOMERS_MAX}")]
    Customers {
        /// The number.
        is: u32,
    },
    /// The number of items is out of range.
    #[error("{is} items, not 1 to {ITEMS_MAX}")]
    Items {
        /// The number.
        is: u32,
    },
}
