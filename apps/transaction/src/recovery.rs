//! What each replica has to execute, besides its log, after all have ended at once.
//!
//! A reliable scattering is delivered to all its receivers, but each stores it in its own time.
//! When all replicas lose power, the log of one may end before a write that another has stored and
//! answered. Each record holds its whole transaction, so the logs complete each other. A write that
//! no log holds was not acknowledged to its client.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::borrow::Borrow;

use onepipe_base::{ProcessId, Timestamp};

use crate::codec::{Reader, Writer};
use crate::members::Members;
use crate::request::Request;

/// An executed write, to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Number of the write, consecutive in a replica from 1. A replica that restarts goes on from
    /// its last record, and one that catches up from that of its peer.
    pub number: u64,
    /// Timestamp of the write.
    pub at: Timestamp,
    /// The client.
    pub from: ProcessId,
    /// The encoded [`Request`].
    pub request: Vec<u8>,
    /// The membership, if the replica had learnt of a change since its last record. So a log that
    /// has a write says which replicas had ended before, and lack the write.
    pub members: Option<Box<Members>>,
}

impl Record {
    /// Appends the encoded record, without its number.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        writer.u64(self.at.as_ns());
        writer.u32(self.from.0);
        writer.bytes(&self.request);
        if let Some(members) = &self.members {
            members.write(&mut writer);
        }
    }

    /// Parses a record. Returns `None` if it is malformed.
    pub fn parse(number: u64, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (at, from) = (Timestamp::from_ns(reader.u64()?), ProcessId(reader.u32()?));
        let request = reader.bytes()?;
        Request::parse(request)?;
        let mut members = None;
        if !reader.is_at_end() {
            members = Some(Box::new(Members::parse(&mut reader)?));
        }
        let request = request.to_vec();
        reader.is_at_end().then_some(Self { number, at, from, request, members })
    }

    /// Returns the position in the total order.
    pub fn position(&self) -> Position {
        (self.at, self.from)
    }

    /// Returns whether the write has a part for a shard.
    pub fn concerns(&self, shard: u16) -> bool {
        Request::parse(&self.request).is_some_and(|request| request.part(shard).is_some())
    }
}

/// A position in the total order of writes: the timestamp, and the client.
pub type Position = (Timestamp, ProcessId);

/// The log of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The replica's shard.
    pub shard: u16,
    /// The last record that its snapshot includes: its number, and its position in the total order.
    /// `None` if there is no snapshot.
    pub snapshot: Option<(u64, Position)>,
    /// The membership as of its snapshot.
    pub members: Members,
    /// Every record that the replica has stored since, in the order of execution.
    pub records: Vec<Record>,
}

impl Log {
    /// Returns number and position of the last executed write.
    pub fn last(&self) -> Option<(u64, Position)> {
        let last = self.records.last().map(|record| (record.number, record.position()));
        last.or(self.snapshot)
    }
}

/// Returns for each log the records that follow it: the writes to its shard that other logs hold,
/// in the order of execution. Their numbers go on from those of the log. The first one bears the
/// membership that all logs together know, so that a log which is completed past an end of its
/// process is not void from there on.
///
/// A record that one log has replaced by its snapshot is in all other logs of the shards that the
/// write concerns, or in their snapshots ([`crate::Replica::stored_by_all`]), so none needs it.
pub fn complete(logs: &[impl Borrow<Log>]) -> Vec<Vec<Record>> {
    let mut all: BTreeMap<Position, &Record> = BTreeMap::new();
    for record in logs.iter().flat_map(|log| &log.borrow().records) {
        all.insert(record.position(), record);
    }
    let mut members = Members::default();
    for log in logs.iter().map(Borrow::borrow) {
        members.merge(&log.members);
        log.records.iter().flat_map(|record| &record.members).for_each(|one| members.merge(one));
    }
    let members = Some(Box::new(members)).filter(|members| members.run() > 0);
    let missing = |log: &Log| {
        let last = log.last();
        let after =
            |(position, _): &(&Position, &&Record)| last.is_none_or(|(_, last)| **position > last);
        let first = last.map_or(1, |(number, _)| number + 1);
        let records = all.iter().filter(after).map(|(_, record)| record);
        let records = records.filter(|record| record.concerns(log.shard));
        let number = |(record, number): (&&Record, u64)| {
            let members = members.clone().filter(|_| number == first);
            Record { number, members, ..(*record).clone() }
        };
        records.zip(first..).map(number).collect()
    };
    logs.iter().map(|log| missing(log.borrow())).collect()
}
