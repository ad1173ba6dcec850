//! `onepipe controller` and `onepipe status`.

use serde_json::Value;

use crate::lab::{Controller, Node, Switch};
use crate::program::{
    Running, damage, errors, exclusive, onepipe, output, own_line, segments, unique, wait_until,
};

#[test]
fn controller_becomes_active_and_hands_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions");
    let fabric = unique("controlled");
    let mut start = onepipe(&["controller", "--fabric", &fabric, "--controllers", "60:2"]);
    let mut controller = Controller::begin(start.arg("--store").arg(&store));
    assert_eq!(controller.process.line(), "active in epoch 1");
    let status = controller.status();
    assert_eq!((&status["replica"], &status["epoch"]), (&Value::from(60), &Value::from(1)));
    assert_eq!(status["store"]["is_available"], true);

    let table = controller.table();
    for line in [
        "replica     process 60 incarnation ",
        "active in epoch 1",
        &format!("attached    shared memory {fabric}"),
        "store       available",
        "members     none",
    ] {
        assert!(table.contains(line), "{line} is not in\n{table}");
    }

    // The other replica, configured by a file, takes over when this one ends.
    let file = folder.path().join("lab.toml");
    let text = format!(
        "[controller]\nfabric = {fabric:?}\ncontrollers = '60:2'\nprocess = 61\nstore = {store:?}\n"
    );
    std::fs::write(&file, text).expect("write");
    let mut start = onepipe(&["controller"]);
    let mut other = Controller::begin(start.env("ONEPIPE_CONFIG", &file));
    assert_eq!((&other.status()["replica"], &other.status()["epoch"]), (&61.into(), &Value::Null));
    controller.process.signal("-INT");
    assert_eq!(controller.process.status(), Some(0));
    wait_until("the other takes over", || other.status()["epoch"] == 2);
    other.process.signal("-INT");
    assert_eq!(other.process.status(), Some(0));
    assert_eq!(segments(&fabric), [""; 0], "the last one has cleaned up");
}

/// Starts a controller with `store` until it is active, and ends it.
fn write_store(store: &std::path::Path) {
    let fabric = unique("writes");
    let mut start = onepipe(&["controller", "--fabric", &fabric]);
    let mut controller = Controller::begin(start.arg("--store").arg(store));
    assert!(controller.process.line().starts_with("active in epoch "));
    controller.process.signal("-INT");
    assert_eq!(controller.process.status(), Some(0));
}

#[test]
fn default_store_is_in_the_state_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    let fabric = unique("stateful");
    let controller = |arguments: &[&str]| {
        let all = [&["controller", "--fabric", &fabric][..], arguments].concat();
        let mut command = onepipe(&all);
        command.current_dir(folder.path()).env("XDG_STATE_HOME", folder.path().join("state"));
        command.env("ONEPIPE_STATUS_LISTEN", "127.0.0.1:0");
        command
    };
    let mut running = Controller::begin(&mut controller(&[]));
    assert_eq!(running.process.line(), "active in epoch 1");
    running.process.signal("-INT");
    assert_eq!(running.process.status(), Some(0));
    let path = folder.path().join("state/onepipe");
    assert!(path.join(format!("controller-{fabric}.redb")).is_file());
    let mode = std::fs::metadata(&path).expect("it was created").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o700);

    let earlier = folder.path().join("onepipe-controller.redb");
    std::fs::write(&earlier, "decisions").expect("write");
    let refused = controller(&[]).output().expect("the program starts");
    assert_eq!(refused.status.code(), Some(2));
    let text = errors(&refused);
    assert!(text.contains("onepipe-controller.redb in this folder is a store of an"), "{text}");
    assert!(text.contains("move it to ") && text.contains(path.to_str().expect("text")), "{text}");
    assert_eq!(std::fs::read_to_string(&earlier).expect("it is there"), "decisions");
}

