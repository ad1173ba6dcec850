//! Checks what the clients of a model fabric have seen.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{
    Kind, Log, Members, ReadMode, Record, Replica, Request, State, complete,
};

use super::clients::{Observed, Sent};
use super::disk::Disk;
use super::random::Random;
use super::registers::Registers;
use super::{Fabric, Faults};

/// What a shard has executed: timestamps and parts.
type History<'a> = &'a [(Timestamp, Vec<u8>)];
/// When a write takes effect, its timestamp, and its parts.
type Write<'a> = (Timestamp, Timestamp, &'a BTreeMap<u16, Vec<u8>>);
/// All writes in the order of their effect, each with its timestamp and parts.
type Executed = BTreeMap<(Timestamp, Timestamp), BTreeMap<u16, Vec<u8>>>;

/// Returns all writes of these shards in order. A shard that lacks a write of another one, or has
/// executed one twice or out of order, is an error.
pub fn merge(
    sent: &BTreeMap<Timestamp, Sent>,
    histories: &[(u16, History<'_>)],
) -> Result<Executed, String> {
    let mut executed = Executed::new();
    let mut of_client = BTreeMap::new();
    for (shard, history) in histories {
        let mut last = None;
        for (at, part) in *history {
            let Some(write) = sent.get(at) else { return Err(format!("{at:?} was never sent")) };
            let key = (write.effective, *at);
            if last.replace(key).is_some_and(|last| last >= key) {
                return Err(format!("shard {shard} has executed {key:?} after {last:?}"));
            }
            let id = (write.from, write.session, write.number);
            if *of_client.entry(id).or_insert(*at) != *at {
                return Err(format!("{write:?} was executed twice: at {at:?}, too"));
            }
            executed.entry(key).or_default().insert(*shard, part.clone());
        }
    }
    let mut all = executed.iter();
    match all.find(|((_, at), parts)| sent[at].parts != **parts) {
        Some((key, parts)) => Err(format!("only {parts:?} of {key:?} were executed")),
        None => Ok(executed),
    }
}

/// Compares the observed transactions with the writes that the replicas have executed, in the order
/// of their timestamps, reads after the writes of the same timestamp.
pub fn check(fabric: &Fabric) -> Result<(), String> {
    if let Some(violation) = fabric.violations.first() {
        return Err(violation.clone());
    }
    let mut histories = BTreeMap::new();
    for (process, replica) in &fabric.replicas {
        let history = replica.state().history();
        if *histories.entry(replica.shard()).or_insert(history) != history {
            let other = histories[&replica.shard()];
            return Err(format!("replica {process:?} has {history:?}, another one {other:?}"));
        }
        check_replica(fabric, *process, replica)?;
    }
    let histories: Vec<_> = histories.into_iter().collect();
    check_observed(fabric, &merge(&fabric.sent, &histories)?)?;
    check_own_writes(fabric)?;
    check_power_loss(fabric)?;
    if fabric.disagreements() > 0 {
        return Err(format!("{} replies differ between replicas", fabric.disagreements()));
    }
    Ok(())
}

/// Checks that a replica serves, and has the same state if it executes its records again.
fn check_replica(
    fabric: &Fabric,
    process: ProcessId,
    replica: &Replica<Registers>,
) -> Result<(), String> {
    if !replica.is_serving() {
        return Err(format!("replica {process:?} has not caught up"));
    }
    let disk = fabric.disks.get(&process).expect("it has run");
    if fabric.faults.is_durable && disk.replay(replica.shard(), None).state() != replica.state() {
        return Err(format!("replica {process:?} differs after a restart"));
    }
    Ok(())
}

/// Executes all writes again, and compares what the clients saw.
fn check_observed(fabric: &Fabric, executed: &Executed) -> Result<(), String> {
    for observed in &fabric.observed {
        let at = observed.committed.at;
        let is_early = at < Timestamp::from_ns(observed.invoked);
        if is_early && observed.kind != Kind::Read(ReadMode::Snapshot) {
            return Err(format!("took place before it was submitted: {observed:?}"));
        }
        if at > Timestamp::from_ns(observed.completed) {
            return Err(format!("took place after it was complete: {observed:?}"));
        }
    }
    // A write that no correct replica has received takes effect when all start again. Clients that
    // go on may see it by a read with a timestamp before that.
    let by_timestamp = |((_, at), parts)| (at, at, parts);
    let by_effect = |((effective, at), parts)| (effective, at, parts);
    let all = || executed.iter().map(|(key, parts)| (*key, parts));
    let mut differing = expectations(fabric, all().map(by_effect).collect());
    let later = expectations(fabric, all().map(by_timestamp).collect());
    differing.retain(|index, _| later.contains_key(index));
    differing.values().next().map_or(Ok(()), |first| Err(first.clone()))
}

/// Returns the observed transactions, by index, that differ from what the writes, executed in this
/// order, make of the shards.
fn expectations(fabric: &Fabric, mut writes: Vec<Write<'_>>) -> BTreeMap<usize, String> {
    let mut states: BTreeMap<u16, Registers> = BTreeMap::new();
    let mut order: Vec<(usize, &Observed)> = fabric.observed.iter().enumerate().collect();
    order.sort_by_key(|(_, one)| (one.committed.at, one.kind != Kind::Write));
    writes.sort_by_key(|(effective, at, _)| (*effective, *at));
    let mut writes = writes.into_iter().peekable();
    let mut differing = BTreeMap::new();
    for (index, observed) in order {
        let mut written = Vec::new();
        let is_due = |effective: &Timestamp| *effective <= observed.committed.at;
        while let Some((_, at, parts)) = writes.next_if(|(effective, ..)| is_due(effective)) {
            written = execute(&mut states, at, parts);
            if at != observed.committed.at {
                written.clear();
            }
        }
        let expected = match observed.kind {
            Kind::Write => written,
            Kind::Read(_) => read(&mut states, observed),
        };
        if expected != observed.committed.results {
            differing.insert(index, format!("expected {expected:?}, observed {observed:?}"));
        }
    }
    differing
}

fn execute(
    states: &mut BTreeMap<u16, Registers>,
    at: Timestamp,
    parts: &BTreeMap<u16, Vec<u8>>,
) -> Vec<(u16, Vec<u8>)> {
    let of_shard = |(shard, part): (&u16, &Vec<u8>)| {
        let mut results = Vec::new();
        states.entry(*shard).or_default().execute(at, part, &mut results);
        (*shard, results)
    };
    parts.iter().map(of_shard).collect()
}

fn read(states: &mut BTreeMap<u16, Registers>, read: &Observed) -> Vec<(u16, Vec<u8>)> {
    let of_shard = |(shard, part): &(u16, Vec<u8>)| {
        let mut results = Vec::new();
        states.entry(*shard).or_default().read(read.committed.at, part, &mut results);
        (*shard, results)
    };
    read.parts.iter().map(of_shard).collect()
}

/// Checks that a client's snapshot reads see its own earlier writes.
fn check_own_writes(fabric: &Fabric) -> Result<(), String> {
    let is_snapshot = |observed: &&Observed| observed.kind == Kind::Read(ReadMode::Snapshot);
    for read in fabric.observed.iter().filter(is_snapshot) {
        let own = fabric.observed.iter().filter(|write| {
            (write.client, write.kind) == (read.client, Kind::Write)
                && write.completed < read.invoked
        });
        if own.map(|write| write.committed.at).max() > Some(read.committed.at) {
            return Err(format!("misses a write of its own: {read:?}"));
        }
    }
    Ok(())
}

/// Lets each replica lose a part of what is not certainly on its disk, and completes the logs from
/// each other: all replicas of a shard are equal then, no write is on one of its shards only, and
/// none that was reported is lost.
fn check_power_loss(fabric: &Fabric) -> Result<(), String> {
    let Some((disks, observed)) = &fabric.power_loss else { return Ok(()) };
    let mut random = Random::new(fabric.observed.len() as u64);
    let mut logs: Vec<Log> = Vec::new();
    for (process, Disk { image, records, stored, .. }) in disks {
        // A replica that has not stored the state that it has taken over has nothing.
        let Some(stored) = *stored else { continue };
        let retained = stored + random.below((records.len() - stored) as u64 + 1) as usize;
        let shard = fabric.replicas.get(process).expect("it runs").shard();
        let snapshot = image.as_ref().and_then(|image| Some((image.number, image.position?)));
        let (members, records) = (Members::default(), records[..retained].to_vec());
        logs.push(Log { shard, snapshot, members, records });
    }
    let missing = complete(&logs);
    for (log, missing) in logs.iter_mut().zip(missing) {
        log.records.extend(missing);
    }
    check_atomicity(fabric, &logs)?;
    for log in &logs {
        let numbers = log.records.iter().map(|record| record.number);
        let before = log.snapshot.map_or(0, |(number, _)| number);
        assert!(numbers.eq(before + 1..=before + log.records.len() as u64), "consecutive");
        let is_lost = |observed: &&Observed| {
            observed.is_write_to(log.shard)
                && !log.records.iter().any(|record| record.at == observed.committed.at)
                && log.snapshot.is_none_or(|(_, (last, _))| observed.committed.at > last)
        };
        let is_durable = log.snapshot.is_some() || !log.records.is_empty();
        if let Some(lost) = fabric.observed[..*observed].iter().filter(|_| is_durable).find(is_lost)
        {
            return Err(format!("lost: {lost:?}"));
        }
    }
    Ok(())
}

/// Checks that each write is in the logs, or their snapshots, of all its shards or of none.
fn check_atomicity(fabric: &Fabric, logs: &[Log]) -> Result<(), String> {
    let positions: Vec<BTreeSet<_>> =
        logs.iter().map(|log| log.records.iter().map(Record::position).collect()).collect();
    for (position, request) in &fabric.executed {
        let request = Request::parse(request).expect("a request");
        let (mut having, mut lacking) = (None, None);
        for (log, positions) in logs.iter().zip(&positions) {
            let has = log.snapshot.is_some_and(|(_, last)| *position <= last)
                || positions.contains(position);
            if request.part(log.shard).is_some() {
                *(if has { &mut having } else { &mut lacking }) = Some(log.shard);
            }
        }
        if let (Some(having), Some(lacking)) = (having, lacking) {
            return Err(format!("shard {lacking} lacks a write of shard {having}: {position:?}"));
        }
    }
    Ok(())
}

/// Runs 400 steps with the faults, and checks them.
pub fn run(seed: u64, faults: Faults) -> Result<(), String> {
    let mut fabric = Fabric::new(seed, faults);
    fabric.run(400);
    let observed_min = if faults.restarts == 0 { 50 } else { 0 };
    assert!(fabric.observed.len() >= observed_min, "{} transactions", fabric.observed.len());
    check(&fabric)
}
