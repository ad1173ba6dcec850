//! The role of each replica when all replicas of a store start: to complete its log, or to take the
//! state of another replica.
//!
//! A record is *void* if its timestamp is at or above an end of its process that its log does not
//! know of: the other replicas have gone on without that record. A log is *usable* if its snapshot
//! includes no void write. A usable log is *whole* if its valid records reach up to all usable
//! snapshots of its shard: what follows is in other logs.

use alloc::collections::BTreeMap;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{ProcessId, Timestamp};
use thiserror::Error;

use crate::codec::{Reader, Writer};
use crate::members::Members;
use crate::recovery::{Log, Position};

/// What a replica states about its log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogSummary {
    /// The replica's shard.
    pub shard: u16,
    /// Whether the replica has a log on a disk, and not in memory only.
    pub is_durable: bool,
    /// The last write that its snapshot includes: records up to there may have been dropped.
    pub snapshot: Option<Position>,
    /// The last write of the log, or else of the snapshot.
    pub last: Option<Position>,
    /// The membership as of the last write.
    pub members: Members,
}

impl LogSummary {
    /// Returns the summary of a replica without a log.
    pub fn empty(shard: u16) -> Self {
        let (is_durable, snapshot, last) = (false, None, None);
        Self { shard, is_durable, snapshot, last, members: Members::default() }
    }

    /// Returns the summary of a log.
    pub fn of(log: &Log) -> Self {
        let mut members = log.members.clone();
        log.records.iter().flat_map(|record| &record.members).for_each(|one| members.merge(one));
        Self {
            shard: log.shard,
            is_durable: true,
            snapshot: log.snapshot.map(|(_, position)| position),
            last: log.last().map(|(_, position)| position),
            members,
        }
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        writer.u16(self.shard);
        writer.bool(self.is_durable);
        writer.position(self.snapshot);
        writer.position(self.last);
        self.members.write(writer);
    }

    pub(crate) fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let (shard, is_durable) = (reader.u16()?, reader.bool()?);
        let (snapshot, last) = (reader.position()?, reader.position()?);
        Some(Self { shard, is_durable, snapshot, last, members: Members::parse(reader)? })
    }
}

/// What a replica does when all replicas start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The replica removes void records from its log, adds what only other logs hold, and serves
    /// once the store is open.
    Complete {
        /// The timestamp from which on records are void, if the log has such records.
        before: Option<Timestamp>,
    },
    /// The replica takes the state of another replica of its shard once the store is open.
    CatchUp,
}

/// No log of a shard is whole: each is an older copy, belongs to a replica that had not caught up,
/// or has a snapshot with void writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("no log of shard {0} is whole: put back the latest directory of one of its replicas")]
pub struct LostShard(pub u16);

/// The roles of all replicas of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The role of each replica.
    pub roles: BTreeMap<ProcessId, Role>,
    /// The membership of the run that begins.
    pub members: Members,
    /// The membership that all logs together know.
    pub(crate) known: Members,
    /// The last write in any log, void or not. Writes of the run must have higher timestamps.
    pub last: Option<Position>,
    /// Shard and last valid position of each usable log.
    pub(crate) usable: BTreeMap<ProcessId, (u16, Option<Position>)>,
}

/// A log, and what all logs together say about it.
struct Valued<'a> {
    summary: &'a LogSummary,
    /// Records from here on are void.
    void_from: Option<Timestamp>,
    /// The last valid position.
    end: Option<Position>,
    has_void: bool,
    is_usable: bool,
}

impl<'a> Valued<'a> {
    /// `members` is the membership that all logs together know of.
    fn new(process: ProcessId, summary: &'a LogSummary, members: &Members) -> Self {
        let own = Some(&summary.members).filter(|own| own.run() == members.run());
        let known = own.and_then(|own| own.last_end(process));
        let void_from = members.log_void_from(process, known);
        let void_from = void_from.filter(|_| !makes(Mistake::VoidAccepted));
        let is_void = |position: Option<Position>| {
            position.is_some_and(|(at, _)| void_from.is_some_and(|void_from| at >= void_from))
        };
        let has_void = is_void(summary.last);
        // A replica stores records in their order. So a log with void records has all valid ones.
        let before_void = void_from.map(|at| (at.saturating_sub_ns(1), ProcessId(u32::MAX)));
        let end = if has_void { before_void } else { summary.last };
        let is_usable = !is_void(summary.snapshot);
        Self { summary, void_from, end, has_void, is_usable }
    }

    /// Returns whether the log ends before a usable snapshot of its shard, for which records that
    /// this log lacks may have been dropped.
    fn is_behind(&self, others: &BTreeMap<ProcessId, Self>) -> bool {
        let of_shard = others.values().filter(|other| other.summary.shard == self.summary.shard);
        let valid = of_shard.filter(|other| other.is_usable);
        valid.filter_map(|other| other.summary.snapshot).max() > self.end
            && !makes(Mistake::BehindCompleted)
    }
}

