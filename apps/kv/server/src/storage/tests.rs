//! Replicas that take snapshots lose power at once, at any moment.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

use onepipe::{ProcessId, Timestamp};
use onepipe_base::Mono;
use onepipe_journal::{
    FinishedSnapshot, Journal, JournalError, MemoryDisk, Options, SnapshotWriter, SyncPolicy,
};
use onepipe_kv::{Command, Plan, Store, Value, shard_of};
use onepipe_transaction::{Placement, Replica, Reply, Request, RequestKind, State};
use proptest::prelude::*;

use super::layout::{encode, store_id};
use super::recovery::{Opened, restore};
use super::schedule::{Image, Schedule};

const SHARDS: u16 = 2;
const REPLICAS: u16 = 2;
/// A list in each shard, of the numbers of all writes to the shard.
const KEYS: [&str; 2] = ["a", "b"];
const RUNS: usize = 4;
const STEPS: usize = 150;

/// A stream of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A replica with its disk, and what the fabric has for it.
struct Site {
    replica: Replica<Store>,
    journal: Journal<MemoryDisk>,
    schedule: Schedule,
    writing: Option<SnapshotWriter<MemoryDisk>>,
    written: Option<FinishedSnapshot>,
    inbox: VecDeque<(Timestamp, ProcessId, Vec<u8>)>,
}

impl Site {
    /// Executes some of what has arrived, when no write below `now` is sent any more.
    fn deliver(&mut self, random: &mut Random, now: u64) {
        for _ in 0..random.below(4) {
            let Some((at, from, payload)) = self.inbox.pop_front() else { break };
            self.replica.on_message(true, at, from, &payload);
        }
        let next = self.inbox.front().map(|(at, ..)| *at);
        self.replica.on_barrier(next.unwrap_or(Timestamp::from_ns(now)));
    }

    /// Lets the disk get on.
    fn store(&mut self, random: &mut Random, now: u64) -> Result<(), JournalError> {
        while let Some(record) = self.replica.poll_record() {
            let bytes = encode(&record);
            self.journal.append(record.number, &bytes)?;
            self.schedule.on_appended(bytes.len() as u64);
        }
        match random.below(6) {
            0 => drop(self.journal.sync()?),
            1 => drop(self.journal.commit(now * 20_000_000)?),
            _ => {}
        }
        let progress = self.journal.progress();
        self.replica.on_written(progress.acknowledged(self.journal.options().policy));
        self.replica.on_stored(progress.durable);
        Ok(())
    }

    /// Advances the snapshot.
    fn snapshot(&mut self, random: &mut Random) -> Result<(), JournalError> {
        if self.schedule.is_due(Instant::now()) {
            let (mut bytes, at) = (Vec::new(), self.replica.executed().expect("the log has grown"));
            let number = self.replica.save(&mut bytes);
            self.schedule.on_taken(Image { number, at, bytes: bytes.len() as u64 });
            let mut writer = self.journal.begin_snapshot(number)?;
            writer.append(&bytes)?;
            self.writing = Some(writer);
        }
        if let Some(writing) = self.writing.take_if(|_| random.percent(40)) {
            self.written = Some(writing.finish()?);
            self.schedule.on_written();
        }
        if let Some(at) = self.schedule.awaited()
            && random.percent(40)
        {
            self.replica.await_stored(at);
        }
        if self.schedule.install(|last| self.replica.stored_by_all(last)) {
            let written = self.written.take().expect("it was written");
            self.journal.install(written)?;
            assert!(self.schedule.on_installed(self.journal.last_snapshot()));
        }
        Ok(())
    }

    /// Returns the numbers of the writes to the shard.
    fn numbers(&self) -> Vec<u64> {
        let shard = self.replica.shard();
        let key = KEYS.into_iter().find(|key| shard_of(key.as_bytes(), SHARDS) == shard);
        let plan = plan(&[format!("LRANGE {} 0 -1", key.expect("a key in each shard"))]);
        let mut results = Vec::new();
        let at = self.replica.executed().unwrap_or(Timestamp::from_ns(0));
        self.replica.state().read(at, &plan.parts()[0].1, &mut results);
        let replies = plan.replies(&[(shard, &results)]).expect("results of the plan");
        let Value::Array(values) = &replies[0] else { panic!("{replies:?}") };
        let number = |value: &Value| match value {
            Value::Bulk(text) => String::from_utf8_lossy(text).parse().expect("a number"),
            other => panic!("{other:?}"),
        };
        values.iter().map(number).collect()
    }
}

fn plan(lines: &[String]) -> Plan {
    let command = |line: &String| {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Command::parse(&words).expect("a command")
    };
    Plan::new(&lines.iter().map(command).collect::<Vec<_>>(), SHARDS)
}

/// Counts what snapshots were good for.
#[derive(Debug, Default)]
struct Counts {
    /// Logs that began with a snapshot.
    snapshots: u64,
    /// Records that were completed from other logs.
    completed: u64,
}

