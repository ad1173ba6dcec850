//! Controllers whose store is not that of their fabric.

use std::path::Path;

use crate::lab::{Controller, Node, Switch};
use crate::program::{Running, exclusive, onepipe};

/// Starts two reliable processes, and waits until they have been registered.
fn registered(switches: [&Switch; 2]) -> [Node; 2] {
    let node = |number: usize| {
        let (process, address) = (number.to_string(), &switches[number].address);
        Node::start(&["--udp", address, "--process", &process, "--reliable"])
    };
    let mut nodes = [node(0), node(1)];
    nodes[0].type_line("0,1 agreed");
    for node in &mut nodes {
        let line = node.process.line();
        assert!(line.ends_with(" 0 agreed"), "{line}");
    }
    nodes
}

fn controller(switch: &Switch, store: &Path) -> std::process::Command {
    let mut command = onepipe(&["controller", "--udp", &switch.address]);
    command.arg("--store").arg(store).env("ONEPIPE_STATUS_LISTEN", "127.0.0.1:0");
    command
}

/// Asserts that a controller ends because of its store.
fn assert_refused(switch: &Switch, store: &Path) {
    let mut program = Running::start_with_stderr(&mut controller(switch, store));
    let text = program.remaining_stderr();
    assert_eq!(program.status(), Some(1), "{text}");
    assert!(text.contains("the store is not usable: it went back in time"), "{text}");
    assert!(text.contains("of controller 1000 "), "{text}");
}

//= spec/failure.md#R61
#[test]
fn older_copy_of_a_store_ends_the_controller() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let (store, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let switch = Switch::start(&["--controllers", "1000"]);
    let first = Controller::begin(&mut controller(&switch, &store));
    first.until("the controller is active", |status| status["epoch"] == 1);
    let nodes = registered([&switch, &switch]);
    end(first);
    std::fs::copy(&store, &copy).expect("an older copy");

    let mut second = Controller::begin(&mut controller(&switch, &store));
    let third = Node::start(&["--udp", &switch.address, "--process", "2", "--reliable"]);
    third.joins(&second, 2);
    drop(third);
    let is_decided =
        |status: &serde_json::Value| status["failures"].as_array().map(Vec::len) == Some(1);
    let status = second.until("process 2 is decided and completed", |status| {
        is_decided(status) && status["open"].as_array().is_some_and(Vec::is_empty)
    });
    assert_eq!(status["epoch"], 2);
    second.process.signal("-INT");
    assert_eq!(second.process.status(), Some(0));

    let latest = folder.path().join("latest");
    std::fs::rename(&store, &latest).expect("move");
    std::fs::copy(&copy, &store).expect("put the older copy back");
    assert_refused(&switch, &store);

    // The latest store is accepted, and knows the decision.
    let last = Controller::begin(&mut controller(&switch, &latest));
    last.until("the controller is active", |status| status["epoch"] == 3 && is_decided(status));
    drop(nodes);
}

/// Interrupts a controller, and waits for its end.
fn end(mut controller: Controller) {
    controller.process.signal("-INT");
    assert_eq!(controller.process.status(), Some(0));
}

//= spec/failure.md#R62
#[test]
fn second_controller_at_another_switch_is_refused() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    let root = Switch::start(&["--processes", "1001", "--controllers", "1000", "--id", "1"]);
    let below = Switch::start(&["--parent", &root.address, "--id", "2"]);
    let first = Controller::begin(&mut controller(&root, &folder.path().join("first")));
    first.until("the controller is active", |status| status["epoch"] == 1);
    let _nodes = registered([&root, &below]);
    // While it hangs the switches take it for lost, and admit the second one.
    first.process.signal("-STOP");
    assert_refused(&below, &folder.path().join("second"));
    first.process.signal("-CONT");
    assert_eq!(first.status()["epoch"], 1, "the first one is still active");
}

//= spec/ordering.md#R68
#[test]
fn second_controller_is_refused_before_any_process() {
    let _guard = exclusive();
    let folder = tempfile::tempdir().expect("a folder");
    // The switches wait for six seconds before they take a controller for lost, as the machine may
    // be busy.
    let calm = ["--heartbeat-interval", "2s"];
    let terms = ["--processes", "1001", "--controllers", "1000", "--id", "1"];
    let root = Switch::start(&[&terms[..], &calm].concat());
    let below = Switch::start(&[&["--parent", &root.address, "--id", "2"][..], &calm].concat());
    for [first, second] in [[&root, &below], [&below, &root]] {
        let name = |name: &str| folder.path().join(format!("{name} at {}", first.address));
        let running = Controller::begin(&mut controller(first, &name("first")));
        running.until("it is active, and the switches are linked", |status| {
            let members = status["members"].as_array().map_or(&[][..], Vec::as_slice);
            let linked = members.iter().filter(|member| member["links_up"] == 1).count();
            status["epoch"] == 1 && linked == 2
        });
        let mut asks = controller(second, &name("second"));
        asks.args(["--status-listen", "127.0.0.1:0", "--wait", "1s"]);
        let mut asking = Running::start_with_stderr(&mut asks);
        assert_eq!(asking.line(), "", "a second controller is admitted");
        let text = asking.stderr_line();
        assert_eq!(asking.status(), Some(1), "{text}");
        assert!(text.contains("controller 1000") && text.contains(&second.address), "{text}");
        assert!(text.contains("stop it first, or choose another id"), "{text}");
        assert_eq!(running.status()["epoch"], 1, "the first one is still active");
        // The first controller has left its port: the id is free everywhere.
        end(running);
    }
}
