//! Clients of the programs of a store, whose history is checked.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::kv_history::Load;
use crate::kv_program::KvProgram;
use crate::program::wait_until;

/// Number of transactions between two faults.
const ROUND: usize = 100;

/// One client at a time for each program.
pub struct Clients {
    load: Load,
    ports: Mutex<Vec<u16>>,
    has_ended: AtomicBool,
    count: AtomicU32,
}

impl Clients {
    /// Runs clients of the programs at these ports until `faults` returns.
    pub fn run(ports: Vec<u16>, faults: impl FnOnce(&Self)) -> Self {
        let programs = ports.len();
        let clients = Self {
            load: Load::new(),
            ports: Mutex::new(ports),
            has_ended: AtomicBool::new(false),
            count: AtomicU32::new(0),
        };
        std::thread::scope(|scope| {
            let clients = &clients;
            for process in 0..programs {
                scope.spawn(move || clients.use_program(process));
            }
            faults(clients);
            clients.has_ended.store(true, Ordering::Relaxed);
        });
        clients
    }

    fn use_program(&self, process: usize) {
        while !self.has_ended.load(Ordering::Relaxed) {
            let port = self.ports.lock().expect("no thread has panicked")[process];
            // A client whose last outcome is unknown is followed by another one.
            self.load.run_until(port, self.next(), &self.has_ended);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn next(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for further transactions.
    pub fn more(&self, what: &str) {
        // An invocation and a completion are two events.
        let enough = self.load.recorder.len() + 2 * ROUND;
        wait_until(what, || self.load.recorder.len() >= enough);
    }

    /// Notes that a program was started in place of another one.
    pub fn use_instead(&self, process: usize, program: &KvProgram) {
        self.ports.lock().expect("no thread has panicked")[process] = program.port;
    }

    /// Reads all keys through a program, and checks the history.
    pub fn check(&self, program: &KvProgram, directory: &Path) {
        assert!(self.load.read_all(&mut program.connect(), self.next()), "the store runs");
        self.load.check(directory);
    }
}
