//! `onepipe controller` and `onepipe status`.

use serde_json::Value;

use crate::lab::Controller;
use crate::program::{errors, onepipe, output, segments, unique, wait_until};

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
        "process 7 is not one of the controllers",
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
