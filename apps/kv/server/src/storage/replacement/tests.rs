use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

use onepipe_kv::Store;
use onepipe_transaction::Replica;

use super::*;
use crate::storage::own::{OpenedReplica, open_replica};
use crate::storage::recovery::Restored;
use crate::storage::sample::{REPLICA, SHAPE, at, execute, grow, image, options, replica};

/// A hang alone reaches this.
const DEADLINE: Duration = Duration::from_secs(60);
const NAME: &str = "shard-0-0";

/// Returns the state of another replica after the write `last`: longer than a piece.
fn peer(last: u64) -> Replica<Store> {
    let mut peer = replica();
    execute(&mut peer, 1, at(1), &[b"SET", b"long", &vec![b'x'; 2 * PIECE_LEN]]);
    for number in 2..=last {
        execute(&mut peer, number, at(number), &[b"RPUSH", b"b", number.to_string().as_bytes()]);
    }
    // Its own log has the records.
    while peer.poll_record().is_some() {}
    peer
}

fn task(store: &Path, peer: &Replica<Store>) -> Task {
    let options = options(store).journal_options(0, SHAPE);
    let contents = Contents::of_image(peer.recorded(), image(peer));
    Task { directory: store.join(NAME), options, contents }
}

fn directories(store: &Path) -> usize {
    let entries = fs::read_dir(store).expect("a store").map(|entry| entry.expect("an entry"));
    entries.filter(|entry| entry.path().is_dir()).count()
}

/// Opens the log, and returns its replica.
fn opened(store: &Path) -> Restored {
    let OpenedReplica { restored, .. } =
        open_replica(&options(store), SHAPE, REPLICA).expect("it is whole");
    assert_eq!(directories(store), 1, "there is the log alone");
    restored
}

/// Fills the log of a store with writes up to `last`. Returns its replica.
fn filled(store: &Path, last: u64) -> Replica<Store> {
    let Restored { mut replica, mut journal, .. } = opened(store);
    grow(&mut replica, &mut journal, last);
    replica
}

/// Replaces the log in a thread, and waits for it.
fn replace(store: &Path, peer: &Replica<Store>) -> Result<Journal, StorageError> {
    let Task { directory, options, contents } = task(store, peer);
    let (ring, rung) = channel();
    let bell = move || ring.send(()).expect("the test waits");
    let mut replacement =
        Replacement::start(directory, options, move || Ok(contents), bell).expect("a thread");
    rung.recv_timeout(DEADLINE).expect("the bell rings");
    let result = replacement.take_finished().expect("there is a result when the bell rings");
    assert!(replacement.take_finished().is_none(), "it is taken once");
    assert!(directories(store) <= 1, "the log alone is there, whatever the result");
    result
}

#[test]
fn log_begins_with_the_state_and_goes_on_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    filled(store, 5);
    // Each time the log has grown, it is replaced again.
    for number in [3, 12, 30] {
        let mut peer = peer(number);
        let mut journal = replace(store, &peer).expect("the disk works");
        assert_eq!((journal.last(), journal.last_snapshot()), (number, number));
        grow(&mut peer, &mut journal, number + 2);
        let error = open_replica(&options(store), SHAPE, REPLICA).map(drop);
        assert!(error.expect_err("it is in use").to_string().contains("is locked"));
        drop(journal);
        assert_eq!(image(&opened(store).replica), image(&peer));
    }
}

#[test]
fn state_before_the_first_write_is_an_empty_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    filled(store, 5);
    let mut journal = replace(store, &replica()).expect("the disk works");
    let mut expected = replica();
    grow(&mut expected, &mut journal, 2);
    drop(journal);
    assert_eq!(image(&opened(store).replica), image(&expected));
}

