//! The rates of clauses 2.4.1 and 2.5.1. The seed is fixed; each bound is at least four standard
//! deviations from the mean.

use super::{SCALE, Shards};
use crate::random::stream;
use crate::{Generator, Mix, Scale, Selector, Transaction};

fn default_terminal() -> Generator {
    Shards::new(SCALE, 1).terminal(2, Mix::default())
}

#[test]
fn new_order_and_payment_are_halves() {
    let (terminal, mut random) = (default_terminal(), stream(1, &[]));
    let orders = (0..20_000)
        .filter(|_| matches!(terminal.transaction(&mut random), Transaction::NewOrder(_)))
        .count();
    // The standard deviation is 71.
    assert!((9_700..=10_300).contains(&orders), "{orders}");
}

#[test]
fn one_percent_of_lines_is_remote_and_one_of_orders_fails() {
    let (terminal, mut random) = (default_terminal(), stream(2, &[]));
    let (mut lines, mut remote, mut rolled_back, mut by_warehouse) = (0, 0, 0, [0; 5]);
    for _ in 0..40_000 {
        let order = terminal.new_order(&mut random);
        lines += order.lines.len();
        rolled_back += u32::from(order.is_rolled_back(&SCALE));
        for line in order.lines.iter().filter(|line| line.supply_w_id != order.w_id) {
            remote += 1;
            by_warehouse[usize::from(line.supply_w_id)] += 1;
        }
    }
    // The standard deviations are 632, 63 and 20.
    assert!((396_000..=404_000).contains(&lines), "{lines}");
    assert!((3_740..=4_260).contains(&remote), "{remote}");
    assert!((320..=480).contains(&rolled_back), "{rolled_back}");
    // The standard deviation is 35 around 1,333.
    let [_, first, home, third, fourth] = by_warehouse;
    assert_eq!(home, 0);
    assert!([first, third, fourth].iter().all(|lines| (1_180..=1_480).contains(lines)));
}

#[test]
fn fifteen_percent_of_payments_is_remote_and_60_by_name() {
    let (terminal, mut random) = (default_terminal(), stream(3, &[]));
    let (mut remote, mut by_name) = (0, 0);
    for _ in 0..40_000 {
        let payment = terminal.payment(&mut random);
        let is_remote = payment.c_w_id != payment.w_id;
        assert!(is_remote || payment.c_d_id == payment.d_id);
        remote += u32::from(is_remote);
        by_name += u32::from(matches!(payment.customer, Selector::LastName(_)));
    }
    // The standard deviations are 71 and 98.
    assert!((5_700..=6_300).contains(&remote), "{remote}");
    assert!((23_600..=24_400).contains(&by_name), "{by_name}");
}

#[test]
fn a_single_warehouse_has_no_remote_inputs() {
    let shards = Shards::new(Scale { warehouses: 1, ..SCALE }, 1);
    let (terminal, mut random) = (shards.terminal(1, Mix::default()), stream(3, &[]));
    assert!((0..2_000).all(|_| terminal.transaction(&mut random).shards() == [0]));
    assert!(Generator::new(&shards.database, 2, Mix::default()).is_none());
}
