//! What replicas have to execute after all of them have ended at once.
//!
//! A reliable scattering is delivered to all its receivers, but each stores it in its own time.
//! When all replicas lose power, the log of one may end before a write that another has stored and
//! answered. Each record holds its whole transaction, so the logs together complete each other.
//! What no log holds was never answered.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::borrow::Borrow;

use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};
use crate::request::Request;

/// An executed write, to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Consecutive among the writes of a replica, from 1. A replica that restarts goes on from its
    /// last record, and one that catches up from that of its peer.
    pub number: u64,
    /// Timestamp of the write.
    pub at: Timestamp,
    /// The client.
    pub from: ProcessId,
    /// The encoded [`Request`].
    pub request: Vec<u8>,
}

impl Record {
    /// Appends the encoded record, without its number.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        writer.u64(self.at.as_ns());
        writer.u32(self.from.0);
        writer.bytes(&self.request);
    }

    /// Parses a record. Returns `None` if it is malformed.
    pub fn parse(number: u64, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (at, from) = (Timestamp::from_ns(reader.u64()?), ProcessId(reader.u32()?));
        let request = reader.bytes()?;
        Request::parse(request).filter(|_| reader.is_at_end())?;
        Some(Self { number, at, from, request: request.to_vec() })
    }

    /// Returns the position in the total order.
    pub fn position(&self) -> (Timestamp, ProcessId) {
        (self.at, self.from)
    }
}

/// The log of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The replica's shard.
    pub shard: u16,
    /// The last record that its snapshot includes: its number, and its position in the total order.
    /// `None` if there is no snapshot.
    pub snapshot: Option<(u64, (Timestamp, ProcessId))>,
    /// Every record that the replica has stored since, in the order of execution.
    pub records: Vec<Record>,
}

impl Log {
    /// Returns number and position of the last executed write.
    fn last(&self) -> Option<(u64, (Timestamp, ProcessId))> {
        let last = self.records.last().map(|record| (record.number, record.position()));
        last.or(self.snapshot)
    }
}

/// Returns for each log the records that follow it: the writes to its shard that other logs hold,
/// in the order of execution. Their numbers go on from those of the log.
///
/// A record that one log has replaced by its snapshot is in all other logs of its shards, or in
/// their snapshots ([`crate::Replica::stored_below`]), so none needs it.
pub fn complete(logs: &[impl Borrow<Log>]) -> Vec<Vec<Record>> {
    let mut all: BTreeMap<(Timestamp, ProcessId), &Record> = BTreeMap::new();
    for record in logs.iter().flat_map(|log| &log.borrow().records) {
        all.insert(record.position(), record);
    }
    let missing = |log: &Log| {
        let last = log.last();
        let concerns = |record: &&&Record| {
            let request = Request::parse(&record.request);
            request.is_some_and(|request| request.part(log.shard).is_some())
        };
        let after = |(position, _): &(&(Timestamp, ProcessId), &&Record)| {
            last.is_none_or(|(_, last)| **position > last)
        };
        let first = last.map_or(1, |(number, _)| number + 1);
        let records = all.iter().filter(after).map(|(_, record)| record).filter(concerns);
        records
            .zip(first..)
            .map(|(record, number)| Record { number, ..(*record).clone() })
            .collect()
    };
    logs.iter().map(|log| missing(log.borrow())).collect()
}
