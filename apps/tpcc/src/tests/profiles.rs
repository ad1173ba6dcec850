//! The profiles of clauses 2.4.2, 2.5.2 and 2.6.2.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_transaction::{Exact, State};

use super::{SCALE, Shards};
use crate::{
    Answer, AssembleError, Credit, Line, NewOrder, OrderStatus, Outcome, Payment, PaymentReceipt,
    Receipt, RowUse, Scale, Selector, Transaction,
};

/// Returns an order of five lines from warehouse 1; warehouse 3 supplies the fourth.
fn order(i_id: u32) -> Transaction {
    let local = |i_id| Line { i_id, supply_w_id: 1, quantity: 3 };
    let remote = Line { i_id: 44, supply_w_id: 3, quantity: 10 };
    let lines = vec![local(7), local(8), local(7), remote, local(i_id)];
    Transaction::NewOrder(NewOrder { w_id: 1, d_id: 2, c_id: 5, lines })
}

fn payment(customer: Selector, c_w_id: u16) -> Transaction {
    let (w_id, d_id, c_d_id) = (1, 2, 3);
    Transaction::Payment(Payment { w_id, d_id, c_w_id, c_d_id, customer, amount_cents: 123_405 })
}

fn entered(shards: &mut Shards, transaction: &Transaction) -> Receipt {
    match shards.run(transaction) {
        Ok(Outcome::Ordered(receipt)) => receipt,
        other => panic!("{other:?}"),
    }
}

fn paid(shards: &mut Shards, transaction: &Transaction) -> PaymentReceipt {
    match shards.run(transaction) {
        Ok(Outcome::Paid(receipt)) => *receipt,
        other => panic!("{other:?}"),
    }
}

#[test]
fn new_order_enters_rows_and_takes_stock_at_each_shard() {
    let mut shards = Shards::new(SCALE, 2);
    shards.warehouses[0].stock[6].quantity = 15;
    shards.warehouses[2].stock[43].quantity = 20;
    let before = shards.clone();
    let receipt = entered(&mut shards, &order(9));
    let (home, supplier) = (&shards.warehouses[0], &shards.warehouses[2]);

    assert_eq!(receipt.home.o_id, 91);
    assert_eq!(home.district_row(2).expect("it exists").next_o_id, 92);
    let row = home.order(2, 91).expect("it was entered");
    assert_eq!((row.c_id, row.line_count, row.is_all_local), (5, 5, false));
    assert_eq!((row.entry, row.carrier_id), (Timestamp::from_ns(2), None));
    assert_eq!(home.districts[1].new_orders.last().map(|row| row.o_id), Some(91));

    // 15 - 3 = 12; then 12 - 3 = 9 is below 10, so the stock is refilled: 9 + 91.
    let quantities: Vec<i16> = receipt.stock.iter().map(|row| row.quantity).collect();
    assert_eq!((quantities[0], quantities[2], quantities[3]), (12, 100, 10));
    let row = home.stock_row(7).expect("it exists");
    assert_eq!((row.ytd, row.order_count, row.remote_count), (6, 2, 0));
    let row = supplier.stock_row(44).expect("it exists");
    assert_eq!((row.ytd, row.order_count, row.remote_count), (10, 1, 1));

    for ((line, answer), stock) in
        home.order_lines(2, 91).iter().zip(&receipt.home.lines).zip(&receipt.stock)
    {
        let item = home.catalogue.item(line.i_id).expect("it exists");
        assert_eq!(line.amount_cents, item.price_cents * u32::from(line.quantity));
        assert_eq!((answer.amount_cents, answer.name), (line.amount_cents, item.name));
        assert_eq!((line.number, line.delivery), (stock.number, None));
        assert_eq!(line.dist_info, stock.dist_info, "the supplier's own column");
    }
    assert_eq!(home.order_lines(2, 91).len(), 5);
    assert_eq!(shards.warehouses[1], before.warehouses[1]);
    assert_eq!(shards.warehouses[3], before.warehouses[3]);
}

#[test]
fn total_amount_has_discount_and_taxes() {
    let mut shards = Shards::new(SCALE, 2);
    let receipt = entered(&mut shards, &order(9));
    let home = &receipt.home;
    let sum: u32 = home.lines.iter().map(|line| line.amount_cents).sum();
    let discount = 1.0 - f64::from(home.discount_bp) / 1e4;
    let tax = 1.0 + f64::from(home.w_tax_bp) / 1e4 + f64::from(home.d_tax_bp) / 1e4;
    let expected = f64::from(sum) * discount * tax;
    assert!((receipt.total_cents as f64 - expected).abs() < 0.51, "{expected}");
}

