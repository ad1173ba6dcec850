//! The initial database, by clause 4.3. Every shard and replica computes its own rows from a seed.

mod district;
mod orders;

use alloc::sync::Arc;
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use rand_xoshiro::rand_core::Rng;

use crate::database::Database;
use crate::random::{Stream, a_string, is_chosen, n_string, state, stream, within};
use crate::schema::{Address, ItemRow, ORIGINAL, StockRow, WarehouseRow};
use crate::text::Text;
use crate::warehouse::{Catalogue, Warehouse};

/// The date of all rows of the load: before the timestamps of all transactions.
pub const LOADED_AT: Timestamp = Timestamp::from_ns(0);
/// H_AMOUNT and C_YTD_PAYMENT of the load, in cents (clause 4.3.3.1).
pub(crate) const INITIAL_PAYMENT_CENTS: u32 = 1_000;
/// Share of the items and stock rows whose data contain "ORIGINAL", in percent (clause 4.3.3.1).
const ORIGINAL_PERCENT: u8 = 10;

impl Database {
    /// Computes the table ITEM.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        let mut random = stream(self.seed, &[Stream::Items as u64]);
        let items = (1..=self.scale.items).map(|i_id| ItemRow {
            i_id,
            image_id: within(&mut random, 1, 10_000) as u16,
            name: a_string(&mut random, 14, 24),
            price_cents: within(&mut random, 100, 10_000) as u32,
            data: item_data(&mut random),
        });
        Arc::new(Catalogue(items.collect()))
    }

    /// Computes the rows of a warehouse. `catalogue` is that of this database. `None` if there is
    /// no warehouse of this id, or if the catalogue has another size.
    pub fn warehouse(&self, w_id: u16, catalogue: Arc<Catalogue>) -> Option<Warehouse> {
        if !self.scale.has_warehouse(w_id) || catalogue.0.len() != self.scale.items as usize {
            return None;
        }
        let mut random = stream(self.seed, &[Stream::Warehouse as u64, w_id.into()]);
        let district_ytd_cents = self.district_ytd_cents();
        let row = WarehouseRow {
            w_id,
            name: self.warehouse_name(w_id),
            address: address(&mut random),
            tax_bp: within(&mut random, 0, 2_000) as u16,
            // 300,000.00 at full scale.
            ytd_cents: district_ytd_cents * i64::from(self.scale.districts),
        };
        let d_ids = || 1..=self.scale.districts;
        let mut warehouse = Warehouse {
            database: *self,
            catalogue,
            row,
            districts: d_ids().map(|d_id| self.district(w_id, d_id)).collect(),
            stock: self.stock(w_id),
            history: Vec::new(),
        };
        warehouse.history = d_ids().flat_map(|d_id| self.history(w_id, d_id)).collect();
        Some(warehouse)
    }

    /// Returns D_YTD after the load: 30,000.00 at full scale, the sum of the district's history.
    fn district_ytd_cents(&self) -> i64 {
        i64::from(self.scale.customers) * i64::from(INITIAL_PAYMENT_CENTS)
    }

    fn stock(&self, w_id: u16) -> Vec<StockRow> {
        let mut random = stream(self.seed, &[Stream::Stock as u64, w_id.into()]);
        let row = |i_id| {
            let mut dist = [[0; 24]; 10];
            for (info, d_id) in dist.iter_mut().zip(1..) {
                *info = self.dist_info(w_id, i_id, d_id);
            }
            StockRow {
                i_id,
                w_id,
                quantity: within(&mut random, 10, 100) as i16,
                dist,
                ytd: 0,
                order_count: 0,
                remote_count: 0,
                data: item_data(&mut random),
            }
        };
        (1..=self.scale.items).map(row).collect()
    }
}

/// Returns a column I_DATA or S_DATA.
fn item_data(random: &mut impl Rng) -> Text<50> {
    let data: Text<50> = a_string(random, 26, 50);
    if !is_chosen(random, ORIGINAL_PERCENT) {
        return data;
    }
    let mut bytes = [0; 50];
    let length = data.as_bytes().len();
    bytes[..length].copy_from_slice(data.as_bytes());
    let at = within(random, 0, (length - ORIGINAL.len()) as u64) as usize;
    bytes[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    Text::of(&bytes[..length]).expect("the length was 26 to 50")
}

fn address(random: &mut impl Rng) -> Address {
    let street_1 = a_string(random, 10, 20);
    let street_2 = a_string(random, 10, 20);
    let city = a_string(random, 10, 20);
    let mut zip: Text<9> = n_string(random, 4);
    zip.push(b"11111");
    Address { street_1, street_2, city, state: state(random), zip }
}