impl Roles {
    /// Returns the roles of the replicas with these logs, in the run that begins. Every replica
    /// computes the same ones. `start` is the time of the start in ns, which numbers the run: a
    /// counter would give one number to two runs if no log knows of the first.
    ///
    /// # Errors
    /// No log of a shard is whole.
    pub fn assign(logs: &BTreeMap<ProcessId, LogSummary>, start: u64) -> Result<Self, LostShard> {
        let mut members = Members::default();
        for summary in logs.values() {
            members.merge(&summary.members);
        }
        let mut valued = BTreeMap::new();
        for (process, summary) in logs {
            valued.insert(*process, Valued::new(*process, summary, &members));
        }
        let is_whole = |log: &Valued<'_>| log.is_usable && !log.is_behind(&valued);
        let mut roles = BTreeMap::new();
        for (process, log) in &valued {
            let shard = log.summary.shard;
            let of_shard = || valued.values().filter(|other| other.summary.shard == shard);
            let is_without_void = |other: &Valued<'_>| is_whole(other) && !other.has_void;
            let role = match is_whole(log) {
                true if !log.has_void => Role::Complete { before: None },
                // Another replica has a log from which nothing is to be removed.
                true if of_shard().any(is_without_void) => Role::CatchUp,
                true => Role::Complete { before: log.void_from },
                false if of_shard().any(is_whole) => Role::CatchUp,
                false => return Err(LostShard(shard)),
            };
            roles.insert(*process, role);
        }
        let absent = roles.iter().filter(|(_, role)| **role == Role::CatchUp);
        let absent = absent.map(|(process, _)| *process);
        let is_durable = logs.values().any(|log| log.is_durable);
        let run = start.max(members.run() + 1);
        let next = Members::of_run(run, is_durable, absent);
        let usable = valued.iter().filter(|(_, log)| log.is_usable);
        Ok(Self {
            members: next,
            known: members.clone(),
            last: logs.values().filter_map(|log| log.last).max(),
            usable: usable.map(|(process, log)| (*process, (log.summary.shard, log.end))).collect(),
            roles,
        })
    }

    /// Returns the last valid position of the log of a replica. `None` if the log is not usable.
    pub fn valid_end(&self, process: ProcessId) -> Option<Option<Position>> {
        self.usable.get(&process).map(|(_, end)| *end)
    }

