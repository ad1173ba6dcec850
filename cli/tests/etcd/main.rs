//! A fabric whose controllers share an etcd: real processes, a real cluster of three members, and
//! real kills.

mod cluster;
#[path = "../command/lab.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod lab;
#[path = "../command/program.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod program;

use serde_json::Value;

use cluster::Cluster;
use lab::{Controller, Node, Switch};
use program::wait_until;

/// Process ids of both replicas.
const CONTROLLERS: &str = "1000:2";
/// Long link timeouts: a stopped process must not be declared failed here.
const PATIENT: [&str; 2] = ["--link-timeout", "60s"];

fn controller(switch: &Switch, process: &str, cluster: &Cluster) -> Controller {
    let urls = cluster.urls();
    let arguments = ["--udp", &switch.address, "--controllers", CONTROLLERS, "--process", process];
    Controller::start(&[&arguments[..], &["--etcd", &urls]].concat())
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
    let node = |id: &str| {
        let arguments = ["--udp", &switch.address, "--process", id, "--controllers", CONTROLLERS];
        Node::start(&[&arguments[..], &["--reliable"]].concat())
    };
    let (mut zero, mut one, mut two) = (node("0"), node("1"), node("2"));
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
