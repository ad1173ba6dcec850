//! A script of calls, and what a journal must hold after each crash.

use std::collections::BTreeMap;

use crate::memory::{MemoryDisk, Random};
use crate::options::{Options, SyncPolicy};
use crate::{Journal, JournalError, OpenError, Record, Recovered};

use super::small_segments;

/// A call of the journal, or an event.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Appends a record of this many bytes.
    Append(u16),
    /// Writes without waiting.
    Flush,
    /// Waits until all is durable.
    Sync,
    /// Takes a snapshot of all records so far.
    Snapshot,
    /// Stores a snapshot of a peer, which is ahead.
    PeerSnapshot,
    /// Makes the next `sync_data` fail.
    FailSync,
    /// The process ends; the machine goes on.
    KillProcess,
}

/// What the journal of one machine must hold.
#[derive(Clone, Debug)]
pub struct Model {
    options: Options,
    /// All records that count: those that were appended and not found missing after a crash.
    records: Vec<Record>,
    /// States by position. Each is made of the records before it.
    snapshots: BTreeMap<u64, Vec<u8>>,
    /// Position that was reported durable.
    durable: u64,
    last: u64,
    /// Whether the disk may return blocks of before a cut.
    has_stale_blocks: bool,
    /// Makes the payloads of each incarnation differ.
    random: Random,
}

