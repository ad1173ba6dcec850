//! A device on three replicas, used by the clients that people use.

use std::error::Error;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;

use onepipe_block::{Command, Failure, Outcome, Range};
use onepipe_block_server::{
    Blocks, Completion, DeviceError, ReplicatedBlocks, ReplicatedOptions, ScrubReport,
    ServerOptions, replace_offline,
};

use crate::harness::{Fixture, MIB, noise, wait_until, write};
use crate::libnbd::has_libnbd;
use crate::tools::{has, run};

const BLOCK: u64 = 4_096;

fn options(directory: &Path, size: Option<u64>) -> ReplicatedOptions {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let fabric = format!("block-test-{}-{number}", std::process::id());
    ReplicatedOptions { size, ..ReplicatedOptions::new(directory.to_path_buf(), fabric) }
}

pub fn open(directory: &Path, size: Option<u64>) -> ReplicatedBlocks {
    reopen(directory, size).unwrap_or_else(|error| panic!("the replicas start: {error}"))
}

/// Opens a device that is not in use. A child of another test has its lock until that child has
/// become another program.
fn reopen(directory: &Path, size: Option<u64>) -> Result<ReplicatedBlocks, DeviceError> {
    let mut opened = None;
    wait_until("the device is not locked", || {
        let result = ReplicatedBlocks::open(&options(directory, size));
        let is_locked =
            result.as_ref().is_err_and(|error| error.to_string().contains("is locked by process"));
        opened = Some(result);
        !is_locked
    });
    opened.expect("it was opened")
}

/// Serves a new device at a Unix socket.
fn serve(size: u64) -> (Fixture, Arc<ReplicatedBlocks>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let blocks = Arc::new(open(&dir.path().join("data"), Some(size)));
    let of_server = Arc::clone(&blocks);
    (Fixture::serve(of_server, ServerOptions::default(), dir), blocks)
}

/// Executes a command, and waits for it.
fn execute(blocks: &ReplicatedBlocks, command: Command) -> Result<Outcome, Failure> {
    let (sender, replies) = channel();
    blocks.begin(command, Completion::new(move |reply| drop(sender.send(reply))));
    replies.recv().expect("each command has a reply")
}

pub fn write_blocks(blocks: &ReplicatedBlocks, offset: u64, data: Vec<u8>) {
    assert_eq!(try_write(blocks, offset, data), Ok(Outcome::Done));
}

pub fn try_write(
    blocks: &ReplicatedBlocks,
    offset: u64,
    data: Vec<u8>,
) -> Result<Outcome, Failure> {
    execute(blocks, Command::Write { offset, data, is_durable: false })
}

pub fn read(blocks: &ReplicatedBlocks, offset: u64, length: u32) -> Vec<u8> {
    match execute(blocks, Command::Read(Range { offset, length })) {
        Ok(Outcome::Data(data)) => data,
        other => panic!("a read returns data, not {other:?}"),
    }
}

#[test]
fn qemu_io_reads_what_it_writes_to_replicas() {
    if !has(&["qemu-img", "--version"], "qemu-utils") {
        return;
    }
    let (device, _blocks) = serve(4 * MIB);
    let commands = [
        "write -P 0xab 0 1M",
        "write -f -P 0xcd 1M 64k",
        "write -z 64k 64k",
        "write -z -u 256k 64k",
        "discard 512k 64k",
        "flush",
        "read -P 0xab 0 64k",
        "read -P 0 64k 64k",
        "read -P 0 256k 64k",
        "read -P 0 512k 64k",
        "read -P 0xab 320k 192k",
        "read -P 0xcd 1M 64k",
        "read -P 0 1114112 1M",
        // qemu reads the rest of a block before it writes a part.
        "write -P 0x11 3145729 777",
        "read -P 0x11 3145729 777",
    ];
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    let uri = device.uri();
    arguments.push(&uri);
    let printed = run("qemu-io", &arguments, "");
    assert!(!printed.contains("failed"), "{printed}");
    let resized = ["resize", "-f", "raw", &uri, "8M"];
    let output = std::process::Command::new("qemu-img").args(resized).output();
    assert!(!output.expect("it was probed").status.success(), "a device has one size");
}

