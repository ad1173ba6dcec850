//! A replica that is away for a while: it was stopped, or its disk is full.

use onepipe_block_server::ReplicatedBlocks;

use crate::full_disk::SmallDisk;
use crate::harness::{MIB, noise, wait_until};
use crate::replicated::{open, read, try_write, write_blocks};

const BLOCK: u64 = 4_096;

/// Waits until the images of all replicas that are up have what was written, and the log has not.
fn wait_until_trimmed(device: &ReplicatedBlocks) {
    let written = device.applied().into_iter().flatten().max().expect("replicas are up");
    wait_until("the log is trimmed", || device.trimmed_len() >= written);
}

#[test]
fn replica_that_was_stopped_gets_changed_blocks_only() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let device = open(&dir.path().join("data"), Some(4 * MIB));
    let mut expected = noise(4 * MIB, 1);
    write_blocks(&device, 0, expected.clone());
    wait_until_trimmed(&device);

    device.stop(1).expect("the others go on");
    for block in (3..1_024).step_by(100) {
        let data = noise(BLOCK, block);
        let at = (block * BLOCK) as usize;
        expected[at..at + data.len()].copy_from_slice(&data);
        write_blocks(&device, block * BLOCK, data);
    }
    wait_until_trimmed(&device);
    device.start(1).expect("it catches up");
    assert_eq!(device.copied_blocks(1), 11);
    assert_eq!((device.copied_blocks(0), device.copied_blocks(2)), (0, 0));

    // Nothing has changed since: nothing is copied.
    device.start(1).expect("it catches up");
    assert_eq!(device.copied_blocks(1), 11);
    let report = device.scrub().expect("the disks work");
    assert_eq!((report.replicas, report.damaged), (3, 0));
    assert!(read(&device, 0, 4 * MIB as u32) == expected, "other blocks");
}

#[test]
fn full_disk_ends_one_replica_until_space_is_freed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let data = dir.path().join("data");
    let image = data.join("image-2");
    std::fs::create_dir_all(&image).expect("a temporary folder");
    let Some(_disk) = SmallDisk::mount(&image, c"size=6m") else { return };
    std::fs::write(image.join("filler"), vec![1; 5 << 20]).expect("it fits");
    let device = open(&data, Some(4 * MIB));

    // Each write is acknowledged, also those of which the replica has no space.
    let expected = noise(4 * MIB, 2);
    for (chunk, offset) in expected.chunks(65_536).zip((0..).step_by(65_536)) {
        write_blocks(&device, offset, chunk.to_vec());
    }
    wait_until("the replica has ended", || device.replica_ended(2).is_some());
    let error = device.replica_ended(2).expect("it has ended");
    for part in ["No space left on device", "image-2", "free space on this disk"] {
        assert!(error.contains(part), "{part:?} is missing in {error}");
    }
    assert_eq!(device.applied()[2], None);
    assert!(read(&device, 0, 4 * MIB as u32) == expected, "the others have all");

    std::fs::remove_file(image.join("filler")).expect("the space is freed");
    device.start(2).expect("it catches up");
    assert_eq!(device.replica_ended(2), None);
    write_blocks(&device, 0, expected[..65_536].to_vec());
    let report = device.scrub().expect("the disks work");
    assert_eq!((report.replicas, report.damaged), (3, 0));
    assert!(read(&device, 0, 4 * MIB as u32) == expected, "other blocks");
}

/// The log of a replica is on a disk that is full for a while. The first replica appends what all
/// write, so a write that is in flight when it ends fails: it may be stored or not.
fn full_log_ends_one_replica(replica: u32, failures_max: usize) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let data = dir.path().join("data");
    let log = data.join(format!("log/replica-{replica}"));
    std::fs::create_dir_all(&log).expect("a temporary folder");
    let Some(_disk) = SmallDisk::mount(&log, c"size=12m") else { return };
    std::fs::write(log.join("filler"), vec![1; 11 << 20]).expect("it fits");
    let device = open(&data, Some(4 * MIB));

    let expected = noise(4 * MIB, 3);
    let mut failed = Vec::new();
    for (chunk, offset) in expected.chunks(65_536).zip((0..).step_by(65_536)) {
        if let Err(failure) = try_write(&device, offset, chunk.to_vec()) {
            assert!(failure.message.contains("No space left on device"), "{failure:?}");
            failed.push((offset, chunk));
        }
    }
    assert!(failed.len() <= failures_max, "{} writes have failed", failed.len());
    failed.iter().for_each(|(offset, chunk)| write_blocks(&device, *offset, chunk.to_vec()));
    wait_until("the replica has ended", || device.replica_ended(replica).is_some());
    let error = device.replica_ended(replica).expect("it has ended");
    for part in ["No space left on device", &format!("replica-{replica}"), "free space on this"] {
        assert!(error.contains(part), "{part:?} is missing in {error}");
    }
    assert!(read(&device, 0, 4 * MIB as u32) == expected, "the others have all");
    let early = device.start(replica).expect_err("its disk is full").to_string();
    assert!(early.contains("No space left on device"), "{early}");

    std::fs::remove_file(log.join("filler")).expect("the space is freed");
    device.start(replica).expect("it catches up");
    write_blocks(&device, 0, expected[..65_536].to_vec());
    let report = device.scrub().expect("the disks work");
    assert_eq!((report.replicas, report.damaged), (3, 0));
    assert!(read(&device, 0, 4 * MIB as u32) == expected, "other blocks");
}

#[test]
fn full_log_ends_one_replica_until_space_is_freed() {
    full_log_ends_one_replica(2, 0);
}

#[test]
fn full_log_of_the_replica_that_appends_fails_one_write() {
    full_log_ends_one_replica(0, 1);
}
