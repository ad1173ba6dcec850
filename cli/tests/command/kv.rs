//! `onepipe kv`: the store with its front, as a program.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::program::{Running, errors, json, onepipe, output, unique};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the program that serves the store in a directory.
fn serve(fabric: &str, data: &Path, more: &[&str]) -> Command {
    let data = data.to_str().expect("a path of this test");
    let start = ["kv", "serve", "--resp", "127.0.0.1:0", "--fabric", fabric, "--data", data];
    onepipe(&[&start[..], more].concat())
}

/// A store that runs, and a connection to it.
pub struct Store {
    pub running: Running,
    connection: BufReader<TcpStream>,
}

impl Store {
    pub fn start(fabric: &str, data: &Path, more: &[&str]) -> Self {
        Self::of(Running::start(&mut serve(fabric, data, more)))
    }

    pub fn start_with_stderr(fabric: &str, data: &Path, more: &[&str]) -> Self {
        Self::of(Running::start_with_stderr(&mut serve(fabric, data, more)))
    }

    fn of(mut running: Running) -> Self {
        let first = running.line();
        assert!(first.starts_with("shards 3, "), "{first}");
        let address = running.line();
        let port = address.rsplit(' ').next().expect("the line ends in the port").to_owned();
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("the store listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Self { running, connection: BufReader::new(stream) }
    }

    /// Returns the port at which clients connect.
    pub fn port(&self) -> u16 {
        self.connection.get_ref().peer_addr().expect("it is connected").port()
    }

    /// Sends an inline command. Returns the lines of its reply, of which there are `count`; `None`
    /// if the store has ended.
    pub fn command(&mut self, command: &str, count: usize) -> Option<Vec<String>> {
        self.connection.get_mut().write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut lines = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            let len = self.connection.read_line(&mut line).ok()?;
            if len == 0 {
                return None;
            }
            lines.push(line.trim_end().to_owned());
        }
        Some(lines)
    }

    /// Returns the numbers under three keys, one in each shard.
    pub fn numbers(&mut self) -> [u64; 3] {
        let lines = self.command("MGET a b c", 7).expect("the store runs");
        [2, 4, 6].map(|line| lines[line].parse().expect("a number"))
    }
}

/// Killed at any moment, a store has every acknowledged transaction, and each one whole.
#[test]
fn acknowledged_transactions_survive_kills() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut acknowledged = 0;
    for round in 0..6_u64 {
        let fabric = unique("kv-kill");
        let replicas = ["--replicas", "2"];
        let mut store = Store::start(&fabric, directory.path(), &replicas);
        if round > 0 {
            let found = store.numbers();
            assert_eq!(found, [found[0]; 3], "transactions are whole");
            assert!(found[0] >= acknowledged, "{found:?}, but {acknowledged} was acknowledged");
            acknowledged = found[0];
        }
        // One write is certain, so that the next round finds numbers.
        acknowledged += 1;
        let line = format!("MSET a {acknowledged} b {acknowledged} c {acknowledged}");
        assert_eq!(store.command(&line, 1), Some(vec!["+OK".to_owned()]));
        let pid = store.running.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50 + 37 * round));
            let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(status.expect("kill runs").success());
        });
        let first = acknowledged + 1;
        for number in first.. {
            let line = format!("MSET a {number} b {number} c {number}");
            match store.command(&line, 1) {
                Some(reply) => assert_eq!(reply, ["+OK"]),
                None => break,
            }
            acknowledged = number;
        }
        killer.join().expect("it has killed the store");
        let _ = output(&["clean"]);
    }
}

#[test]
fn interrupted_store_prints_its_counters() {
    let directory = tempfile::tempdir().expect("a directory");
    let fabric = unique("kv-stop");
    let mut store = Store::start(&fabric, directory.path(), &["--json"]);
    assert_eq!(store.command("MSET a 1 b 1 c 1", 1), Some(vec!["+OK".to_owned()]));
    assert_eq!(store.numbers(), [1; 3]);
    // The directory is in use.
    let data = directory.path().to_str().expect("a path of this test");
    let other = unique("kv-other");
    let second =
        output(&["kv", "serve", "--resp", "127.0.0.1:0", "--fabric", &other, "--data", data]);
    assert_eq!(second.status.code(), Some(1));
    assert!(errors(&second).contains("shard-0-0"), "{}", errors(&second));
    store.running.wait_for_signal_handler();
    store.running.signal("-INT");
    let lines = store.running.remaining_lines();
    let last: serde_json::Value =
        serde_json::from_str(lines.last().expect("counters")).expect("JSON");
    assert_eq!((&last["transactions"], &last["disagreements"]), (&2.into(), &0.into()), "{last}");
    assert_eq!(store.running.status(), Some(0));
}

#[test]
fn check_judges_a_history() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("history.jsonl");
    let path = path.to_str().expect("a path of this test");
    let event = |kind: &str, process: u32, time: u64, operation: &str| {
        format!(r#"{{"type":"{kind}","process":{process},"time":{time},"value":[{operation}]}}"#)
    };
    let append = r#"["append",1,5]"#;
    let mut lines = [
        event("invoke", 0, 1, append),
        event("ok", 0, 2, append),
        event("invoke", 1, 3, r#"["r",1,null]"#),
        event("ok", 1, 4, r#"["r",1,[5]]"#),
    ];
    std::fs::write(path, lines.join("\n")).expect("it is written");
    let verified = output(&["kv", "check", path, "--json"]);
    assert_eq!(json(&verified)["valid"], true, "{}", errors(&verified));
    lines[3] = event("ok", 1, 4, r#"["r",1,[]]"#);
    std::fs::write(path, lines.join("\n")).expect("it is written");
    let verified = output(&["kv", "check", path, "--json"]);
    let verdict = json(&verified);
    assert_eq!(verdict["strict_serializability"]["verdict"], "violated", "{verdict}");
    assert_eq!(verified.status.code(), Some(1));
    std::fs::write(path, "no history").expect("it is written");
    let refused = output(&["kv", "check", path]);
    assert!(errors(&refused).contains("line 1"), "{}", errors(&refused));
}

/// The answers of redis-cli and of `onepipe kv cli` are those of docs/guide/key-value.md.
#[test]
fn guide_shows_what_clients_get() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/key-value.md");
    let guide = std::fs::read_to_string(guide).expect("the guide exists");
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::start(&unique("kv-guide"), directory.path(), &[]);
    let port = store.port();
    let mut commands = 0;
    for block in guide.split("```console\n").skip(1) {
        let block = block.split("```").next().expect("the block ends");
        for example in block.split("$ ").skip(1) {
            let (command, expected) = example.split_once('\n').expect("a command has a reply");
            let clients = ["redis-cli", "onepipe kv cli"];
            let Some(client) = clients.into_iter().find(|client| command.contains(client)) else {
                continue;
            };
            let program = client.replace("onepipe", env!("CARGO_BIN_EXE_onepipe"));
            let command = command.replace(client, &format!("{program} --no-raw -p {port}"));
            let ran = Command::new("sh").args(["-c", &command]).output();
            let ran = ran.expect("sh runs");
            let reply = String::from_utf8_lossy(&ran.stdout);
            let without_empty = |text: &str| {
                text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(
                without_empty(&reply),
                without_empty(expected),
                "{command}: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
            commands += 1;
        }
    }
    assert_eq!(commands, 8);
}
