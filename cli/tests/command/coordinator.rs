//! `onepipe coordinator`, whose store is damaged.

use std::path::PathBuf;

use onepipe::{Directory, Loopback, Role};

use crate::amcast::write_group_of;
use crate::program::{Running, damage, onepipe, own_line};

struct Lab {
    folder: tempfile::TempDir,
    directory: Directory,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = Loopback { groups: 1, members: 3, replicas: 1, clients: 1, coordinators: 1 };
        let directory = write_group_of(layout, &folder.path().join("groups.toml"));
        Self { folder, directory }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("decisions")
    }

    fn start(&self) -> Running {
        let address = self.directory.of(Role::Coordinator)[0].to_string();
        let mut command = onepipe(&["coordinator", "--listen", &address, "--groups"]);
        command.arg(self.folder.path().join("groups.toml")).arg("--store").arg(self.store());
        Running::start_with_stderr(&mut command)
    }

    /// Has a coordinator write its store, in which `change` then changes each `text`.
    fn damage(&self, text: &[u8], change: impl Fn(&mut [u8])) {
        let mut first = self.start();
        assert!(first.line().starts_with("coordinator at "));
        assert_eq!(first.line(), "active");
        first.signal("-INT");
        assert_eq!(first.status(), Some(0));
        damage(&self.store(), text, change);
    }
}

//= spec/failure.md#R53
#[test]
fn panic_of_the_store_ends_the_coordinator() {
    let lab = Lab::new();
    // The database panics when the name of a table is not UTF-8.
    lab.damage(b"onepipe/numbers", |name| name.fill(0xff));
    let mut coordinator = lab.start();
    let line = own_line(&mut coordinator);
    assert!(line.contains("the coordinator at 127.0.0.1:"), "{line}");
    assert!(line.contains("the store is unusable: its thread has panicked"), "{line}");
    assert!(line.contains(lab.store().to_str().expect("text")), "{line}");
    assert!(line.contains("is damaged: move it away and restart all nodes"), "{line}");
    assert_eq!(coordinator.status(), Some(1));
}

//= spec/failure.md#R70
#[test]
fn coordinator_reports_changed_record() {
    let lab = Lab::new();
    let (process, _) = lab.directory.at(lab.directory.of(Role::Coordinator)[0]).expect("listed");
    // The end of its key, then tag, epoch 1 and the coordinator.
    let record = [&[0, 0, 0, 0, 1, 0, 0, 0, 1], &process.0.to_be_bytes()[..]].concat();
    lab.damage(&record, |record| record[12] ^= 1);
    let mut coordinator = lab.start();
    let line = own_line(&mut coordinator);
    assert!(line.contains(" ERROR onepipe::store_errors: the store has failed"), "{line}");
    let text = "decisions is damaged: its records are not those that were written";
    assert!(line.contains(text) && line.contains("move the file away and restart all"), "{line}");
    coordinator.signal("-INT");
    assert_eq!(coordinator.status(), Some(0));
    let lines = coordinator.remaining_lines();
    assert!(lines.iter().all(|line| line != "active"), "{lines:?}");
}
