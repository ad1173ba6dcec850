//! A block device whose replicas are programs of their own, and whose disks damage blocks.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use crate::block_programs::Programs;
use crate::block_replicas::{BLOCK, BLOCKS, Client};
use crate::program::{errors, exclusive, json, output, wait_until};

/// Length of a block's mark.
const MARK: u64 = 16;

/// Returns a file of a replica's image.
fn file(programs: &Programs, process: usize, name: &str) -> PathBuf {
    let image = format!("process-{process}/image-{process}");
    PathBuf::from(programs.data()).join(image).join(name)
}

fn bytes(programs: &Programs, process: usize, name: &str) -> Vec<u8> {
    std::fs::read(file(programs, process, name)).expect("the image has this file")
}

/// Flips a bit of a file of an image.
fn flip(programs: &Programs, process: usize, name: &str, offset: u64) {
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(file(programs, process, name));
    let file = file.expect("the image has this file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the file is that long");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("the file is writable");
}

fn scrub(programs: &Programs, process: usize, more: &[&str]) -> Output {
    let (data, process) = (programs.data(), process.to_string());
    let arguments = ["block", "scrub", "--data", &data, "--process", &process];
    output(&[&arguments[..], more].concat())
}

/// Returns the numbers of replicas and of damaged, repaired and lost blocks.
fn figures(scrubbed: &Output) -> [Value; 4] {
    let report = json(scrubbed);
    ["replicas", "damaged", "repaired", "lost"].map(|name| report[name].clone())
}

/// Writes all blocks, and waits until each image has them.
fn write_all(programs: &Programs) -> Vec<u64> {
    let mut client = Client::connect(&programs.sockets[0]).expect("it is served");
    let written: Vec<u64> = (1..=BLOCKS).collect();
    for (block, version) in (0..).zip(&written) {
        client.write(block, *version).expect("it is served");
        assert_eq!(client.reply().expect("it is stored"), *version);
    }
    for process in 0..3 {
        assert_eq!(read_all(programs, process), written);
    }
    written
}

fn read_all(programs: &Programs, process: usize) -> Vec<u64> {
    let mut client = Client::connect(&programs.sockets[process]).expect("it is served");
    client.versions(0, BLOCKS as usize).expect("no block is lost")
}

#[test]
fn damaged_blocks_are_repaired_from_other_programs() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let mut programs = Programs::start(directory.path());
    let written = write_all(&programs);
    let intact = ["blocks", "marks"].map(|name| bytes(&programs, 1, name));

    // A read of a damaged block, and of one with a damaged mark.
    flip(&programs, 1, "blocks", 5 * BLOCK as u64 + 17);
    flip(&programs, 1, "marks", 7 * MARK + 3);
    assert_eq!(read_all(&programs, 1), written);
    wait_until("the image is as before", || {
        // A block whose mark is damaged is replaced as soon as nothing may have changed since.
        read_all(&programs, 1) == written
            && ["blocks", "marks"].map(|name| bytes(&programs, 1, name)) == intact
    });

    // A scrub finds what is not read, in each program.
    flip(&programs, 0, "blocks", 9 * BLOCK as u64);
    flip(&programs, 1, "marks", 11 * MARK + 9);
    flip(&programs, 2, "blocks", 63 * BLOCK as u64 + 4_095);
    let scrubbed = scrub(&programs, 1, &["--json"]);
    assert_eq!(figures(&scrubbed), [3, 3, 3, 0], "{}", errors(&scrubbed));
    assert_eq!(["blocks", "marks"].map(|name| bytes(&programs, 1, name)), intact);
    for process in [0, 2] {
        assert_eq!(["blocks", "marks"].map(|name| bytes(&programs, process, name)), intact);
        let scrubbed = scrub(&programs, process, &["--json"]);
        assert_eq!(figures(&scrubbed), [3, 0, 0, 0], "{}", errors(&scrubbed));
    }

    // A block that no replica has is reported, and the others are read.
    (0..3).for_each(|process| flip(&programs, process, "blocks", 20 * BLOCK as u64));
    let scrubbed = scrub(&programs, 0, &[]);
    assert_eq!(scrubbed.status.code(), Some(1));
    let line = String::from_utf8_lossy(&scrubbed.stdout).into_owned();
    assert_eq!(line, "64 blocks of 3 replicas: 3 damaged copies, 0 repaired, 1 blocks lost\n");
    let mut client = Client::connect(&programs.sockets[0]).expect("it is served");
    assert_eq!(client.versions(0, 20).expect("these are intact"), written[..20]);
    client.write(20, 100).expect("it is served");
    assert_eq!(client.reply().expect("the block is written again"), 100);

    // A replica that is down is named, and the others repair each other.
    programs.kill(&[2]);
    flip(&programs, 0, "blocks", 30 * BLOCK as u64);
    let scrubbed = scrub(&programs, 0, &["--json"]);
    assert_eq!(figures(&scrubbed), [2, 1, 1, 0], "{}", errors(&scrubbed));
    assert_eq!(json(&scrubbed)["missing"], serde_json::json!([2]));
    assert!(errors(&scrubbed).contains("replica 2 does not answer"), "{}", errors(&scrubbed));
}
