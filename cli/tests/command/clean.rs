//! What commands leave behind in shared memory, and `onepipe clean`.

use std::path::Path;
use std::process::Command;

use crate::lab::Node;
use crate::program::{Running, exclusive, json, onepipe, output, segments, unique, wait_until};

/// Returns the paths of a report of `onepipe clean`, and whether it was a dry run.
fn clean(arguments: &[&str]) -> (Vec<String>, bool) {
    let output = output(&[&["clean", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0));
    let report = json(&output);
    let paths = report["paths"].as_array().expect("paths").iter();
    let paths = paths.map(|path| path.as_str().expect("text").to_owned()).collect();
    (paths, report["is_dry_run"].as_bool().expect("a flag"))
}

/// Starts a node and waits until it has its segment.
fn node_of(fabric: &str) -> Node {
    let mut node = Node::start(&["--fabric", fabric, "--process", "0"]);
    node.type_line("0 ready");
    assert!(node.process.line().ends_with(" 0 ready"));
    node
}

#[test]
fn removes_what_killed_processes_have_left() {
    let (killed, live) = (unique("killed"), unique("live"));
    let (mut killed_node, _live_node) = (node_of(&killed), node_of(&live));
    let segment = format!("/dev/shm/{}", segments(&killed)[0]);
    killed_node.process.signal("-KILL");
    killed_node.process.status();
    // The process that has ended was the parent of a demo.
    let pid = killed_node.process.child.id();
    let (store, other) = (
        format!("/dev/shm/onepipe-demo-{pid}.redb"),
        format!("/dev/shm/onepipe-demo-{}.redb", std::process::id()),
    );
    for path in [&store, &other] {
        std::fs::write(path, "decisions").expect("write");
    }
    let is_there = |paths: &[String]| [&segment, &store].map(|path| paths.contains(path));

    // A demo that ends at the same time removes stale segments as well.
    let (found, is_dry_run) = clean(&["--dry-run"]);
    assert!(is_dry_run && found.contains(&store) && Path::new(&store).exists(), "{found:?}");
    assert!(is_there(&found)[0] || segments(&killed).is_empty(), "{found:?}");
    let (removed, is_dry_run) = clean(&[]);
    assert!(!is_dry_run && is_there(&removed)[1] && !removed.contains(&other), "{removed:?}");
    assert!(segments(&killed).is_empty() && !Path::new(&store).exists(), "{removed:?}");
    assert_eq!(segments(&live).len(), 1, "a live process uses it");
    assert!(Path::new(&other).exists(), "its process is alive");
    std::fs::remove_file(&other).expect("it is there");
    let text = String::from_utf8(output(&["clean", "--dry-run"]).stdout).expect("text");
    assert!(!text.contains(&killed), "{text}");
}

/// Returns what a process that is interrupted has left in shared memory.
fn left_after_interrupt(command: &mut Command, is_started: impl Fn(u32) -> bool) -> Vec<String> {
    let mut program = Running::start(command);
    let pid = program.child.id();
    program.wait_for_signal_handler();
    wait_until("it uses shared memory", || is_started(pid));
    program.signal("-INT");
    assert_eq!(program.status(), Some(130));
    named_after(pid)
}

/// Returns the files in shared memory that are named after process `pid`.
fn named_after(pid: u32) -> Vec<String> {
    let mut names = segments("");
    names.retain(|name| name.split(['-', '.']).any(|part| part == pid.to_string()));
    names
}

#[test]
fn interrupted_benchmark_leaves_nothing() {
    let _guard = exclusive();
    let is_attached = |pid: u32| !named_after(pid).is_empty();
    for name in ["pair", "order"] {
        let left = left_after_interrupt(&mut onepipe(&["bench", name]), is_attached);
        assert_eq!(left, [""; 0], "bench {name}");
    }
}
