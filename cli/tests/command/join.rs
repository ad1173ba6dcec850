//! Joining over UDP: what is answered, refused, adopted, and said when nothing answers.

use std::io::Write;
use std::net::UdpSocket;
use std::process::Stdio;

use crate::lab::{Controller, Node, Switch};
use crate::program::{Running, errors, exclusive, onepipe, output, unique, wait_until};

/// An address at which nothing listens, but did a moment ago.
fn closed_address() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("the loopback is available");
    socket.local_addr().expect("it is bound").to_string()
}

/// Runs a command that must exit with status 1, print nothing and complain with `expected`.
fn refuses(arguments: &[&str], expected: &str) {
    let output = output(arguments);
    let complaint = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {complaint}");
    assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.is_empty(), "{arguments:?} printed {printed:?} before it has joined");
}

//= spec/ordering.md#R63
#[test]
fn without_switch_every_command_says_what_to_start() {
    let address = closed_address();
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let expected = format!("start one there with \"onepipe switch --listen {address}\"");
    let commands: [&[&str]; 5] = [
        &["node", "--udp", &address, "--process", "0"],
        &["switch", "--listen", "127.0.0.1:0", "--parent", &address],
        &["controller", "--udp", &address, "--store", &store, "--status-listen", "127.0.0.1:0"],
        &["arbiter", "--udp", &address],
        &["transfer", "receive", "--udp", &address],
    ];
    for command in commands {
        refuses(&[command, &["--wait", "200ms"]].concat(), &expected);
    }
    let expected = format!("start one there with \"onepipe aggregator --listen {address}\"");
    refuses(&["node", "--overlay", &address, "--process", "0", "--wait", "200ms"], &expected);
    let parent = ["aggregator", "--listen", "127.0.0.1:0", "--parent", &address];
    refuses(&[&parent[..], &["--wait", "200ms"]].concat(), &expected);
}

//= spec/ordering.md#R67
#[test]
fn settings_that_differ_are_named() {
    let _guard = exclusive();
    let switch = Switch::start(&["--processes", "24", "--controllers", "20"]);
    let udp: [&str; 2] = ["--udp", &switch.address];
    let node = |more: &[&'static str]| [&["node"], &udp[..], more].concat();
    refuses(&node(&["--process", "1", "--processes", "64"]), "processes is 64 here and 24 in");
    refuses(&node(&["--process", "1", "--controllers", "9"]), "controllers is 9 here and 20 in");
    refuses(&node(&["--process", "24"]), "process ids lie below 24");
    refuses(&node(&["--process", "20"]), "reserved for a controller (controllers 20 to 20)");
    let below = ["switch", "--listen", "127.0.0.1:0", "--parent", &switch.address];
    refuses(&[&below[..], &["--processes", "64"]].concat(), "processes is 64 here and 24 in");
    refuses(&["arbiter", udp[0], udp[1], "--process", "1000"], "process ids lie below 24");
}

//= spec/ordering.md#R67
#[test]
fn first_process_states_the_terms_of_shared_memory() {
    let _guard = exclusive();
    let fabric = unique("terms");
    let mut first = Node::start(&["--fabric", &fabric, "--process", "0", "--link-timeout", "20s"]);
    let third = |more: &[&'static str]| [&["node", "--fabric", &fabric], more].concat();
    first.type_line("0 up");
    assert!(first.process.line().ends_with(" 0 up"));
    let mut second = Node::start(&["--fabric", &fabric, "--process", "1"]);
    second.type_line("1 up");
    assert!(second.process.line().ends_with(" 1 up"));
    let expected = "link timeout (ns) is 9000000000 here and 20000000000 in";
    refuses(&third(&["--process", "2", "--link-timeout", "9s"]), expected);
    refuses(&third(&["--process", "2", "--controllers", "9"]), "controllers is 9 here and none in");
}

/// A node without `--controllers` in a fabric that has them was declared failed, and not notified.
//= spec/ordering.md#R67
#[test]
fn settings_are_given_to_the_root_alone() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let root = Switch::start(&["--processes", "24", "--controllers", "20", "--id", "1"]);
    let below = Switch::start(&["--parent", &root.address, "--id", "2"]);
    let controller = Controller::start(&["--udp", &root.address, "--store", &store]);
    controller.until("the controller is active", |status| status["epoch"].is_u64());
    let node = |switch: &Switch, process| {
        Node::start(&["--udp", &switch.address, "--process", process, "--reliable"])
    };
    let (mut zero, mut one) = (node(&root, "0"), node(&below, "1"));
    zero.type_line("0,1 agreed");
    let line = zero.process.line();
    assert!(line.ends_with(" 0 agreed"), "{line}");
    assert_eq!(one.process.line(), line);
}

//= spec/ordering.md#R68
#[test]
fn second_controller_with_one_id_is_refused() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let store = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let switch = Switch::start(&["--controllers", "1000"]);
    let first = Controller::start(&["--udp", &switch.address, "--store", &store("first")]);
    first.until("the controller is active", |status| status["epoch"].is_u64());
    let second = store("second");
    let arguments = ["controller", "--udp", &switch.address, "--store", &second];
    let options = ["--status-listen", "127.0.0.1:0", "--wait", "300ms"];
    refuses(&[&arguments[..], &options].concat(), "a live controller has this id");
    drop(first);
    // The kernel reports at once that its port is closed.
    let mut successor = Running::start(&mut onepipe(
        &[&arguments[..], &["--status-listen", "127.0.0.1:0"]].concat(),
    ));
    let line = successor.line();
    assert!(line.starts_with("controller 1000 "), "{line}");
}

