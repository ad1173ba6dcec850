//! A disk that is full from some operation on, until space is freed.

use onepipe_block_replica::{BLOCK_LEN, Image, ImageError, ReadError};
use onepipe_journal::MemoryDisk;
use rand::RngExt;

use super::{BLOCKS, Log, OPTIONS, Outcome, open, rng};

/// Changes of a run.
const CHANGES: u64 = 12;

/// Applies changes and makes checkpoints until the disk is full, and goes on after space was freed.
/// Returns whether it was full.
pub fn full_at(seed: u64, operation: u64) -> Result<bool, String> {
    let mut rng = rng(seed);
    let mut log = Log::default();
    (0..CHANGES).for_each(|_| log.grow(&mut rng));
    let disk = MemoryDisk::new();
    disk.fill_at(Some(operation));
    let mut durable = 0;
    let is_full = match Image::open(&disk, OPTIONS) {
        Ok(mut image) => {
            let is_full = fill(&log, &mut image, &mut rng, &mut durable)?;
            check_reads(&log, &image)?;
            is_full
        }
        // The message has the name of the file.
        Err(ImageError::System { source, .. }) if is_no_space(&source) => true,
        Err(error) => return Err(format!("cannot open: {error}")),
    };
    disk.fill_at(None);
    if rng.random() {
        disk.restart(seed);
    }
    let mut image = open(&disk)?;
    if image.applied() < durable {
        return Err(format!("{durable} was durable, now {}", image.applied()));
    }
    log.apply_all(&mut image)?;
    log.check(&image)?;
    Ok(is_full)
}

fn is_no_space(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::StorageFull
}

/// Returns whether the disk was full before all changes were applied and durable.
fn fill(
    log: &Log,
    image: &mut Image<MemoryDisk>,
    rng: &mut impl rand::Rng,
    durable: &mut u64,
) -> Result<bool, String> {
    let mut checkpointer = image.checkpointer().map_err(|error| error.to_string())?;
    loop {
        let applied = match log.apply_next(image) {
            Ok(false) => return Ok(false),
            applied => applied.map(drop),
        };
        let done = applied.and_then(|()| match rng.random_range(0..3) {
            0 => checkpointer.run(image.applied()),
            1 => checkpointer.write_out(),
            _ => Ok(()),
        });
        *durable = checkpointer.durable();
        match done {
            Err(error) if is_no_space(&error) => return Ok(true),
            other => other.map_err(|error| error.to_string())?,
        }
    }
}

/// Checks that each block is as of the last change that was applied, or damaged: the next change
/// was written in part.
fn check_reads(log: &Log, image: &Image<MemoryDisk>) -> Outcome {
    let reader = image.reader().map_err(|error| error.to_string())?;
    let applied = image.applied();
    let next = (applied + 1).min(log.len());
    let expected = [log.content(applied), log.content(next)];
    for block in 0..BLOCKS {
        let mut content = vec![0; BLOCK_LEN];
        let at = block as usize * BLOCK_LEN;
        match reader.read(block, &mut content) {
            Ok(_) if expected.iter().any(|one| one[at..at + BLOCK_LEN] == content) => {}
            Err(ReadError::Damaged(_)) if next > applied => {}
            other => return Err(format!("block {block} at position {applied}: {other:?}")),
        }
    }
    Ok(())
}
