//! Agreed multicast between processes.

use std::fs::write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use onepipe::{Amcast, AmcastReplica, Directory, GroupId, Loopback, Role};

use crate::program::{Running, errors, exclusive, json, onepipe, output, wait_until};

/// Returns a group of three members with one replica and one client, and writes it to `path`.
fn write_group(path: &Path) -> Directory {
    let layout = Loopback { groups: 1, members: 3, replicas: 1, clients: 1, coordinators: 0 };
    write_group_of(layout, path)
}

/// Writes the group of `layout` to `path`.
pub fn write_group_of(layout: Loopback, path: &Path) -> Directory {
    let directory = layout.directory().expect("free ports");
    let of = |role| directory.of(role);
    let listed = |role| of(role).iter().map(|at| format!("'{at}'")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "clients = [{}]\ncoordinators = [{}]\n[[groups]]\nmembers = [{}]\nreplicas = [{}]\n",
        listed(Role::Client),
        listed(Role::Coordinator),
        listed(Role::Member(GroupId(0))),
        listed(Role::Replica(GroupId(0))),
    );
    write(path, text).expect("file is written");
    directory
}

/// Sends a message, and waits until the replica has delivered it.
pub fn deliver_one(client: &mut Amcast, replica: &mut AmcastReplica, message: &[u8]) {
    client.amcast(&[0], message).expect("the window has space");
    let mut delivered = Vec::new();
    wait_until("the message is delivered", || {
        client.poll(|_| {});
        let wait = Duration::from_millis(100);
        replica.wait(wait, |bytes, _, _| delivered.push(bytes.to_vec())).expect("it is not behind");
        !delivered.is_empty()
    });
    assert_eq!(delivered, [message]);
}

//= spec/amcast.md#R35
#[test]
fn killed_member_is_refused_when_it_starts_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let groups = folder.path().join("groups.toml");
    let directory = write_group(&groups);
    let start = |at: &SocketAddr, more: &[&str]| {
        let mut command = onepipe(&["member", "--listen", &at.to_string(), "--groups"]);
        Running::start_with_stderr(command.arg(&groups).args(more))
    };
    let addresses = directory.of(Role::Member(GroupId(0)));
    let members = addresses.iter().map(|at| start(at, &["--stats-interval", "100ms"]));
    let mut members: Vec<Running> = members.collect();
    let replica_at = directory.of(Role::Replica(GroupId(0)))[0];
    let mut replica = AmcastReplica::open(&directory, replica_at).expect("replica opens");
    let mut client = Amcast::open(&directory, directory.of(Role::Client)[0]).expect("client opens");
    // A member that has decided something was acknowledged by another one.
    wait_until("the last member decides", || {
        deliver_one(&mut client, &mut replica, b"of three");
        let line = members[2].stderr_line_within(Duration::from_millis(200));
        line.is_some_and(|line| !line.contains(" 0 decided/s"))
    });
    // A follower, and then the leader of the first epoch: as far as it knows, it still leads.
    for killed in [2, 0] {
        members[killed].signal("-KILL");
        members[killed].status();
        let mut restarted = start(&addresses[killed], &[]);
        assert_eq!(restarted.status(), Some(1), "member {killed}");
        let why = restarted.stderr_line();
        assert!(why.contains("it has run before"), "{why}");
        let lines = restarted.remaining_lines();
        assert!(lines.iter().all(|line| !line.contains("leads in epoch")), "{lines:?}");
        if killed == 2 {
            deliver_one(&mut client, &mut replica, b"of two");
        }
    }
}

