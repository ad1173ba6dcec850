//! How long a replica takes that was away: once with stale blocks, once with none at all.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use onepipe_block::Command;
use onepipe_block_replica::BLOCK_LEN;
use onepipe_block_server::{Blocks, Completion, ReplaceError, ReplicatedBlocks, Reply};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;

use super::replicated;
use crate::kv::server::Folder;
use crate::{Hardware, Progress};

/// The replica that is away: the front appends by the first one.
const REPLICA: u32 = 2;
/// Bytes of a write that fills the device.
const CHUNK_LEN: u64 = 64 << 10;
/// Writes in flight while the device is filled.
const FILL_DEPTH: usize = 16;
/// Writes of a block in flight while the replica catches up.
const LOAD_DEPTH: usize = 4;
/// Pause between two looks at the progress.
const PAUSE: Duration = Duration::from_millis(100);
/// Time in which the log is trimmed.
const TRIM_TIMEOUT: Duration = Duration::from_secs(60);

/// Options of [`block_recovery`].
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRecoveryOptions {
    /// Bytes that are written while a replica is away. The device has twice as many. Default 1 GiB.
    pub stale_bytes: u64,
}

impl Default for BlockRecoveryOptions {
    fn default() -> BlockRecoveryOptions {
        BlockRecoveryOptions { stale_bytes: 1 << 30 }
    }
}

/// What [`block_recovery`] has measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockRecoveryReport {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// Where it ran.
    pub machine: Hardware,
    /// Size of the device, in bytes.
    pub device_bytes: u64,
    /// A replica that was away while half of the device was written.
    pub stale: BlockRecovery,
    /// A replica whose files were removed.
    pub full: BlockRecovery,
}

/// How a replica has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockRecovery {
    /// Time from its start until it had all that was acknowledged before.
    pub seconds: f64,
    /// Bytes of the blocks that it has received from another replica.
    pub copied_bytes: u64,
    /// Writes of clients per second meanwhile, of one block each.
    pub writes_per_s: f64,
}

impl fmt::Display for BlockRecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(
            f,
            "block recovery: a device of {:.0} MiB on three replicas whose files are on one disk; \
             {LOAD_DEPTH} writes of 4 KiB in flight meanwhile",
            mib(self.device_bytes)
        )?;
        writeln!(f, "{}\n", self.machine)?;
        writeln!(f, "{:24}{:>10}{:>14}{:>10}{:>10}", "", "s", "MiB copied", "MiB/s", "writes/s")?;
        for (name, one) in [("stale blocks", self.stale), ("full copy (replace)", self.full)] {
            let (seconds, copied) = (one.seconds, mib(one.copied_bytes));
            let (rate, writes) = (copied / seconds, one.writes_per_s);
            writeln!(f, "  {name:22}{seconds:>10.2}{copied:>14.0}{rate:>10.0}{writes:>10.0}")?;
        }
        Ok(())
    }
}

