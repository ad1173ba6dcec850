//! Reads of committed entries from other processes' replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use onepipe::ProcessId;
use onepipe_base::Mono;
use onepipe_log::{Entries, Request};

use crate::handle::{CommittedEntries, OnEntries, ReadFailure};

/// Numbers of these reads have this bit, those of a replica that catches up have not.
const READ_BIT: u64 = 1 << 63;
/// Time after which another replica is asked, in ns.
const TIMEOUT_NS: u64 = 50_000_000;
/// Replicas that are asked for one read, at most.
const ATTEMPTS_MAX: u32 = 40;

struct Read {
    index: u64,
    on_entries: OnEntries,
    attempts: u32,
    deadline: Mono,
}

/// The reads in flight.
#[derive(Default)]
pub(crate) struct Reads {
    open: BTreeMap<u64, Read>,
    next: u64,
}

impl Reads {
    pub fn begin(&mut self, now: Mono, index: u64, on_entries: OnEntries) {
        self.next += 1;
        let read = Read { index, on_entries, attempts: 0, deadline: now };
        self.open.insert(READ_BIT | self.next, read);
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the next question, with its receiver.
    pub fn poll(&mut self, now: Mono, replicas: &[ProcessId]) -> Option<(ProcessId, Vec<u8>)> {
        let (number, read) = self.open.iter_mut().find(|(_, read)| read.deadline <= now)?;
        let number = *number;
        if read.attempts >= ATTEMPTS_MAX {
            if let Some(read) = self.open.remove(&number) {
                (read.on_entries)(Err(ReadFailure::Unavailable));
            }
            return self.poll(now, replicas);
        }
        let turn = (number ^ READ_BIT).wrapping_add(read.attempts.into()) % replicas.len() as u64;
        read.attempts += 1;
        read.deadline = now.after_ns(TIMEOUT_NS);
        Some((replicas[turn as usize], Request::Read(number, read.index).to_bytes()))
    }

    /// Handles entries of a replica. Returns those that are for the own replica.
    pub fn on_entries(&mut self, reply: Entries) -> Option<Entries> {
        if reply.request & READ_BIT == 0 {
            return Some(reply);
        }
        let is_open = self.open.get(&reply.request).is_some_and(|read| read.index == reply.index);
        if is_open && let Some(read) = self.open.remove(&reply.request) {
            let Entries { index, base_len, stable_len, entries, .. } = reply;
            (read.on_entries)(match index < base_len {
                true => Err(ReadFailure::Trimmed(base_len)),
                false => Ok(CommittedEntries { index, entries, committed_len: stable_len }),
            });
        }
        None
    }

    pub fn fail(self, reason: &Arc<str>) {
        for read in self.open.into_values() {
            (read.on_entries)(Err(ReadFailure::Ended(Arc::clone(reason))));
        }
    }
}
