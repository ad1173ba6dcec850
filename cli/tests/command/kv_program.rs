//! One program of a store whose replicas are programs of their own.

use redis::Connection;

use crate::kv_history::connect;
use crate::program::{Running, onepipe};

/// A program with one replica of two shards with two each.
pub struct KvProgram {
    pub running: Running,
    pub port: u16,
    pub is_killed: bool,
}

impl KvProgram {
    /// Number of replicas of the store.
    pub const COUNT: usize = 4;

    /// Starts the program of a process. `options`: how it joins the fabric, and where its log is.
    pub fn start(process: usize, options: &[&str]) -> Self {
        let process = process.to_string();
        let of_store = ["kv", "serve", "--shards", "2", "--replicas", "2", "--resp", "127.0.0.1:0"];
        let arguments = [&of_store[..], &["--process", &process], options].concat();
        let mut running = Running::start(&mut onepipe(&arguments));
        let first = running.line();
        assert!(first.ends_with(&format!(", process {process}")), "{first}");
        let port = running.line().rsplit(' ').next().and_then(|port| port.parse().ok());
        let port = port.expect("the line ends in the port");
        Self { running, port, is_killed: false }
    }

    /// Connects as a Redis client.
    pub fn connect(&self) -> Connection {
        connect(self.port).expect("the program serves Redis clients")
    }

    /// Returns whether the replica serves.
    pub fn has_caught_up(&self) -> bool {
        let info = connect(self.port)
            .and_then(|mut connection| redis::cmd("INFO").query::<String>(&mut connection).ok());
        info.is_some_and(|info| info.contains("onepipe_caught_up:1"))
    }

    /// Kills the program.
    pub fn kill(&mut self) {
        self.running.signal("-KILL");
        self.is_killed = true;
    }

    /// Waits for the end of the program.
    pub fn wait(&mut self) {
        self.running.status();
    }
}
