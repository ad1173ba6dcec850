//! Missing controllers, duplicate process ids, and processes that are stopped.

use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::lab::{Controller, Node, Switch, is};
use crate::program::{Running, errors, exclusive, onepipe, unique};

const CONTROLLERS: [&str; 2] = ["--controllers", "1000"];

/// A fabric behind a switch, whose controller can be started and killed.
struct Fabric {
    switch: Switch,
    folder: tempfile::TempDir,
}

impl Fabric {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { switch: Switch::start(&CONTROLLERS), folder }
    }

    /// Kills the switch and starts another one at its address.
    fn restart_switch(&mut self) {
        self.switch.process.signal("-KILL");
        self.switch.process.status();
        self.switch = Switch::start_at(&self.switch.address, &CONTROLLERS);
    }

    fn controller(&self) -> Controller {
        let store = self.folder.path().join("decisions").to_string_lossy().into_owned();
        let common = ["--udp", &self.switch.address, "--store", &store];
        Controller::start(&[&common[..], &CONTROLLERS].concat())
    }

    fn arguments<'a>(&'a self, process: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["--udp", &self.switch.address, "--process", process], &CONTROLLERS[..], more].concat()
    }

    fn node(&self, process: &str, more: &[&str]) -> Node {
        Node::start(&self.arguments(process, more))
    }
}

/// Sends a line to both, and checks that both print the same.
fn exchange_line(one: &mut Node, other: &mut Node, text: &str) {
    one.type_line(&format!("0,1 {text}"));
    let line = one.process.line();
    if line.is_empty() {
        panic!(
            "the process has ended: {} {}",
            one.process.stderr_line(),
            one.process.stderr_line()
        );
    }
    assert!(line.ends_with(&format!(" {text}")), "{line}");
    assert_eq!(other.process.line(), line);
}

