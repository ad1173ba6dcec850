//! `onepipe node`, `onepipe switch` and `onepipe aggregator`.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::controller::log_line;
use crate::lab::{Controller, Node, Switch};
use crate::namespace::in_own_network;
use crate::program::{Running, errors, exclusive, onepipe, output, unique};

/// Both nodes send ten lines to both, and print the same twenty; then one sends a line to all.
fn check_two_nodes_agree(mut nodes: [Node; 2]) {
    for number in 0..10 {
        nodes[0].type_line(&format!("0,1 zero {number}"));
        nodes[1].type_line(&format!("0,1 one {number}"));
    }
    let [mut zero, mut one] = nodes;
    let lines = [(); 20].map(|()| zero.process.line());
    assert_eq!(lines, [(); 20].map(|()| one.process.line()));
    let of = |sender: &str| lines.iter().filter(|line| line.contains(sender)).count();
    assert_eq!((of(" 0 zero "), of(" 1 one ")), (10, 10), "{lines:?}");
    assert!(lines.is_sorted_by_key(|line| {
        let timestamp = line.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        timestamp.expect("a line begins with its timestamp")
    }));
    zero.type_line("all the others");
    for node in [&mut zero, &mut one] {
        assert!(node.process.line().ends_with(" 0 the others"));
        node.process.signal("-INT");
        assert_eq!(node.process.status(), Some(0));
    }
}

#[test]
fn nodes_agree_over_shared_memory() {
    let _guard = exclusive();
    let fabric = unique("node");
    let start = |process| Node::start(&["--fabric", &fabric, "--process", process]);
    check_two_nodes_agree([start("0"), start("1")]);
}

#[test]
fn nodes_agree_over_overlay() {
    let _guard = exclusive();
    let aggregator = |listen: &str, parent: &[&str]| {
        let arguments = [&["aggregator", "--listen", listen], parent].concat();
        let mut program = Running::start(&mut onepipe(&arguments));
        let line = program.line();
        let address = line.strip_prefix("listening at ").expect("address is printed").to_string();
        (program, address)
    };
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let (_root, root_address) = aggregator(listen, &[]);
        let (_leaf, leaf_address) = aggregator(listen, &["--parent", &root_address]);
        let start = |address: &str, process| {
            Node::start(&["--overlay", address, "--process", process, "--reliable"])
        };
        check_two_nodes_agree([start(&root_address, "0"), start(&leaf_address, "1")]);
    }
}

#[test]
fn node_prints_its_counters_at_the_end() {
    let _guard = exclusive();
    let arguments = ["aggregator", "--listen", "127.0.0.1:0"];
    let mut aggregator = Running::start(&mut onepipe(&arguments));
    let line = aggregator.line();
    let address = line.strip_prefix("listening at ").expect("address is printed");
    let overlay = ["--overlay", address, "--reliable", "--process"];
    let mut one = Node::start(&[&overlay[..], &["1"]].concat());
    one.type_line("1 up");
    assert!(one.process.line().ends_with(" 1 up"));
    let zero = [&["node", "--stats"], &overlay[..], &["0"]].concat();
    let mut zero = onepipe(&zero);
    let zero = zero.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut zero = zero.spawn().expect("the program starts");
    zero.stdin.take().expect("piped").write_all(b"0,1 counted\n").expect("it reads");
    let ended = zero.wait_with_output().expect("it ends");
    let complaint = errors(&ended);
    assert_eq!(ended.status.code(), Some(0), "{complaint}");
    assert!(complaint.contains("messages: 2 sent, 1 delivered, 0 lost, 0 with"), "{complaint}");
    assert!(complaint.contains("refused: 0 recalls, 0 packets beyond"), "{complaint}");
    let routes = complaint.lines().find_map(|line| line.strip_prefix("onepipe: routes: "));
    let words: Vec<&str> = routes.expect("the routes are counted").split(' ').collect();
    let count = |at: usize| words[at].parse::<u64>().expect("a number");
    assert!(
        words[1..4] == ["frames", "sent", "directly,"] && count(0) + count(4) > 0,
        "{complaint}"
    );
}

