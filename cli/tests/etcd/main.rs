//! A fabric whose controllers share an etcd: real processes, a real cluster of three members, and
//! real kills.

mod cluster;
#[path = "../command/lab.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod lab;
#[path = "../command/program.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use cluster::{Cluster, MEMBERS};
use lab::{Controller, Node, Switch};
use program::{Running, onepipe, wait_until};

/// Process ids of both replicas.
const CONTROLLERS: &str = "1000:2";
/// Long link timeouts: a stopped process must not be declared failed here.
const PATIENT: [&str; 2] = ["--link-timeout", "60s"];

fn controller(switch: &Switch, process: &str, cluster: &Cluster) -> Controller {
    Controller::begin(&mut controller_command(switch, process, cluster))
}

fn controller_command(switch: &Switch, process: &str, cluster: &Cluster) -> Command {
    let arguments = ["--udp", &switch.address, "--controllers", CONTROLLERS, "--process", process];
    let mut command = onepipe(&[&["controller"], &arguments[..]].concat());
    command.args(["--etcd", &cluster.urls()]);
    command
}

fn node(switch: &Switch, id: &str) -> Node {
    let arguments = ["--udp", &switch.address, "--process", id, "--controllers", CONTROLLERS];
    Node::start(&[&arguments[..], &["--reliable"]].concat())
}

/// Sorts the controllers so that the first one is active and satisfies `holds`, once one does: on a
/// busy machine the other one may take over at any time.
fn by_rank(
    mut both: [Controller; 2],
    what: &str,
    holds: impl Fn(&Value) -> bool,
) -> [Controller; 2] {
    wait_until(what, || {
        let found = both.iter().position(|one| {
            let status = one.status();
            status["epoch"].is_u64() && holds(&status)
        });
        if found == Some(1) {
            both.swap(0, 1);
        }
        found.is_some()
    });
    both
}

#[test]
fn failure_survives_controller_crash_and_lost_quorum() {
    let mut cluster = Cluster::start();
    let switch = Switch::start(&[&["--controllers", CONTROLLERS], &PATIENT[..]].concat());
    let both = ["1000", "1001"].map(|process| controller(&switch, process, &cluster));
    let both = by_rank(both, "one of them is active", |_| true);
    let [mut zero, mut one, mut two] = ["0", "1", "2"].map(|id| node(&switch, id));
    for (id, node) in [&zero, &one, &two].into_iter().enumerate() {
        node.joins(&both[0], id as u32);
    }
    zero.type_line("0,1,2 first");
    let first = zero.process.line();
    assert!(first.ends_with(" 0 first"), "{first}");
    assert_eq!([one.process.line(), two.process.line()], [first.clone(), first]);

    // Process 1 is stopped, so the failure of process 2 stays open while its controller is killed.
    one.process.signal("-STOP");
    two.process.signal("-KILL");
    let [mut active, standby] = by_rank(both, "decided, and not completed", |status| {
        status["failures"][0]["name"] == "process 2" && status["open"][0]["name"] == "process 2"
    });
    active.process.signal("-KILL");
    active.process.status();
    one.process.signal("-CONT");
    standby.until("taken over and finished", |status| {
        status["epoch"].is_u64()
            && status["failures"].as_array().is_some_and(|all| all.len() == 1)
            && status["open"].as_array().is_some_and(Vec::is_empty)
            && status["frozen"].as_array().is_some_and(Vec::is_empty)
    });
    zero.type_line("0,1 second");
    let second = zero.process.line();
    assert!(second.ends_with(" 0 second"), "{second}");
    assert_eq!(one.process.line(), second);

    // Without a quorum nothing is decided, but messages continue.
    cluster.kill(0);
    cluster.kill(1);
    zero.type_line("0,1 third");
    let third = zero.process.line();
    assert!(third.ends_with(" 0 third"), "{third}");
    assert_eq!(one.process.line(), third);
    one.process.signal("-KILL");
    wait_until("the status reports the store", || {
        let table = standby.table();
        let line = table.lines().find(|line| line.starts_with("  store ")).unwrap_or_default();
        line.contains("UNAVAILABLE for ")
            && line.contains("etcd at http://127.0.0.1:")
            && line.contains("recovery is paused, 1 records pending")
    });
    let status = standby.status();
    assert_eq!(status["failures"].as_array().map(Vec::len), Some(1), "nothing decided: {status}");
    assert!(status["frozen"].as_array().is_some_and(|frozen| !frozen.is_empty()), "{status}");
    // Reliable messages wait; best effort does not.
    zero.type_line("0 fourth");
    let arguments = ["--udp", &switch.address, "--process", "3", "--controllers", CONTROLLERS];
    let mut three = Node::start(&arguments);
    three.type_line("3,0 best effort");
    let best_effort = three.process.line();
    assert!(best_effort.ends_with(" 3 best effort"), "{best_effort}");
    assert_eq!(zero.process.line(), best_effort, "the fourth line waits");

    cluster.restart(0);
    cluster.restart(1);
    assert!(zero.process.line().ends_with(" 0 fourth"));
    let status = standby.until("decided and finished", |status| {
        status["failures"].as_array().is_some_and(|all| all.len() == 2)
            && status["open"].as_array().is_some_and(Vec::is_empty)
            && status["store"]["is_available"] == true
    });
    assert_eq!(status["failures"][1]["name"], "process 1");
    assert!(standby.table().contains("\n  store       available\n"), "{}", standby.table());
}

/// Copies a folder and all below it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("a copy");
        }
    }
}

/// Puts the data of the members in `from` in place of those in `to`. Keeps logs.
fn replace_data(to: &Path, from: &Path) {
    for member in (0..MEMBERS).map(|at| at.to_string()) {
        fs::remove_dir_all(to.join(&member)).expect("removed");
        copy(&from.join(&member), &to.join(&member));
    }
}

//= spec/failure.md#R61
#[test]
fn etcd_that_was_restored_from_a_backup_is_refused() {
    let (older, latest) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let mut cluster = Cluster::start();
    let switch = Switch::start(&[&["--controllers", CONTROLLERS], &PATIENT[..]].concat());
    let end = |mut controller: Controller| {
        controller.process.signal("-INT");
        assert_eq!(controller.process.status(), Some(0));
    };
    let first = controller(&switch, "1000", &cluster);
    first.until("the controller is active", |status| status["epoch"].is_u64());
    let nodes = ["0", "1"].map(|id| node(&switch, id));
    nodes[0].joins(&first, 0);
    nodes[1].joins(&first, 1);
    end(first);
    cluster.change_data(|folder| copy(folder, older.path()));

    let second = controller(&switch, "1000", &cluster);
    let two = node(&switch, "2");
    two.joins(&second, 2);
    drop(two);
    let is_decided = |status: &Value| {
        status["failures"].as_array().is_some_and(|all| all.len() == 1)
            && status["open"].as_array().is_some_and(Vec::is_empty)
    };
    second.until("process 2 is decided and completed", is_decided);
    end(second);
    cluster.change_data(|folder| {
        copy(folder, latest.path());
        replace_data(folder, older.path());
    });

    let mut third = Running::start_with_stderr(&mut controller_command(&switch, "1000", &cluster));
    let text = third.remaining_stderr();
    assert_eq!(third.status(), Some(1), "{text}");
    assert!(text.contains("the store is not usable: it went back in time"), "{text}");

    cluster.change_data(|folder| replace_data(folder, latest.path()));
    let last = controller(&switch, "1000", &cluster);
    last.until("the latest data are accepted", |status| {
        status["epoch"].is_u64() && is_decided(status)
    });
}
