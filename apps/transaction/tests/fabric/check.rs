//! Checks what the clients of a model fabric have seen.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::Timestamp;
use onepipe_transaction::{
    Kind, Log, Members, ReadMode, Record, Replica, ReplicaOptions, Request, State, complete,
};

use super::registers::Registers;
use super::{Disk, Fabric, Faults, Observed, Random};

/// Executes the observed transactions again, in the order of their timestamps, reads after the
/// writes of the same timestamp. Returns what differs from what the clients saw.
pub fn check(fabric: &Fabric) -> Result<(), String> {
    let mut order: Vec<&Observed> = fabric.observed.iter().collect();
    order.sort_by_key(|observed| {
        (observed.committed.at, observed.kind != Kind::Write, observed.client)
    });
    let mut states: BTreeMap<u16, Registers> = BTreeMap::new();
    for observed in &order {
        let at = observed.committed.at;
        let expected: Vec<(u16, Vec<u8>)> = (observed.parts.iter())
            .map(|(shard, part)| {
                let state = states.entry(*shard).or_default();
                let mut results = Vec::new();
                match observed.kind {
                    Kind::Write => state.execute(at, part, &mut results),
                    Kind::Read(_) => {
                        state.read(at, part, &mut results);
                    }
                }
                (*shard, results)
            })
            .collect();
        if expected != observed.committed.results {
            return Err(format!("expected {expected:?}, observed {observed:?}"));
        }
        let is_early = at < Timestamp::from_ns(observed.invoked);
        if is_early && observed.kind != Kind::Read(ReadMode::Snapshot) {
            return Err(format!("took place before it was submitted: {observed:?}"));
        }
        if at > Timestamp::from_ns(observed.completed) {
            return Err(format!("took place after it was complete: {observed:?}"));
        }
    }
    // A client's snapshot reads see its own earlier writes.
    for read in order.iter().filter(|observed| observed.kind == Kind::Read(ReadMode::Snapshot)) {
        let own = order.iter().filter(|write| {
            (write.client, write.kind) == (read.client, Kind::Write)
                && write.completed < read.invoked
        });
        if own.map(|write| write.committed.at).max() > Some(read.committed.at) {
            return Err(format!("misses a write of its own: {read:?}"));
        }
    }
    if let Some(violation) = fabric.violations.first() {
        return Err(violation.clone());
    }
    for (process, replica) in &fabric.replicas {
        let expected = states.get(&replica.shard()).map_or(0, State::digest);
        if replica.state().digest() != expected {
            return Err(format!("replica {process:?} differs: {:?}", replica.state()));
        }
        // A replica that executes its records again has the same state.
        let Disk { image, records, .. } = fabric.disks.get(process).expect("it has run");
        let mut restarted =
            Replica::new(replica.shard(), Registers::default(), ReplicaOptions::default());
        if let Some((_, _, image)) = image {
            assert!(restarted.load(image), "an image of this shard");
        }
        for record in records {
            restarted.replay(record);
        }
        let is_stored = image.is_some() || !records.is_empty();
        if is_stored && restarted.state() != replica.state() {
            return Err(format!("replica {process:?} differs after a restart"));
        }
        if !replica.is_serving() {
            return Err(format!("replica {process:?} has not caught up"));
        }
    }
    check_power_loss(fabric)?;
    if fabric.disagreements() > 0 {
        return Err(format!("{} replies differ between replicas", fabric.disagreements()));
    }
    Ok(())
}

/// Lets each replica lose a part of what is not certainly on its disk, and completes the logs from
/// each other: all replicas of a shard are equal then, no write is on one of its shards only, and
/// none that was reported is lost.
fn check_power_loss(fabric: &Fabric) -> Result<(), String> {
    let (disks, observed) = fabric.power_loss.as_ref().expect("the power has failed");
    let mut random = Random::new(fabric.observed.len() as u64);
    let mut logs: Vec<Log> = Vec::new();
    for (process, Disk { image, records, stored, .. }) in disks {
        // A replica that has not stored the state that it has taken over has nothing.
        let Some(stored) = *stored else { continue };
        let retained = stored + random.below((records.len() - stored) as u64 + 1) as usize;
        let shard = fabric.replicas.get(process).expect("it runs").shard();
        let snapshot = image.as_ref().map(|(number, position, _)| (*number, *position));
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
            observed.kind == Kind::Write
                && observed.parts.iter().any(|(shard, _)| *shard == log.shard)
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
    assert!(fabric.observed.len() > 50, "{} transactions", fabric.observed.len());
    check(&fabric)
}