impl Model {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut options = small_segments();
        options.segment_bytes = 700 << random.below(3);
        options.snapshot_count = 1 + random.below(2) as usize;
        let policies = [SyncPolicy::Always, SyncPolicy::EverySecond];
        options.policy = policies[random.below(2) as usize];
        let (records, snapshots, has_stale_blocks) = (Vec::new(), BTreeMap::new(), seed % 2 == 1);
        Self { options, records, snapshots, durable: 0, last: 0, has_stale_blocks, random }
    }

    /// Opens the journal and runs the steps until they end or the machine crashes.
    pub fn run(&mut self, disk: &MemoryDisk, steps: &[Step]) -> Result<(), String> {
        disk.set_stale_blocks(self.has_stale_blocks);
        let Some(mut journal) = self.open(disk)? else { return Ok(()) };
        for step in steps {
            if let Step::KillProcess = step {
                drop(journal);
                let Some(opened) = self.open(disk)? else { return Ok(()) };
                journal = opened;
                continue;
            }
            let done = self.step(&mut journal, disk, *step);
            self.durable = self.durable.max(journal.progress().durable);
            match done {
                Ok(()) => {}
                Err(_) if disk.is_crashed() => return Ok(()),
                Err(JournalError::Failed(_)) if self.random.below(2) == 0 => {
                    drop(journal);
                    let Some(opened) = self.open(disk)? else { return Ok(()) };
                    journal = opened;
                }
                Err(JournalError::Failed(_)) => {
                    let reopened = journal.reopen();
                    self.durable = self.durable.max(journal.progress().durable);
                    if let (Err(error), false) = (reopened, disk.is_crashed()) {
                        return Err(format!("cannot reopen: {error}"));
                    }
                }
                Err(JournalError::Snapshot { .. }) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        journal: &mut Journal<MemoryDisk>,
        disk: &MemoryDisk,
        step: Step,
    ) -> Result<(), JournalError> {
        match step {
            Step::Append(len) => {
                let position = self.last + 1 + self.random.below(3);
                let payload: Vec<u8> = (0..len).map(|_| self.random.next() as u8).collect();
                journal.append(position, &payload)?;
                self.last = position;
                self.records.push(Record { position, payload });
                Ok(())
            }
            Step::Flush => journal.flush().map(drop),
            Step::Sync => journal.sync().map(drop),
            Step::Snapshot => self.snapshot(journal, self.last),
            Step::PeerSnapshot => self.snapshot(journal, self.last + 5),
            Step::FailSync => {
                disk.fail_syncs(1);
                Ok(())
            }
            Step::KillProcess => unreachable!("the caller opens the journal again"),
        }
    }

    fn snapshot(
        &mut self,
        journal: &mut Journal<MemoryDisk>,
        position: u64,
    ) -> Result<(), JournalError> {
        if self.snapshots.last_key_value().is_some_and(|(last, _)| *last >= position) {
            return Ok(());
        }
        let len = 20 + self.random.below(600);
        let state: Vec<u8> = (0..len).map(|n| (n ^ position) as u8).collect();
        self.snapshots.insert(position, state.clone());
        let done = journal.snapshot(position, &state);
        if done.is_ok() {
            self.last = self.last.max(position);
        }
        done
    }

    /// Opens the journal and compares what it holds. `None` if the machine crashes meanwhile.
    fn open(&mut self, disk: &MemoryDisk) -> Result<Option<Journal<MemoryDisk>>, String> {
        let mut opened = Journal::open_on(disk.clone(), self.options);
        if let (Err(OpenError::Io { .. }), false) = (&opened, disk.is_crashed()) {
            // A call has failed; the next one works.
            opened = Journal::open_on(disk.clone(), self.options);
        }
        if let (Err(OpenError::Damaged { .. }), true) = (&opened, self.has_stale_blocks) {
            // A stale block looks like damage; what is durable survives the repair.
            match Journal::repair_on(disk, self.options.store) {
                Err(_) if disk.is_crashed() => return Ok(None),
                Err(error) => return Err(format!("cannot repair: {error}")),
                Ok(_) => opened = Journal::open_on(disk.clone(), self.options),
            }
        }
        match opened {
            Ok((journal, recovered)) => {
                self.compare(recovered)?;
                self.durable = self.durable.max(journal.progress().durable);
                Ok(Some(journal))
            }
            Err(_) if disk.is_crashed() => Ok(None),
            Err(error) => Err(format!("cannot open: {error}")),
        }
    }

    /// Checks what was recovered, which is the whole history from then on.
    fn compare(&mut self, recovered: Recovered) -> Result<(), String> {
        let base = recovered.snapshot.as_ref().map_or(0, |snapshot| snapshot.position);
        if let Some(snapshot) = recovered.snapshot
            && self.snapshots.get(&base) != Some(&snapshot.bytes)
        {
            return Err(format!("snapshot {base} is not what was stored"));
        }
        let after: Vec<&Record> =
            self.records.iter().filter(|record| record.position > base).collect();
        let count = recovered.records.len();
        if count > after.len() || !recovered.records.iter().eq(after[..count].iter().copied()) {
            return Err(format!("the records after {base} are not those that were appended"));
        }
        let end = recovered.records.last().map_or(base, |record| record.position);
        let first_lost = after.get(count).map_or(u64::MAX, |record| record.position);
        if end < self.durable && first_lost <= self.durable || base.max(end) < self.durable {
            return Err(format!("{} was reported durable, the log ends at {end}", self.durable));
        }
        self.records.retain(|record| record.position <= end);
        self.snapshots.retain(|position, _| *position <= base);
        self.last = end;
        Ok(())
    }
}

/// Draws a script.
pub fn script(seed: u64, len: usize) -> Vec<Step> {
    let mut random = Random(seed ^ 0x5c21);
    // Records of 64 bytes with their headers: one that was cut off lies where its successor does,
    // and sectors end where records end.
    let is_uniform = seed % 2 == 1;
    let mut step = || match random.below(24) {
        0..18 if is_uniform => Step::Append(24),
        18..22 if is_uniform => Step::Flush,
        0..12 => Step::Append(random.below(260) as u16),
        12..14 => Step::Flush,
        14..18 => Step::Sync,
        18..20 => Step::Snapshot,
        20 => Step::PeerSnapshot,
        21 => Step::FailSync,
        _ => Step::KillProcess,
    };
    (0..len).map(|_| step()).collect()
}

/// Runs a script once for each of its operations, with a crash in it; then goes on with others
/// that end in crashes, also while the journal is opened.
pub fn crash_everywhere(seed: u64, steps: &[Step]) -> Result<u64, String> {
    let disk = MemoryDisk::new();
    Model::new(seed).run(&disk, steps)?;
    let operations = disk.operations();
    for crash_at in 0..=operations {
        let mut random = Random(seed.wrapping_mul(31).wrapping_add(crash_at));
        let (disk, mut model) = (MemoryDisk::new(), Model::new(seed));
        disk.crash_at(crash_at);
        let mut rounds = || -> Result<(), String> {
            model.run(&disk, steps)?;
            for _ in 0..3 {
                disk.restart(random.next());
                disk.crash_at(disk.operations() + random.below(40));
                model.run(&disk, &script((random.next() << 1) | (seed % 2), 30))?;
            }
            disk.restart(random.next());
            model.run(&disk, &[Step::Append(10), Step::Sync])
        };
        rounds().map_err(|reason| format!("seed {seed}, crash at {crash_at}: {reason}"))?;
    }
    Ok(operations)
}
