//! The store of the controllers' decisions, and the election of the active replica.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, makes};

use crate::{Epoch, Record};

/// A log of records that all replicas share, and an election among them.
///
/// The calls block. The caller of the machine makes them and passes the results on.
pub trait Store {
    /// Why the store itself failed; whether the operation took effect is then unknown.
    type Error;

    /// Tries to become the active replica. Returns the new epoch, above all earlier ones, or `None`
    /// while another replica is active and has renewed in time. A replica that was active itself
    /// (and forgot it in a crash) gets a new epoch at once. Afterwards the log contains the
    /// [`Record::Epoch`].
    ///
    /// # Errors
    /// When the store does not answer.
    fn campaign(&mut self, replica: ProcessId) -> Result<Option<Epoch>, Self::Error>;

    /// Renews the lease of `epoch`. Its duration is the store's configuration.
    ///
    /// # Errors
    /// [`StoreError::Deposed`] when `epoch` is over.
    fn renew(&mut self, epoch: Epoch) -> Result<(), StoreError<Self::Error>>;

    /// Steps down: the next campaign succeeds at once.
    ///
    /// # Errors
    /// [`StoreError::Deposed`] when `epoch` is over.
    fn resign(&mut self, epoch: Epoch) -> Result<(), StoreError<Self::Error>>;

    /// Returns all records in the order in which they were appended, including every append that
    /// was acknowledged before, to whichever replica.
    ///
    /// # Errors
    /// When the store does not answer, or contains an invalid record.
    fn load(&mut self) -> Result<Vec<Record>, Self::Error>;

    /// Appends a record durably if `epoch` is still current, in one atomic step.
    ///
    /// # Errors
    /// [`StoreError::Deposed`] when `epoch` is over: nothing was written. After
    /// [`StoreError::Failed`] the record may have been written, or may be written later; the
    /// machine offers it again, so a log may contain a record twice.
    fn append(&mut self, epoch: Epoch, record: &Record) -> Result<(), StoreError<Self::Error>>;

    /// Replaces the whole log by `records`, an equivalent shorter log, if `epoch` is still current,
    /// in one atomic step. A crash leaves the old log or the new one.
    ///
    /// # Errors
    /// As [`Store::append`].
    fn replace(&mut self, epoch: Epoch, records: &[Record]) -> Result<(), StoreError<Self::Error>>;
}

/// Why a store has not done what an active replica asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError<E> {
    /// The epoch is over: another replica is active, or may become so.
    #[error("the epoch is over: another controller may be active")]
    Deposed,
    /// The store itself has failed.
    #[error("the store has failed")]
    Failed(#[source] E),
}

/// The store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the store is not available")]
pub struct Unavailable;

/// A store in memory, for tests and simulations; clones share one log. Leases do not expire by
/// themselves, see [`MemoryStore::expire_lease`].
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    shared: Rc<RefCell<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    log: Vec<Record>,
    epoch: u32,
    active: Option<ProcessId>,
    is_unavailable: bool,
}

impl Shared {
    /// Returns the last epoch of the log.
    fn last_epoch(&self) -> Option<Epoch> {
        self.log.iter().rev().find_map(|record| match record {
            Record::Epoch { epoch, .. } => Some(*epoch),
            _ => None,
        })
    }
}

impl MemoryStore {
    /// Creates an empty store that is available.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expires the lease of the active replica: the next campaign succeeds. Until then the epoch
    /// stays current, as with an expired lease that no replica has taken over.
    pub fn expire_lease(&self) {
        self.shared.borrow_mut().active = None;
    }

    /// Ends the epoch now: all further operations of the active replica are rejected.
    pub fn depose(&self) {
        let mut shared = self.shared.borrow_mut();
        shared.active = None;
        shared.epoch += 1;
    }

    /// Sets whether the store answers from now on.
    pub fn set_available(&self, is_available: bool) {
        self.shared.borrow_mut().is_unavailable = !is_available;
    }

    /// Replaces the whole store by one with these records, as an operator does who copies an old
    /// file back: the epoch is that of the last [`Record::Epoch`], and no replica is active.
    pub fn put_back(&self, records: Vec<Record>) {
        let mut shared = self.shared.borrow_mut();
        let epochs = records.iter().filter_map(|record| match record {
            Record::Epoch { epoch, .. } => Some(epoch.0),
            _ => None,
        });
        shared.epoch = epochs.max().unwrap_or(0);
        (shared.log, shared.active) = (records, None);
    }