/// Starts each command behind a switch or an aggregator, restarts that with other settings, and
/// expects each command to end with status 1 and a complaint that contains `expected`.
fn ends_after_restart(
    above: &str,
    commands: &[&[&str]],
    (before, after): (&[&str], &[&str]),
    expected: &str,
) {
    let switch = Switch::start_as(above, "127.0.0.1:0", before);
    let address = switch.address.clone();
    let start = |arguments: &&[&str]| {
        let command = [*arguments, &[&address]].concat();
        let mut process = Running::start_with_stderr(onepipe(&command).stdin(Stdio::piped()));
        if arguments[0] != "node" {
            process.line();
        }
        process
    };
    let mut processes: Vec<Running> = commands.iter().map(start).collect();
    if commands[0][0] == "node" {
        // The node has joined when it delivers to itself.
        let input = processes[0].child.stdin.as_mut().expect("its input is piped");
        writeln!(input, "0 here").expect("write to its stdin");
        processes[0].line();
    }
    drop(switch);
    let _switch = Switch::start_as(above, &address, after);
    for (process, arguments) in processes.iter_mut().zip(commands) {
        let mut complaint = String::new();
        while !complaint.contains(expected) {
            complaint = process.stderr_line();
        }
        wait_until(&format!("{} ends", arguments[0]), || process.status().is_some());
        assert_eq!(process.status(), Some(1), "{}: {complaint}", arguments[0]);
    }
}

/// What joined the first one went on under its terms.
//= spec/ordering.md#R77
#[test]
fn switch_restarted_with_other_terms_ends_its_nodes() {
    let _guard = exclusive();
    let commands: [&[&str]; 4] = [
        &["node", "--stay", "--process", "0", "--udp"],
        &["arbiter", "--process", "1100", "--nodes", "8", "--udp"],
        &["transfer", "receive", "--nodes", "8", "--arbiter", "1100", "--udp"],
        &["switch", "--listen", "127.0.0.1:0", "--parent"],
    ];
    let settings: (&[&str], &[&str]) = (&["--processes", "2000"], &["--processes", "1500"]);
    ends_after_restart("switch", &commands, settings, "was restarted with processes 1500");
}

//= spec/ordering.md#R77
#[test]
fn restarted_aggregator_ends_node_and_aggregator_below() {
    let _guard = exclusive();
    let commands: [&[&str]; 2] = [
        &["node", "--stay", "--process", "0", "--overlay"],
        &["aggregator", "--listen", "127.0.0.1:0", "--parent"],
    ];
    let settings: (&[&str], &[&str]) = (&["--processes", "2000"], &["--processes", "1500"]);
    ends_after_restart("aggregator", &commands, settings, "was restarted with processes 1500");
}

//= spec/ordering.md#R77
#[test]
fn changed_terms_end_a_controller() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let options = ["--status-listen", "127.0.0.1:0", "--udp"];
    let command = [&["controller", "--store", &store], &options[..]].concat();
    let before: &[&str] = &["--controllers", "1000", "--processes", "2000"];
    let after: &[&str] = &["--controllers", "1000", "--processes", "1500"];
    ends_after_restart("switch", &[&command], (before, after), "restarted with processes 1500");
}

//= spec/ordering.md#R63
#[test]
fn refusal_after_joining_ends_an_arbiter() {
    let _guard = exclusive();
    let commands: [&[&str]; 1] = [&["arbiter", "--process", "1100", "--nodes", "8", "--udp"]];
    let settings: (&[&str], &[&str]) = (&["--processes", "2000"], &["--processes", "24"]);
    ends_after_restart("switch", &commands, settings, "process ids lie below 24");
}

/// What had died before was once reported to each process that joined, like an alarm.
#[test]
fn joining_process_is_not_notified_of_past_failures() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let switch = Switch::start(&["--controllers", "1000"]);
    let controller = Controller::start(&["--udp", &switch.address, "--store", &store]);
    let node = |process: &str| {
        Node::start(&["--udp", &switch.address, "--process", process, "--reliable"])
    };
    let (witness, killed) = (node("0"), node("1"));
    witness.joins(&controller, 0);
    killed.joins(&controller, 1);
    drop(killed);
    controller.until("it has failed", |status| {
        status["failures"].as_array().is_some_and(|failures| failures.len() == 1)
    });
    let mut other = node("2");
    other.joins(&controller, 2);
    other.type_line("2 here");
    assert!(other.process.line().ends_with(" 2 here"));
    // The notice of a later failure repeats earlier ones.
    drop(witness);
    let mut complaint = String::new();
    while !complaint.contains("has failed") {
        complaint = other.process.stderr_line();
    }
    assert!(complaint.contains("process 0 has failed"), "{complaint}");
}