/// Starts a controller with `store`, whose standard error is captured.
fn start_with_stderr(store: &std::path::Path) -> Running {
    let fabric = unique("damaged");
    let mut start = onepipe(&["controller", "--fabric", &fabric, "--status-listen", "127.0.0.1:0"]);
    Running::start_with_stderr(start.arg("--store").arg(store))
}

/// Returns the level and the text of a log line, whose time and part of the program are as they
/// should be: `2026-11-23T17:21:59.123456Z ERROR onepipe::store_errors: text`.
pub fn log_line(line: &str) -> (&str, &str) {
    let mut words = line.splitn(2, ' ');
    let time = words.next().unwrap_or_default();
    let form = |at: usize, digit: u8| match b"0000-00-00T00:00:00.000000Z".get(at) {
        Some(b'0') => digit.is_ascii_digit(),
        expected => expected == Some(&digit),
    };
    assert!(time.bytes().enumerate().all(|(at, digit)| form(at, digit)), "no time: {line}");
    let (level, rest) = words.next().unwrap_or_default().trim_start().split_once(' ').expect(line);
    let (target, text) = rest.split_once(": ").expect(line);
    assert!(target.starts_with("onepipe::"), "{line}");
    (level, text)
}

//= spec/failure.md#R53
#[test]
fn panic_of_the_store_ends_the_controller() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions");
    write_store(&store);
    // The database panics when the name of a table is not UTF-8.
    damage(&store, b"onepipe/numbers", |name| name.fill(0xff));
    let mut controller = start_with_stderr(&store);
    let line = own_line(&mut controller);
    assert!(line.contains("the store is unusable: its thread has panicked"), "{line}");
    assert!(line.contains(store.to_str().expect("text")), "{line}");
    assert!(line.contains("is damaged: move it away and restart all nodes"), "{line}");
    assert_eq!(controller.status(), Some(1));
}

//= spec/failure.md#R70
#[test]
fn changed_record_goes_to_standard_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions");
    write_store(&store);
    // Tag, epoch 1 and the default controller.
    damage(&store, &[1, 0, 0, 0, 1, 0, 0, 0, 63], |record| record[8] ^= 1);
    let mut controller = start_with_stderr(&store);
    let line = own_line(&mut controller);
    let text = "decisions is damaged: its records are not those that were written";
    assert!(line.contains(text) && line.contains("move the file away and restart all"), "{line}");
    controller.signal("-INT");
    assert_eq!(controller.status(), Some(0));
}

//= spec/failure.md#R53
#[test]
fn errors_of_the_store_go_to_standard_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions");
    std::fs::write(&store, "").expect("write");
    let mut controller = start_with_stderr(&store);
    let line = own_line(&mut controller);
    assert!(line.contains("the store has failed, it is tried again: "), "{line}");
    assert!(line.contains("decisions is damaged: it is empty; an older copy lacks"), "{line}");
    std::fs::remove_file(&store).expect("moved away");
    assert_eq!(log_line(&line).0, "ERROR");
    let line = own_line(&mut controller);
    assert_eq!(log_line(&line), ("INFO", "the store works again"));
    controller.signal("-INT");
    assert_eq!(controller.status(), Some(0));
}

#[test]
fn log_lines_are_json_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions");
    std::fs::write(&store, "").expect("write");
    let fabric = unique("logged");
    let mut start = onepipe(&["controller", "--fabric", &fabric, "--status-listen", "127.0.0.1:0"]);
    start.arg("--store").arg(&store).args(["--log-format", "json", "--log", "error"]);
    let mut controller = Running::start_with_stderr(&mut start);
    let line = controller.stderr_line();
    let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(
        (&line["level"], &line["target"]),
        (&"ERROR".into(), &"onepipe::store_errors".into())
    );
    assert!(line["message"].as_str().is_some_and(|text| text.contains("is damaged")), "{line}");
    assert!(line["timestamp"].is_string(), "{line}");
    std::fs::remove_file(&store).expect("moved away");
    assert!(controller.line().starts_with("controller "));
    assert!(controller.line().starts_with("status at "));
    assert_eq!(controller.line(), "active in epoch 1");
    controller.signal("-INT");
    assert_eq!(controller.status(), Some(0));
    // That the store works again is logged at a lower level.
    assert_eq!(controller.stderr_line(), "");
}