#[test]
fn switch_hosts_group_member() {
    const MESSAGES: u32 = 20;
    let folder = tempfile::tempdir().expect("a folder");
    let groups = folder.path().join("groups.toml");
    let directory = write_group(&groups);
    let of = |role| directory.of(role);
    let mut switches: Vec<_> = of(Role::Member(GroupId(0)))
        .iter()
        .map(|at| {
            let mut command = onepipe(&["switch", "--listen", "127.0.0.1:0", "--json"]);
            command.arg("--groups").arg(&groups).arg("--member").arg(at.to_string());
            let mut switch = Running::start(&mut command);
            let line = switch.line();
            assert!(line.contains(&format!("of group 0 at {at}")), "{line}");
            switch
        })
        .collect();
    let mut replica =
        AmcastReplica::open(&directory, of(Role::Replica(GroupId(0)))[0]).expect("replica opens");
    let mut client = Amcast::open(&directory, of(Role::Client)[0]).expect("client opens");
    for number in 0..MESSAGES {
        client.amcast(&[0], &number.to_be_bytes()).expect("window has space");
    }
    let mut delivered = Vec::new();
    // The client repeats what a member that has not joined yet has dropped.
    wait_until("all is delivered", || {
        client.poll(|_| {});
        let wait = Duration::from_millis(100);
        replica
            .wait(wait, |message, _, _| delivered.push(message.to_vec()))
            .expect("it is not behind");
        delivered.len() >= MESSAGES as usize
    });
    let sent = (0..MESSAGES).map(|number| number.to_be_bytes().to_vec());
    // Repeated messages may be ordered behind later ones.
    delivered.sort();
    assert_eq!(delivered, sent.collect::<Vec<_>>(), "each once");
    let (mut proposed, mut deciding) = (0, 0);
    for switch in &mut switches {
        switch.wait_for_signal_handler();
        switch.signal("-INT");
        let status = switch.status();
        let rest = switch.remaining_lines();
        assert_eq!(status, Some(0), "{rest:?}");
        let last = rest.last().expect("printed output");
        let counters: serde_json::Value = serde_json::from_str(last).expect("an object");
        deciding += u32::from(counters["member"]["decided"].as_u64() > Some(0));
        proposed += counters["member"]["proposed"].as_u64().expect("a number");
    }
    assert_eq!(proposed, u64::from(MESSAGES), "proposed once each, by the leader");
    // The last one to start may have missed everything.
    assert!(deciding >= 2, "{deciding} members have decided");
}

#[test]
fn demo_survives_kill_of_leader() {
    // On a busy machine that runs all tests at once, a slow leader must not be replaced.
    let arguments =
        ["demo", "amcast", "--seconds", "2", "--leader-timeout", "300ms", "--rate", "200"];
    let _guard = exclusive();
    let output = output(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let summary = json(&output);
    assert_eq!(summary["invariants_held"], true, "{summary}");
    let sent = summary["sent"].as_u64().expect("a number");
    assert!(sent > 0);
    for delivered in summary["delivered"].as_array().expect("one for each replica") {
        assert_eq!(delivered.as_u64(), Some(sent), "{summary}");
    }
    assert!(summary["election"].as_str().is_some_and(|line| line.contains("leads group 0")));
    assert!(summary["next_delivery_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{summary}");
}

#[test]
fn rejects_invalid_group_addresses() {
    let refused = |arguments: &[&str], why: &str| {
        let output = output(&[&["member"], arguments].concat());
        let report = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {report}");
        assert!(report.contains(why), "{arguments:?}: {report}");
    };
    let group = ["--group", "0=127.0.0.1:45001,127.0.0.1:45002,127.0.0.1:45003"];
    let clients = ["--clients", "127.0.0.1:45009"];
    let own = ["--listen", "127.0.0.1:45001"];
    let with = |more: &[&'static str]| [&group[..], &clients, more].concat();
    refused(&own, "--group");
    refused(
        &with(&["--listen", "127.0.0.1:45008"]),
        "127.0.0.1:45008 is not the address of a member in this directory",
    );
    refused(
        &with(&["--listen", "127.0.0.1:45009"]),
        "127.0.0.1:45009 is not the address of a member in this directory",
    );
    let unknown = ["--replicas", "1=127.0.0.1:45005", "--listen", "127.0.0.1:45001"];
    refused(&with(&unknown), "group 1 is missing or has no members");
    let twice = ["--replicas", "0=127.0.0.1:45002", "--listen", "127.0.0.1:45001"];
    refused(&with(&twice), "127.0.0.1:45002 is listed twice");
    let two = ["--group", "0=127.0.0.1:45001,127.0.0.1:45002"];
    refused(&[&two[..], &clients, &own].concat(), "group 0 has 2 members: give it an odd number");
    refused(&[&["--group", "zero"][..], &own].concat(), "expected GROUP=ADDRESS");
    refused(&[&["--group", "64=127.0.0.1:45001"][..], &own].concat(), "numbered from 0 to 63");
    refused(&[&group[..], &own].concat(), "the directory has no client");
    let output = output(&["switch", "--member", "127.0.0.1:45001"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("--groups"), "{}", errors(&output));
}
