//! The stores that need no other machine.

#[path = "../conformance/mod.rs"]
mod conformance;
mod damaged;
mod files;
mod full_disk;
mod killed;

use std::path::PathBuf;

use onepipe_controller::MemoryStore;
use onepipe_daemon_controller::RedbStore;
use tempfile::TempDir;

use conformance::{Shared, check_conformance};

impl Shared for MemoryStore {
    type Store = MemoryStore;

    fn replica(&mut self) -> MemoryStore {
        self.clone()
    }

    fn stop_renewing(&mut self, active: &mut MemoryStore) {
        active.expire_lease();
    }
}

/// A file in a folder of its own.
struct OneFile(TempDir);

impl OneFile {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("controller.redb")
    }
}

impl Shared for OneFile {
    type Store = RedbStore;

    fn replica(&mut self) -> RedbStore {
        RedbStore::new(self.path())
    }

    fn stop_renewing(&mut self, active: &mut RedbStore) {
        // Its process ends, and another one of the same replica continues.
        *active = RedbStore::new(self.path());
    }
}

#[test]
fn memory_conforms() {
    check_conformance(MemoryStore::new);
}

#[test]
fn redb_conforms() {
    check_conformance(OneFile::new);
}
