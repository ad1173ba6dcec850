//! Controllers and coordinators whose disk is full for a while.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use onepipe::{Amcast, AmcastReplica, GroupId, Loopback, Role};
use serde_json::Value;

use crate::amcast::{deliver_one, write_group_of};
use crate::lab::{Controller, Node, Switch};
use crate::namespace::{DISK_BYTES, on_small_disk};
use crate::program::{Running, exclusive, onepipe, wait_until};

/// Fills the disk. Returns the file that does.
pub fn fill(folder: &Path) -> std::path::PathBuf {
    let filler = folder.join("filler");
    let full = fs::write(&filler, vec![1; DISK_BYTES]).expect_err("the disk is smaller");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    filler
}

/// Waits for a line of `program` on standard error that contains `text`.
pub fn await_stderr(program: &mut Running, text: &str) -> String {
    loop {
        let line = program.stderr_line();
        assert_ne!(line, "", "it has ended without {text:?}");
        if line.contains(text) {
            return line;
        }
    }
}

/// Checks what a line says of a full disk: what has failed, where, and what to do.
fn check_error(line: &str, store: &Path) {
    assert!(
        line.contains(" ERROR onepipe::store_errors: the store has failed, it is tried"),
        "{line}"
    );
    assert!(line.contains(store.to_str().expect("text")), "{line}");
    assert!(line.contains("No space left on device"), "{line}");
    assert!(line.contains("free space on its disk"), "{line}");
}

fn count(status: &Value, list: &str) -> usize {
    status[list].as_array().map_or(0, Vec::len)
}

//= spec/failure.md#R52
//= spec/failure.md#R53
#[test]
fn failure_is_decided_once_a_full_disk_has_space() {
    let _guard = exclusive();
    on_small_disk("full_disk::failure_is_decided_once_a_full_disk_has_space", |folder| {
        let store = folder.join("decisions");
        let switch = Switch::start(&["--controllers", "1000"]);
        let mut start = onepipe(&["controller", "--udp", &switch.address, "--store"]);
        let mut controller = Controller::begin_with_stderr(start.arg(&store));
        controller.until("the controller is active", |status| status["epoch"] == 1);
        let node = |process: &str| {
            Node::start(&["--udp", &switch.address, "--process", process, "--reliable"])
        };
        let mut zero = node("0");
        zero.joins(&controller, 0);
        let mut others = ["1", "2", "3"].map(|process| (node(process), process));
        for (other, id) in &others {
            other.joins(&controller, id.parse().expect("a number"));
        }
        let filler = fill(folder);
        others.iter_mut().for_each(|(other, _)| {
            other.process.signal("-KILL");
            other.process.status();
        });
        check_error(&await_stderr(&mut controller.process, "the store has failed"), &store);
        let status = controller.status();
        // There may be space for some records: these failures are decided, and may be completed.
        let completed = count(&status, "failures") - count(&status, "open");
        assert!(completed < others.len(), "all is completed on a full disk: {status}");
        assert_ne!(status["store"]["records_waiting"], 0, "{status}");
        assert_eq!(status["store"]["is_available"], false, "{status}");

        fs::remove_file(filler).expect("the space is freed");
        await_stderr(&mut controller.process, "the store works again");
        let status = controller.until("the failures are decided", |status| {
            count(status, "failures") == others.len() && count(status, "open") == 0
        });
        assert_eq!((&status["epoch"], &status["store"]["is_available"]), (&1.into(), &true.into()));
        zero.type_line("0 goes on");
        let line = zero.process.line();
        assert!(line.ends_with(" 0 goes on"), "{line}");
    });
}

//= spec/failure.md#R52
#[test]
fn leader_is_named_once_a_full_disk_has_space() {
    let _guard = exclusive();
    on_small_disk("full_disk::leader_is_named_once_a_full_disk_has_space", |folder| {
        let files = tempfile::tempdir().expect("a folder");
        let (store, groups) = (folder.join("decisions"), files.path().join("groups.toml"));
        let layout = Loopback { groups: 1, members: 3, replicas: 1, clients: 1, coordinators: 1 };
        let directory = write_group_of(layout, &groups);
        let start = |program: &str, at: std::net::SocketAddr, more: &[&str]| {
            let mut command = onepipe(&[program, "--listen", &at.to_string(), "--groups"]);
            Running::start_with_stderr(command.arg(&groups).args(more))
        };
        let members = directory.of(Role::Member(GroupId(0)));
        let mut members: Vec<Running> =
            members.iter().map(|at| start("member", *at, &[])).collect();
        let store_path = store.to_str().expect("text");
        // A leader that is slow because the machine is busy is not replaced.
        let options = ["--store", store_path, "--leader-timeout", "2s"];
        let mut coordinator = start("coordinator", directory.of(Role::Coordinator)[0], &options);
        assert!(coordinator.line().starts_with("coordinator at "));
        assert_eq!(coordinator.line(), "active");
        let replica = directory.of(Role::Replica(GroupId(0)))[0];
        let mut replica = AmcastReplica::open(&directory, replica).expect("replica opens");
        let client = directory.of(Role::Client)[0];
        let mut client = Amcast::open(&directory, client).expect("client opens");
        deliver_one(&mut client, &mut replica, b"before");

        let filler = fill(folder);
        members[0].signal("-KILL");
        members[0].status();
        check_error(&await_stderr(&mut coordinator, "the store has failed"), &store);
        assert_eq!(coordinator.line_within(Duration::from_millis(500)), None, "it names a leader");

        fs::remove_file(filler).expect("the space is freed");
        await_stderr(&mut coordinator, "the store works again");
        let line = coordinator.line();
        assert!(line.ends_with(" leads group 0 in epoch 2"), "{line}");
        deliver_one(&mut client, &mut replica, b"behind another leader");
        wait_until("the coordinator runs", || {
            coordinator.child.try_wait().is_ok_and(|end| end.is_none())
        });
    });
}