#[test]
fn rollback_leaves_no_trace_on_any_shard() {
    let mut shards = Shards::new(SCALE, 2);
    let before = shards.clone();
    let rolled_back = order(SCALE.unused_item());
    let Ok(Outcome::RolledBack(home)) = shards.run(&rolled_back) else { panic!("not valid") };
    assert_eq!((home.o_id, home.lines.len()), (91, 0));
    assert_eq!(shards.warehouses, before.warehouses);
    assert_eq!(shards.digests(), before.digests());
    assert_eq!(entered(&mut shards, &order(9)).home.o_id, 91, "the id is used again");
}

#[test]
fn payment_updates_both_shards() {
    let mut shards = Shards::new(SCALE, 2);
    let before = shards.clone();
    let receipt = paid(&mut shards, &payment(Selector::Id(11), 4));
    let (home, other) = (&shards.warehouses[0], &shards.warehouses[3]);
    let (home_before, other_before) = (&before.warehouses[0], &before.warehouses[3]);
    assert_eq!(home.row.ytd_cents - home_before.row.ytd_cents, 123_405);
    let ytd_cents = |warehouse: &crate::Warehouse, at: usize| warehouse.districts[at].row.ytd_cents;
    assert_eq!(ytd_cents(home, 1) - ytd_cents(home_before, 1), 123_405);
    assert_eq!((&other.row, ytd_cents(other, 2)), (&other_before.row, ytd_cents(other_before, 2)));
    let customer = other.customer(3, 11).expect("it exists");
    assert_eq!(customer.balance_cents, -124_405);
    assert_eq!((customer.ytd_payment_cents, customer.payment_count), (124_405, 2));
    assert_eq!(receipt.customer.balance_cents, -124_405);
    assert_eq!(receipt.home.warehouse, home.row.address);
    let row = other.history().last().expect("it was inserted");
    assert_eq!((row.c_id, row.c_d_id, row.c_w_id, row.d_id, row.w_id), (11, 3, 4, 2, 1));
    assert_eq!((row.amount_cents, row.date), (123_405, Timestamp::from_ns(2)));
    assert_eq!(row.data, shards.database.history_data(1, 2));
    assert_eq!(home.history().len(), home_before.history().len());
}

#[test]
fn bad_credit_shifts_history_into_c_data() {
    let mut shards = Shards::new(SCALE, 2);
    let customers = &mut shards.warehouses[3].districts[2].customers;
    (customers[10].credit, customers[11].credit) = (Credit::Bad, Credit::Good);
    let (old, good) = (customers[10].data.clone(), customers[11].data.clone());
    let receipt = paid(&mut shards, &payment(Selector::Id(11), 4));
    let customer = shards.warehouses[3].customer(3, 11).expect("it exists");
    let entry = b"11 3 4 2 1 1234.05|";
    let mut expected = [&entry[..], old.as_bytes()].concat();
    expected.truncate(500);
    assert_eq!(customer.data.as_bytes(), expected);
    assert_eq!(receipt.customer.data.as_bytes(), &expected[..200]);
    for _ in 0..30 {
        paid(&mut shards, &payment(Selector::Id(11), 4));
        assert!(paid(&mut shards, &payment(Selector::Id(12), 4)).customer.data.as_bytes() == b"");
    }
    let customer = |c_id| shards.warehouses[3].customer(3, c_id).expect("it exists");
    assert_eq!(customer(11).data.as_bytes().len(), 500);
    assert_eq!(customer(12).data, good);
}

#[test]
fn last_name_selects_the_middle_customer() {
    let scale = Scale { warehouses: 1, districts: 1, customers: 3_000, items: 1 };
    let shards = Shards::new(scale, 2);
    let warehouse = &shards.warehouses[0];
    let mut sizes = [0; 2];
    for number in 0..1_000 {
        let name = crate::random::last_name(number);
        let customers = &warehouse.districts[0].customers;
        let mut named: Vec<_> = customers.iter().filter(|row| row.last == name).collect();
        named.sort_by_key(|row| row.first);
        sizes[named.len() % 2] += 1;
        // Position n/2, rounded up and counted from 1.
        let middle = named[named.len().div_ceil(2) - 1];
        assert_eq!(warehouse.customer_by_last_name(1, number), Some(middle.c_id));
    }
    assert!(sizes.iter().all(|names| *names > 100), "even and odd numbers of customers occur");
    assert_eq!(warehouse.customer_by_last_name(2, 0), None);
}

