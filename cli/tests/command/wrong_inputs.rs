//! Errors about wrong inputs: what is wrong, where, and what to do.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};

use crate::program::{Running, errors, onepipe, output, unique};

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
            &[
                "cannot listen at 192.0.2.1:4410",
                "Cannot assign requested address",
                "this machine has no such address: choose one of its own, or 0.0.0.0",
            ],
        ),
        (
            &["node", "--process", "0", "--udp", "127.0.0.1:1", "--bind", "x"],
            2,
            &["\"x\" has no port"],
        ),
        (
            &["node", "--process", "0", "--udp", "127.0.0.1:1", "--bind", "192.0.2.1:0"],
            1,
            &[
                "cannot open a local socket for the switch at \"127.0.0.1:1\"",
                "this machine has no such address",
            ],
        ),
        (
            &["node", "--process", "0", "--udp", "127.0.0.1:1", "--wait", "1ms"],
            1,
            &[
                "no switch answers at 127.0.0.1:1",
                "onepipe switch --listen 127.0.0.1:1",
                "or wait longer with --wait",
            ],
        ),
        (
            &[
                "bulk",
                "send",
                "/proc/self/cmdline",
                "--to",
                "127.0.0.1:1",
                "--connect-timeout",
                "1ms",
            ],
            1,
            &[
                "127.0.0.1:1: not delivered: cannot be reached (does `onepipe bulk recv` run there?)",
            ],
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
            &["controller", "--controllers", "1000:3", "--process", "7"],
            2,
            &["--process 7 is not the id of a controller: --controllers names 1000 to 1002"],
        ),
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
    let unreadable = format!("cannot read {file}: No such file");
    const CORRECT: &str = "correct the path, or create what is missing";
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
            &[&format!("cannot write {file}: there is no directory {missing}, create it first")],
        ),
        (&["transfer", "send", &file], 1, &[&unreadable, CORRECT]),
        (&["bulk", "send", &file, "--to", "127.0.0.1:1"], 1, &[&unreadable, CORRECT]),
        (&["member", "--groups", &file, "--listen", "127.0.0.1:1"], 1, &[&unreadable, CORRECT]),
        (
            &["coordinator", "--groups", &file, "--listen", "127.0.0.1:1"],
            1,
            &[&unreadable, CORRECT],
        ),
        (&["switch", "--groups", &file, "--member", "127.0.0.1:1"], 1, &[&unreadable, CORRECT]),
        (&["controller", "--config", &file], 2, &[&unreadable, CORRECT]),
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
        (&["figures", "8a", "--shard", "8/8"], 2, &["I/N with I from 0 to N - 1"]),
        (&["figures"], 2, &["<ID>..."]),
        (&["sim", "--topology", "ring"], 2, &["unknown topology; known: testbed, star:8"]),
        (&["bench", "nothing"], 2, &["'nothing'", "[possible values: reorder, endpoint"]),
        (&["bulk", "send", "/", "--to", "127.0.0.1:1", "--transport", "x"], 2, &["tcp, udp"]),
    ]);
}

#[test]
fn names_folders_that_should_be_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("write");
    let (folder, file) = (folder.path().display().to_string(), file.display().to_string());
    let unreadable = format!("cannot read {folder}: Is a directory");
    let is_folder = format!("cannot send {folder}: it is a directory");
    const NAME_FILE: &str = "name a file instead of a directory";
    check(&[
        (&["member", "--groups", &folder, "--listen", "127.0.0.1:1"], 1, &[&unreadable, NAME_FILE]),
        (&["controller", "--config", &folder], 2, &[&unreadable, NAME_FILE]),
        (
            &["bulk", "send", &folder, "--to", "127.0.0.1:1"],
            1,
            &[&is_folder, "send an archive of it, made by tar"],
        ),
        (
            &["bulk", "send", "/dev/null", "--to", "127.0.0.1:1"],
            1,
            &["cannot send /dev/null: it is not a regular file: copy its content to one first"],
        ),
        (
            &["transfer", "send", &folder],
            1,
            &[&is_folder, &format!("try `tar c {folder} | onepipe transfer send -`")],
        ),
        (
            &["transfer", "receive", "--out", &file],
            1,
            &[&format!("{file} already exists (--force replaces it)")],
        ),
        (
            &["transfer", "receive", "--out", &format!("{file}/")],
            1,
            &[&format!("cannot create the directory {file}/"), "choose another path"],
        ),
        (
            &["transfer", "receive", "--out", "/proc/no/"],
            1,
            &["cannot create the directory /proc/no/", "correct the path"],
        ),
        (
            &["figures", "8a", "--out", &file],
            1,
            &[&format!("cannot create the directory {file}"), "choose another path"],
        ),
    ]);
}