#[test]
fn nbdcopy_and_e2fsck_find_what_was_written_to_replicas() {
    if !has_libnbd() || !has(&["which", "mkfs.ext4"], "e2fsprogs") {
        return;
    }
    let (device, blocks) = serve(16 * MIB);
    let info = run("nbdinfo", &[&device.uri()], "");
    for line in ["block_size_minimum: 4096", "can_multi_conn: true", "can_fua: true"] {
        assert!(info.contains(line), "{line:?} is missing in\n{info}");
    }
    let content = device.path("content");
    std::fs::create_dir(&content).expect("the folder is writable");
    (0..8).for_each(|index| {
        write(&format!("{content}/{index}"), &noise(50_000 + index * 10_000, index));
    });
    let [image, copy] = ["image", "copy"].map(|name| device.path(name));
    std::fs::File::create(&image).and_then(|file| file.set_len(16 * MIB)).expect("free space");
    run("mkfs.ext4", &["-q", "-d", &content, &image], "");
    let uri = device.uri();
    run("nbdcopy", &["--connections=4", "--flush", &image, &uri], "");
    run("nbdcopy", &["--connections=4", &uri, &copy], "");
    run("e2fsck", &["-fn", &copy], "");
    let [written, read] = [image, copy].map(|path| std::fs::read(path).expect("it was written"));
    assert!(written == read, "the copy is equal");
    let report = blocks.scrub().expect("the disks work");
    let expected = ScrubReport { blocks: 16 * MIB / BLOCK, replicas: 3, ..ScrubReport::default() };
    assert_eq!(report, expected);
}

#[test]
fn fio_verifies_random_writes_to_replicas_at_depth_64() {
    if !has(&["fio", "--enghelp=nbd"], "fio") {
        return;
    }
    let (device, _blocks) = serve(8 * MIB);
    let uri = format!("--uri={}", device.uri());
    let mut arguments = vec!["--name=block", "--ioengine=nbd", &uri, "--size=8M"];
    arguments.extend(["--rw=randwrite", "--bsrange=4k-128k", "--iodepth=64", "--fsync=32"]);
    arguments.extend(["--blockalign=4k", "--verify=crc32c", "--verify_fatal=1"]);
    arguments.extend(["--verify_state_save=0", "--randrepeat=1"]);
    let printed = run("fio", &arguments, "");
    assert!(printed.contains("err= 0"), "{printed}");
}

#[test]
fn device_that_was_closed_has_what_was_written() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let data = noise(8 * BLOCK, 1);
    {
        let blocks = open(dir.path(), Some(MIB));
        write_blocks(&blocks, 3 * BLOCK, data.clone());
        let in_use = ReplicatedBlocks::open(&options(dir.path(), None));
        assert!(matches!(in_use, Err(DeviceError::Directory(_))), "one program has the device");
    }
    let blocks = open(dir.path(), None);
    assert_eq!(blocks.size(), MIB);
    assert!(read(&blocks, 3 * BLOCK, data.len() as u32) == data, "the blocks are equal");
    drop(blocks);
    let resized = reopen(dir.path(), Some(2 * MIB));
    let error = resized.err().expect("a device has one size").to_string();
    assert!(error.contains("a device cannot be resized"), "{error}");
}

#[test]
fn new_device_needs_a_size_of_whole_blocks() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("data");
    let none = ReplicatedBlocks::open(&options(&path, None)).err();
    assert!(matches!(none, Some(DeviceError::NoSize(_))));
    for size in [0, BLOCK + 1] {
        let wrong = ReplicatedBlocks::open(&options(&path, Some(size))).err();
        assert!(matches!(wrong, Some(DeviceError::Alignment(_))), "{size}");
    }
}

#[test]
fn damaged_blocks_are_read_from_other_replicas_and_repaired() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let blocks = open(dir.path(), Some(MIB));
    let data = noise(MIB, 2);
    write_blocks(&blocks, 0, data.clone());
    wait_until("all replicas have applied all", || {
        let applied = blocks.applied();
        // The entry without a change that comes first, and 16 of 64 KiB.
        applied.iter().all(|position| *position == Some(17))
    });
    let flip = |name: &str, offset: u64| {
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(dir.path().join(name)).expect("it is there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).expect("it is that long");
        file.write_all_at(&[byte[0] ^ 0x10], offset).expect("it is writable");
    };
    // Different blocks are damaged in each replica, and marks.
    flip("image-0/blocks", 5 * BLOCK + 17);
    flip("image-1/blocks", 6 * BLOCK);
    flip("image-1/marks", 7 * 16 + 3);
    flip("image-2/blocks", 200 * BLOCK + 4_095);
    for _ in 0..3 {
        assert!(read(&blocks, 0, MIB as u32) == data, "no damaged block is read");
    }
    assert_eq!(blocks.repair_stats().repaired, 4);
    flip("image-2/blocks", 9 * BLOCK);
    let report = blocks.scrub().expect("the disks work");
    assert_eq!((report.damaged, report.repaired, report.lost), (1, 1, 0));
    let report = blocks.scrub().expect("the disks work");
    assert_eq!((report.damaged, report.repaired, report.lost), (0, 0, 0));
    (0..3).for_each(|replica| flip(&format!("image-{replica}/blocks"), 11 * BLOCK));
    let report = blocks.scrub().expect("the disks work");
    assert_eq!((report.damaged, report.repaired, report.lost), (3, 0, 1));
}

