//! Files of the store that are damaged at random places.

use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, Mono, Now, ProcessId, Timestamp,
};
use onepipe_controller::{Config, Controller, FailedInstance, Record, Store};
use onepipe_daemon_controller::{RedbError, RedbStore};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::OneFile;
use crate::conformance::{ONE, record};

/// Number of recalls, and of failures.
const RECORDS: u32 = 100;
/// Number of damaged files.
const CASES: u32 = 64;
/// Bytes of the database's header.
const HEADER: Range<usize> = 0..320;

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip { at: usize, bits: u8 },
    Zero { at: usize, len: usize },
    Truncate { len: usize },
}

impl Damage {
    fn apply(self, bytes: &mut Vec<u8>) {
        let last = bytes.len();
        match self {
            Self::Flip { at, bits } => bytes[at] ^= bits,
            Self::Zero { at, len } => bytes[at..last.min(at + len)].fill(0),
            Self::Truncate { len } => bytes.truncate(len),
        }
    }
}

/// Returns any damage of a file that has records at `records`.
fn any_damage(len: usize, records: Vec<usize>) -> impl Strategy<Value = Damage> {
    let at = prop_oneof![3 => prop::sample::select(records), 1 => HEADER, 1 => 0..len];
    let zeros = prop::sample::select(&[1_usize, 16, 512, 4096][..]);
    prop_oneof![
        4 => (at.clone(), 1..=u8::MAX).prop_map(|(at, bits)| Damage::Flip { at, bits }),
        2 => (at, zeros).prop_map(|(at, len)| Damage::Zero { at, len }),
        1 => (0..len).prop_map(|len| Damage::Truncate { len }),
    ]
}

/// Writes a log, and returns it.
fn write(path: &Path) -> Vec<Record> {
    let mut store = RedbStore::new(path);
    let epoch = store.campaign(ONE).expect("a new file").expect("no other replica is active");
    for number in 0..RECORDS {
        let instance =
            Instance { address: Address::Process(ProcessId(7)), incarnation: Incarnation(number) };
        let at = Timestamp::from_ns((1 << 50) + u64::from(number));
        let failed = FailedInstance { instance, at, is_exact: true, cause: Cause::TimedOut };
        store.append(epoch, &Record::Failed(vec![failed])).expect("active");
        store.append(epoch, &record(number)).expect("active");
    }
    store.load().expect("active")
}

/// Runs a controller on the store until it has decided something. Returns the log with which it
/// began, and the failures that it knows.
fn run(path: &Path) -> Result<(Vec<Record>, usize), String> {
    let failed = |error: RedbError| error.to_string();
    let mut store = RedbStore::new(path);
    let epoch = store.campaign(ONE).map_err(failed)?.expect("no other replica is active");
    let log = store.load().map_err(failed)?;
    let controllers = Controllers { first: ONE, count: 1 };
    let config = Config { processes_max: 100, ..Config::new(ONE, controllers) };
    let mut controller = Controller::new(config).expect("a valid configuration");
    let now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 51) };
    controller.activate(now, epoch, &log);
    let failures = controller.status().failures.len();
    for number in 900..904 {
        store.append(epoch, &record(number)).map_err(|error| format!("{path:?}: {error:?}"))?;
    }
    let grown = store.load().map_err(failed)?.len();
    assert_eq!(grown, log.len() + 4, "the file is {path:?}");
    Ok((log, failures))
}

/// Checks that a store with this damage works with all records, or that there is an error or a
/// panic with a text. A panic of a store ends the controller, which names the file (see
/// `panic_of_the_store_ends_the_controller`). Returns whether it works.
fn check(path: &Path, complete: &[u8], written: &[Record], damage: Damage) -> bool {
    let mut bytes = complete.to_vec();
    damage.apply(&mut bytes);
    fs::write(path, &bytes).expect("write");
    let began = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(|| run(path)));
    assert!(began.elapsed() < Duration::from_secs(20), "{damage:?}");
    match ran {
        Ok(Ok((log, failures))) => {
            let (epoch, rest) = log.split_last().expect("at least the epoch");
            assert!(matches!(epoch, Record::Epoch { .. }));
            assert!(rest == written, "{damage:?} changes the log without an error");
            assert_eq!(failures, RECORDS as usize, "{damage:?}");
            true
        }
        Ok(Err(text)) => {
            assert!(text.contains("controller.redb"), "{damage:?}: {text}");
            let advice = ["move", "use the version", "tried again", "Damaged"];
            assert!(advice.iter().any(|word| text.contains(word)), "{damage:?}: {text}");
            false
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            assert!(text.is_some_and(|text| !text.is_empty()), "{damage:?}");
            false
        }
    }
}

//= spec/failure.md#R70
#[test]
fn damaged_file_works_whole_or_is_an_error() {
    let file = OneFile::new();
    let written = write(&file.path());
    let complete = fs::read(file.path()).expect("read");
    let mut records = Vec::new();
    for record in &written {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let found = complete.windows(bytes.len()).position(|window| window == bytes);
        let at = found.expect("records are not compressed");
        records.extend([at, at + bytes.len() / 2, at + bytes.len() - 1]);
    }
    let strategy = any_damage(complete.len(), records.clone());
    let mut damages = Vec::new();
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..Default::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    // First the same ones every time, then others.
    let runners = [TestRunner::new_with_rng(config.clone(), rng), TestRunner::new(config)];
    for mut runner in runners {
        for _ in 0..CASES {
            damages.push(strategy.new_tree(&mut runner).expect("any").current());
        }
    }
    let works = |damage: &&Damage| check(&file.path(), &complete, &written, **damage);
    let works = damages.iter().filter(works).count();
    assert!(works > 0 && works < damages.len(), "{works} of {} work", damages.len());
    // The last byte of each record is within it in any case.
    for at in records.chunks(3).map(|at| at[2]) {
        let _ = check(&file.path(), &complete, &written, Damage::Flip { at, bits: 1 });
    }
}