/// Measures how long a replica takes that was away while half of the device was written, and how
/// long one takes whose files were removed. Clients go on writing.
///
/// # Errors
/// If an option is out of range, or the device fails.
pub fn block_recovery(
    options: &BlockRecoveryOptions,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<BlockRecoveryReport> {
    let stale_bytes = options.stale_bytes / CHUNK_LEN * CHUNK_LEN;
    ensure!(stale_bytes > 0, "at least 64 KiB are written");
    let device_bytes = 2 * stale_bytes;
    let folder = Folder::create(false)?;
    let device = replicated(Path::new(&folder.path_of("ours")?), device_bytes)?;
    let mut step = |case, done: u64, total: u64| {
        progress(Progress { case, done: (done >> 12) as usize, total: (total >> 12) as usize });
    };
    let all = (0..device_bytes).step_by(CHUNK_LEN as usize);
    fill(&device, all, |done| step("filling the device", done, device_bytes))?;
    wait_until_trimmed(&device)?;
    device.stop(REPLICA)?;
    let half = (0..device_bytes).step_by(2 * CHUNK_LEN as usize);
    fill(&device, half, |done| step("writing without a replica", done, stale_bytes))?;
    wait_until_trimmed(&device)?;
    let stale = recover(&device, ReplicatedBlocks::start, |copied| {
        step("copying stale blocks", copied, stale_bytes);
    })?;
    let full = recover(&device, ReplicatedBlocks::replace, |copied| {
        step("copying all blocks", copied, device_bytes);
    })?;
    let machine = Hardware::detect();
    Ok(BlockRecoveryReport { bench: "block recovery", machine, device_bytes, stale, full })
}

/// The replies to writes of one kind.
struct Replies(Sender<Reply>, Receiver<Reply>);

impl Replies {
    fn new() -> Replies {
        let (sender, received) = channel();
        Replies(sender, received)
    }

    fn begin(&self, device: &ReplicatedBlocks, offset: u64, data: Vec<u8>) {
        let sender = self.0.clone();
        let completion = Completion::new(move |reply| {
            // The receiver has ended after an error.
            let _ = sender.send(reply);
        });
        device.begin(Command::Write { offset, data, is_durable: false }, completion);
    }

    fn next(&self) -> Result<()> {
        let reply = self.1.recv().context("the device has ended")?;
        reply.map(drop).map_err(|failure| anyhow!("a write failed: {}", failure.message))
    }
}

/// Writes a chunk at each offset.
fn fill(
    device: &ReplicatedBlocks,
    offsets: impl Iterator<Item = u64>,
    mut progress: impl FnMut(u64),
) -> Result<()> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut data = vec![0; CHUNK_LEN as usize];
    rng.fill(&mut data[..]);
    let replies = Replies::new();
    let (mut open, mut done) = (0, 0);
    for offset in offsets {
        data[..8].copy_from_slice(&offset.to_le_bytes());
        replies.begin(device, offset, data.clone());
        open += 1;
        if open == FILL_DEPTH {
            replies.next()?;
            (open, done) = (open - 1, done + CHUNK_LEN);
            progress(done);
        }
    }
    (0..open).try_for_each(|_| replies.next())
}

/// Waits until the images have what was written, so that the log alone does not make a replica
/// whole.
fn wait_until_trimmed(device: &ReplicatedBlocks) -> Result<()> {
    let written = device.applied().into_iter().flatten().max().unwrap_or(0);
    let deadline = Instant::now() + TRIM_TIMEOUT;
    while device.trimmed_len() < written {
        ensure!(Instant::now() < deadline, "the log is not trimmed within {TRIM_TIMEOUT:?}");
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Makes a replica whole by `start` while clients write.
fn recover(
    device: &Arc<ReplicatedBlocks>,
    start: fn(&ReplicatedBlocks, u32) -> Result<(), ReplaceError>,
    mut progress: impl FnMut(u64),
) -> Result<BlockRecovery> {
    let is_over = AtomicBool::new(false);
    let copied_before = device.copied_blocks(REPLICA);
    let copied = || (device.copied_blocks(REPLICA) - copied_before) * BLOCK_LEN as u64;
    let (seconds, writes) = thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(device, &is_over));
        let starter = scope.spawn(|| {
            let began = Instant::now();
            start(device, REPLICA).map(|()| began.elapsed().as_secs_f64())
        });
        while !starter.is_finished() {
            progress(copied());
            thread::sleep(PAUSE);
        }
        is_over.store(true, Ordering::Relaxed);
        let seconds = starter.join().map_err(|_| anyhow!("the starter has panicked"));
        let writes = writer.join().map_err(|_| anyhow!("the writer has panicked"));
        Ok::<_, anyhow::Error>((seconds??, writes??))
    })?;
    let writes_per_s = writes as f64 / seconds;
    Ok(BlockRecovery { seconds, copied_bytes: copied(), writes_per_s })
}

/// Writes random blocks until the end. Returns the number of writes.
fn write_until(device: &ReplicatedBlocks, is_over: &AtomicBool) -> Result<u64> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let blocks = device.size() / BLOCK_LEN as u64;
    let replies = Replies::new();
    let mut begin = || {
        let (block, byte) = (rng.random_range(0..blocks), rng.random::<u8>());
        replies.begin(device, block * BLOCK_LEN as u64, vec![byte; BLOCK_LEN]);
    };
    (0..LOAD_DEPTH).for_each(|_| begin());
    let mut done = 0;
    while !is_over.load(Ordering::Relaxed) {
        replies.next()?;
        done += 1;
        begin();
    }
    (0..LOAD_DEPTH).try_for_each(|_| replies.next())?;
    Ok(done)
}
