//! A disk without free space.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use onepipe_base::Incarnation;
use onepipe_controller::{Record, Store, StoreError};
use onepipe_daemon_controller::{RedbError, RedbStore};
use onepipe_wire::Undeliverable;

use crate::conformance::{ONE, OTHER, TIMEOUT, campaign, numbers, record};

/// Names the folder on which a small disk is mounted.
const FOLDER: &str = "ONEPIPE_TEST_SMALL_DISK";
const DISK_BYTES: usize = 8 << 20;

/// Runs `test` of this program with a small disk. Returns false if this user may not mount one.
fn run_on_small_disk(test: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let mount = format!(
        "mount -t tmpfs -o size={DISK_BYTES} tmpfs \"${FOLDER}\" || exit 77; exec \"$0\" \"$@\""
    );
    for namespaces in [["--mount"].as_slice(), &["--map-root-user", "--mount"]] {
        let is_permitted = Command::new("unshare").args(namespaces).arg("true").output();
        if !is_permitted.is_ok_and(|probe| probe.status.success()) {
            continue;
        }
        let mut command = Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", &mount]);
        command.arg(std::env::current_exe().expect("this test has a path"));
        command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder.path());
        let status = command.status().expect("unshare has run before");
        if status.code() != Some(77) {
            assert!(status.success(), "{test} on a small disk: {status}");
            return true;
        }
    }
    false
}

//= spec/failure.md#R52
#[test]
fn epoch_goes_on_once_a_full_disk_has_space() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill_disk(Path::new(&folder));
    }
    if !run_on_small_disk("full_disk::epoch_goes_on_once_a_full_disk_has_space") {
        println!("skipped: this user may not mount a small disk");
    }
}

/// Returns a record of some 20 KiB.
fn long_record(number: u32) -> Record {
    let Record::Undeliverable { sender, entries } = record(number) else { panic!("it is one") };
    let entry = |at: u32| Undeliverable { incarnation: Incarnation(at), ..entries[0] };
    Record::Undeliverable { sender, entries: (0..1000).map(entry).collect() }
}

fn fill_disk(folder: &Path) {
    let mut store = RedbStore::new(folder.join("controller.redb"));
    let epoch = campaign(&mut store, ONE);
    store.append(epoch, &record(0)).expect("there is space");
    let filler = folder.join("filler");
    let full = fs::write(&filler, vec![1; DISK_BYTES]).expect_err("another program fills the disk");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);

    let mut written = 0;
    let refused = (1..1000).find_map(|number| {
        let refused = store.append(epoch, &long_record(number)).err();
        written += u32::from(refused.is_none());
        refused
    });
    let Some(StoreError::Failed(error)) = refused else { panic!("the disk is full: {refused:?}") };
    assert!(matches!(&error, RedbError::System { .. }), "{error:?}");
    assert!(error.to_string().contains("free space on its disk"), "{error}");
    // The disk is full for longer than it takes to open the file again.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        let refused = store.append(epoch, &long_record(999)).expect_err("the disk is full");
        let StoreError::Failed(RedbError::System { .. }) = refused else { panic!("{refused:?}") };
        std::thread::sleep(Duration::from_millis(10));
    }

    fs::remove_file(&filler).expect("the other program frees the space");
    let began = Instant::now();
    while let Err(error) = store.append(epoch, &long_record(2000)) {
        assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
        assert!(began.elapsed() < TIMEOUT, "{error:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    store.renew(epoch).expect("the epoch goes on");
    let found = numbers(&store.load().expect("active"));
    let acknowledged: Vec<u32> = (0..=written).chain([2000]).collect();
    let is_found = |number: &u32| found.contains(number);
    assert!(acknowledged.iter().all(is_found), "{found:?} lack some of {acknowledged:?}");
    assert_eq!(RedbStore::new(store.path()).campaign(OTHER).expect("it is a store"), None);
}
