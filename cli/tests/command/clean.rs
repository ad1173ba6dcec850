//! What commands leave behind in shared memory, and `onepipe clean`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::lab::Node;
use crate::program::{Running, exclusive, json, onepipe, output, segments, unique, wait_until};
use crate::transfer::Lab;

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

/// Returns the files in shared memory that a program or its children use, without the one that
/// stays: it records the incarnations of the user's processes.
fn shared_files(program: &Running) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for process in program.descendants() {
        let maps = std::fs::read_to_string(format!("{process}/maps")).unwrap_or_default();
        let mapped = maps.lines().filter_map(|line| line.find("/dev/shm/").map(|at| &line[at..]));
        files.extend(mapped.map(|file| file.trim_end_matches(" (deleted)").to_owned()));
        let open = std::fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten();
        let open = open.filter_map(|file| std::fs::read_link(file.path()).ok());
        let open = open.map(|file| file.to_string_lossy().into_owned());
        files.extend(open.filter(|file| file.starts_with("/dev/shm/") && !file.contains(" ")));
    }
    files.retain(|file| !file.starts_with("/dev/shm/onepipe-incarnations-"));
    files
}

/// Interrupts a program, and checks that nothing is left of what it uses now, nor named after it.
fn interrupt_leaves_nothing(what: &str, program: &mut Running, status: i32) {
    let used = shared_files(program);
    program.signal("-INT");
    assert_eq!(program.status(), Some(status), "{what}");
    wait_until("its children have ended", || program.descendants().is_empty());
    let left: Vec<_> = used.iter().filter(|file| Path::new(file).exists()).collect();
    assert!(left.is_empty(), "{what} has left {left:?} of {used:?}");
    assert_eq!(named_after(program.child.id()), [""; 0], "{what}");
}

#[test]
fn interrupted_benchmarks_with_children_leave_nothing() {
    let _guard = exclusive();
    for name in ["light", "bulk"] {
        let what = format!("bench {name}");
        let command = ["bench", name, "--transport", "shm"];
        let mut program = Running::start(&mut onepipe(&command));
        program.wait_for_signal_handler();
        wait_until(&format!("{what} uses shared memory"), || !shared_files(&program).is_empty());
        interrupt_leaves_nothing(&what, &mut program, 130);
    }
}

#[test]
fn interrupted_node_leaves_nothing() {
    let fabric = unique("interrupted");
    let mut node = node_of(&fabric);
    assert_eq!(shared_files(&node.process).len(), 1, "its segment");
    interrupt_leaves_nothing("node", &mut node.process, 0);
    assert_eq!(segments(&fabric), [""; 0]);
}

/// The receiver writes to a pipe that is not read, so that the file is never complete.
#[test]
fn interrupted_bulk_transfer_leaves_nothing() {
    for (what, interrupted) in [("bulk send", 0), ("bulk recv", 1)] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let (file, pipe) = (path("file"), path("pipe"));
        std::fs::write(&file, vec![7; 8 << 20]).expect("write");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
        let end = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::File::open(pipe).expect("a pipe")
        });
        let receive = ["bulk", "recv", "--listen", "127.0.0.1:0", "--out", &pipe];
        let mut receiver = Running::start(&mut onepipe(&receive));
        let line = receiver.line();
        let address = line.strip_prefix("listening at ").expect("address is printed");
        let send = ["bulk", "send", &file, "--to", address, "--transport", "shm"];
        let sender = Running::start(&mut onepipe(&send));
        let mut programs = [sender, receiver];
        wait_until("both use shared memory", || {
            programs.iter().all(|program| !shared_files(program).is_empty())
        });
        let mut used = shared_files(&programs[1 - interrupted]);
        interrupt_leaves_nothing(what, &mut programs[interrupted], 130);
        // The other one may wait for another attempt, or for another sender.
        used.extend(shared_files(&programs[1 - interrupted]));
        programs[1 - interrupted].signal("-INT");
        assert!(programs[1 - interrupted].status().is_some(), "a program handles Ctrl-C");
        let left: Vec<_> = used.iter().filter(|file| Path::new(file).exists()).collect();
        assert!(left.is_empty(), "the other end of {what} has left {left:?}");
        end.join().expect("the pipe was opened");
    }
}

/// They use no shared memory, except for the incarnations.
#[test]
fn interrupted_transfer_leaves_nothing() {
    let _guard = exclusive();
    let lab = Lab::start();
    let folder = tempfile::tempdir().expect("a folder");
    let mut receiver = lab.receive(&folder.path().join("out"), &[]);
    let mut sender = lab.pipe(&[]);
    sender.wait_for_signal_handler();
    interrupt_leaves_nothing("transfer send", &mut sender, 130);
    interrupt_leaves_nothing("transfer receive", &mut receiver, 130);
}
