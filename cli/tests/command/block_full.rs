//! Block devices whose logs are on a disk that is full for a while.

use std::path::Path;
use std::time::Duration;

use crate::block_programs::Programs;
use crate::block_replicas::{BLOCK, BLOCKS, Client};
use crate::full_disk::{await_stderr, fill};
use crate::namespace::on_small_disk;
use crate::program::{Running, errors, exclusive, json, onepipe, output};

/// Writes that fill what the disk has left, with certainty.
const WRITES_MAX: u64 = 300;

/// Writes the next version of some block. Returns whether that was acknowledged.
fn write(client: &mut Client, versions: &mut [u64], version: &mut u64) -> bool {
    *version += 1;
    let block = *version % BLOCKS;
    let is_acknowledged = client.write(block, *version).is_ok() && client.reply().is_ok();
    if is_acknowledged {
        versions[block as usize] = *version;
    }
    is_acknowledged
}

fn versions(socket: &str) -> Vec<u64> {
    let mut client = Client::connect(socket).expect("it is served");
    client.versions(0, BLOCKS as usize).expect("no block is lost")
}

/// Lets the logs of a directory be on a disk of their own. The image is not: it would find the disk
/// full, too, before the log or after it.
fn link_log(directory: &Path, folder: &Path) {
    std::fs::create_dir_all(directory).expect("a directory");
    std::os::unix::fs::symlink(folder, directory.join("log")).expect("a link");
}

#[test]
fn program_with_full_log_ends_and_the_others_go_on() {
    let _guard = exclusive();
    on_small_disk("block_full::program_with_full_log_ends_and_the_others_go_on", |folder| {
        let directory = tempfile::tempdir().expect("a directory");
        link_log(&directory.path().join("data/process-1"), folder);
        let mut programs = Programs::start(directory.path());
        programs.kill(&[1]);
        let mut full = Running::start_with_stderr(&mut programs.command(1));
        assert!(full.line().ends_with("process 1"), "it serves the device");
        let (mut expected, mut version) = (vec![0; BLOCKS as usize], 0);
        let mut client = Client::connect(&programs.sockets[0]).expect("it is served");
        (0..BLOCKS).for_each(|_| assert!(write(&mut client, &mut expected, &mut version)));

        let filler = fill(folder);
        // Each write is acknowledged, also those of which one replica has no space.
        let has_ended = |full: &mut Running| full.child.try_wait().expect("own child").is_some();
        while !has_ended(&mut full) {
            assert!(version < WRITES_MAX, "the disk is full");
            assert!(write(&mut client, &mut expected, &mut version));
        }
        let line = await_stderr(&mut full, "No space left on device");
        for part in ["process-1/log/replica-1", "free space on this disk"] {
            assert!(line.contains(part), "{part:?} is missing in {line}");
        }
        assert_eq!(full.status(), Some(1));
        assert_eq!(versions(&programs.sockets[2]), expected);

        std::fs::remove_file(filler).expect("the space is freed");
        programs.start_all(&[1]);
        assert!(write(&mut client, &mut expected, &mut version));
        assert_eq!(versions(&programs.sockets[1]), expected);
        let data = programs.data();
        let scrubbed = output(&["block", "scrub", "--data", &data, "--process", "1", "--json"]);
        let report = json(&scrubbed);
        assert_eq!((&report["replicas"], &report["damaged"]), (&3.into(), &0.into()));
        // The replica has all blocks, and goes on alone.
        programs.kill(&[0, 2]);
        assert_eq!(versions(&programs.sockets[1]), expected);
        let mut client = Client::connect(&programs.sockets[1]).expect("it is served");
        assert!(write(&mut client, &mut expected, &mut version));
    });
}

/// Serves a device, with a line of what it is.
fn serve(data: &Path, socket: &str) -> Running {
    let size = (BLOCKS as usize * BLOCK).to_string();
    let nbd = format!("unix:{socket}");
    let arguments = ["block", "serve", "--nbd", &nbd, "--size", &size, "--data"];
    let mut running = Running::start_with_stderr(onepipe(&arguments).arg(data));
    assert!(running.line().ends_with("bytes, replicas 3"), "it serves the device");
    running.line();
    running
}

#[test]
fn device_with_full_logs_loses_no_acknowledged_write() {
    let _guard = exclusive();
    on_small_disk("block_full::device_with_full_logs_loses_no_acknowledged_write", |folder| {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket").to_str().expect("text").to_owned();
        let data = directory.path().join("data");
        link_log(&data, folder);
        let mut running = serve(&data, &socket);
        let (mut expected, mut version) = (vec![0; BLOCKS as usize], 0);
        let mut client = Client::connect(&socket).expect("it is served");
        (0..BLOCKS).for_each(|_| assert!(write(&mut client, &mut expected, &mut version)));

        let filler = fill(folder);
        while running.child.try_wait().expect("own child").is_none() {
            assert!(version < WRITES_MAX, "the disk is full");
            if !write(&mut client, &mut expected, &mut version) {
                // The program ends once each replica has found its disk full.
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let line = await_stderr(&mut running, "the replica has ended");
        for part in ["No space left on device", "data/log/replica-", "free space on this disk"] {
            assert!(line.contains(part), "{part:?} is missing in {line}");
        }
        assert_eq!(running.status(), Some(1));
        // The entry of a start may find space, or not: then the program ends.
        let nbd = format!("unix:{socket}");
        let mut again =
            Running::start(onepipe(&["block", "serve", "--nbd", &nbd, "--data"]).arg(&data));
        if again.line().is_empty() {
            assert_eq!(again.status(), Some(1));
        } else {
            again.signal("-KILL");
            again.status();
        }

        std::fs::remove_file(filler).expect("the space is freed");
        let _running = serve(&data, &socket);
        let found = versions(&socket);
        for (block, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // A write that has failed is stored or not.
            let is_later = *found <= version && found % BLOCKS == block as u64;
            assert!(found == expected || found > expected && is_later, "block {block}: {found}");
        }
        let mut client = Client::connect(&socket).expect("it is served");
        assert!(write(&mut client, &mut expected, &mut version));
        let data = data.to_str().expect("text");
        let scrubbed = output(&["block", "scrub", "--data", data, "--json"]);
        assert_eq!(json(&scrubbed)["damaged"], 0, "{}", errors(&scrubbed));
    });
}
