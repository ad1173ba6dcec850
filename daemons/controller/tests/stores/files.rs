//! Files that are not valid stores.

use std::fs;
use std::path::Path;

use onepipe_controller::{Epoch, Store};
use onepipe_daemon_controller::{RedbError, RedbStore};

use crate::OneFile;
use crate::conformance::{ONE, OTHER, numbers, record};

fn written(path: &Path, records: u32) {
    let mut store = RedbStore::new(path);
    let epoch = store.campaign(ONE).expect("a new file").expect("no other replica is active");
    (0..records).for_each(|number| store.append(epoch, &record(number)).expect("active"));
}

#[test]
fn log_survives_restart_in_one_file() {
    let file = OneFile::new();
    written(&file.path(), 5);
    let mut store = RedbStore::new(file.path());
    assert_eq!(store.campaign(OTHER).expect("it is a store"), Some(Epoch(2)));
    assert_eq!(numbers(&store.load().expect("active")), [0, 1, 2, 3, 4]);
    let names = fs::read_dir(file.0.path()).expect("a folder").count();
    assert_eq!(names, 1, "temporary files are removed");
}

#[test]
fn load_fails_while_another_replica_holds_the_file() {
    let file = OneFile::new();
    let mut active = RedbStore::new(file.path());
    active.campaign(ONE).expect("a new file").expect("no other replica is active");
    let mut other = RedbStore::new(file.path());
    let error = other.load().expect_err("held");
    assert!(matches!(error, RedbError::Held { .. }));
    assert!(error.to_string().contains("controller.redb is in use by the active controller"));
}

#[test]
fn foreign_file_is_rejected_and_unchanged() {
    let file = OneFile::new();
    let text = "a text file of another program\n".repeat(1000);
    fs::write(file.path(), &text).expect("write");
    let error = RedbStore::new(file.path()).campaign(ONE).expect_err("no store");
    assert!(matches!(error, RedbError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("controller.redb is not a controller's store"), "{error}");
    assert_eq!(fs::read_to_string(file.path()).expect("read"), text);
}

#[test]
fn foreign_database_is_rejected() {
    let file = OneFile::new();
    drop(redb::Database::create(file.path()).expect("a database"));
    let error = RedbStore::new(file.path()).campaign(ONE).expect_err("no store");
    assert!(matches!(error, RedbError::Foreign { .. }), "{error:?}");
}

#[test]
fn truncated_file_is_rejected_at_any_length() {
    let file = OneFile::new();
    written(&file.path(), 200);
    let complete = fs::read(file.path()).expect("read");
    let cuts =
        [0, 1, 100, 4096, 5000, complete.len() / 4, complete.len() / 2, complete.len() - 4096];
    for cut in cuts {
        fs::write(file.path(), &complete[..cut]).expect("write");
        let mut store = RedbStore::new(file.path());
        let error = store.campaign(ONE).expect_err("the file is truncated");
        let is_reported = matches!(error, RedbError::Damaged { .. } | RedbError::Foreign { .. });
        assert!(is_reported && error.to_string().contains("controller.redb"), "{cut}: {error:?}");
    }
    fs::write(file.path(), &complete).expect("write");
    let mut store = RedbStore::new(file.path());
    assert_eq!(store.campaign(ONE).expect("it is whole again"), Some(Epoch(2)));
}

#[test]
fn unusable_path_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = folder.path().join("no/such/folder/controller.redb");
    for path in [nowhere.as_path(), folder.path(), Path::new("/proc/controller.redb")] {
        let error = RedbStore::new(path).campaign(ONE).expect_err("an unusable path");
        assert!(matches!(error, RedbError::System { .. }), "{error:?}");
        assert!(error.to_string().contains(path.to_str().expect("text")), "{error}");
    }
}
