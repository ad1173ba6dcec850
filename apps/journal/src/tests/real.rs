//! Real files.

use super::{STORE, small_segments};
use crate::{Journal, OpenError, Options};

#[test]
fn real_files_hold_records_and_snapshots() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let dir = dir.path().join("shard").join("replica");
    let (mut journal, recovered) = Journal::open(&dir, small_segments()).expect("it opens");
    assert!(recovered.snapshot.is_none() && recovered.records.is_empty());
    for position in 1..=40 {
        journal.append(position * 3, &[position as u8; 50]).expect("it ascends");
        assert_eq!(journal.commit(position).expect("the disk works").durable, position * 3);
    }
    journal.snapshot(90, b"a state").expect("the disk works");
    journal.append(121, b"the last").expect("it ascends");
    journal.sync().expect("the disk works");
    drop(journal);

    let (_journal, recovered) = Journal::open(&dir, small_segments()).expect("it opens");
    let snapshot = recovered.snapshot.expect("it was stored");
    assert_eq!((snapshot.position, &snapshot.bytes[..]), (90, &b"a state"[..]));
    let positions: Vec<u64> = recovered.records.iter().map(|record| record.position).collect();
    assert_eq!(positions, [93, 96, 99, 102, 105, 108, 111, 114, 117, 120, 121]);
    assert!(recovered.repaired.is_none());
}

#[test]
fn a_directory_has_one_user() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (journal, _) = Journal::open(dir.path(), Options::new(STORE)).expect("it opens");
    let error = Journal::open(dir.path(), Options::new(STORE)).expect_err("it is in use");
    assert!(matches!(error, OpenError::Locked { holder: Some(_), .. }), "{error}");
    assert!(error.to_string().contains("is locked by process"), "{error}");
    Journal::repair(dir.path(), STORE).expect_err("it is in use");
    drop(journal);
    Journal::open(dir.path(), Options::new(STORE)).expect("the lock is released");
}

#[test]
fn a_torn_tail_of_a_real_file_is_cut_off() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (mut journal, _) = Journal::open(dir.path(), Options::new(STORE)).expect("it opens");
    journal.append(1, b"one").expect("it ascends");
    journal.append(2, b"two").expect("it ascends");
    journal.sync().expect("the disk works");
    drop(journal);
    let path = dir.path().join("log-00000000000000000001");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("it exists");
    file.set_len(64 + 43 + 20).expect("the disk works");
    let (_, recovered) = Journal::open(dir.path(), Options::new(STORE)).expect("it opens");
    let repair = recovered.repaired.expect("it says what it did");
    assert_eq!((&repair.path, repair.offset, repair.bytes), (&path, 107, 20));
    assert_eq!(std::fs::metadata(&path).expect("it exists").len(), 107);
}

/// Needs root, for a file system of 256 KiB.
#[test]
fn a_real_full_disk_loses_nothing_and_writing_resumes() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mounted = mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), Some(c"size=256k"));
    if let Err(error) = mounted {
        println!("skipped: cannot mount a small file system ({error}); run the tests as root");
        return;
    }
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let ballast = dir.path().join("ballast");
        std::fs::write(&ballast, vec![1; 128 << 10])?;
        let (mut journal, _) = Journal::open(dir.path(), Options::new(STORE))?;
        let mut position = 0;
        let error = loop {
            position += 1;
            journal.append(position, &[3; 5_000])?;
            if let Err(error) = journal.sync() {
                break error.to_string();
            }
        };
        assert!(error.contains("free space"), "{error}");
        let durable = journal.progress().durable;
        assert_eq!(durable, position - 1);
        std::fs::remove_file(&ballast)?;
        assert_eq!(journal.reopen()?.durable, position);
        drop(journal);
        let (_, recovered) = Journal::open(dir.path(), Options::new(STORE))?;
        assert!(recovered.records.iter().map(|record| record.position).eq(1..=position));
        Ok(())
    };
    let done = run();
    unmount(dir.path(), UnmountFlags::DETACH).expect("it is mounted");
    done.expect("the journal survives a full disk");
}
