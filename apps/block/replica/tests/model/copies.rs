//! A replica that was away gets the blocks that have changed, while the other one goes on, and
//! either may crash or have damaged blocks.

use onepipe_block_replica::{BLOCK_LEN, Copied, Image, ReadError};
use onepipe_journal::{Disk, DiskFile, MemoryDisk};
use rand::{Rng, RngExt};

use super::{BLOCKS, Log, Outcome, open, rng};

/// A part holds one or two blocks.
const PART_BYTES: usize = 2 * BLOCK_LEN + 100;

/// Copies from one image to the other. Returns the position from which the log goes on, or `None`
/// if the receiver has crashed.
fn copy(
    log: &mut Log,
    source: &mut Image<MemoryDisk>,
    target: &mut Image<MemoryDisk>,
    rng: &mut impl Rng,
) -> Result<Option<(u64, Copied)>, String> {
    let since = target.applied();
    let start = source.applied();
    let reader = source.reader().map_err(|error| error.to_string())?;
    let (mut next, mut sum) = (Some(0), Copied::default());
    while let Some(from) = next {
        let as_of = reader.applied();
        let part = reader.stale(since, from, PART_BYTES).map_err(|error| error.to_string())?;
        next = part.next;
        let Ok(copied) = target.install(as_of, &part.bytes) else { return Ok(None) };
        sum.written += copied.written;
        sum.damaged += copied.damaged;
        if rng.random_range(0..3) == 0 {
            log.grow(rng);
            log.apply_all(source)?;
        }
    }
    Ok(Some((start, sum)))
}

pub fn run(seed: u64) -> Outcome {
    let mut rng = rng(seed);
    let mut log = Log::default();
    let disks = [MemoryDisk::new(), MemoryDisk::new()];
    let mut source = open(&disks[0])?;
    let mut target = open(&disks[1])?;
    let mut checkpointer = target.checkpointer().map_err(|error| error.to_string())?;
    for _ in 0..rng.random_range(0..6) {
        log.grow(&mut rng);
        log.apply_all(&mut source)?;
        log.apply_all(&mut target)?;
        if rng.random() {
            checkpointer.run(target.applied()).map_err(|error| error.to_string())?;
        }
    }
    let durable = checkpointer.durable();
    disks[1].restart(seed);
    drop((target, checkpointer));
    // The log is gone up to where the source is.
    for _ in 0..rng.random_range(1..8) {
        log.grow(&mut rng);
        log.apply_all(&mut source)?;
    }
    let damaged = rng.random_range(0..4 * BLOCKS);
    if damaged < BLOCKS {
        let mut file = disks[0].open("blocks").map_err(|error| error.to_string())?;
        let offset = damaged * BLOCK_LEN as u64 + rng.random_range(0..BLOCK_LEN as u64);
        let mut byte = [0];
        file.read_at(offset, &mut byte).map_err(|error| error.to_string())?;
        file.write_at(offset, &[byte[0] ^ 1]).map_err(|error| error.to_string())?;
    }
    let mut target = loop {
        let mut target = open(&disks[1])?;
        // A header may have reached the disk although the checkpoint was not reported.
        if target.applied() < durable {
            return Err(format!("{durable} was durable, now {}", target.applied()));
        }
        if rng.random() {
            disks[1].crash_at(disks[1].operations() + rng.random_range(0..20));
        }
        if let Some((start, _)) = copy(&mut log, &mut source, &mut target, &mut rng)? {
            target.finish_copy(start);
            let mut checkpointer = target.checkpointer().map_err(|error| error.to_string())?;
            if checkpointer.run(target.applied()).is_ok() {
                break target;
            }
        }
        disks[1].restart(rng.random());
    };
    disks[1].restart(rng.random());
    drop(target);
    target = open(&disks[1])?;
    log.apply_all(&mut target)?;
    check(&log, &target, &source)
}

/// Checks that the target is as the source, whose damaged blocks are damaged there, too, or intact.
fn check(log: &Log, target: &Image<MemoryDisk>, source: &Image<MemoryDisk>) -> Outcome {
    let [target, source] = [target, source].map(|image| image.reader().expect("a disk"));
    if target.applied() != log.len() {
        return Err("not all is applied".into());
    }
    for (block, expected) in (0..BLOCKS).zip(log.content(log.len()).chunks(BLOCK_LEN)) {
        let mut bytes = vec![0; BLOCK_LEN];
        match target.read(block, &mut bytes) {
            Ok(_) if bytes == expected => {}
            Ok(_) => return Err(format!("block {block} is wrong")),
            Err(ReadError::Damaged(_)) if source.read(block, &mut bytes).is_err() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}