    /// Returns the log.
    pub fn records(&self) -> Vec<Record> {
        self.shared.borrow().log.clone()
    }

    //= spec/failure.md#R24
    fn in_epoch<T>(
        &mut self,
        epoch: Epoch,
        operation: impl FnOnce(&mut Shared) -> T,
    ) -> Result<T, StoreError<Unavailable>> {
        let mut shared = self.shared.borrow_mut();
        if shared.is_unavailable {
            return Err(StoreError::Failed(Unavailable));
        }
        if shared.epoch != epoch.0 {
            return Err(StoreError::Deposed);
        }
        Ok(operation(&mut shared))
    }
}

impl Store for MemoryStore {
    type Error = Unavailable;

    fn campaign(&mut self, replica: ProcessId) -> Result<Option<Epoch>, Unavailable> {
        let mut shared = self.shared.borrow_mut();
        if shared.is_unavailable {
            return Err(Unavailable);
        }
        if shared.active.is_some_and(|active| active != replica) {
            return Ok(None);
        }
        if shared.epoch == 0 || !makes(Mistake::TwoActive) {
            shared.epoch += 1;
        }
        shared.active = Some(replica);
        let epoch = Epoch(shared.epoch);
        let last = shared.last_epoch();
        assert!(last.is_none_or(|last| last < epoch), "each epoch is given once");
        shared.log.push(Record::Epoch { epoch, replica });
        Ok(Some(epoch))
    }

    fn renew(&mut self, epoch: Epoch) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |_| ())
    }

    fn resign(&mut self, epoch: Epoch) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.active = None)
    }

    fn load(&mut self) -> Result<Vec<Record>, Unavailable> {
        let shared = self.shared.borrow();
        if shared.is_unavailable { Err(Unavailable) } else { Ok(shared.log.clone()) }
    }

    fn append(&mut self, epoch: Epoch, record: &Record) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.log.push(record.clone()))
    }

    fn replace(&mut self, epoch: Epoch, records: &[Record]) -> Result<(), StoreError<Unavailable>> {
        self.in_epoch(epoch, |shared| shared.log = records.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const ONE: ProcessId = ProcessId(90);
    const OTHER: ProcessId = ProcessId(91);

    //= spec/failure.md#R24
    #[test]
    fn deposed_replica_cannot_write() {
        let mut store = MemoryStore::new();
        let mut other = store.clone();
        let record = Record::Resumed { instances: vec![], links: vec![] };
        assert_eq!(store.campaign(ONE), Ok(Some(Epoch(1))));
        assert_eq!(other.campaign(OTHER), Ok(None));
        assert_eq!(store.append(Epoch(1), &record), Ok(()));
        store.expire_lease();
        assert_eq!(store.renew(Epoch(1)), Ok(()), "no other replica took over");
        assert_eq!(other.campaign(OTHER), Ok(Some(Epoch(2))));
        assert_eq!(store.append(Epoch(1), &record), Err(StoreError::Deposed));
        assert_eq!(store.replace(Epoch(1), &[]), Err(StoreError::Deposed));
        assert_eq!(store.renew(Epoch(1)), Err(StoreError::Deposed));
        assert_eq!(other.campaign(OTHER), Ok(Some(Epoch(3))), "a restarted replica wins at once");
        let epoch = |epoch, replica| Record::Epoch { epoch: Epoch(epoch), replica };
        let log = vec![epoch(1, ONE), record.clone(), epoch(2, OTHER), epoch(3, OTHER)];
        assert_eq!(store.load(), Ok(log));
        assert_eq!(other.replace(Epoch(3), core::slice::from_ref(&record)), Ok(()));
        assert_eq!(store.records(), [record]);
        assert_eq!(other.resign(Epoch(3)), Ok(()));
        assert_eq!(store.campaign(ONE), Ok(Some(Epoch(4))));
    }

    #[test]
    fn unavailable_store_rejects_every_call() {
        let mut store = MemoryStore::new();
        store.campaign(ONE).expect("available");
        store.set_available(false);
        assert_eq!(
            store.append(Epoch(1), &Record::Resumed { instances: vec![], links: vec![] }),
            Err(StoreError::Failed(Unavailable))
        );
        assert_eq!((store.load(), store.campaign(ONE)), (Err(Unavailable), Err(Unavailable)));
        store.set_available(true);
        assert_eq!(store.records().len(), 1);
        store.depose();
        assert_eq!(store.renew(Epoch(1)), Err(StoreError::Deposed));
    }
}
