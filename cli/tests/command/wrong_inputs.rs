//! Errors about wrong inputs: what is wrong, where, and what to do.

use crate::program::{errors, output, unique};

/// A command, its exit status, and what its error must say.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[track_caller]
fn check(cases: &[Case<'_>]) {
    for (arguments, status, expected) in cases {
        let output = output(arguments);
        let text = errors(&output);
        assert_eq!(output.status.code(), Some(*status), "{arguments:?}: {text}");
        for part in *expected {
            assert!(text.contains(part), "{arguments:?}: {part:?} is not in {text:?}");
        }
    }
}

#[test]
fn names_what_is_wrong_with_an_address() {
    const EXAMPLE: &str = "write for example 127.0.0.1:4410";
    let unknown: &[&str] =
        &["the host name \"no.such.invalid\" does not resolve", "or write its IP address"];
    let host = "no.such.invalid:4410";
    check(&[
        (&["node", "--process", "0", "--udp", host], 2, unknown),
        (&["node", "--process", "0", "--overlay", host], 2, unknown),
        (&["switch", "--listen", host], 2, unknown),
        (&["aggregator", "--parent", host], 2, unknown),
        (&["controller", "--udp", host], 2, unknown),
        (&["arbiter", "--udp", host], 2, unknown),
        (&["bulk", "send", "/", "--to", host], 2, unknown),
        (&["transfer", "send", "/", "--udp", host], 2, unknown),
        (
            &["node", "--process", "0", "--udp", "10.0.0.1"],
            2,
            &["\"10.0.0.1\" has no port", EXAMPLE],
        ),
        (&["switch", "--listen", "nowhere"], 2, &["\"nowhere\" has no port", EXAMPLE]),
        (
            &["switch", "--listen", "10.0.0.1:99999"],
            2,
            &["\"99999\" in \"10.0.0.1:99999\" is not a port from 0 to 65535", EXAMPLE],
        ),
        (&["switch", "--listen", "::1:4410"], 2, &["\"::1\" in", "[::1]:4410"]),
        (&["switch", "--listen", ":4410"], 2, &["\"\" in \":4410\" is not a host", EXAMPLE]),
        (
            &["switch", "--listen", "192.0.2.1:4410"],
            1,
            &["cannot listen at 192.0.2.1:4410", "Cannot assign requested address"],
        ),
    ]);
}

#[test]
fn names_the_range_of_ids() {
    let udp = ["node", "--udp", "127.0.0.1:1", "--processes", "1024", "--process"];
    let node = |process: &'static str| [&udp[..], &[process]].concat();
    check(&[
        (&node("1024"), 2, &["process 1024 is out of range: ids must be below --processes 1024"]),
        (
            &[&node("0")[..], &["--controllers", "1020:9"]].concat(),
            2,
            &["controller 1028 is out of range: ids must be below --processes 1024"],
        ),
        (
            &["switch", "--controllers", "1020:9"],
            2,
            &["controller 1028 is out of range: ids must be below --processes 1024"],
        ),
        (
            &["aggregator", "--processes", "8", "--controllers", "8"],
            2,
            &["controller 8 is out of range: ids must be below --processes 8"],
        ),
        (
            &["switch", "--controllers", "5:0"],
            2,
            &["\"5:0\" names no process", "must be 1 or more"],
        ),
        (&["controller", "--controllers", "5:0"], 2, &["\"5:0\" names no process"]),
        (
            &["switch", "--controllers", "x"],
            2,
            &["\"x\" is not FIRST or FIRST:COUNT", "write for example 1020:3"],
        ),
        (&["demo", "--processes", "0"], 2, &["--processes", "0 is not in 2..=64"]),
        (&["switch", "--processes", "0"], 2, &["--processes", "0 is not in 1..=1048576"]),
    ]);
}

#[test]
fn names_missing_files_folders_and_programs() {
    let missing = format!("/no/such/{}", unique("folder"));
    let file = format!("{missing}/file");
    let folder = format!("{missing}/");
    let no_folder = format!("there is no folder {missing}");
    check(&[
        (
            &["bulk", "recv", "--listen", "127.0.0.1:0", "--out", &file],
            1,
            &[&format!("cannot write to {file}"), &no_folder, "create it first"],
        ),
        (&["bulk", "recv", "--listen", "127.0.0.1:0", "--out", &folder], 1, &[&no_folder]),
        (
            &["transfer", "receive", "--out", &file],
            1,
            &[&format!("cannot write {file}: no such directory: {missing}")],
        ),
        (&["transfer", "send", &file], 1, &[&format!("cannot read {file}: No such file")]),
        (
            &["member", "--groups", &file, "--listen", "127.0.0.1:1"],
            1,
            &[&format!("cannot read {file}: No such file")],
        ),
        (&["controller", "--config", &file], 2, &[&format!("cannot read {file}: No such file")]),
        (
            &["status", "--from", "127.0.0.1:1"],
            1,
            &["no controller or arbiter responds at 127.0.0.1:1: start one, or name its", "--from"],
        ),
    ]);
}

#[test]
fn names_what_is_known_instead() {
    let group = ["--group", "0=127.0.0.1:1,127.0.0.1:2", "--clients", "127.0.0.1:3"];
    check(&[
        (
            &[&["member", "--listen", "127.0.0.1:1"], &group[..]].concat(),
            2,
            &["group 0 has 2 members: give it an odd number of them"],
        ),
        (&["figures", "0z"], 2, &["there is no figure \"0z\"; there are: 8a, 8b"]),
        (&["sim", "--topology", "ring"], 2, &["unknown topology; known: testbed, star:8"]),
        (&["bench", "nothing"], 2, &["'nothing'", "[possible values: reorder, endpoint"]),
        (&["bulk", "send", "/", "--to", "127.0.0.1:1", "--transport", "x"], 2, &["tcp, udp"]),
    ]);
}
