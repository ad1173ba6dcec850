//! Rivals in the simulated network: TPC-C ends consistent, with equal replicas and without locks,
//! also when frames are lost.

use onepipe_transaction::ReadMode;
use onepipe_verify_transactions::{
    KeyMix, Protocol, READ_ONLY, READ_WRITE, TpccRun, ValuesRun, WRITE_ONLY,
};

/// Runs TPC-C with 8 clients. Returns the number of transactions after checking the warehouses.
fn tpcc(protocol: Protocol, loss_ppb: u32) -> u64 {
    let run = TpccRun { protocol, loss_ppb, terminals: 4, ..TpccRun::new(8, 100) };
    let tpcc = run.run().expect("the processes fit");
    assert_eq!(tpcc.violations, Vec::<String>::new(), "{protocol:?}, {loss_ppb} ppb lost");
    tpcc.ordered + tpcc.paid
}

#[test]
fn tpcc_is_consistent_with_locks_and_with_versions() {
    for protocol in [Protocol::TwoPhaseLocking, Protocol::Optimistic, Protocol::Farm] {
        for loss_ppb in [0, 20_000_000] {
            assert!(tpcc(protocol, loss_ppb) > 50, "{protocol:?}");
        }
    }
}

#[test]
fn without_concurrency_control_more_transactions_end() {
    let (upper, locked) = (tpcc(Protocol::NonTx, 0), tpcc(Protocol::TwoPhaseLocking, 0));
    assert!(upper > locked, "{upper} and {locked}");
}

#[test]
fn clients_take_time_between_transactions() {
    // Time from one transaction of a client to its next, in us.
    let period_us = |client_ns| {
        let protocol = Protocol::NonTx;
        let run = TpccRun { protocol, client_ns, terminals: 1, ..TpccRun::new(8, 100) };
        8e6 / run.run().expect("the processes fit").per_s
    };
    let (at_once, later) = (period_us(0), period_us(30_000));
    assert!((later - at_once - 30.0).abs() < 2.0, "{at_once} and {later} us");
}

#[test]
fn hot_keys_make_transactions_abort_unless_nothing_is_locked() {
    let run = |protocol| {
        let keys = KeyMix::Uniform(8);
        let run = ValuesRun { protocol, keys, ..ValuesRun::new(4, ReadMode::Strict) };
        run.run().expect("the processes fit")
    };
    for protocol in [Protocol::Farm, Protocol::TwoPhaseLocking, Protocol::Optimistic] {
        let figures = run(protocol);
        assert!(figures.repeated > 0.0, "{protocol:?}");
        assert!(
            [READ_ONLY, WRITE_ONLY, READ_WRITE]
                .iter()
                .all(|class| figures.latency.contains_key(class))
        );
    }
    assert_eq!(run(Protocol::NonTx).repeated, 0.0);
}
