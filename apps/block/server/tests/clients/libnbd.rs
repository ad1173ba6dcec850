//! nbdinfo and nbdcopy of libnbd, and nbd-client, unmodified.

use std::process::{Command, Stdio};

use crate::harness::{Fixture, MIB, RawClient, header, noise, serve_tcp, wait_until, write};
use crate::tools::{has, run};

pub fn has_libnbd() -> bool {
    has(&["nbdinfo", "--version"], "libnbd-bin") && has(&["nbdcopy", "--version"], "libnbd-bin")
}

#[test]
fn nbdinfo_describes_the_device() {
    if !has_libnbd() {
        return;
    }
    let (server, _dir) = serve_tcp(3 * MIB);
    let printed = run("nbdinfo", &[&format!("{}/disk", server.address())], "");
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export=\"disk\":",
        "export-size: 3145728 (3M)",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 1",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(printed.contains(line), "{line:?} is missing in\n{printed}");
    }
    let listed = run("nbdinfo", &["--list", &server.address().to_string()], "");
    assert!(listed.contains("export=\"disk\":"), "{listed}");
    let unknown = format!("{}/other", server.address());
    let output = Command::new("nbdinfo").arg(unknown).output().expect("it was probed");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("No such file or directory for export: other"), "{error}");
}

#[test]
fn nbd_client_lists_the_export() {
    // `nbd-client` without arguments prints its usage and fails, so that only its path is asked.
    if !has(&["which", "nbd-client"], "nbd-client") {
        return;
    }
    let (server, _dir) = serve_tcp(MIB);
    let address = server.address().to_string();
    let port = address.rsplit(':').next().expect("it has a port");
    let listed = run("nbd-client", &["-l", "127.0.0.1", "-p", port], "");
    assert!(listed.contains("disk"), "{listed}");
}

#[test]
fn nbdcopy_uses_four_connections() {
    if !has_libnbd() {
        return;
    }
    let device = Fixture::new(24 * MIB);
    let content = noise(24 * MIB, 3);
    write(&device.path("source"), &content);
    let [source, copy] = ["source", "copy"].map(|name| device.path(name));
    let uri = device.uri();
    let parallel = ["--connections=4", "--threads=4", "--requests=64", "--flush"];
    run("nbdcopy", &[&parallel[..], &[&source, &uri]].concat(), "");
    assert!(device.content() == content, "the device has the content of the file");
    run("nbdcopy", &[&parallel[..], &[&uri, &copy]].concat(), "");
    assert!(std::fs::read(copy).expect("it was written") == content);
    let stats = device.server.stop();
    assert_eq!(stats.connections, 2 * 4, "each copy has used four connections");
    assert_eq!((stats.written_bytes, stats.read_bytes), (24 * MIB, 24 * MIB));
    assert_eq!(stats.failed, 0);
}

#[test]
fn a_client_killed_while_it_writes_leaves_others_alone() {
    if !has_libnbd() {
        return;
    }
    let device = Fixture::new(64 * MIB);
    let mut other = RawClient::open(device.connect());
    // The client copies an endless file until the test kills it.
    let mut child = Command::new("nbdcopy")
        .args(["--requests=64", "/dev/urandom", &device.uri()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was probed");
    let written_to = 4 << 20;
    wait_until("data", || {
        other.send(&header(0, 1, written_to, 64));
        assert_eq!(other.reply(), (0, 1));
        other.take(64).iter().any(|byte| *byte != 0)
    });
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    other.send(&[header(1, 2, 0, 4), b"abcd".to_vec(), header(3, 3, 0, 0)].concat());
    assert_eq!((other.reply().0, other.reply().0), (0, 0));
    wait_until("one connection", || device.server.connections() == 1);
    assert_eq!(device.content()[..4], *b"abcd");
}

#[test]
fn nbdinfo_maps_data_and_holes() {
    if !has_libnbd() {
        return;
    }
    let device = Fixture::new(4 * MIB);
    let mut client = RawClient::open(device.connect());
    client.send(&[header(1, 1, MIB, 1 << 20), vec![1; 1 << 20]].concat());
    assert_eq!(client.reply(), (0, 1));
    let printed = run("nbdinfo", &["--map", &device.uri()], "");
    let mapped: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [
        ["0", "1048576", "3", "hole,zero"],
        ["1048576", "1048576", "0", "data"],
        ["2097152", "2097152", "3", "hole,zero"],
    ];
    assert_eq!(mapped, expected);
}