struct Model {
    random: Random,
    disks: Vec<MemoryDisk>,
    policy: SyncPolicy,
    snapshot_bytes: u64,
    snapshot_count: usize,
    sites: Vec<Site>,
    now: u64,
    /// Last timestamp, and how many writes had it.
    last: (u64, u32),
    session: u64,
    number: u64,
    /// The shards of each write that may exist, by number.
    writes: BTreeMap<u64, Vec<u16>>,
    /// Replies to each write of this run.
    replies: BTreeMap<u64, usize>,
    acknowledged: Vec<u64>,
    counts: Counts,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let policies = [SyncPolicy::Always, SyncPolicy::EverySecond, SyncPolicy::Never];
        let policy = policies[random.below(3) as usize];
        let snapshot_bytes = 300 + random.below(1_500);
        let snapshot_count = 1 + random.below(2) as usize;
        let disks = (0..SHARDS * REPLICAS).map(|_| MemoryDisk::new()).collect();
        Self {
            random,
            disks,
            policy,
            snapshot_bytes,
            snapshot_count,
            sites: Vec::new(),
            now: 1_000,
            last: (0, 0),
            session: 0,
            number: 0,
            writes: BTreeMap::new(),
            replies: BTreeMap::new(),
            acknowledged: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Opens all logs. Returns false if the power fails meanwhile.
    fn open(&mut self) -> bool {
        let (mut opened, mut lasts) = (Vec::new(), Vec::new());
        for (index, disk) in self.disks.iter().enumerate() {
            let shard = index as u16 / REPLICAS;
            let options = Options {
                policy: self.policy,
                segment_bytes: 400,
                snapshot_count: self.snapshot_count,
                ..Options::new(store_id(shard, (SHARDS, REPLICAS)))
            };
            let journal = Journal::open_on(disk.clone(), options);
            let (journal, recovered) = match journal {
                Ok(found) => found,
                Err(_) if disk.is_crashed() => return false,
                Err(error) => panic!("{error}"),
            };
            self.counts.snapshots += u64::from(recovered.snapshot.is_some());
            lasts.push(journal.last());
            let path = PathBuf::from("disk");
            opened.push(Opened::read(path, shard, journal, recovered).expect("it is intact"));
        }
        let restored = match restore(opened, 1) {
            Ok(restored) => restored,
            Err(_) if self.disks.iter().any(MemoryDisk::is_crashed) => return false,
            Err(error) => panic!("{error}"),
        };
        let added = restored.iter().zip(lasts).map(|(one, last)| one.journal.last() - last);
        self.counts.completed += added.sum::<u64>();
        let placement = Placement::consecutive(0, SHARDS, REPLICAS).expect("few replicas");
        let site = |(process, restored): (u32, super::recovery::Restored<_>)| Site {
            schedule: Schedule::new(
                self.snapshot_bytes,
                restored.snapshot_bytes,
                restored.log_bytes,
            ),
            replica: restored.replica.with_placement(ProcessId(process), placement.clone()),
            journal: restored.journal,
            writing: None,
            written: None,
            inbox: VecDeque::new(),
        };
        self.sites = (0..).zip(restored).map(site).collect();
        let last = self.sites.iter().filter_map(|site| site.replica.executed()).max();
        assert!(last.is_none_or(|last| last.as_ns() <= self.last.0));
        (self.session, self.now) = (self.session + 1, self.now + 10);
        true
    }

    /// Sends a write to all replicas of some shards. Several may have one timestamp.
    fn write(&mut self) {
        self.number += 1;
        let keys = match self.random.below(4) {
            0 => &KEYS[..1],
            1 => &KEYS[1..],
            _ => &KEYS[..],
        };
        let lines: Vec<String> =
            keys.iter().map(|key| format!("RPUSH {key} {}", self.number)).collect();
        let plan = plan(&lines);
        self.last = (self.now, if self.last.0 == self.now { self.last.1 + 1 } else { 0 });
        let (at, from) = (Timestamp::from_ns(self.now), ProcessId(10 + self.last.1));
        let parts = plan.parts().iter().map(|(shard, part)| (*shard, &part[..])).collect();
        let (kind, session, number) = (RequestKind::Write, self.session, self.number);
        let request = Request { kind, session, number, attempt: 0, finished: 0, view: None, parts };
        let mut payload = Vec::new();
        request.write(&mut payload);
        let shards: Vec<u16> = plan.parts().iter().map(|(shard, _)| *shard).collect();
        for site in &mut self.sites {
            if shards.contains(&site.replica.shard()) {
                site.inbox.push_back((at, from, payload.clone()));
            }
        }
        self.writes.insert(self.number, shards);
    }

    /// Runs until the power fails.
    fn run(&mut self) {
        let victim = self.random.below(self.disks.len() as u64 * 2) as usize;
        if let Some(disk) = self.disks.get(victim) {
            disk.crash_at(disk.operations() + self.random.below(300));
        }
        for _ in 0..STEPS {
            if self.random.percent(40) {
                self.write();
            }
            self.now += self.random.below(2);
            for index in 0..self.sites.len() {
                let (site, random) = (&mut self.sites[index], &mut self.random);
                site.deliver(random, self.now);
                let stored = site.store(random, self.now).and_then(|()| site.snapshot(random));
                if let Err(error) = stored {
                    assert!(site.journal.disk().is_crashed(), "{error}");
                    return;
                }
                while let Some(reply) = self.sites[index].replica.poll_reply() {
                    self.on_reply(&reply.payload);
                }
                self.send_of(index);
            }
        }
    }

    /// Delivers what a replica sends to others by best effort. Some of it is lost.
    fn send_of(&mut self, index: usize) {
        let (at, from) = (Timestamp::from_ns(self.now), ProcessId(index as u32));
        while let Some(sent) = self.sites[index].replica.poll_scattering(Mono::from_ns(self.now)) {
            assert!(!sent.is_reliable, "no replica catches up");
            for (to, payload) in sent.messages {
                if !self.random.percent(20) {
                    self.sites[to.0 as usize].replica.on_message(false, at, from, &payload);
                }
            }
        }
    }

    fn on_reply(&mut self, payload: &[u8]) {
        let number = Reply::parse(payload).expect("a reply").number;
        let count = self.replies.entry(number).or_insert(0);
        *count += 1;
        if *count == self.writes[&number].len() * usize::from(REPLICAS) {
            self.acknowledged.push(number);
        }
    }

    /// The power fails, and comes back; it may fail again while the logs are opened.
    fn restart(&mut self) {
        self.sites.clear();
        for disk in &self.disks {
            disk.restart(self.random.below(u64::MAX));
        }
        let victim = self.random.below(self.disks.len() as u64 * 4) as usize;
        if let Some(disk) = self.disks.get(victim) {
            disk.crash_at(disk.operations() + self.random.below(12));
        }
        if !self.open() {
            for disk in &self.disks {
                disk.restart(self.random.below(u64::MAX));
            }
            assert!(self.open(), "no crash was planned");
        }
        self.check();
    }

    /// Checks that replicas are equal, that no write is there by half, and that none is lost.
    fn check(&mut self) {
        let numbers: Vec<Vec<u64>> = self.sites.iter().map(Site::numbers).collect();
        for shard in 0..usize::from(SHARDS) {
            let first = shard * usize::from(REPLICAS);
            for other in first + 1..first + usize::from(REPLICAS) {
                assert_eq!(numbers[first], numbers[other], "replicas of shard {shard}");
                let states = [first, other].map(|index| self.sites[index].replica.state().digest());
                assert_eq!(states[0], states[1], "replicas of shard {shard}");
            }
            assert!(numbers[first].is_sorted(), "in the order of execution");
            assert!(numbers[first].iter().all(|number| self.writes.contains_key(number)));
        }
        self.writes.retain(|number, shards| {
            let has = |shard: &u16| {
                let of_shard = &numbers[usize::from(*shard) * usize::from(REPLICAS)];
                of_shard.binary_search(number).is_ok()
            };
            let count = shards.iter().filter(|shard| has(shard)).count();
            assert!(count == 0 || count == shards.len(), "write {number} is there by half");
            count > 0
        });
        // Without waiting for the disk, a loss of power may lose what was acknowledged.
        if self.policy == SyncPolicy::Always {
            let lost = self.acknowledged.iter().find(|number| !self.writes.contains_key(number));
            assert_eq!(lost, None, "of the acknowledged writes");
        }
        self.replies.clear();
        for site in &mut self.sites {
            let (mut found, mut without) = (Vec::new(), Vec::new());
            site.replica.save(&mut found);
            let members = site.replica.members().clone();
            site.replica.begin_run(members);
            site.replica.save(&mut without);
            assert_eq!(found, without, "no client of the previous run is known");
        }
    }
}

fn lose_power(seed: u64) -> Counts {
    let mut model = Model::new(seed);
    assert!(model.open(), "no crash was planned");
    for _ in 0..RUNS {
        model.run();
        model.restart();
    }
    model.counts
}

#[test]
fn losses_of_power_lose_and_halve_nothing() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let total = std::cell::RefCell::new(Counts::default());
    let outcome = runner.run(&any::<u64>(), |seed| {
        let Counts { snapshots, completed } = lose_power(seed);
        let mut total = total.borrow_mut();
        total.snapshots += snapshots;
        total.completed += completed;
        Ok(())
    });
    outcome.expect("each run is whole");
    let Counts { snapshots, completed } = total.into_inner();
    assert!(snapshots > 1_000 && completed > 200, "{snapshots} snapshots, {completed} completions");
}
