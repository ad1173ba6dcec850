//! A store whose replicas are programs of their own, each with its log: it goes on with every
//! acknowledged write after all programs were killed.

use std::path::Path;

use redis::{Commands, Connection};

use crate::kv_load::Clients;
use crate::kv_program::KvProgram;
use crate::lab::{Controller, Switch};
use crate::program::{exclusive, unique, wait_until};

/// Number of times that all programs are killed twice.
const ROUNDS: usize = 4;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

struct Store<'a> {
    /// How programs join the fabric.
    access: [String; 2],
    data: &'a Path,
    programs: Vec<KvProgram>,
}

impl<'a> Store<'a> {
    fn start(data: &'a Path, access: [String; 2]) -> Self {
        let mut store = Self { access, data, programs: Vec::new() };
        store.start_all();
        store
    }

    fn start_one(&self, process: usize) -> KvProgram {
        let data = self.data.to_str().expect("the path is Unicode");
        let [access, of_fabric] = &self.access;
        KvProgram::start(process, &[access, of_fabric, "--data", data])
    }

    fn start_all(&mut self) {
        self.programs = (0..KvProgram::COUNT).map(|process| self.start_one(process)).collect();
        for program in &self.programs {
            wait_until("the store opens", || program.has_caught_up());
        }
    }

    /// Kills all programs that run.
    fn kill_all(&mut self) {
        let programs = std::mem::take(&mut self.programs);
        let running = programs.into_iter().filter(|program| !program.is_killed);
        let mut running: Vec<KvProgram> = running.collect();
        running.iter_mut().for_each(KvProgram::kill);
        running.iter_mut().for_each(KvProgram::wait);
    }

    /// Writes to all shards through one of the programs.
    fn write(&self, process: usize, value: u64) {
        let values = KEYS.map(|key| (key, value));
        let () = self.programs[process].connect().mset(&values).expect("the store goes on");
    }

    fn read(&self, process: usize) -> Vec<Option<u64>> {
        let read = |mut connection: Connection| connection.mget(&KEYS);
        read(self.programs[process].connect()).expect("a replica of each shard is up")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.data).expect("the store has a directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> =
            names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Starts a fabric with a controller: only such a one goes on without a process. Returns how
/// programs join it.
fn fabric(directory: &Path) -> (Switch, Controller, [String; 2]) {
    let decisions = directory.join("decisions").to_string_lossy().into_owned();
    let switch = Switch::start(&["--controllers", "1000"]);
    let controller = Controller::start(&["--udp", &switch.address, "--store", &decisions]);
    controller.until("the controller is active", |status| status["epoch"].is_u64());
    let access = ["--udp".to_owned(), switch.address.clone()];
    (switch, controller, access)
}

#[test]
fn killed_programs_go_on_from_their_logs() {
    let directory = tempfile::tempdir().expect("a directory");
    let access = ["--fabric".to_owned(), unique("kv-durable")];
    let mut store = Store::start(directory.path(), access);
    for round in 1..4 {
        store.write(round % KvProgram::COUNT, round as u64);
        store.kill_all();
        store.start_all();
        for process in 0..KvProgram::COUNT {
            assert_eq!(store.read(process), [Some(round as u64); 4], "process {process}");
        }
    }
    assert_eq!(store.names(), ["shard-0-0", "shard-0-1", "shard-1-0", "shard-1-1"]);
}

/// Without a controller no program is notified that another one was killed. Two of different shards
/// catch up at once all the same, and neither waits for the log of the other.
#[test]
fn programs_catch_up_in_shared_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let access = ["--fabric".to_owned(), unique("kv-durable-memory")];
    let mut store = Store::start(directory.path(), access);
    store.write(0, 1);
    for process in [1, 2] {
        store.programs[process].kill();
        store.programs[process].wait();
    }
    for process in [1, 2] {
        store.programs[process] = store.start_one(process);
    }
    for process in [1, 2] {
        wait_until("the replica catches up", || store.programs[process].has_caught_up());
    }
    store.write(1, 2);
    store.kill_all();
    store.start_all();
    assert_eq!(store.read(1), [Some(2); 4]);
}

/// A replica that was away takes the state of another one. What it had stored before must not come
/// back when all start again.
#[test]
fn replica_that_was_away_takes_the_later_state() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_switch, _controller, access) = fabric(directory.path());
    let data = directory.path().join("data");
    let mut store = Store::start(&data, access);
    store.write(0, 1);
    store.programs[1].kill();
    store.programs[1].wait();
    store.write(0, 2);
    // All others end before process 1 has caught up.
    store.kill_all();
    store.start_all();
    assert_eq!(store.read(1), [Some(2); 4]);

    store.programs[1].kill();
    store.programs[1].wait();
    store.write(0, 3);
    store.programs[1] = store.start_one(1);
    wait_until("the replica catches up", || store.programs[1].has_caught_up());
    store.write(1, 4);
    store.programs[0].kill();
    store.programs[0].wait();
    store.write(1, 5);
    store.kill_all();
    store.start_all();
    for process in 0..KvProgram::COUNT {
        assert_eq!(store.read(process), [Some(5); 4], "process {process}");
    }
    assert_eq!(store.names(), ["shard-0-0", "shard-0-1", "shard-1-0", "shard-1-1"]);
}

/// Whatever is killed, alone or with all others, and whether a replica has caught up or not: the
/// history is strictly serializable, and no acknowledged write is lost.
#[test]
fn history_over_kills_of_all_programs_is_serializable() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let (_switch, _controller, access) = fabric(directory.path());
    let data = directory.path().join("data");
    let mut store = Store::start(&data, access);
    let ports = store.programs.iter().map(|program| program.port).collect();
    let clients = Clients::run(ports, |clients| {
        let restart = |store: &mut Store<'_>| {
            store.kill_all();
            store.start_all();
            for (process, program) in store.programs.iter().enumerate() {
                clients.use_instead(process, program);
            }
        };
        for round in 0..ROUNDS {
            clients.more("transactions before any fault");
            restart(&mut store);
            clients.more("transactions of the next run");
            let process = round % KvProgram::COUNT;
            store.programs[process].kill();
            clients.more("transactions without a replica");
            if round % 2 == 0 {
                store.programs[process].wait();
                store.programs[process] = store.start_one(process);
                clients.use_instead(process, &store.programs[process]);
            }
            restart(&mut store);
        }
        clients.more("transactions after all faults");
    });
    clients.check(&store.programs[0], directory.path());
}
