//! TPC-C's New-Order and Payment as independent transactions over shards.
//!
//! generate → `[tpcc: parts]` → scattering → replicas → `[tpcc: Warehouse]` → `[tpcc: assemble]`
//!
//! Each warehouse is a shard; ITEM is at every shard. A [`Transaction`] is divided into one part
//! per warehouse concerned. All parts are delivered at one timestamp, and no part needs an output
//! of another. So a shard executes its part in one step, without locks, votes or waiting. The state
//! of a shard is a [`Warehouse`], which implements [`onepipe_transaction::State`].
//!
//! Clauses are those of the TPC-C specification, revision 5.11.
//!
//! ```
//! use onepipe_base::Timestamp;
//! use onepipe_tpcc::{Database, Generator, Mix, Scale, check};
//! use onepipe_transaction::State;
//! use rand_xoshiro::Xoshiro256StarStar;
//! use rand_xoshiro::rand_core::SeedableRng;
//!
//! let scale = Scale { warehouses: 2, districts: 2, customers: 30, items: 100 };
//! let database = Database::new(scale, 1)?;
//! let catalogue = database.catalogue();
//! let mut shards: Vec<_> =
//!     (1..=2).filter_map(|w_id| database.warehouse(w_id, catalogue.clone())).collect();
//! let terminal = Generator::new(&database, 1, Mix::default()).expect("warehouse 1 exists");
//! let transaction = terminal.transaction(&mut Xoshiro256StarStar::seed_from_u64(7));
//! let mut results = Vec::new();
//! for (shard, part) in transaction.parts() {
//!     let mut bytes = Vec::new();
//!     shards[usize::from(shard)].execute(Timestamp::from_ns(5), &part, &mut bytes);
//!     results.push((shard, bytes));
//! }
//! let results: Vec<_> = results.iter().map(|(shard, bytes)| (*shard, &bytes[..])).collect();
//! println!("{:?}", transaction.assemble(&results)?);
//! check(&shards.iter().collect::<Vec<_>>())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - A transaction is applied at all its shards or at none: whether it is valid, and whether it is
//!   rolled back, follows from its input and the [`Scale`] alone.
//! - Equal sequences of parts and timestamps give equal warehouses. There is no clock, no entropy
//!   and no floating point; rows of the load follow from a seed, by xoshiro256** and SplitMix64.
//! - No part, result or saved state causes a panic.
//!
//! # Differences from the specification
//! - HISTORY is partitioned by the customer's warehouse (`payment`).
//! - OL_DIST_INFO of remote stock and H_DATA are computed from the seed, as no transaction writes
//!   their sources (`new_order`, `payment`).
//! - An input has the number of a last name, not its characters; the shard looks up the characters.
//! - Dates are the timestamps of transactions, which are equal at all shards.
//! - Delivery and Stock-Level do not exist, and there are no terminals with think times.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod answer;
mod codec;
mod consistency;
mod database;
mod digest;
mod generator;
mod input;
mod keys;
mod new_order;
mod order_status;
mod payment;
mod plan;
mod population;
mod random;
mod scale;
mod schema;
mod snapshot;
mod state;
mod text;
mod warehouse;

#[cfg(test)]
mod tests;

pub use answer::{
    Answer, HomeAnswer, LineAnswer, NewOrderAnswer, OrderStatusAnswer, PayeeAnswer, PayerAnswer,
    PaymentAnswer, StockAnswer,
};
pub use consistency::{Condition, Violation, check};
pub use database::Database;
pub use generator::{Generator, Mix};
pub use input::{
    AMOUNT_MAX_CENTS, AMOUNT_MIN_CENTS, LINES_MAX, LINES_MIN, Line, NewOrder, OrderStatus, Payment,
    QUANTITY_MAX, Selector, TRANSACTION_MAX_BYTES, Transaction,
};
pub use keys::RowUse;
pub use plan::{AssembleError, Outcome, PaymentReceipt, Receipt, shard_of};
pub use population::LOADED_AT;
pub use scale::{CUSTOMERS_MAX, DISTRICTS_MAX, ITEMS_MAX, LAST_NAMES, Scale, ScaleError};
pub use schema::{
    Address, C_DATA_MAX, Credit, CustomerData, CustomerRow, DistInfo, DistrictRow, HistoryRow,
    ItemRow, NewOrderRow, OrderLineRow, OrderRow, StockRow, WarehouseRow,
};
pub use text::Text;
pub use warehouse::{Catalogue, Warehouse};