#[test]
fn order_status_reads_the_last_order_exactly() {
    let mut shards = Shards::new(SCALE, 2);
    let status = OrderStatus { w_id: 1, d_id: 2, customer: Selector::Id(5) };
    let part = Transaction::OrderStatus(status).to_bytes();
    let read = |shards: &Shards| {
        let mut results = Vec::new();
        let exact = shards.warehouses[0].read(Timestamp::from_ns(50), &part, &mut results);
        let Some(Answer::OrderStatus(answer)) = Answer::parse(&results) else { panic!() };
        (answer, exact)
    };
    let (answer, exact) = read(&shards);
    assert!(answer.o_id <= 90);
    assert_eq!(exact, Exact { from: None, until: None });
    entered(&mut shards, &order(9));
    let (answer, exact) = read(&shards);
    assert_eq!((answer.o_id, answer.lines.len(), answer.c_id), (91, 5, 5));
    assert_eq!(exact.from, Some(Timestamp::from_ns(2)));
    assert_eq!(shards.run(&Transaction::OrderStatus(status)), Ok(Outcome::Status(answer)));
}

#[test]
fn invalid_inputs_are_refused_by_every_shard() {
    let mut shards = Shards::new(SCALE, 2);
    let before = shards.clone();
    let Transaction::NewOrder(valid) = order(9) else { panic!() };
    let of_customer = NewOrder { c_id: 91, ..valid.clone() };
    let mut of_supplier = valid;
    of_supplier.lines[4].supply_w_id = 5;
    for order in [of_customer, of_supplier] {
        let refused = shards.run(&Transaction::NewOrder(order));
        assert_eq!(refused, Err(AssembleError::Refused { shard: 0 }));
    }
    let refused = shards.run(&payment(Selector::LastName(90), 4));
    assert_eq!(refused, Err(AssembleError::Refused { shard: 0 }));
    assert_eq!(shards.warehouses, before.warehouses);
}

#[test]
fn missing_and_mixed_results_are_errors() {
    let mut shards = Shards::new(SCALE, 2);
    let mut results = |transaction: &Transaction, shard: usize| {
        let mut bytes = Vec::new();
        let at = Timestamp::from_ns(9);
        shards.warehouses[shard].execute(at, &transaction.to_bytes(), &mut bytes);
        bytes
    };
    let applied = order(9);
    let (home, supplier) = (results(&applied, 0), results(&applied, 2));
    let undone = results(&order(SCALE.unused_item()), 2);
    let assemble = |results: &[(u16, &[u8])]| applied.assemble(results);
    assert!(assemble(&[(2, &supplier), (0, &home)]).is_ok());
    assert_eq!(assemble(&[(0, &home)]), Err(AssembleError::Missing { shard: 2 }));
    assert_eq!(assemble(&[(0, &home), (2, &undone)]), Err(AssembleError::Disagree));
    assert_eq!(assemble(&[(0, &home), (2, &[9])]), Err(AssembleError::Malformed { shard: 2 }));
}

#[test]
fn keys_conflict_on_rows_that_are_written() {
    let shards = Shards::new(SCALE, 2);
    let conflict = |one: &Transaction, other: &Transaction, at: usize| {
        let keys = |transaction| shards.warehouses[at].keys(transaction);
        let (one, other) = (keys(one), keys(other));
        let is_shared = |a: &RowUse, b: &RowUse| a.key == b.key && (a.is_write || b.is_write);
        one.iter().any(|a| other.iter().any(|b| is_shared(a, b)))
    };
    // Both write the district, and one writes the warehouse that the other reads.
    assert!(conflict(&order(9), &payment(Selector::Id(11), 4), 0));
    // A customer selected by name conflicts with the same one selected by id.
    let c_id = shards.warehouses[3].customer_by_last_name(3, 20).expect("it exists");
    let by_name = payment(Selector::LastName(20), 4);
    assert!(conflict(&by_name, &payment(Selector::Id(c_id), 4), 3));
    assert!(!conflict(&by_name, &payment(Selector::Id(c_id % 90 + 1), 4), 3));
    // Seven keys at home: warehouse, district, customer, its order, and items 7, 8 and 9.
    let keys = order(9).keys(|_, _, _| None);
    assert_eq!(keys.iter().filter(|row| row.shard == 0).count(), 7);
    assert_eq!(keys.iter().filter(|row| row.shard == 2).count(), 1);
    let shards_of: Vec<u16> = order(9).parts().iter().map(|(shard, _)| *shard).collect();
    assert_eq!(shards_of, [0, 2]);
}