#[test]
fn replacement_that_stops_at_any_step_leaves_a_whole_log() {
    let peer = peer(8);
    let (mut steps_before, mut steps_after) = (0, 0);
    for steps in 0.. {
        for has_log in [true, false] {
            let directory = tempfile::tempdir().expect("a directory");
            let store = directory.path();
            let old = if has_log { filled(store, 5) } else { replica() };
            let mut left = steps;
            let stopped = task(store, &peer).replace(&mut || {
                left -= 1;
                left >= 0
            });
            let found = image(&opened(store).replica);
            match found == image(&old) {
                true => steps_before += 1,
                false => steps_after += 1,
            }
            assert!(found == image(&old) || found == image(&peer), "after {steps} steps");
            if stopped.is_ok() {
                // Creation, three pieces, two renamings, and whether it has ended.
                assert_eq!((steps, steps_before, steps_after), (7, 10, 5));
                return;
            }
            // Another attempt is not hindered.
            replace(store, &peer).expect("the disk works");
            assert_eq!(image(&opened(store).replica), image(&peer));
        }
    }
}

#[test]
fn dropped_replacement_leaves_the_old_log_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let (old, peer) = (image(&filled(store, 5)), peer(8));
    for _ in 0..3 {
        let Task { directory, options, contents } = task(store, &peer);
        drop(
            Replacement::start(directory, options, move || Ok(contents), || {}).expect("a thread"),
        );
        assert_eq!(directories(store), 1, "its thread has ended");
        let found = image(&opened(store).replica);
        if found != old {
            assert_eq!(found, image(&peer), "it was quicker");
        }
    }
}

#[test]
fn journal_in_use_is_not_replaced() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let old = filled(store, 5);
    let in_use = opened(store);
    let error = replace(store, &peer(8)).map(drop).expect_err("it is in use").to_string();
    assert!(error.contains("/shard-0-0/lock is locked by process"), "{error}");
    drop(in_use);
    assert_eq!(image(&opened(store).replica), image(&old));
}

#[test]
fn failure_of_the_system_names_the_log_and_leaves_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let old = filled(store, 5);
    // A file has the name of the new log.
    let obstacle = store.join("replacement-shard-0-0");
    fs::write(&obstacle, b"a file").expect("the disk works");
    let error = replace(store, &peer(8)).map(drop).expect_err("it cannot be written");
    let text = error.to_string();
    let log = store.join(NAME);
    assert!(text.contains(&format!("cannot replace the log in {}", log.display())), "{text}");
    assert!(text.contains("/replacement-shard-0-0/lock: Not a directory"), "{text}");
    assert!(text.contains("nothing is lost: check the disk"), "{text}");
    fs::remove_file(&obstacle).expect("it exists");
    assert_eq!(image(&opened(store).replica), image(&old));
    for (kind, advice) in [
        (io::ErrorKind::PermissionDenied, "let this program write there"),
        (io::ErrorKind::ReadOnlyFilesystem, "let this program write there"),
        (io::ErrorKind::QuotaExceeded, "free space on this disk"),
    ] {
        let error = OpenError::Io { path: store.into(), source: kind.into() };
        let text = explain(log.clone(), 8, error.into()).to_string();
        assert!(text.contains(advice) && text.contains("shard-0-0"), "{text}");
    }
}

/// Needs root, for a file system that is smaller than the old log and the new one.
#[test]
fn full_disk_leaves_the_old_log() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path();
    let mounted = mount("tmpfs", store, "tmpfs", MountFlags::empty(), Some(c"size=1m"));
    if let Err(error) = mounted {
        println!("skipped: cannot mount a small file system ({error}); run the tests as root");
        return;
    }
    let run = || {
        let old = filled(store, 5);
        let error = replace(store, &peer(8)).map(drop).expect_err("the disk is full");
        let found = image(&opened(store).replica);
        (error.to_string(), found == image(&old))
    };
    let done = std::panic::catch_unwind(run);
    unmount(store, UnmountFlags::DETACH).expect("it is mounted");
    let (text, is_old) = done.expect("the old log can be opened");
    assert!(is_old);
    assert!(text.contains("/shard-0-0 by the state of another replica (2097"), "{text}");
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("nothing is lost: free space on this disk"), "{text}");
}

#[test]
fn panic_is_a_result() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut replacement = Replacement {
        thread: None,
        is_cancelled: Arc::default(),
        finished: Some(channel().1),
        directory: directory.path().join(NAME),
    };
    let result = replacement.take_finished().expect("the thread has ended").map(drop);
    let text = result.expect_err("without a result").to_string();
    assert!(text.contains("has panicked"), "{text}");
}
