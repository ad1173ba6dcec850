//! A store of several programs behind a switch that loses frames, with programs that are killed and
//! stopped: `onepipe kv check` accepts the history of its clients.

use std::time::Duration;

use crate::kv_load::Clients;
use crate::kv_program::KvProgram;
use crate::lab::{Controller, Switch};
use crate::program::{exclusive, wait_until};

#[test]
fn history_over_lost_frames_and_replacements_is_serializable() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("decisions").to_string_lossy().into_owned();
    let switch = Switch::start(&["--controllers", "1000", "--loss", "1%", "--seed", "7"]);
    let controller = Controller::start(&["--udp", &switch.address, "--store", &store]);
    controller.until("the controller is active", |status| status["epoch"].is_u64());
    let start = |process| KvProgram::start(process, &["--udp", &switch.address]);
    let mut programs: Vec<KvProgram> = (0..KvProgram::COUNT).map(start).collect();
    let ports = programs.iter().map(|program| program.port).collect();
    let clients = Clients::run(ports, |clients| {
        clients.more("transactions before any fault");
        // One replica of each shard, one after the other.
        for process in [1, 2] {
            programs[process].kill();
            clients.more("transactions without a replica");
            programs[process].wait();
            programs[process] = start(process);
            clients.use_instead(process, &programs[process]);
            wait_until("the replica has caught up", || programs[process].has_caught_up());
            clients.more("transactions with the replaced replica");
        }
        programs[3].running.signal("-STOP");
        std::thread::sleep(Duration::from_millis(500));
        programs[3].running.signal("-CONT");
        clients.more("transactions after a pause");
    });
    clients.check(&programs[0], directory.path());
}
