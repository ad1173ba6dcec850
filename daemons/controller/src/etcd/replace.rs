//! Writes to the log: single records, or a replacement of the whole log.

use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};
use onepipe_controller::{Epoch, Record, StoreError};

use super::keys::number;
use super::{Answer, EtcdError, EtcdStore, RACES_MAX, encode, pairs};

/// Limits of one transaction, below etcd's own limits (128 operations, 1.5 MiB per request).
const BATCH_RECORDS: usize = 100;
const BATCH_BYTES: usize = 512 << 10;

impl EtcdStore {
    /// Writes one record of `epoch`, if `generation` is current. Otherwise returns false and notes
    /// the current generation.
    pub(super) fn write(
        &mut self,
        epoch: Epoch,
        generation: u64,
        record_number: u64,
        bytes: &[u8],
    ) -> Result<bool, StoreError<EtcdError>> {
        let key = self.keys.record(generation, epoch, record_number);
        let txn = Txn::new()
            .when([self.guard(epoch), self.is_generation(generation)])
            .and_then([TxnOp::put(key.clone(), bytes, None)])
            .or_else([
                TxnOp::get(key, None),
                TxnOp::get(self.keys.epoch(), None),
                TxnOp::get(self.keys.generation(), None),
            ]);
        let Answer { value, is_repeated } = self.transact(txn).map_err(StoreError::Failed)?;
        if value.succeeded() {
            return Ok(true);
        }
        let [written, current_epoch, current_generation] = pairs(&value);
        if written.is_some() {
            // An attempt whose answer was lost has written the record, before the epoch or the
            // generation was over.
            return Ok(true);
        }
        let (current_epoch, _) = number(current_epoch.as_ref()).map_err(StoreError::Failed)?;
        let (current_generation, _) =
            number(current_generation.as_ref()).map_err(StoreError::Failed)?;
        if current_epoch == u64::from(epoch.0) {
            self.term_of(epoch)?.generation = current_generation;
            return Ok(false);
        }
        let deposed = self.mark_deposed();
        if is_repeated && current_generation != generation {
            // The successor has replaced the log: whether the record was in it is unknown.
            let reason = "the epoch ended while a record was being written".to_owned();
            return Err(StoreError::Failed(self.lost_race(reason)));
        }
        Err(deposed)
    }

    /// Writes a new generation beside the log, then makes it current.
    pub(super) fn replace_log(
        &mut self,
        epoch: Epoch,
        records: &[Record],
    ) -> Result<(), StoreError<EtcdError>> {
        let records: Vec<Vec<u8>> = records.iter().map(encode).collect();
        for _ in 0..RACES_MAX {
            let term = self.term_of(epoch)?;
            let old = term.generation;
            term.generation_last = term.generation_last.max(old) + 1;
            let new = term.generation_last;
            let revision = self.clear(epoch, new)?;
            self.fill(epoch, new, &records)?;
            if self.exchange(epoch, old, new, revision)? {
                let term = self.term_of(epoch)?;
                term.generation = new;
                term.next = term.next.max(records.len() as u64);
                return Ok(());
            }
        }
        let reason = "records were written while the log was being replaced".to_owned();
        Err(StoreError::Failed(self.lost_race(reason)))
    }

    /// Removes the records of generation `new` and later ones, which an earlier epoch may have
    /// written partially. Returns the revision of the removal: later appends have a higher one.
    fn clear(&mut self, epoch: Epoch, new: u64) -> Result<i64, StoreError<EtcdError>> {
        let to_end = DeleteOptions::new().with_range(self.keys.logs_end());
        let txn = Txn::new()
            .when([self.guard(epoch)])
            .and_then([TxnOp::delete(self.keys.log(new), Some(to_end))]);
        let answer = self.transact(txn).map_err(StoreError::Failed)?.value;
        if !answer.succeeded() {
            return Err(self.mark_deposed());
        }
        Ok(answer.header().map_or(0, |header| header.revision()))
    }

    /// Writes all records into generation `new`, in transactions of limited size.
    fn fill(
        &mut self,
        epoch: Epoch,
        new: u64,
        records: &[Vec<u8>],
    ) -> Result<(), StoreError<EtcdError>> {
        let mut at = 0;
        while at < records.len() {
            let mut operations = Vec::new();
            let mut bytes = 0;
            while at < records.len()
                && operations.len() < BATCH_RECORDS
                && (operations.is_empty() || bytes + records[at].len() <= BATCH_BYTES)
            {
                bytes += records[at].len();
                let key = self.keys.record(new, epoch, at as u64);
                operations.push(TxnOp::put(key, records[at].as_slice(), None));
                at += 1;
            }
            let txn = Txn::new().when([self.guard(epoch)]).and_then(operations);
            if !self.transact(txn).map_err(StoreError::Failed)?.value.succeeded() {
                return Err(self.mark_deposed());
            }
        }
        Ok(())
    }

    /// Makes generation `new` current in place of `old`, unless a record was appended to `old`
    /// after `revision`: an append whose answer was lost may take effect late. Returns whether
    /// `new` is current.
    fn exchange(
        &mut self,
        epoch: Epoch,
        old: u64,
        new: u64,
        revision: i64,
    ) -> Result<bool, StoreError<EtcdError>> {
        let log = self.keys.log(old);
        let untouched = Compare::mod_revision(log, CompareOp::Less, revision + 1)
            .with_range(self.keys.log(old + 1));
        let before = DeleteOptions::new().with_range(self.keys.log(new));
        let to_end = DeleteOptions::new().with_range(self.keys.logs_end());
        let txn = Txn::new()
            .when([self.guard(epoch), self.is_generation(old), untouched])
            .and_then([
                TxnOp::put(self.keys.generation(), new.to_string(), None),
                TxnOp::delete(self.keys.logs(), Some(before)),
                TxnOp::delete(self.keys.log(new + 1), Some(to_end)),
            ])
            .or_else([
                TxnOp::get(self.keys.epoch(), None),
                TxnOp::get(self.keys.generation(), None),
            ]);
        let answer = self.transact(txn).map_err(StoreError::Failed)?.value;
        if answer.succeeded() {
            return Ok(true);
        }
        let [current_epoch, current_generation] = pairs(&answer);
        let (current_epoch, _) = number(current_epoch.as_ref()).map_err(StoreError::Failed)?;
        let (current_generation, _) =
            number(current_generation.as_ref()).map_err(StoreError::Failed)?;
        if current_epoch != u64::from(epoch.0) {
            return Err(self.mark_deposed());
        }
        self.term_of(epoch)?.generation = current_generation;
        // An attempt whose answer was lost may have made `new` current.
        Ok(current_generation == new)
    }

    fn is_generation(&self, generation: u64) -> Compare {
        Compare::value(self.keys.generation(), CompareOp::Equal, generation.to_string())
    }
}