//= spec/failure.md#R63
#[test]
fn pauses_are_counted_in_status_and_summary() {
    let _guard = exclusive();
    let mut switch = Switch::start(&["--controllers", "20", "--processes", "24", "--json"]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let controller = Controller::start(&["--udp", &switch.address, "--store", &store]);
    controller.until("the controller is active", |status| status["epoch"].is_u64());
    let pause = |process: &Running| {
        process.signal("-STOP");
        std::thread::sleep(Duration::from_millis(600));
        process.signal("-CONT");
    };
    pause(&controller.process);
    let status = controller
        .until("the pause is counted", |status| status["counters"]["pauses"].as_u64() >= Some(1));
    let longest_ns = status["counters"]["pause_max_ns"].as_u64().expect("a number");
    assert!((250_000_000..60_000_000_000).contains(&longest_ns), "{status}");
    let table = controller.table();
    assert!(table.contains("\n  pauses      "), "{table}");
    assert!(!table.contains("pauses      none"), "{table}");
    pause(&switch.process);
    // The next turn counts the pause.
    std::thread::sleep(Duration::from_millis(200));
    switch.process.signal("-INT");
    let summary = switch.process.line();
    let summary: Value = serde_json::from_str(&summary).expect("counters as JSON");
    assert!(summary["pauses"].as_u64() >= Some(1), "{summary}");
    assert!(summary["pause_max_ns"].as_u64() >= Some(250_000_000), "{summary}");
}

#[test]
fn failure_waits_for_controller() {
    let _guard = exclusive();
    let fabric = Fabric::new();
    // No controller runs at the start.
    let (mut zero, mut one) =
        (fabric.node("0", &["--reliable"]), fabric.node("1", &["--reliable"]));
    let mut plain = fabric.node("2", &[]);
    plain.type_line("2 best effort");
    assert!(plain.process.line().ends_with(" 2 best effort"));
    let mut controller = fabric.controller();
    zero.joins(&controller, 0);
    one.joins(&controller, 1);
    exchange_line(&mut zero, &mut one, "with a controller");
    // The controller is killed.
    controller.process.signal("-KILL");
    controller.process.status();
    exchange_line(&mut zero, &mut one, "without one");
    // A process is killed while no controller can decide its failure.
    one.process.signal("-KILL");
    one.process.status();
    plain.type_line("2 still here");
    assert!(plain.process.line().ends_with(" 2 still here"));
    zero.type_line("0 it waits");
    let controller = fabric.controller();
    let line = zero.process.line();
    assert!(line.ends_with(" 0 it waits"), "{line}");
    let status = controller.until("resolved", |status| {
        status["failures"].as_array().is_some_and(|all| all.len() == 1)
            && status["open"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(status["failures"][0]["name"], "process 1");
    assert_eq!(status["failures"][0]["is_exact"], true);
    zero.joins(&controller, 0);
}

/// Starts the first controller of a fabric, and a second one to which only its own id is given.
fn second_controller_adopts_ids(attach: [&str; 2], first_options: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let common = [&attach[..], &["--store", &store]].concat();
    let first = Controller::start(&[&common[..], first_options].concat());
    first.until("the first one is active", |status| status["epoch"].is_u64());
    let second = Controller::start(&[&common[..], &["--process", "21"]].concat());
    let status = second.until("its store works", |status| status["store"]["is_available"] == true);
    assert_eq!((&status["replica"], &status["epoch"]), (&21.into(), &Value::Null), "{status}");
}

#[test]
fn second_controller_adopts_ids_from_switch() {
    let switch = Switch::start(&["--processes", "24", "--controllers", "20:2"]);
    second_controller_adopts_ids(["--udp", &switch.address], &[]);
}

#[test]
fn second_controller_adopts_ids_in_memory() {
    second_controller_adopts_ids(["--fabric", &unique("second")], &["--controllers", "20:2"]);
}

/// Returns the number of failures and of leaves that a controller reports.
fn ended(status: &serde_json::Value) -> (usize, usize) {
    let count = |list: &str| status[list].as_array().map_or(0, Vec::len);
    (count("failures"), count("leaves"))
}

//= spec/failure.md#R49
/// While the switch does not run, no process can be received.
#[test]
fn processes_behind_a_stopped_switch_stay() {
    let _guard = exclusive();
    let fabric = Fabric::new();
    let controller = fabric.controller();
    let (mut zero, mut one) =
        (fabric.node("0", &["--reliable"]), fabric.node("1", &["--reliable"]));
    zero.joins(&controller, 0);
    one.joins(&controller, 1);
    exchange_line(&mut zero, &mut one, "before");
    fabric.switch.process.signal("-STOP");
    std::thread::sleep(Duration::from_secs(2));
    fabric.switch.process.signal("-CONT");
    exchange_line(&mut zero, &mut one, "behind the same switch");
    exchange_line(&mut one, &mut zero, "as the same processes");
    assert_eq!(ended(&controller.status()), (0, 0));
}

//= spec/failure.md#R63
#[test]
fn stopped_switch_warns_of_its_pause() {
    let command = ["switch", "--listen", "127.0.0.1:0", "--link-timeout", "1s"];
    let mut switch = Running::start_with_stderr(&mut onepipe(&command));
    assert!(switch.line().starts_with("listening at "));
    // The first pause may come before the switch has read its clock for the first time.
    for _ in 0..2 {
        switch.signal("-STOP");
        std::thread::sleep(Duration::from_millis(600));
        switch.signal("-CONT");
        std::thread::sleep(Duration::from_millis(200));
    }
    loop {
        let line = switch.stderr_line();
        assert_ne!(line, "", "it has ended");
        if line.contains("was off its core for ") {
            break;
        }
    }
}

//= spec/failure.md#R63
//= spec/failure.md#R64
//= spec/ordering.md#R55
/// Two pauses that are shorter than the link timeout show that the process is slow, so that it is
/// waited for when it then pauses for longer.
#[test]
fn process_that_pauses_repeatedly_stays() {
    let _guard = exclusive();
    let switch = Switch::start(&["--controllers", "1000", "--link-timeout", "2s"]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let controller = Controller::start(&["--udp", &switch.address, "--store", &store]);
    let node = |process: &str, more: &[&str]| {
        let link = ["--udp", &switch.address, "--process", process, "--reliable"];
        Node::start(&[&link[..], more].concat())
    };
    let (mut zero, mut one) = (node("0", &[]), node("1", &["--stats"]));
    zero.joins(&controller, 0);
    one.joins(&controller, 1);
    exchange_line(&mut zero, &mut one, "before");
    for pause in [1_300, 1_300, 3_000].map(Duration::from_millis) {
        one.process.signal("-STOP");
        std::thread::sleep(pause);
        one.process.signal("-CONT");
        let text = format!("after {pause:?}");
        exchange_line(&mut zero, &mut one, &text);
        exchange_line(&mut one, &mut zero, &text);
    }
    assert_eq!(ended(&controller.status()), (0, 0));
    one.process.signal("-INT");
    let pauses = loop {
        let line = one.process.stderr_line();
        assert!(!line.is_empty() && !line.contains("has failed"), "{line}");
        if let Some(pauses) = line.strip_prefix("onepipe: pauses: ") {
            break pauses.to_owned();
        }
    };
    assert_eq!(one.process.status(), Some(0));
    let count = pauses.split(',').next().and_then(|count| count.parse::<u32>().ok());
    assert!(count >= Some(3), "{pauses}");
}

//= spec/failure.md#R49
/// The new switch has met process 0 and the controller before process 1 runs again.
#[test]
fn process_stopped_while_its_switch_restarts_stays() {
    let _guard = exclusive();
    let mut fabric = Fabric::new();
    let controller = fabric.controller();
    let mut zero = fabric.node("0", &["--reliable"]);
    let mut one = fabric.node("1", &["--reliable"]);
    let two = fabric.node("2", &["--reliable"]);
    zero.joins(&controller, 0);
    one.joins(&controller, 1);
    two.joins(&controller, 2);
    exchange_line(&mut zero, &mut one, "before");
    one.process.signal("-STOP");
    fabric.restart_switch();
    std::thread::sleep(Duration::from_millis(400));
    one.process.signal("-CONT");
    exchange_line(&mut zero, &mut one, "behind the new switch");
    exchange_line(&mut one, &mut zero, "as the same processes");
    assert_eq!(ended(&controller.status()), (0, 0));
}

//= spec/failure.md#R51
#[test]
fn end_of_input_is_a_leave_not_a_failure() {
    let _guard = exclusive();
    let fabric = Fabric::new();
    let controller = fabric.controller();
    let mut zero = fabric.node("0", &["--reliable"]);
    let mut one = fabric.node("1", &["--reliable"]);
    zero.joins(&controller, 0);
    one.joins(&controller, 1);
    exchange_line(&mut zero, &mut one, "before");
    one.process.signal("-INT");
    assert_eq!(one.process.status(), Some(0));
    while !zero.process.stderr_line().ends_with(" INFO onepipe::node: process 1 has left") {}
    let status = controller.until("resolved", |status| {
        ended(status) == (0, 1) && status["open"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(status["counters"]["leaves"], 1);
    assert_eq!(status["counters"]["failures"], 0);
}

/// A node whose standard error is kept.
struct NodeWithStderr(Option<Child>);

impl NodeWithStderr {
    fn start(fabric: &Fabric, process: &str) -> Self {
        let arguments = fabric.arguments(process, &["--stay", "--reliable"]);
        let mut command = onepipe(&[&["node"], &arguments[..]].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(Some(command.spawn().expect("the program starts")))
    }

    fn signal(&self, signal: &str) {
        let pid = self.0.as_ref().expect("it is running").id().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &pid]).status().expect("kill runs").success());
    }

    /// Returns its standard error when it ended by itself, with a failure.
    fn failure_message(mut self) -> String {
        let mut child = self.0.take().expect("it is running");
        let keyboard = child.stdin.take();
        let output = child.wait_with_output().expect("own child");
        drop(keyboard);
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        errors(&output)
    }
}

impl Drop for NodeWithStderr {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It has ended if all went well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The two processes cannot know of each other; the controller does, and excludes the earlier one.
#[test]
fn duplicate_process_id_ends_earlier_process() {
    let _guard = exclusive();
    let fabric = Fabric::new();
    let controller = fabric.controller();
    let mut zero = fabric.node("0", &["--reliable"]);
    let earlier = NodeWithStderr::start(&fabric, "1");
    zero.joins(&controller, 0);
    controller.until("process 1 is up", |status| is(status, "process 1", "up"));
    let mut later = fabric.node("1", &["--reliable"]);
    let error = earlier.failure_message();
    assert!(error.contains("this process was declared failed at "), "{error}");
    assert!(error.contains("or another one has joined as process 1"), "{error}");
    // Others send to the new incarnation once they have learned of it.
    exchange_line(&mut later, &mut zero, "the latter");
    exchange_line(&mut zero, &mut later, "to the new incarnation");
    let status = controller.until("resolved", |status| {
        status["open"].as_array().is_some_and(Vec::is_empty)
            && status["failures"].as_array().is_some_and(|all| all.len() == 1)
    });
    assert_eq!(status["failures"][0]["name"], "process 1");
}

/// A stopped process learns of its exclusion when it continues, exits, and rejoins as a new
/// incarnation.
#[test]
fn stopped_process_is_excluded_and_rejoins() {
    let _guard = exclusive();
    let fabric = Fabric::new();
    let controller = fabric.controller();
    let mut zero = fabric.node("0", &["--reliable"]);
    let still = NodeWithStderr::start(&fabric, "1");
    zero.joins(&controller, 0);
    controller.until("process 1 is up", |status| is(status, "process 1", "up"));
    still.signal("-STOP");
    controller.until("its failure is decided", |status| {
        status["failures"].as_array().is_some_and(|all| all.len() == 1)
            && status["open"].as_array().is_some_and(Vec::is_empty)
    });
    zero.type_line("0 without it");
    assert!(zero.process.line().ends_with(" 0 without it"));
    still.signal("-CONT");
    let error = still.failure_message();
    assert!(error.contains("this process was declared failed at "), "{error}");
    let mut back = fabric.node("1", &["--reliable"]);
    back.joins(&controller, 1);
    // Others send to the new incarnation once they have learned of it.
    exchange_line(&mut back, &mut zero, "here again");
    exchange_line(&mut zero, &mut back, "welcome back");
}

/// Kills process 1, restarts it, and lets process 0 write to it first.
fn first_line_to_restarted(link: [&str; 2], attach: [&str; 2], controllers: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions").to_string_lossy().into_owned();
    let common = ["--controllers", controllers];
    let controller = Controller::start(&[&attach[..], &common, &["--store", &store]].concat());
    let start = |process| {
        Node::start(&[&link[..], &common, &["--process", process, "--reliable"]].concat())
    };
    let (mut zero, mut one) = (start("0"), start("1"));
    zero.joins(&controller, 0);
    one.joins(&controller, 1);
    exchange_line(&mut zero, &mut one, "to the first incarnation");
    for round in 1..=3 {
        one.process.signal("-KILL");
        one.process.status();
        controller.until("its failure is decided", |status| {
            status["failures"].as_array().is_some_and(|all| all.len() == round)
                && status["open"].as_array().is_some_and(Vec::is_empty)
        });
        one = start("1");
        one.joins(&controller, 1);
        exchange_line(&mut zero, &mut one, &format!("first in round {round}"));
    }
}

//= spec/failure.md#R43
#[test]
fn first_line_to_a_restarted_process_arrives_over_udp() {
    let _guard = exclusive();
    let switch = Switch::start(&CONTROLLERS);
    let link = ["--udp", switch.address.as_str()];
    first_line_to_restarted(link, link, "1000");
}

//= spec/failure.md#R43
#[test]
fn first_line_to_a_restarted_process_arrives_by_overlay() {
    let _guard = exclusive();
    let arguments = [&["aggregator", "--listen", "127.0.0.1:0", "--id", "1"], &CONTROLLERS[..]];
    let mut aggregator = Running::start(&mut onepipe(&arguments.concat()));
    let line = aggregator.line();
    let address = line.strip_prefix("listening at ").expect("address is printed");
    first_line_to_restarted(["--overlay", address], ["--udp", address], "1000");
}

//= spec/failure.md#R43
#[test]
fn first_line_to_a_restarted_process_arrives_in_memory() {
    let _guard = exclusive();
    let fabric = unique("restarted");
    let link = ["--fabric", fabric.as_str()];
    first_line_to_restarted(link, link, "63");
}