    /// Returns the role of a replica.
    pub fn of(&self, process: ProcessId) -> Role {
        self.roles.get(&process).copied().unwrap_or(Role::CatchUp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ProcessId = ProcessId(0);
    const B: ProcessId = ProcessId(1);
    /// The only replica of shard 1.
    const OTHER: ProcessId = ProcessId(2);

    fn at(ns: u64) -> Timestamp {
        Timestamp::from_ns(ns)
    }

    fn log(shard: u16, snapshot: Option<u64>, last: Option<u64>) -> LogSummary {
        let position = |ns| (at(ns), ProcessId(9));
        let (snapshot, last) = (snapshot.map(position), last.map(position));
        LogSummary { snapshot, last, ..LogSummary::empty(shard) }
    }

    fn with(log: LogSummary, change: impl FnOnce(&mut Members)) -> LogSummary {
        let mut log = log;
        change(&mut log.members);
        log
    }

    fn assign(a: LogSummary, b: LogSummary, other: LogSummary) -> Result<[Role; 2], LostShard> {
        let logs = [(A, a), (B, b), (OTHER, other)].into_iter().collect();
        let roles = Roles::assign(&logs, 1)?;
        assert!(roles.of(OTHER) != Role::CatchUp || logs[&OTHER].last.is_none());
        assert!(roles.members.is_up(A) == (roles.of(A) != Role::CatchUp));
        Ok([roles.of(A), roles.of(B)])
    }

    const WHOLE: Role = Role::Complete { before: None };

    #[test]
    fn logs_that_end_early_are_completed() {
        let roles = assign(log(0, None, None), log(0, None, Some(20)), log(1, None, Some(30)));
        assert_eq!(roles, Ok([WHOLE, WHOLE]));
        // Records up to 15 were dropped: what follows them is still there.
        let roles = assign(log(0, None, Some(15)), log(0, Some(15), Some(20)), log(1, None, None));
        assert_eq!(roles, Ok([WHOLE, WHOLE]));
    }

    #[test]
    fn log_that_ends_before_a_snapshot_is_replaced() {
        let roles = assign(log(0, None, Some(14)), log(0, Some(15), Some(15)), log(1, None, None));
        assert_eq!(roles, Ok([Role::CatchUp, WHOLE]));
        let empty = assign(log(0, None, None), log(0, Some(15), Some(15)), log(1, None, None));
        assert_eq!(empty, Ok([Role::CatchUp, WHOLE]));
    }

    #[test]
    fn records_after_an_end_are_void() {
        let without_a = |members: &mut Members| assert!(members.on_ended(A, at(16)));
        let other = with(log(1, None, Some(30)), without_a);
        // The log of A ends before: what it lacks is added.
        let early = assign(log(0, None, Some(15)), log(0, None, Some(20)), other.clone());
        assert_eq!(early, Ok([WHOLE, WHOLE]));
        let late = assign(log(0, None, Some(16)), log(0, None, Some(20)), other.clone());
        assert_eq!(late, Ok([Role::CatchUp, WHOLE]));
        // All replicas of the shard have ended, so there is none to take the state from.
        let without_both = |members: &mut Members| {
            assert!(members.on_ended(A, at(16)) && members.on_ended(B, at(21)));
        };
        let other = with(log(1, None, Some(30)), without_both);
        let cut = assign(log(0, None, Some(17)), log(0, None, Some(25)), other.clone());
        let until = |ns| Role::Complete { before: Some(at(ns)) };
        assert_eq!(cut, Ok([until(16), until(21)]));
        // The log without void records gets the valid records of the other one.
        let one = assign(log(0, None, Some(15)), log(0, None, Some(25)), other.clone());
        assert_eq!(one, Ok([WHOLE, Role::CatchUp]));
        let lost = assign(log(0, Some(17), Some(17)), log(0, Some(22), Some(25)), other);
        assert_eq!(lost, Err(LostShard(0)));
    }

    #[test]
    fn log_is_void_from_the_first_end_that_it_does_not_know() {
        let ended = |members: &mut Members| assert!(members.on_ended(A, at(16)));
        let returned = |members: &mut Members| {
            members.on_ended(A, at(16));
            members.on_admitted(A, at(18));
        };
        let other = with(log(1, None, Some(30)), returned);
        // What the replica has taken from another one is not stored yet.
        let early = assign(log(0, None, Some(15)), log(0, None, Some(20)), other.clone());
        assert_eq!(early, Ok([WHOLE, WHOLE]));
        let late = assign(log(0, None, Some(16)), log(0, None, Some(20)), other.clone());
        assert_eq!(late, Ok([Role::CatchUp, WHOLE]));
        // That state is stored. No write has followed the admission, and then one has.
        let own = with(log(0, Some(17), Some(17)), ended);
        assert_eq!(assign(own, log(0, None, None), other.clone()), Ok([WHOLE, Role::CatchUp]));
        let own = with(log(0, Some(15), Some(20)), returned);
        assert_eq!(assign(own, log(0, None, Some(20)), other), Ok([WHOLE, WHOLE]));
    }

    #[test]
    fn log_with_too_many_ends_since_is_not_used() {
        let end = |members: &mut Members, ends: core::ops::Range<u64>| {
            ends.for_each(|ns| {
                members.on_ended(A, at(ns));
            });
        };
        let other = with(log(1, None, Some(200)), |members| end(members, 20..60));
        let assign = |until| {
            let own = with(log(0, Some(90), Some(90)), |members| end(members, 20..until));
            assign(own, log(0, Some(80), Some(100)), other.clone())
        };
        // The first end is known, and those after it have been dropped.
        assert_eq!(assign(21), Ok([Role::CatchUp, WHOLE]));
        assert_eq!(assign(59), Ok([Role::CatchUp, WHOLE]));
        assert_eq!(assign(60), Ok([WHOLE, WHOLE]));
    }

    #[test]
    fn absent_replica_of_a_run_stays_absent_until_it_has_caught_up() {
        let logs =
            [(A, log(0, None, Some(14))), (B, log(0, Some(15), Some(15)))].into_iter().collect();
        let members = Roles::assign(&logs, 1).expect("B is whole").members;
        assert_eq!(members.run(), 1);
        let next = with(log(0, None, Some(20)), |own| *own = members);
        let roles = assign(log(0, None, Some(14)), next, log(1, None, None));
        assert_eq!(roles, Ok([Role::CatchUp, WHOLE]));
    }

    #[test]
    fn later_run_counts() {
        let ended = |members: &mut Members| assert!(members.on_ended(A, at(16)));
        let before = with(log(0, None, Some(20)), ended);
        let mut next = Members::of_run(1, true, core::iter::empty());
        next.on_opened(at(25));
        let after = with(log(1, None, Some(30)), |own| *own = next);
        assert_eq!(assign(log(0, None, Some(17)), before, after), Ok([WHOLE, WHOLE]));
    }

    #[test]
    fn summaries_survive_encoding() {
        let summary = with(log(3, Some(5), None), |members| {
            members.on_ended(A, at(7));
            members.on_opened(at(3));
        });
        let mut bytes = alloc::vec::Vec::new();
        summary.write(&mut Writer(&mut bytes));
        let mut reader = Reader(&bytes);
        assert_eq!(LogSummary::parse(&mut reader), Some(summary));
        assert!(reader.is_at_end());
    }
}
