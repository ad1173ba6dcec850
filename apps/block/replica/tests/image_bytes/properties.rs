//! Properties of changes, copies and files of any bytes. Shared with `verify/fuzz`.

use onepipe_block_replica::{BLOCK_LEN, Change, Image, ImageOptions, ReadError};
use onepipe_journal::{Disk, DiskFile, MemoryDisk};

/// Blocks of the device.
const BLOCKS: u64 = 4;
const OPTIONS: ImageOptions = ImageOptions { device: 9, blocks: BLOCKS };
/// The files of an image.
const FILES: [&str; 3] = ["blocks", "header", "marks"];

/// Returns a disk with an image that has two written blocks, one that was trimmed, and one that was
/// never written; and the content.
fn filled() -> (MemoryDisk, Vec<u8>) {
    let disk = MemoryDisk::new();
    let mut image = Image::open(&disk, OPTIONS).expect("the disk works");
    let data: Vec<u8> = (0..3 * BLOCK_LEN).map(|at| (at % 251) as u8).collect();
    image.apply(1, &Change::Write { first: 0, data: &data }).expect("the disk works");
    image.apply(2, &Change::Zero { first: 1, count: 1 }).expect("the disk works");
    image.checkpointer().expect("the disk works").run(2).expect("the disk works");
    let mut content = data;
    content[BLOCK_LEN..2 * BLOCK_LEN].fill(0);
    content.resize(BLOCKS as usize * BLOCK_LEN, 0);
    (disk, content)
}

/// Uses bytes as a change, as copies, or as edits of a file. The first byte chooses.
pub fn check_image(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    match mode % 3 {
        0 => check_change(bytes),
        1 => check_copies(bytes),
        _ => check_files(usize::from(mode / 3), bytes),
    }
}

/// A change that parses can be applied, and read back.
fn check_change(bytes: &[u8]) {
    let Ok(change) = Change::parse(bytes, BLOCKS) else { return };
    assert_eq!(change.to_bytes(), bytes);
    let (disk, mut content) = filled();
    let mut image = Image::open(&disk, OPTIONS).expect("it was written");
    image.apply(3, &change).expect("the disk works");
    let (first, count) = change.range();
    let range = first as usize * BLOCK_LEN..(first + count) as usize * BLOCK_LEN;
    match change {
        Change::Write { data, .. } => content[range].copy_from_slice(data),
        Change::Zero { .. } => content[range].fill(0),
    }
    let mut found = vec![0; content.len()];
    image.reader().expect("the disk works").read(0, &mut found).expect("all blocks are intact");
    assert!(found == content, "the blocks are those of the change");
}

/// Copies of any bytes are refused or installed; each block can be read then, or is damaged.
fn check_copies(bytes: &[u8]) {
    let (disk, _) = filled();
    let mut image = Image::open(&disk, OPTIONS).expect("it was written");
    let _ = image.install(2, bytes);
    let reader = image.reader().expect("the disk works");
    let mut block = [0; BLOCK_LEN];
    for at in 0..BLOCKS {
        match reader.read(at, &mut block) {
            Ok(_) | Err(ReadError::Damaged(_)) => {}
            Err(ReadError::System(error)) => panic!("the disk works: {error}"),
        }
    }
    let stale = reader.stale(0, 0, usize::MAX).expect("the disk works");
    image.install(2, &stale.bytes).expect("own copies can be installed");
}

/// Edits bytes of a file. What can be read then is right.
fn check_files(file: usize, edits: &[u8]) {
    let (disk, content) = filled();
    let mut file = disk.open(FILES[file % FILES.len()]).expect("it was created");
    for edit in edits.chunks_exact(4) {
        let offset = u64::from(u16::from_le_bytes([edit[0], edit[1]]) % 0x2000);
        let mut byte = [0];
        if file.read_at(offset, &mut byte).is_ok() {
            file.write_at(offset, &[byte[0] ^ edit[2] ^ edit[3]]).expect("the disk works");
        }
    }
    let Ok(image) = Image::open(&disk, OPTIONS) else { return };
    let reader = image.reader().expect("the disk works");
    let mut block = [0; BLOCK_LEN];
    for (at, expected) in (0..BLOCKS).zip(content.chunks(BLOCK_LEN)) {
        match reader.read(at, &mut block) {
            Ok(_) => assert!(block == *expected, "block {at} is wrong"),
            Err(ReadError::Damaged(blocks)) => assert_eq!(blocks, [at]),
            Err(ReadError::System(error)) => panic!("the disk works: {error}"),
        }
    }
}
