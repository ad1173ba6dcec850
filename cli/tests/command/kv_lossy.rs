//! A store of several programs behind a switch that loses frames, with programs that are killed and
//! stopped: `onepipe kv check` accepts the history of its clients.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::kv_history::{Load, connect};
use crate::lab::{Controller, Switch};
use crate::program::{Running, exclusive, onepipe, wait_until};

/// Two shards of two replicas.
const PROGRAMS: usize = 4;
/// Number of transactions between two faults.
const ROUND: usize = 100;

/// A program with one replica.
struct Program {
    running: Running,
    port: u16,
}

impl Program {
    fn start(switch: &Switch, process: usize) -> Self {
        let process = process.to_string();
        let shape = ["--shards", "2", "--replicas", "2", "--resp", "127.0.0.1:0"];
        let of_fabric = ["kv", "serve", "--udp", &switch.address, "--process", &process];
        let mut running = Running::start(&mut onepipe(&[&of_fabric[..], &shape].concat()));
        let first = running.line();
        assert!(first.ends_with(&format!("in memory, process {process}")), "{first}");
        let port = running.line().rsplit(' ').next().and_then(|port| port.parse().ok());
        Self { running, port: port.expect("the line ends in the port") }
    }

    fn has_caught_up(&self) -> bool {
        let info = connect(self.port)
            .and_then(|mut connection| redis::cmd("INFO").query::<String>(&mut connection).ok());
        info.is_some_and(|info| info.contains("onepipe_caught_up:1"))
    }
}

#[test]
fn history_over_lost_frames_and_replaced_programs_is_strictly_serializable() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("decisions").to_string_lossy().into_owned();
    let switch = Switch::start(&["--controllers", "1000", "--loss", "1%", "--seed", "7"]);
    let controller = Controller::start(&["--udp", &switch.address, "--store", &store]);
    controller.until("the controller is active", |status| status["epoch"].is_u64());
    let mut programs: Vec<Program> =
        (0..PROGRAMS).map(|process| Program::start(&switch, process)).collect();
    let load = Load::new();
    let ports = Mutex::new(programs.iter().map(|program| program.port).collect::<Vec<_>>());
    let (has_ended, clients) = (AtomicBool::new(false), AtomicU32::new(0));
    let next_client = || clients.fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for process in 0..PROGRAMS {
            let (load, ports, has_ended) = (&load, &ports, &has_ended);
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    let port = ports.lock().expect("no thread has panicked")[process];
                    // A client whose last outcome is unknown is followed by another one.
                    load.run_until(port, next_client(), has_ended);
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        }
        let more = |what: &str| {
            // An invocation and a completion are two events.
            let enough = load.recorder.len() + 2 * ROUND;
            wait_until(what, || load.recorder.len() >= enough);
        };
        let replace = |program: &mut Program, process: usize| {
            *program = Program::start(&switch, process);
            ports.lock().expect("no thread has panicked")[process] = program.port;
            wait_until("the replica has caught up", || program.has_caught_up());
        };
        more("transactions before any fault");
        // One replica of each shard, one after the other.
        for process in [1, 2] {
            programs[process].running.signal("-KILL");
            more("transactions without a replica");
            replace(&mut programs[process], process);
            more("transactions with the replaced replica");
        }
        programs[3].running.signal("-STOP");
        std::thread::sleep(Duration::from_millis(500));
        programs[3].running.signal("-CONT");
        more("transactions after a pause");
        has_ended.store(true, Ordering::Relaxed);
    });
    let mut connection = connect(programs[0].port).expect("the program listens");
    assert!(load.read_all(&mut connection, next_client()), "the store runs");
    load.check(directory.path());
}
