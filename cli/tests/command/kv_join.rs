//! A store whose replicas are programs of their own, which replace each other.

use redis::{Commands, Connection};

use crate::program::{Running, onepipe, unique, wait_until};

/// Two shards of two replicas.
const PROGRAMS: u32 = 4;

/// A program with one replica, and a connection to it.
struct Program {
    running: Running,
    connection: Connection,
}

impl Program {
    fn start(fabric: &str, process: u32) -> Self {
        let process = process.to_string();
        let mut running = Running::start(&mut onepipe(&[
            "kv",
            "serve",
            "--resp",
            "127.0.0.1:0",
            "--fabric",
            fabric,
            "--shards",
            "2",
            "--replicas",
            "2",
            "--process",
            &process,
        ]));
        let first = running.line();
        assert!(first.ends_with(&format!("in memory, process {process}")), "{first}");
        let address = running.line();
        let port = address.rsplit(' ').next().expect("the line ends in the port");
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}"));
        let connection = client.and_then(|client| client.get_connection());
        Self { running, connection: connection.expect("the program serves Redis clients") }
    }

    fn has_caught_up(&mut self) -> bool {
        let info: String = redis::cmd("INFO").query(&mut self.connection).expect("it answers");
        info.contains("onepipe_caught_up:1")
    }

    fn read(&mut self) -> Vec<Option<u64>> {
        self.connection.mget(&["a", "b", "c", "d"]).expect("a replica of each shard is up")
    }
}

/// Every replica is killed and started again without its state, one after the other: no value is
/// lost, as each takes over the state of another one.
#[test]
fn programs_replace_each_other() {
    let fabric = unique("kv-join");
    let start = |process| Program::start(&fabric, process);
    let mut programs: Vec<Program> = (0..PROGRAMS).map(start).collect();
    for round in 0..PROGRAMS {
        let writer = &mut programs[(round as usize + 1) % PROGRAMS as usize];
        let values = ["a", "b", "c", "d"].map(|key| (key, round));
        let () = writer.connection.mset(&values).expect("the store goes on");
        programs[round as usize].running.signal("-KILL");
        // Until it has ended, no other program can be this process.
        programs[round as usize].running.status();
        programs[round as usize] = Program::start(&fabric, round);
        wait_until("it catches up", || programs[round as usize].has_caught_up());
    }
    for program in &mut programs {
        assert_eq!(program.read(), [Some(u64::from(PROGRAMS) - 1); 4]);
    }
}
