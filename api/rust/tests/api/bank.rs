//! What a branch of the example `bank` does when it was declared failed.

#[path = "../../examples/bank.rs"]
#[expect(dead_code, reason = "this test runs no fabric")]
mod example;

use example::{Branch, Request};
use onepipe::{Event, ProcessId, Received, Service, Timestamp};

/// Returns a deposit or withdrawal that process `from` has sent at `ns`.
fn transfer(from: u32, ns: u64, amount: i64) -> Event {
    Event::Message(Received {
        service: Service::Reliable,
        timestamp: Timestamp::from_ns(ns),
        from: ProcessId(from),
        index: 0,
        payload: Request::Add(amount).write().to_vec(),
    })
}

/// Deliveries of its own messages from the failure on are void; those of others are not, and
/// neither are earlier ones of its own.
#[test]
fn declared_failed_branch_takes_void_transfers_back() {
    let mut branch = Branch::new(ProcessId(1));
    for event in [
        transfer(1, 10, -5),
        transfer(0, 20, 70),
        transfer(1, 29, -100),
        transfer(1, 30, -1_000),
        transfer(2, 30, 600),
        transfer(0, 31, 8_000),
        transfer(1, 40, -20_000),
    ] {
        branch.on_event(event).expect("a request");
    }
    let void_from = Timestamp::from_ns(30);
    let ended = branch.on_event(Event::Excluded { void_from }).expect_err("the branch closes");
    let balance = 1_000 - 5 + 70 - 100 + 600 + 8_000;
    assert_eq!(ended.to_string(), format!("declared failed with balance {balance}"));
}