#[test]
fn status_shows_what_was_written_and_trimmed() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let blocks = open(dir.path(), Some(MIB));
    write_blocks(&blocks, 0, noise(8 * BLOCK, 3));
    let range = Range { offset: 2 * BLOCK, length: 2 * BLOCK as u32 };
    let trimmed = execute(&blocks, Command::Trim { range, is_durable: false });
    assert_eq!(trimmed, Ok(Outcome::Done));
    let all = Range { offset: 0, length: 16 * BLOCK as u32 };
    let Ok(Outcome::Extents(extents)) = execute(&blocks, Command::Status(all)) else {
        panic!("a status has extents")
    };
    let lengths: Vec<_> =
        extents.iter().map(|extent| (extent.length / BLOCK as u32, extent.is_zero)).collect();
    assert_eq!(lengths, [(2, false), (2, true), (4, false), (8, true)]);
    assert!(read(&blocks, 2 * BLOCK, 2 * BLOCK as u32).iter().all(|byte| *byte == 0));
}

#[test]
fn replaced_replicas_are_filled_while_the_device_goes_on() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let blocks = Arc::new(open(dir.path(), Some(4 * MIB)));
    let data = noise(4 * MIB, 4);
    write_blocks(&blocks, 0, data.clone());
    let unknown = blocks.replace(3).expect_err("there are three replicas").to_string();
    assert_eq!(unknown, "replica 3 does not exist: the device has replicas 0 to 2");
    let is_done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (blocks, is_done) = (Arc::clone(&blocks), Arc::clone(&is_done));
        std::thread::spawn(move || {
            let mut number = 0;
            while !is_done.load(Ordering::Acquire) {
                number += 1;
                write_blocks(&blocks, 7 * BLOCK, noise(BLOCK, number));
                // The replica that is being filled answers no read.
                assert!(read(&blocks, 7 * BLOCK, BLOCK as u32) == noise(BLOCK, number));
            }
            number
        })
    };
    // The first one appends what all write.
    for replica in [1, 0, 2] {
        blocks.replace(replica).unwrap_or_else(|error| panic!("replica {replica}: {error}"));
    }
    is_done.store(true, Ordering::Release);
    let number = writer.join().expect("each write and read succeeds");
    let mut expected = data;
    expected[7 * BLOCK as usize..8 * BLOCK as usize].copy_from_slice(&noise(BLOCK, number));
    for _ in 0..3 {
        assert!(read(&blocks, 0, 4 * MIB as u32) == expected, "all replicas are filled");
    }
    let report = blocks.scrub().expect("the disks work");
    assert_eq!((report.replicas, report.damaged, report.lost), (3, 0, 0));
}

/// An image that is lost while the program does not run is filled again. A log that is lost may
/// have had later entries than all others, so its replica is filled on request only.
#[test]
fn lost_image_is_filled_and_lost_log_on_request() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let data = noise(2 * MIB, 5);
    let blocks = open(dir.path(), Some(2 * MIB));
    write_blocks(&blocks, 0, data.clone());
    drop(blocks);
    std::fs::remove_dir_all(dir.path().join("image-1")).expect("it is there");
    let blocks = open(dir.path(), None);
    wait_until("the replica is filled", || {
        // The entries without a change of two starts, and 32 of 64 KiB.
        blocks.applied().iter().all(|position| *position == Some(34))
    });
    for _ in 0..3 {
        assert!(read(&blocks, 0, 2 * MIB as u32) == data, "nothing is lost");
    }
    let report = blocks.scrub().expect("the disks work");
    assert_eq!((report.replicas, report.damaged, report.lost), (3, 0, 0));
    drop(blocks);
    std::fs::remove_dir_all(dir.path().join("log/replica-2")).expect("it is there");
    let error = reopen(dir.path(), None).err().expect("a log is lost");
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    assert!(text.contains("`onepipe block replace`"), "{text}");
    replace_offline(dir.path(), 2).expect("the device is not served");
    let blocks = open(dir.path(), None);
    wait_until("the replica is filled", || {
        blocks.applied().iter().all(|position| *position >= Some(35))
    });
    assert!(read(&blocks, 0, 2 * MIB as u32) == data, "nothing is lost");
    let report = blocks.scrub().expect("the disks work");
    assert_eq!((report.replicas, report.damaged, report.lost), (3, 0, 0));
}

#[test]
fn damaged_header_of_an_image_is_a_clear_error() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    drop(open(dir.path(), Some(MIB)));
    let header = dir.path().join("image-1/header");
    std::fs::write(&header, [0; 8_192]).expect("it is writable");
    let error = reopen(dir.path(), None).err().expect("it is damaged");
    let text = error.to_string();
    assert!(text.contains("image-1/header is damaged: remove the replica's directory"), "{text}");
    std::fs::remove_dir_all(dir.path().join("image-1")).expect("it is there");
    drop(open(dir.path(), None));
}
