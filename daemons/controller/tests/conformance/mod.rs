//! The properties that every store must have.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use onepipe_base::{Incarnation, ProcessId, Timestamp};
use onepipe_controller::{Epoch, Record, Store, StoreError};
use onepipe_wire::Undeliverable;

/// Far longer than any lease, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

pub const ONE: ProcessId = ProcessId(90);
pub const OTHER: ProcessId = ProcessId(91);

/// A log that replicas share.
pub trait Shared {
    type Store: Store<Error: Debug>;

    /// Returns the log as seen by one more replica.
    fn replica(&mut self) -> Self::Store;

    /// Makes `active` stop renewing, while its store may still be called.
    fn stop_renewing(&mut self, active: &mut Self::Store);
}

/// Returns a record that differs for each number.
pub fn record(number: u32) -> Record {
    let (to, incarnation) = (ProcessId(7), Incarnation(1));
    let entry = Undeliverable { to, incarnation, timestamp: Timestamp::from_ns(1 << 50) };
    Record::Undeliverable { sender: ProcessId(number), entries: vec![entry] }
}

pub fn numbers(records: &[Record]) -> Vec<u32> {
    let number = |record: &Record| match record {
        Record::Undeliverable { sender, .. } => Some(sender.0),
        _ => None,
    };
    records.iter().filter_map(number).collect()
}

/// Campaigns until no other replica is active.
pub fn campaign<S: Store<Error: Debug>>(store: &mut S, replica: ProcessId) -> Epoch {
    let began = Instant::now();
    loop {
        if let Some(epoch) = store.campaign(replica).expect("the store is available") {
            return epoch;
        }
        assert!(began.elapsed() < TIMEOUT, "{replica:?} does not become active");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs all checks, with a new log for each.
pub fn check_conformance<L: Shared>(mut log: impl FnMut() -> L) {
    one_replica_is_active(log());
    deposed_epoch_cannot_write(log());
    active_replica_wins_again_at_once(log());
    log_is_replaced_atomically(log());
    resigning_frees_the_election_at_once(log());
    epochs_rise(log());
}

fn one_replica_is_active(mut log: impl Shared) {
    let (mut one, mut other) = (log.replica(), log.replica());
    let epoch = campaign(&mut one, ONE);
    assert_eq!(epoch, Epoch(1));
    for number in 0..3 {
        one.append(epoch, &record(number)).expect("active");
        assert_eq!(other.campaign(OTHER).expect("available"), None);
        one.renew(epoch).expect("active");
    }
    let epoch_record = Record::Epoch { epoch, replica: ONE };
    assert_eq!(one.load().expect("available"), [epoch_record, record(0), record(1), record(2)]);
    let wrong = Epoch(epoch.0 + 1);
    assert!(matches!(one.append(wrong, &record(9)), Err(StoreError::Deposed)));
    assert!(matches!(other.append(wrong, &record(9)), Err(StoreError::Deposed)));
    assert!(matches!(other.renew(wrong), Err(StoreError::Deposed)));
}

fn deposed_epoch_cannot_write(mut log: impl Shared) {
    let (mut one, mut other) = (log.replica(), log.replica());
    let first = campaign(&mut one, ONE);
    one.append(first, &record(1)).expect("active");
    log.stop_renewing(&mut one);
    let second = campaign(&mut other, OTHER);
    assert!(second > first);
    assert!(matches!(one.append(first, &record(2)), Err(StoreError::Deposed)));
    assert!(matches!(one.replace(first, &[]), Err(StoreError::Deposed)));
    assert!(matches!(one.renew(first), Err(StoreError::Deposed)));
    assert!(matches!(one.resign(first), Err(StoreError::Deposed)));
    other.append(second, &record(3)).expect("active");
    assert_eq!(one.campaign(ONE).expect("available"), None);
    let epoch = |epoch, replica| Record::Epoch { epoch, replica };
    let expected = [epoch(first, ONE), record(1), epoch(second, OTHER), record(3)];
    assert_eq!(other.load().expect("available"), expected);
}

fn active_replica_wins_again_at_once(mut log: impl Shared) {
    let mut previous = log.replica();
    let first = campaign(&mut previous, ONE);
    previous.append(first, &record(1)).expect("active");
    drop(previous);
    let mut again = log.replica();
    let second = again.campaign(ONE).expect("available").expect("it was active itself");
    assert!(second > first);
    let third = again.campaign(ONE).expect("available").expect("and still is");
    assert!(third > second);
    assert!(matches!(again.append(second, &record(2)), Err(StoreError::Deposed)));
    again.append(third, &record(3)).expect("active");
    assert_eq!(numbers(&again.load().expect("available")), [1, 3]);
}

fn log_is_replaced_atomically(mut log: impl Shared) {
    let mut store = log.replica();
    let epoch = campaign(&mut store, ONE);
    store.append(epoch, &record(7)).expect("active");
    // More than fits one batch of any store.
    let many: Vec<Record> = (1000..1700).map(record).collect();
    store.replace(epoch, &many).expect("active");
    assert_eq!(store.load().expect("available"), many);
    store.append(epoch, &record(8)).expect("active");
    assert_eq!(store.load().expect("available").last(), Some(&record(8)));
    assert_eq!(store.load().expect("available").len(), many.len() + 1);
    store.replace(epoch, &[record(1), record(2)]).expect("active");
    store.append(epoch, &record(3)).expect("active");
    assert_eq!(store.load().expect("available"), [record(1), record(2), record(3)]);
    store.replace(epoch, &[]).expect("active");
    assert_eq!(store.load().expect("available"), []);
    log.stop_renewing(&mut store);
    let mut other = log.replica();
    let later = campaign(&mut other, OTHER);
    assert!(later > epoch, "the epoch is not forgotten with the log");
    other.replace(later, &[record(5)]).expect("active");
    other.append(later, &record(6)).expect("active");
    assert_eq!(other.load().expect("available"), [record(5), record(6)]);
}

fn resigning_frees_the_election_at_once(mut log: impl Shared) {
    let (mut one, mut other) = (log.replica(), log.replica());
    let first = campaign(&mut one, ONE);
    one.resign(first).expect("active");
    let second = other.campaign(OTHER).expect("available").expect("no replica is active");
    assert!(matches!(one.append(first, &record(1)), Err(StoreError::Deposed)));
    other.resign(second).expect("active");
    let third = one.campaign(ONE).expect("available").expect("no replica is active");
    assert!(first < second && second < third);
}

fn epochs_rise(mut log: impl Shared) {
    let mut epochs = Vec::new();
    for turn in 0..6 {
        let mut store = log.replica();
        let replica = if turn % 2 == 0 { ONE } else { OTHER };
        let epoch = campaign(&mut store, replica);
        store.append(epoch, &record(turn)).expect("active");
        store.resign(epoch).expect("active");
        epochs.push(epoch);
    }
    assert!(epochs.is_sorted_by(|one, next| one < next), "{epochs:?}");
    let mut store = log.replica();
    campaign(&mut store, ONE);
    assert_eq!(numbers(&store.load().expect("available")), [0, 1, 2, 3, 4, 5]);
}
