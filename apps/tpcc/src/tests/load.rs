//! The initial database (clause 4.3.3.1).

use alloc::collections::BTreeSet;

use super::{SCALE, Shards};
use crate::schema::is_original;
use crate::{Credit, Database, Scale, ScaleError};

#[test]
fn columns_are_in_their_ranges() {
    let scale = Scale { warehouses: 1, districts: 2, customers: 1_500, items: 2_000 };
    let shards = Shards::new(scale, 4);
    let warehouse = &shards.warehouses[0];
    let of_items: usize =
        warehouse.catalogue.0.iter().filter(|item| is_original(&item.data)).count();
    // The standard deviation of 10 % of 2,000 is 13.
    assert!((146..=254).contains(&of_items), "{of_items}");
    assert!(warehouse.catalogue.0.iter().all(|item| (100..=10_000).contains(&item.price_cents)));
    assert!(warehouse.stock.iter().all(|row| (10..=100).contains(&row.quantity)));
    for district in &warehouse.districts {
        let names: BTreeSet<_> = district.customers.iter().map(|customer| customer.last).collect();
        assert_eq!(names.len(), 1_000, "every last name occurs");
        let bad = district.customers.iter().filter(|row| row.credit == Credit::Bad).count();
        assert!((100..=200).contains(&bad), "{bad}");
        let data = district.customers.iter().map(|row| row.data.as_bytes().len());
        assert!(data.clone().all(|length| (300..=500).contains(&length)));
        let customers: BTreeSet<_> = district.orders.iter().map(|order| order.c_id).collect();
        assert_eq!(customers.len(), 1_500, "every customer has an order");
        assert_eq!(district.new_orders.len(), 450);
        assert_eq!(district.row.ytd_cents, 1_500_000);
        let delivered = |o_id| o_id <= 1_050;
        assert!(district.orders.iter().all(|it| it.carrier_id.is_some() == delivered(it.o_id)));
        assert!(district.lines.iter().all(|it| (it.amount_cents == 0) == delivered(it.o_id)));
    }
}

#[test]
fn default_scale_is_that_of_the_specification() {
    let shards = Shards::new(Scale { warehouses: 1, ..Scale::default() }, 4);
    let warehouse = &shards.warehouses[0];
    assert_eq!((warehouse.catalogue.0.len(), warehouse.stock.len()), (100_000, 100_000));
    assert_eq!((warehouse.districts.len(), warehouse.history.len()), (10, 30_000));
    assert_eq!(warehouse.row.ytd_cents, 30_000_000);
    for district in &warehouse.districts {
        assert_eq!((district.row.ytd_cents, district.row.next_o_id), (3_000_000, 3_001));
        assert_eq!((district.customers.len(), district.orders.len()), (3_000, 3_000));
        assert_eq!(district.new_orders.first().map(|row| row.o_id), Some(2_101));
        assert_eq!(district.new_orders.len(), 900);
    }
    assert_eq!(shards.check(), Ok(()));
}

#[test]
fn read_only_columns_can_be_computed_at_any_shard() {
    let shards = Shards::new(SCALE, 4);
    let row = shards.warehouses[3].stock_row(17).expect("the item exists");
    assert_eq!(row.dist[1], shards.database.dist_info(4, 17, 2));
    let data = shards.database.history_data(4, 2);
    let name = shards.warehouses[3].row().name;
    let district = shards.warehouses[3].district_row(2).expect("it exists").name;
    let expected = [name.as_bytes(), b"    ", district.as_bytes()].concat();
    assert_eq!(data.as_bytes(), expected);
}

#[test]
fn scales_out_of_range_are_refused() {
    let error = |scale| Database::new(scale, 1).expect_err("out of range");
    assert_eq!(error(Scale { warehouses: 0, ..SCALE }), ScaleError::Warehouses);
    assert_eq!(error(Scale { districts: 11, ..SCALE }), ScaleError::Districts { is: 11 });
    assert_eq!(error(Scale { customers: 3_001, ..SCALE }), ScaleError::Customers { is: 3_001 });
    assert_eq!(error(Scale { items: 0, ..SCALE }), ScaleError::Items { is: 0 });
    let database = Database::new(SCALE, 1).expect("in range");
    assert_eq!(database.warehouse(5, database.catalogue()), None);
    let other = Database::new(Scale { items: 10, ..SCALE }, 1).expect("in range");
    assert_eq!(database.warehouse(1, other.catalogue()), None);
}
