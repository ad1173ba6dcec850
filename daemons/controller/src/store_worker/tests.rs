use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onepipe_controller::Unavailable;
use onepipe_transport_driver::Waker;

use super::*;

const REPLICA: ProcessId = ProcessId(7);
/// Longer than any test waits; ends a test that would hang.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A store whose clones share their state, and which the test controls.
#[derive(Clone, Default)]
struct ScriptedStore(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    epoch: u32,
    log: Vec<Record>,
    is_down: bool,
    is_taken: bool,
    cannot_load: bool,
    panics_on_load: bool,
    renewals: u32,
    resigned: Vec<Epoch>,
}

impl ScriptedStore {
    fn set(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut lock(&self.0));
    }

    fn in_epoch<T>(
        &self,
        epoch: Epoch,
        operation: impl FnOnce(&mut Shared) -> T,
    ) -> Result<T, StoreError<Unavailable>> {
        let mut shared = lock(&self.0);
        if shared.is_down {
            return Err(StoreError::Failed(Unavailable));
        }
        if shared.is_taken || shared.epoch != epoch.0 {
            return Err(StoreError::Deposed);
        }
        Ok(operation(&mut shared))
    }
}

impl Store for ScriptedStore {
    type Error = Unavailable;

    fn campaign(&mut self, _: ProcessId) -> Result<Option<Epoch>, Unavailable> {
        let mut shared = lock(&self.0);
        if shared.is_down {
            return Err(Unavailable);
        }
        if shared.is_taken {
            return Ok(None);
        }
        shared.epoch += 1;
        Ok(Some(Epoch(shared.epoch)))
    }

    fn renew(&mut self, epoch: Epoch) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.renewals += 1)
    }

    fn resign(&mut self, epoch: Epoch) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.resigned.push(epoch))
    }

    fn load(&mut self) -> Result<Vec<Record>, Unavailable> {
        let shared = lock(&self.0);
        assert!(!shared.panics_on_load, "page 7 has a wrong checksum");
        if shared.is_down || shared.cannot_load { Err(Unavailable) } else { Ok(shared.log.clone()) }
    }

    fn append(&mut self, epoch: Epoch, record: &Record) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.log.push(record.clone()))
    }

    fn replace(&mut self, epoch: Epoch, records: &[Record]) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.log = records.to_vec())
    }
}

#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Waker for WakeCount {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn open(store: &ScriptedStore) -> (StoreHandle, Arc<WakeCount>) {
    let timers = ElectionTimers {
        campaign_interval: Duration::from_millis(1),
        renew_interval: Duration::from_millis(1),
        resign_pause: Duration::from_millis(1),
    };
    let wakes = Arc::new(WakeCount::default());
    let doorbell = Doorbell::new(Arc::clone(&wakes) as Arc<dyn Waker>);
    (StoreHandle::open(store.clone(), REPLICA, timers, doorbell).expect("a thread"), wakes)
}

fn next_of_any_kind(handle: &StoreHandle) -> StoreEvent {
    handle.events.recv_timeout(TIMEOUT).expect("an event of the store worker")
}

