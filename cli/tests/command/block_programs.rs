//! A block device whose replicas are programs of their own, which are killed at any time, and lose
//! their directories.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::block_history::{CLIENTS, End, Load};
use crate::block_replicas::{BLOCK, BLOCKS};
use crate::lab::{Controller, Switch};
use crate::program::{Running, errors, exclusive, onepipe, output};

const REPLICAS: usize = 3;
/// Number of times that programs are killed.
const ROUNDS: usize = 6;

/// The programs of a device, behind a switch with a controller: only such a fabric goes on without
/// one of them.
pub struct Programs {
    directory: PathBuf,
    pub sockets: Vec<String>,
    running: Vec<Option<Running>>,
    switch: Switch,
    _controller: Controller,
}

impl Programs {
    pub fn start(directory: &Path) -> Programs {
        let decisions = directory.join("decisions").to_string_lossy().into_owned();
        let switch = Switch::start(&["--controllers", "1000"]);
        let controller = Controller::start(&["--udp", &switch.address, "--store", &decisions]);
        controller.until("the controller is active", |status| status["epoch"].is_u64());
        let socket =
            |process| directory.join(format!("socket-{process}")).to_string_lossy().into_owned();
        let mut programs = Programs {
            directory: directory.to_path_buf(),
            sockets: (0..REPLICAS).map(socket).collect(),
            running: (0..REPLICAS).map(|_| None).collect(),
            switch,
            _controller: controller,
        };
        programs.start_all(&[0, 1, 2]);
        programs
    }

    pub fn data(&self) -> String {
        self.directory.join("data").to_string_lossy().into_owned()
    }

    pub fn command(&self, process: usize) -> Command {
        let (data, size) = (self.data(), (BLOCKS as usize * BLOCK).to_string());
        let nbd = format!("unix:{}", self.sockets[process]);
        let of_device = ["block", "serve", "--nbd", &nbd, "--data", &data, "--size", &size];
        let process = process.to_string();
        let of_fabric = ["--process", &process, "--udp", &self.switch.address];
        onepipe(&[&of_device[..], &of_fabric].concat())
    }

    /// Starts programs, and waits until each serves the device.
    pub fn start_all(&mut self, processes: &[usize]) {
        for process in processes {
            self.running[*process] = Some(Running::start(&mut self.command(*process)));
        }
        for process in processes {
            let line = self.running[*process].as_mut().expect("it was started").line();
            assert!(line.ends_with(&format!("bytes, replicas 3, process {process}")), "{line}");
        }
    }

    /// Kills programs at once.
    pub fn kill(&mut self, processes: &[usize]) {
        let take = |process: &usize| self.running[*process].take().expect("it runs");
        let mut killed: Vec<Running> = processes.iter().map(take).collect();
        killed.iter().for_each(|running| running.signal("-KILL"));
        for running in &mut killed {
            let _ = running.status();
        }
    }

    /// Returns the programs that have ended: one that has paused for long is declared failed.
    fn ended(&mut self) -> Vec<usize> {
        let has_ended = |running: &mut Option<Running>| {
            let running = running.as_mut().map(|running| running.child.try_wait());
            running.is_none_or(|status| status.expect("own child").is_some())
        };
        (0..REPLICAS).filter(|process| has_ended(&mut self.running[*process])).collect()
    }

    /// Checks that a program does not start, and says what to do.
    fn refuses(&self, process: usize) {
        let refused = self.command(process).output().expect("the program starts");
        assert_eq!(refused.status.code(), Some(1));
        let text = errors(&refused);
        let reason = format!("process {process} has no log, and others have one");
        assert!(text.contains(&reason) && text.contains("`onepipe block replace`"), "{text}");
    }

    fn replace(&self, process: usize) {
        let (data, process) = (self.data(), process.to_string());
        let replaced = output(&["block", "replace", "--data", &data, "--process", &process]);
        assert!(replaced.status.success(), "{}", errors(&replaced));
    }

    fn remove_directory(&self, process: usize) {
        let directory = Path::new(&self.data()).join(format!("process-{process}"));
        std::fs::remove_dir_all(directory).expect("it is there");
    }
}

/// Runs clients of all programs, which turn to the next program when one ends, while `test` runs.
fn with_load(programs: &mut Programs, test: impl FnOnce(&mut Programs, &Load)) {
    let load = Load::new();
    let sockets = programs.sockets.clone();
    std::thread::scope(|scope| {
        let end = End(&load);
        for client in 0..CLIENTS {
            let sockets = sockets.iter().cycle().skip(client);
            let load = &load;
            scope.spawn(move || load.run(sockets));
        }
        test(programs, &load);
        drop(end);
        programs.kill(&[0, 1, 2]);
    });
    load.check();
}

/// Returns the seed of the kills, which the environment may set.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let drawn = now.expect("the clock is set").as_nanos() as u64;
    let chosen = std::env::var("ONEPIPE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    chosen.unwrap_or(drawn)
}

#[test]
fn history_over_kills_of_programs_is_linearizable() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let mut state = seed();
    println!("ONEPIPE_TEST_SEED={state} draws the same kills");
    let mut draw = |limit: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    };
    with_load(&mut Programs::start(directory.path()), |programs, load| {
        for round in 0..ROUNDS {
            load.more("clients use the device");
            let first = draw(REPLICAS);
            let (second, all) = ((first + 1) % REPLICAS, [0, 1, 2]);
            let killed = match draw(4) {
                0 => &all[..],
                1 => &[first, second][..],
                _ => &[first][..],
            };
            println!("round {round}: {killed:?} killed");
            programs.kill(killed);
            if killed.len() < REPLICAS && draw(2) == 0 {
                load.more("clients use the device without programs that were killed");
            }
            let ended = programs.ended();
            programs.start_all(&ended);
        }
        load.more("clients use the device after the last start");
    });
}

#[test]
fn program_without_its_directory_is_filled_on_request() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    with_load(&mut Programs::start(directory.path()), |programs, load| {
        load.more("clients use the device");
        // The others go on.
        programs.kill(&[1]);
        load.more("clients use the device without a program");
        programs.remove_directory(1);
        programs.refuses(1);
        programs.replace(1);
        programs.start_all(&[1]);
        load.more("clients use the device again");
        // All have ended, and the device does not open without one of its logs.
        programs.kill(&[0, 1, 2]);
        programs.remove_directory(2);
        for process in [0, 1] {
            let mut command = programs.command(process);
            programs.running[process] = Some(Running::start(&mut command));
        }
        programs.refuses(2);
        programs.replace(2);
        programs.start_all(&[2]);
        for process in [0, 1] {
            let line = programs.running[process].as_mut().expect("it was started").line();
            assert!(line.ends_with(&format!("replicas 3, process {process}")), "{line}");
        }
        load.more("clients use the device after a loss");
        // The new files hold all there is.
        programs.kill(&[0, 1]);
        load.more("clients use the device with the replaced program alone");
        programs.start_all(&[0, 1]);
    });
}