#[test]
fn nodes_agree_through_switch() {
    let _guard = exclusive();
    let arguments = ["--json", "--link-rate", "10M", "--queue", "64KiB"];
    let Switch { process: mut switch, address } = Switch::start(&arguments);
    let start = |process| Node::start(&["--udp", &address, "--process", process]);
    check_two_nodes_agree([start("0"), start("1")]);
    switch.signal("-INT");
    let summary: serde_json::Value =
        serde_json::from_str(&switch.line()).expect("the last line is JSON");
    assert_eq!(switch.status(), Some(0));
    assert_eq!(summary["ports_assigned"], 2, "{summary}");
    assert!(summary["frames_forwarded"].as_u64().is_some_and(|frames| frames > 0), "{summary}");
    let queues = &summary["queues"];
    assert!(queues["bytes_max"].as_u64().is_some_and(|most| most > 0), "{summary}");
    assert_eq!(queues["dropped"], 0, "{summary}");
}

#[test]
fn node_ends_after_piped_input() {
    let fabric = unique("pipe");
    let mut command = onepipe(&["node", "--fabric", &fabric]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("its input is piped");
    stdin.write_all(b"unknown hello\n0 hello\n\n").expect("write to its stdin");
    drop(stdin);
    let output = child.wait_with_output().expect("it exits");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with(" 0 hello\n") && text.lines().count() == 1, "{text}");
    assert!(
        errors(&output).contains("\"unknown\" is not a list of processes"),
        "{}",
        errors(&output)
    );
}

/// Waits for a line with `text` on standard error.
fn await_stderr(node: &mut Node, text: &str) {
    let mut lines = (0..100).map(|_| node.process.stderr_line());
    assert!(lines.any(|line| line.contains(text)), "{text:?} is not printed");
}

#[test]
fn says_which_neighbour_does_not_respond() {
    let fabric = unique("dies");
    let start = |process| Node::start(&["--fabric", &fabric, "--process", process]);
    let (mut zero, mut one) = (start("0"), start("1"));
    one.type_line("0,1 ready");
    assert!(zero.process.line().ends_with(" 1 ready"));
    one.process.signal("-KILL");
    await_stderr(&mut zero, "process 1 has died or does not respond");

    let mut aggregator = Running::start(&mut onepipe(&["aggregator", "--listen", "127.0.0.1:0"]));
    let line = aggregator.line();
    let address = line.strip_prefix("listening at ").expect("address is printed").to_string();
    let mut node = Node::start(&["--overlay", &address, "--process", "0"]);
    node.type_line("0 ready");
    assert!(node.process.line().ends_with(" 0 ready"));
    aggregator.signal("-KILL");
    await_stderr(&mut node, "the aggregator does not respond: messages wait until it does");
}

#[test]
fn listens_on_loopback_by_default() {
    in_own_network("node::listens_on_loopback_by_default", |is_port_free| {
        let folder = tempfile::tempdir().expect("a folder");
        for (arguments, port) in [(["aggregator"].as_slice(), 4410), (&["bulk", "recv"], 4420)] {
            let mut command = onepipe(arguments);
            let mut program = Running::start_with_stderr(command.current_dir(folder.path()));
            let line = program.stderr_line();
            if !is_port_free && line.contains("cannot ") {
                // Another program of this machine uses the port of the loopback.
                assert!(line.contains(&format!("127.0.0.1:{port}")), "{line}");
                continue;
            }
            assert!(line.contains(&format!("for others: --listen 0.0.0.0:{port}")), "{line}");
            assert_eq!(program.line(), format!("listening at 127.0.0.1:{port}"));
        }
    });
    let refused = output(&["aggregator", "--parent", "10.0.0.1:4410"]);
    assert_eq!(refused.status.code(), Some(2));
    let text = errors(&refused);
    assert!(text.contains("cannot reach its parent at 10.0.0.1:4410: add --listen 0.0"), "{text}");
}

#[test]
fn reports_why_node_cannot_join() {
    let fabric = unique("taken");
    let mut first = Node::start(&["--fabric", &fabric, "--process", "3"]);
    first.type_line("3 ready");
    assert!(first.process.line().ends_with(" 3 ready"));
    let second = output(&["node", "--fabric", &fabric, "--process", "3"]);
    assert_eq!(second.status.code(), Some(1));
    let pid = first.process.child.id();
    let expected =
        format!("process 3 of fabric {fabric:?} is taken by the live process with pid {pid}");
    assert!(errors(&second).contains(&expected), "{}", errors(&second));

    let beyond = output(&["node", "--fabric", &fabric, "--process", "64"]);
    assert_eq!(beyond.status.code(), Some(1));
    assert!(errors(&beyond).contains("ids of this segment lie below 64"), "{}", errors(&beyond));
}

#[test]
fn reports_address_in_use() {
    let mut first = Running::start(&mut onepipe(&["switch", "--listen", "127.0.0.1:0"]));
    let line = first.line();
    let address = line.strip_prefix("listening at ").expect("address is printed");
    let second = output(&["switch", "--listen", address]);
    assert_eq!(second.status.code(), Some(1));
    let expected = format!("cannot start a switch at {address}");
    assert!(errors(&second).contains(&expected), "{}", errors(&second));
}