/// Returns the next event, without reports of the state.
fn next(handle: &StoreHandle) -> StoreEvent {
    let is_state = |event: &_| matches!(event, StoreEvent::Failed(_) | StoreEvent::Recovered);
    std::iter::repeat_with(|| next_of_any_kind(handle)).find(|event| !is_state(event)).expect("one")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn record() -> Record {
    Record::Members(Vec::new())
}

#[test]
fn campaigns_renews_appends_and_resigns_on_drop() {
    let store = ScriptedStore::default();
    let (handle, wakes) = open(&store);
    let StoreEvent::Elected(epoch, records) = next(&handle) else { panic!("elected first") };
    assert_eq!((epoch, records), (Epoch(1), vec![]));
    handle.append(epoch, RecordId(4), record());
    assert!(matches!(next(&handle), StoreEvent::Written(RecordId(4), Ok(()))));
    handle.replace(epoch, vec![record(), record()]);
    until("replaced", || lock(&store.0).log.len() == 2);
    until("renewed", || lock(&store.0).renewals > 2);
    assert!(wakes.0.load(Ordering::Relaxed) >= 2, "the machine is woken");
    assert!(handle.state().is_available());
    drop(handle);
    assert_eq!(lock(&store.0).resigned, [epoch]);
}

//= spec/failure.md#R53
#[test]
fn unavailable_store_is_retried_and_reported() {
    let store = ScriptedStore::default();
    store.set(|shared| shared.is_down = true);
    let (handle, _) = open(&store);
    until("it has tried", || handle.state().failures > 2);
    let state = handle.state();
    assert!(!state.is_available());
    assert_eq!(state.error.as_deref(), Some("the store is not available"));
    let StoreEvent::Failed(reason) = next_of_any_kind(&handle) else { panic!("reported") };
    assert_eq!(reason, "the store is not available");
    assert!(handle.poll_event().is_ok_and(|event| event.is_none()), "reported once");
    store.set(|shared| shared.is_down = false);
    assert!(matches!(next_of_any_kind(&handle), StoreEvent::Recovered));
    let StoreEvent::Elected(epoch, _) = next_of_any_kind(&handle) else { panic!("elected") };
    until("it has answered", || handle.state().is_available());
    store.set(|shared| shared.is_down = true);
    handle.append(epoch, RecordId(1), record());
    assert!(matches!(next(&handle), StoreEvent::Written(RecordId(1), Err(PersistError::Failed))));
    store.set(|shared| shared.is_down = false);
    handle.append(epoch, RecordId(1), record());
    assert!(
        matches!(next(&handle), StoreEvent::Written(RecordId(1), Ok(()))),
        "its epoch is still current"
    );
}

#[test]
fn election_is_reported_after_the_log_is_loaded() {
    let store = ScriptedStore::default();
    store.set(|shared| shared.cannot_load = true);
    let (handle, _) = open(&store);
    until("it has tried", || handle.state().failures > 2);
    assert!(matches!(next_of_any_kind(&handle), StoreEvent::Failed(_)));
    assert!(handle.poll_event().is_ok_and(|event| event.is_none()));
    store.set(|shared| {
        shared.cannot_load = false;
        shared.log.push(record());
    });
    let StoreEvent::Elected(epoch, records) = next(&handle) else { panic!("elected") };
    assert_eq!((epoch, records), (Epoch(1), vec![record()]));
}

#[test]
fn deposition_is_reported_once_before_campaigning_again() {
    let store = ScriptedStore::default();
    let (handle, _) = open(&store);
    let StoreEvent::Elected(first, _) = next(&handle) else { panic!("elected") };
    store.set(|shared| shared.is_taken = true);
    let StoreEvent::Deposed(over) = next(&handle) else { panic!("reported by the next renewal") };
    assert_eq!(over, first);
    handle.append(first, RecordId(9), record());
    assert!(matches!(next(&handle), StoreEvent::Written(RecordId(9), Err(PersistError::Deposed))));
    assert!(handle.poll_event().is_ok_and(|event| event.is_none()));
    store.set(|shared| shared.is_taken = false);
    let StoreEvent::Elected(second, _) = next(&handle) else { panic!("elected again") };
    assert!(second > first);
    handle.resign(second);
    assert!(matches!(next(&handle), StoreEvent::Deposed(over) if over == second));
    assert!(matches!(next(&handle), StoreEvent::Elected(third, _) if third > second));
}

//= spec/failure.md#R53
#[test]
fn panic_of_the_store_is_an_error() {
    let store = ScriptedStore::default();
    store.set(|shared| shared.panics_on_load = true);
    let (handle, wakes) = open(&store);
    let mut error = None;
    until("the panic is reported", || {
        error = handle.poll_event().err();
        error.is_some()
    });
    let expected = "its thread has panicked: page 7 has a wrong checksum";
    assert!(error.is_some_and(|error| error.to_string().contains(expected)));
    until("the machine is woken", || wakes.0.load(Ordering::Relaxed) > 0);
    assert!(handle.poll_event().is_err(), "for ever");
}
