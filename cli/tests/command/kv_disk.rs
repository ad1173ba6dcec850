//! `onepipe kv serve --data` on a disk that is full for a while.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::full_disk::{await_stderr, fill};
use crate::kv::Store;
use crate::namespace::on_small_disk;
use crate::program::{output, unique, wait_for};

/// How long a probe waits: its reply comes at once, or when the disk has space.
const PROBE: Duration = Duration::from_millis(300);

/// Returns the reply to an inline command on a connection of its own, if there is one soon.
fn probe(port: u16, command: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the store listens");
    stream.set_read_timeout(Some(PROBE)).expect("a timeout");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("it is connected");
    let mut bytes = [0; 1_024];
    let len = stream.read(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

#[test]
fn store_refuses_writes_while_its_disk_is_full() {
    on_small_disk("kv_disk::store_refuses_writes_while_its_disk_is_full", |folder| {
        let data = folder.join("data");
        let mut store = Store::start_with_stderr(&unique("kv-full"), &data, &["--replicas", "2"]);
        let port = store.port();
        assert_eq!(store.command("MSET a 0 b 0 c 0", 1), Some(vec!["+OK".to_owned()]));
        assert_eq!(store.command("MSET x 1 y 1 z 1", 1), Some(vec!["+OK".to_owned()]));
        let filler = fill(folder);

        // The last block of each log has some space left. Then a write waits.
        let value = "v".repeat(4_000);
        let waits = std::thread::spawn(move || {
            let mut acknowledged = 0;
            let mut replies = Vec::new();
            while acknowledged < 100 && replies.is_empty() {
                let number = acknowledged + 1;
                let line = format!("MSET a {number} b {number} c {number} large {value}");
                let began = std::time::Instant::now();
                let reply = store.command(&line, 1).expect("the store runs");
                acknowledged = number;
                if began.elapsed() > Duration::from_secs(1) {
                    replies = reply;
                }
            }
            (store, acknowledged, replies)
        });
        let refused = wait_for("writes are refused", || {
            probe(port, "SET probe 1").filter(|reply| reply.starts_with('-'))
        });
        let redis = "-MISCONF Errors writing to the AOF file: No space left on device";
        assert!(refused.starts_with(redis), "{refused}");
        // What is stored can be read, and what a transaction only reads.
        assert_eq!(
            probe(port, "MGET x y z").as_deref(),
            Some("*3\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n")
        );
        assert!(!waits.is_finished(), "a write waits for the disk");

        std::fs::remove_file(filler).expect("the space is freed");
        let (mut store, acknowledged, replies) = waits.join().expect("the write is acknowledged");
        assert_eq!(replies, ["+OK"]);
        let error = await_stderr(&mut store.running, "writes are refused");
        assert!(error.contains("No space left on device"), "{error}");
        await_stderr(&mut store.running, "writes are executed");
        wait_for("writes are accepted", || {
            probe(port, "SET probe 2").filter(|reply| reply == "+OK\r\n")
        });
        store.running.signal("-KILL");
        store.running.status();
        let _ = output(&["clean"]);

        let mut store = Store::start(&unique("kv-full"), &data, &["--replicas", "2"]);
        assert_eq!(store.numbers(), [acknowledged; 3]);
        assert_eq!(store.command("GET probe", 2), Some(vec!["$1".to_owned(), "2".to_owned()]));
    });
}