#[test]
fn names_ports_in_use() {
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp_text = udp.local_addr().expect("bound").to_string();
    let tcp_text = tcp.local_addr().expect("bound").to_string();
    const STOP: &str = "another program uses this port: stop that program, or choose another port";
    let fabric = unique("port");
    check(&[
        (&["switch", "--listen", &udp_text], 1, &[&format!("cannot listen at {udp_text}"), STOP]),
        (
            &["aggregator", "--listen", &udp_text],
            1,
            &[&format!("cannot listen at {udp_text}"), STOP],
        ),
        (
            &["bulk", "recv", "--listen", &tcp_text],
            1,
            &[&format!("cannot listen at {tcp_text}"), STOP],
        ),
        (
            &["node", "--process", "0", "--udp", "127.0.0.1:1", "--bind", &udp_text],
            1,
            &["cannot open a local socket for the switch at \"127.0.0.1:1\"", STOP],
        ),
        (
            &["controller", "--fabric", &fabric, "--store", "/no", "--status-listen", &tcp_text],
            1,
            &[&format!("cannot serve the status at {tcp_text}"), STOP],
        ),
    ]);
}

#[test]
fn names_what_is_wrong_with_a_group_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    };
    let broken = write("broken", "clients = ['10.0.0.9:4700'\n");
    let unknown = write("unknown", "client = ['10.0.0.9:4700']\n");
    let members = "members = ['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3']";
    let good = write("good", &format!("clients = ['127.0.0.1:4']\n[[groups]]\n{members}\n"));
    let twice = write("twice", &format!("clients = ['127.0.0.1:1']\n[[groups]]\n{members}\n"));
    let shows = "`onepipe member --help` shows one";
    let member = |file| ["member", "--listen", "127.0.0.1:9", "--groups", file];
    let coordinator = |file| ["coordinator", "--listen", "127.0.0.1:9", "--groups", file];
    check(&[
        (
            &member(&broken),
            1,
            &[&format!("{broken} is not a group file"), shows, "line 1, column 27"],
        ),
        (&coordinator(&broken), 1, &[&format!("{broken} is not a group file"), shows]),
        (&member(&unknown), 1, &[shows, "unknown field `client`, expected one of"]),
        (
            &member(&good),
            2,
            &["127.0.0.1:9 is not the address of a member", "use an address that `members` lists"],
        ),
        (
            &coordinator(&good),
            2,
            &["127.0.0.1:9 is not the address of a coordinator", "that `coordinators` lists"],
        ),
        (
            &member(&twice),
            2,
            &["127.0.0.1:1 is listed twice: give each process an address of its own"],
        ),
    ]);
}

/// Answers each connection as an HTTP server that is no controller.
fn foreign_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 1024]);
            let _ = connection.write_all(b"HTTP/1.0 404 Not Found\r\n\r\nno such page");
        }
    });
    address
}

#[test]
fn status_names_why_there_is_no_report() {
    let reason = |from: &str| {
        let output = output(&["status", "--from", from]);
        assert_eq!(output.status.code(), Some(1), "{from}");
        assert!(errors(&output).contains("or name its --status-listen with --from"), "{from}");
        String::from_utf8(output.stdout).expect("text")
    };
    let foreign = reason(&foreign_server());
    let expected = "an HTTP server that is neither a controller nor an arbiter answers";
    assert!(foreign.contains(expected) && foreign.contains("correct the address"), "{foreign}");
    let without_port = reason("127.0.0.1");
    assert!(without_port.contains("write for example 127.0.0.1:4480, the --status-listen"));
}

#[test]
fn daemons_name_what_to_do_about_a_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, fabric) = (folder.path().display().to_string(), unique("store"));
    let missing = format!("{path}/no/store");
    let groups = folder.path().join("lab.toml");
    let members = "members = ['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3']";
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let at = port.expect("a port").to_string();
    let head = format!("clients = ['127.0.0.1:4']\ncoordinators = ['{at}']");
    std::fs::write(&groups, format!("{head}\n[[groups]]\n{members}\n")).expect("write");
    let groups = groups.display().to_string();
    let controller =
        ["controller", "--fabric", &fabric, "--status-listen", "127.0.0.1:0", "--store"];
    let coordinator = ["coordinator", "--groups", &groups, "--listen", &at, "--store"];
    for (store, advice) in [
        (&missing, "create its folder: the store is then used again by itself"),
        (&path, "name a file instead of a directory"),
    ] {
        for command in [&controller[..], &coordinator[..]] {
            let mut daemon =
                Running::start_with_stderr(&mut onepipe(&[command, &[store]].concat()));
            let line = daemon.stderr_line();
            let expected = format!("cannot use {store} ({advice}): ");
            assert!(line.contains(&expected), "{command:?}: {line}");
        }
    }
}
