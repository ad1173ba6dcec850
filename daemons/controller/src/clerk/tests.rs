use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onepipe_controller::Unavailable;
use onepipe_transport_driver::Waker;

use super::*;

const REPLICA: ProcessId = ProcessId(7);
/// No test waits for this; it ends one that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store whose clones are one, and which does what it is told to.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    epoch: u32,
    log: Vec<Record>,
    is_down: bool,
    is_taken: bool,
    cannot_load: bool,
    renewals: u32,
    resigned: Vec<Epoch>,
}

impl Told {
    fn set(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut lock(&self.0));
    }

    fn of<T>(
        &self,
        epoch: Epoch,
        done: impl FnOnce(&mut Shared) -> T,
    ) -> Result<T, StoreError<Unavailable>> {
        let mut shared = lock(&self.0);
        if shared.is_down {
            return Err(StoreError::Failed(Unavailable));
        }
        if shared.is_taken || shared.epoch != epoch.0 {
            return Err(StoreError::Deposed);
        }
        Ok(done(&mut shared))
    }
}

impl Store for Told {
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
        self.of(epoch, |shared| shared.renewals += 1)
    }

    fn resign(&mut self, epoch: Epoch) -> Result<(), StoreError<Unavailable>> {
        self.of(epoch, |shared| shared.resigned.push(epoch))
    }

    fn load(&mut self) -> Result<Vec<Record>, Unavailable> {
        let shared = lock(&self.0);
        if shared.is_down || shared.cannot_load { Err(Unavailable) } else { Ok(shared.log.clone()) }
    }

    fn append(&mut self, epoch: Epoch, record: &Record) -> Result<(), StoreError<Unavailable>> {
        self.of(epoch, |shared| shared.log.push(record.clone()))
    }

    fn replace(&mut self, epoch: Epoch, records: &[Record]) -> Result<(), StoreError<Unavailable>> {
        self.of(epoch, |shared| shared.log = records.to_vec())
    }
}

#[derive(Default)]
struct Rings(AtomicUsize);

impl Waker for Rings {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn open(store: &Told) -> (Desk, Arc<Rings>) {
    let rhythm = Rhythm {
        campaign_interval: Duration::from_millis(1),
        renew_interval: Duration::from_millis(1),
        resign_pause: Duration::from_millis(1),
    };
    let rings = Arc::new(Rings::default());
    let doorbell = Doorbell::new(Arc::clone(&rings) as Arc<dyn Waker>);
    (Desk::open(store.clone(), REPLICA, rhythm, doorbell).expect("a thread"), rings)
}

fn next(desk: &Desk) -> News {
    desk.news.recv_timeout(PATIENCE).expect("the clerk has something to tell")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn record() -> Record {
    Record::Members(Vec::new())
}

#[test]
fn it_campaigns_renews_writes_and_resigns_at_the_end() {
    let store = Told::default();
    let (desk, rings) = open(&store);
    let News::Elected(epoch, records) = next(&desk) else { panic!("elected first") };
    assert_eq!((epoch, records), (Epoch(1), vec![]));
    desk.append(epoch, RecordId(4), record());
    assert!(matches!(next(&desk), News::Written(RecordId(4), Ok(()))));
    desk.replace(epoch, vec![record(), record()]);
    until("replaced", || lock(&store.0).log.len() == 2);
    until("renewed", || lock(&store.0).renewals > 2);
    assert!(rings.0.load(Ordering::Relaxed) >= 2, "the machine is woken");
    assert!(desk.state().is_available());
    drop(desk);
    assert_eq!(lock(&store.0).resigned, [epoch]);
}

#[test]
fn a_store_that_is_down_is_waited_for_and_told_of() {
    let store = Told::default();
    store.set(|shared| shared.is_down = true);
    let (desk, _) = open(&store);
    until("it has tried", || desk.state().failures > 2);
    let state = desk.state();
    assert!(!state.is_available());
    assert_eq!(state.error.as_deref(), Some("the store is not available"));
    assert!(desk.news().is_none());
    store.set(|shared| shared.is_down = false);
    let News::Elected(epoch, _) = next(&desk) else { panic!("elected") };
    until("it has answered", || desk.state().is_available());
    store.set(|shared| shared.is_down = true);
    desk.append(epoch, RecordId(1), record());
    assert!(matches!(next(&desk), News::Written(RecordId(1), Err(Refused::Failed))));
    store.set(|shared| shared.is_down = false);
    desk.append(epoch, RecordId(1), record());
    assert!(matches!(next(&desk), News::Written(RecordId(1), Ok(()))), "its epoch goes on");
}

#[test]
fn nobody_is_told_of_an_election_before_the_log_is_read() {
    let store = Told::default();
    store.set(|shared| shared.cannot_load = true);
    let (desk, _) = open(&store);
    until("it has tried", || desk.state().failures > 2);
    assert!(desk.news().is_none());
    store.set(|shared| {
        shared.cannot_load = false;
        shared.log.push(record());
    });
    let News::Elected(epoch, records) = next(&desk) else { panic!("elected") };
    assert_eq!((epoch, records), (Epoch(1), vec![record()]));
}

#[test]
fn who_is_deposed_hears_of_it_once_and_campaigns_again() {
    let store = Told::default();
    let (desk, _) = open(&store);
    let News::Elected(first, _) = next(&desk) else { panic!("elected") };
    store.set(|shared| shared.is_taken = true);
    let News::Deposed(over) = next(&desk) else { panic!("the next renewal says so") };
    assert_eq!(over, first);
    desk.append(first, RecordId(9), record());
    assert!(matches!(next(&desk), News::Written(RecordId(9), Err(Refused::Deposed))));
    assert!(desk.news().is_none());
    store.set(|shared| shared.is_taken = false);
    let News::Elected(second, _) = next(&desk) else { panic!("elected again") };
    assert!(second > first);
    desk.resign(second);
    assert!(matches!(next(&desk), News::Deposed(over) if over == second));
    assert!(matches!(next(&desk), News::Elected(third, _) if third > second));
}