/// What a node says of others is logged as a daemon's events are.
#[test]
fn diagnostics_of_a_node_are_log_lines() {
    let fabric = unique("logged");
    let start = |process, more: &[&str]| {
        Node::start(&[&["--fabric", &fabric, "--process", process], more].concat())
    };
    let mut text = start("0", &[]);
    let mut json = start("1", &["--log-format", "json"]);
    let mut quiet = start("2", &["--log", "error"]);
    let mut third = start("3", &[]);
    third.type_line("0,1,2,3 ready");
    for node in [&mut text, &mut json, &mut quiet, &mut third] {
        assert!(node.process.line().ends_with(" 3 ready"));
    }
    let own = text.process.stderr_line();
    assert_eq!(log_line(&own), ("INFO", &format!("process 0 of fabric {fabric:?}")[..]));
    third.process.signal("-KILL");
    third.process.status();
    let lost = "process 3 has died or does not respond";
    let line = text.process.stderr_line();
    assert_eq!(log_line(&line), ("WARN", lost));
    json.process.stderr_line();
    let line = json.process.stderr_line();
    let line: serde_json::Value = serde_json::from_str(&line).expect("one JSON object");
    let fields = ["level", "target", "message"].map(|field| line[field].as_str());
    assert_eq!(fields, [Some("WARN"), Some("onepipe::node"), Some(lost)], "{line}");
    // Of the lowest level it logs an error alone.
    quiet.type_line("nobody hello");
    let line = quiet.process.stderr_line();
    let (level, error) = log_line(&line);
    assert_eq!(level, "ERROR");
    assert!(error.starts_with("\"nobody\" is not a list of processes"), "{line}");
}

/// Types lines to `all` in each of the processes `present`, until one has reached all of them.
fn all_reaches(nodes: &mut [Node; 3], phase: &str, present: &[usize]) {
    for from in present {
        // A line goes to those that are known by then. One for a process that was killed reaches
        // nobody.
        let is_reached = (0..200).any(|attempt| {
            let text = format!(" {phase} {from} {attempt}");
            nodes[*from].type_line(&format!("all{text}"));
            present.iter().all(|to| {
                let line = || nodes[*to].process.line_within(Duration::from_millis(500));
                std::iter::from_fn(line).any(|line| line.ends_with(&text))
            })
        });
        assert!(is_reached, "{phase}: `all` of process {from} does not reach {present:?}");
    }
}

/// Kills and restarts a process of the operating system: `all` follows, since a reliable line for a
/// process that was killed would reach nobody.
fn all_follows_a_kill(hubs: [&Switch; 2], link: &str) {
    let start = |process: usize| {
        let (hub, process) = (&hubs[process % 2], process.to_string());
        Node::start(&[link, &hub.address, "--process", &process, "--reliable"])
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    // A controller decides at once that a process was killed: no line waits long for its outcome.
    let controller = Controller::start(&["--udp", &hubs[0].address, "--store", &store]);
    let mut nodes = [0, 1, 2].map(start);
    (0..).zip(&nodes).for_each(|(process, node)| node.joins(&controller, process));
    all_reaches(&mut nodes, "joined", &[0, 1, 2]);
    nodes[1].process.signal("-KILL");
    nodes[1].process.status();
    for other in [0, 2] {
        await_stderr(&mut nodes[other], "process 1 has failed");
    }
    all_reaches(&mut nodes, "killed", &[0, 2]);
    nodes[1] = start(1);
    nodes[1].joins(&controller, 1);
    all_reaches(&mut nodes, "restarted", &[0, 1, 2]);
}

//= spec/ordering.md#R75
#[test]
fn all_follows_a_kill_across_two_switches() {
    let _guard = exclusive();
    let root = Switch::start(&["--controllers", "1000", "--id", "1"]);
    let below = Switch::start(&["--parent", &root.address, "--id", "2"]);
    all_follows_a_kill([&root, &below], "--udp");
}

//= spec/ordering.md#R75
#[test]
fn all_follows_a_kill_across_two_aggregators() {
    let _guard = exclusive();
    let start = |arguments: &[&str]| Switch::start_as("aggregator", "127.0.0.1:0", arguments);
    let root = start(&["--controllers", "1000", "--id", "1"]);
    let below = start(&["--parent", &root.address, "--id", "2"]);
    all_follows_a_kill([&root, &below], "--overlay");
}
