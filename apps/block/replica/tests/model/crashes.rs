//! A machine that crashes at any operation of its disk.

use onepipe_journal::MemoryDisk;
use rand::RngExt;

use super::{Log, Outcome, open, rng};

/// Changes of a run.
const CHANGES: u64 = 12;

/// Applies changes and makes checkpoints until the machine crashes, and goes on after that. Returns
/// whether it crashed.
pub fn crash_at(seed: u64, operation: u64) -> Result<bool, String> {
    let mut rng = rng(seed);
    let mut log = Log::default();
    (0..CHANGES).for_each(|_| log.grow(&mut rng));
    let disk = MemoryDisk::new();
    disk.crash_at(operation);
    let durable = first_run(&disk, &log, &mut rng);
    let has_crashed = disk.is_crashed();
    disk.restart(seed);
    go_on(&disk, &log, durable)?;
    Ok(has_crashed)
}

/// Returns the durable position that was reported last.
fn first_run(disk: &MemoryDisk, log: &Log, rng: &mut impl rand::Rng) -> u64 {
    let mut durable = 0;
    let Ok(mut image) = open(disk) else { return durable };
    let Ok(mut checkpointer) = image.checkpointer() else { return durable };
    while let Ok(true) = log.apply_next(&mut image) {
        if rng.random_range(0..3) == 0 && checkpointer.run(image.applied()).is_err() {
            break;
        }
        durable = checkpointer.durable();
    }
    durable
}

/// Opens the image after a crash, and checks it.
fn go_on(disk: &MemoryDisk, log: &Log, durable: u64) -> Outcome {
    let mut image = open(disk)?;
    if image.applied() < durable {
        return Err(format!("{durable} was durable, now {}", image.applied()));
    }
    log.apply_all(&mut image)?;
    log.check(&image)
}

/// Crashes several times, also during the recovery, with failing disks.
pub fn run(seed: u64) -> Outcome {
    let mut rng = rng(seed);
    let mut log = Log::default();
    (0..3 * CHANGES).for_each(|_| log.grow(&mut rng));
    let disk = MemoryDisk::new();
    disk.set_stale_blocks(rng.random());
    let mut durable = 0;
    for crash in 0..4 {
        disk.crash_at(disk.operations() + rng.random_range(0..60));
        if rng.random_range(0..4) == 0 {
            disk.fail_syncs(1);
        }
        let reported = first_run(&disk, &log, &mut rng);
        durable = durable.max(reported);
        disk.restart(seed.wrapping_mul(31).wrapping_add(crash));
        let image = open(&disk)?;
        if image.applied() < durable {
            return Err(format!("{durable} was durable, now {}", image.applied()));
        }
    }
    go_on(&disk, &log, durable)
}
