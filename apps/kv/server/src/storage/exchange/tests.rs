use std::path::Path;

use onepipe_journal::Journal;

use super::*;
use crate::storage::own::open_replica;
use crate::storage::sample::{REPLICA, SHAPE, grow, image, options, replica};
use crate::storage::{open, repair};

const NAME: &str = "shard-0-0";
const OLD_LAST: u64 = 5;
const NEW_LAST: u64 = 9;

/// What there is under one of the three names.
#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    Old,
    New,
    /// A directory without a file.
    Empty,
    /// A new log of which the snapshot is not whole.
    HalfWritten,
    /// An old log of which the records are removed.
    HalfRemoved,
}
use Found::{Empty, HalfRemoved, HalfWritten, New, Nothing, Old};

/// What a crash leaves of a replacement, by the names of the log, of its replacement and of the
/// previous log, and whether the new log is the result.
const CRASHES: [([Found; 3], bool); 13] = [
    // While the replacement is written.
    ([Old, Nothing, Nothing], false),
    ([Empty, HalfWritten, Nothing], false),
    ([Old, Empty, Nothing], false),
    ([Old, HalfWritten, Nothing], false),
    ([Old, New, Nothing], false),
    // While the log is renamed.
    ([Nothing, New, Old], true),
    ([Nothing, New, Empty], true),
    ([New, Nothing, Old], true),
    ([New, Nothing, HalfRemoved], true),
    // After all.
    ([New, Nothing, Nothing], true),
    // While what an earlier crash has left is removed.
    ([New, Nothing, Empty], true),
    ([Old, HalfRemoved, Nothing], false),
    ([New, HalfWritten, Nothing], true),
];

/// Makes what is found at `path`. Returns all that the log has, and its last record.
fn make(path: &Path, found: Found) {
    let options = options(Path::new("")).journal_options(0, SHAPE);
    let mut replica = replica();
    let open = || Journal::open(path, options).expect("it is new").0;
    let remove = |prefix: &str| {
        let files = fs::read_dir(path).expect("a log").map(|file| file.expect("a file").path());
        let named = |path: &PathBuf| path.to_string_lossy().contains(prefix);
        files.filter(named).for_each(|path| fs::remove_file(path).expect("it was listed"));
    };
    match found {
        Nothing => {}
        Empty => fs::create_dir_all(path).expect("the disk works"),
        Old => grow(&mut replica, &mut open(), OLD_LAST),
        New => {
            let mut journal = open();
            grow(&mut replica, &mut journal, NEW_LAST);
            journal.snapshot(NEW_LAST, &image(&replica)).expect("the disk works");
        }
        HalfWritten => {
            drop(open());
            let unfinished = path.join(format!("snapshot-{NEW_LAST:020}.tmp"));
            fs::write(unfinished, b"half").expect("the disk works");
        }
        HalfRemoved => {
            make(path, Old);
            remove("log-");
        }
    }
}

fn make_all(store: &Path, [log, with, before]: [Found; 3]) {
    make(&store.join(NAME), log);
    make(&replacement(store, NAME), with);
    make(&previous(store, NAME), before);
}

/// Returns the number of the last record of a log, none of which is missing.
fn whole_last(store: &Path) -> u64 {
    let opened = open_replica(&options(store), SHAPE, REPLICA).expect("it is whole");
    let last = opened.restored.replica.recorded();
    let mut expected = replica();
    let other = tempfile::tempdir().expect("a directory");
    let options = options(store).journal_options(0, SHAPE);
    let (mut journal, _) = Journal::open(other.path(), options).expect("it is new");
    grow(&mut expected, &mut journal, last);
    assert_eq!(image(&opened.restored.replica), image(&expected));
    last
}

fn names(store: &Path) -> Vec<String> {
    let entries = fs::read_dir(store).expect("a store").map(|entry| entry.expect("an entry"));
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[test]
fn crash_leaves_the_old_log_or_the_new_one() {
    for (found, is_new) in CRASHES {
        for opener in ["replica", "store", "repair"] {
            let directory = tempfile::tempdir().expect("a directory");
            let store = directory.path();
            make_all(store, found);
            match opener {
                "replica" => {}
                "store" => drop(open(&options(store), SHAPE).expect("it is whole")),
                _ => assert_eq!(repair(store, false).expect("it is whole"), [], "{found:?}"),
            }
            let expected = match found[0] {
                Empty => 0,
                _ if is_new => NEW_LAST,
                _ => OLD_LAST,
            };
            assert_eq!(whole_last(store), expected, "{found:?} by {opener}");
            assert_eq!(names(store), [NAME], "{found:?} by {opener}");
        }
    }
}

#[test]
fn previous_log_alone_is_an_error_that_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    make_all(store, [Nothing, Nothing, Old]);
    for _ in 0..2 {
        let error = finish_replacement(store, NAME).expect_err("no crash leaves this");
        let text = error.to_string();
        assert!(text.contains("/shard-0-0 is missing, and ") && !error.is_damage(), "{text}");
    }
    fs::rename(previous(store, NAME), store.join(NAME)).expect("as the error says");
    assert_eq!(whole_last(store), OLD_LAST);
}

#[test]
fn replacement_that_another_program_writes_is_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    for (found, last) in [([Old, New, Nothing], OLD_LAST), ([Nothing, New, Old], NEW_LAST)] {
        make_all(store, found);
        let before = names(store);
        let lock = Directory::open(replacement(store, NAME)).expect("it is not in use");
        let error = finish_replacement(store, NAME).expect_err("it is in use").to_string();
        assert!(error.contains("is locked by process"), "{error}");
        assert_eq!(names(store), before);
        drop(lock);
        assert_eq!(whole_last(store), last);
        fs::remove_dir_all(store.join(NAME)).expect("it was opened");
    }
}
