//! The state of a shard: its keys with values, versions and expiries.

mod data;
mod execute;
mod expiry;
mod hashes;
mod image;
mod keys;
mod lists;
mod sets;
mod sorted_sets;
mod strings;
mod view;
mod writer;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_transaction::{Exact, State};

use crate::codec::Field;
use crate::key::Key;
use crate::operation::{Operation, decode_part};
use crate::value::Value;
use data::Entry;
use view::View;
use writer::Writer;

/// First byte of the results of a part that has been executed. The results of its operations
/// follow.
pub(crate) const EXECUTED: u8 = 0;
/// The only byte of the results of a part that cannot be parsed, or that writes in a read.
pub(crate) const REFUSED: u8 = 1;

/// As [`EXECUTED`], without the results of the last operations: these would not fit in a message.
pub(crate) const TRUNCATED: u8 = 2;

/// Length of the results of a part, in bytes, above which those of its last operations are left
/// out. The longest message of a fabric has 16 MiB. All replicas must have the same limit.
const RESULTS_LEN_MAX: usize = 15 << 20;

/// Number of expired keys that one write removes, besides those that it names. As most writes set
/// fewer expiries, expired keys do not accumulate.
const SWEEP_MAX: usize = 16;

/// The keys of one shard.
///
/// A key is expired for a transaction at timestamp `at` if its expiry is at or before `at`. Whether
/// an expired key is still in memory makes no difference to any reply; it is removed by the next
/// write that names it, or with a few others by any write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    entries: BTreeMap<Key, Entry>,
    /// Every key with an expiry, the earliest first.
    expiries: BTreeSet<(Timestamp, Key)>,
    /// The last timestamp at which a removed key became absent, by a write or by its expiry. Every
    /// absent key has been absent at least since.
    removed: Option<Timestamp>,
    /// Timestamp of the last executed part that may write.
    written: Option<Timestamp>,
}

impl State for Store {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        let Some(operations) = decode_part(part) else {
            results.push(REFUSED);
            return;
        };
        let mut results = Results::new(results);
        // A part that only reads changes nothing, and removes no expired keys, either.
        let is_write = operations.iter().any(Operation::is_write);
        if is_write {
            self.written = Some(at);
        }
        let mut writer = Writer::new(self, at);
        if is_write {
            writer.sweep(SWEEP_MAX);
        }
        for operation in operations {
            let result = match operation.is_write() {
                true => writer.execute(operation),
                false => writer.view().execute(&operation),
            };
            results.put(result);
        }
    }

    fn read(&self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        let operations =
            decode_part(part).filter(|operations| !operations.iter().any(Operation::is_write));
        let Some(operations) = operations else {
            results.push(REFUSED);
            return Exact { from: None, until: None };
        };
        let mut results = Results::new(results);
        let view = View::new(self, at);
        for operation in &operations {
            results.put(view.execute(operation));
        }
        view.exact()
    }

    fn digest(&self) -> u64 {
        self.state_digest()
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.put_image(bytes);
    }

    fn load(&mut self, bytes: &[u8]) -> bool {
        let image = Self::take_image(bytes);
        let is_valid = image.is_some();
        if let Some(image) = image {
            *self = image;
        }
        is_valid
    }
}

/// The results of a part while it is executed.
struct Results<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Results<'a> {
    fn new(bytes: &'a mut Vec<u8>) -> Self {
        let start = bytes.len();
        bytes.push(EXECUTED);
        Self { bytes, start }
    }

    /// Appends the result of the next operation, unless the results get too long by it or by an
    /// earlier one.
    fn put(&mut self, result: data::Reply) {
        if self.bytes[self.start] == TRUNCATED {
            return;
        }
        let end = self.bytes.len();
        result.unwrap_or_else(|failure| Value::Error(failure.0.into())).put(self.bytes);
        if self.bytes.len() - self.start > RESULTS_LEN_MAX {
            self.bytes.truncate(end);
            self.bytes[self.start] = TRUNCATED;
        }
    }
}

#[cfg(test)]
mod tests;