/// A parent that reads the log may be killed first.
#[test]
fn controller_goes_on_when_nothing_reads_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("decisions");
    std::fs::write(&store, "").expect("write");
    let fabric = unique("unread");
    let mut start = onepipe(&["controller", "--fabric", &fabric]);
    let mut controller = Controller::begin_without_stderr(start.arg("--store").arg(&store));
    // The error is logged.
    controller.until("the store fails", |status| status["store"]["is_available"] == false);
    std::fs::remove_file(&store).expect("moved away");
    assert_eq!(controller.process.line(), "active in epoch 1");
    controller.process.signal("-INT");
    assert_eq!(controller.process.status(), Some(0));
}

#[test]
fn rejects_invalid_controller_options() {
    let refused = |arguments: &[&str], status, stderr_line: &str| {
        let output = output(&[&["controller"], arguments].concat());
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(errors(&output).contains(stderr_line), "{arguments:?}: {}", errors(&output));
    };
    refused(&["--controllers", "many"], 2, "\"many\" is not FIRST");
    refused(
        &["--controllers", "5", "--process", "7"],
        2,
        "--process 7 is not the id of a controller",
    );
    refused(&["--udp", "127.0.0.1:4410", "--fabric", "lab"], 2, "cannot be used with");
    refused(&["--config", "/no/such/file"], 2, "cannot read /no/such/file");
    refused(&["--fabric", "no/name", "--status-listen", "127.0.0.1:0"], 1, "invalid segment name");
}

#[test]
fn status_fails_without_controller() {
    let output = output(&["status", "--from", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("127.0.0.1:1\nunreachable: cannot connect"), "{text}");
}

/// A controller behind a switch whose store is in `folder`, with its standard error.
fn behind(switch: &Switch, folder: &tempfile::TempDir) -> Controller {
    let mut start = onepipe(&["controller", "--udp", &switch.address, "--store"]);
    let controller = Controller::begin_with_stderr(start.arg(folder.path().join("decisions")));
    controller.until("the controller is active", |status| status["epoch"] == 1);
    controller
}

/// Waits for a log line with `text`.
fn log_line_with(controller: &mut Controller, text: &str) -> String {
    let mut lines = (0..300).map(|_| controller.process.stderr_line());
    lines.find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text:?} is not logged"))
}

//= spec/failure.md#R50
#[test]
fn logged_decision_names_its_reporter() {
    let folder = tempfile::tempdir().expect("a folder");
    let switch = Switch::start(&["--controllers", "1000", "--id", "5"]);
    let mut controller = behind(&switch, &folder);
    let mut node = Node::start(&["--udp", &switch.address, "--process", "3", "--reliable"]);
    node.joins(&controller, 3);
    node.process.signal("-KILL");
    node.process.status();
    let line = log_line_with(&mut controller, "process 3 failed at ");
    assert_eq!(log_line(&line).0, "WARN", "{line}");
    assert!(line.contains(" ns, decided in "), "{line}");
    assert!(line.ends_with(": refused by the system, reported by switch 5"), "{line}");
}

//= spec/failure.md#R46
#[test]
fn only_controller_stays_active_without_its_switch() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let switch = Switch::start(&["--controllers", "1000"]);
    let mut controller = behind(&switch, &folder);
    switch.process.signal("-STOP");
    let line = log_line_with(&mut controller, "isolated from more processes than it reaches");
    assert_eq!(log_line(&line).0, "WARN", "{line}");
    assert!(line.ends_with(": stays active: it is the only controller"), "{line}");
    assert_eq!(controller.status()["epoch"], 1);
    switch.process.signal("-CONT");
    let mut node = Node::start(&["--udp", &switch.address, "--process", "3", "--reliable"]);
    node.joins(&controller, 3);
    node.type_line("3 here");
    assert!(node.process.line().ends_with(" 3 here"));
}
