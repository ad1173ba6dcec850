//! A replicated block device beside primary–backup replication, on the same disk in the same run.
//!
//! Both store each write in the logs of three replicas before its reply, by the same journal, and
//! apply it to the same kind of image. Ours sends it to all at once; the rival's replicas write one
//! after the other. A local file with one synchronisation for each group of writes shows what the
//! disk alone takes.

mod ceph;
mod chain;
mod fio;
mod peers;
mod recovery;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use onepipe_block::Command;
use onepipe_block_replica::BLOCK_LEN;
use onepipe_block_server::{
    Blocks, Completion, FileBlocks, FileOptions, ReplicatedBlocks, ReplicatedOptions, Reply,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::Progress;
use crate::kv::KvReport;
use crate::kv::in_process::{self, Finish};
use crate::kv::rounds::{Rounds, Trial};
use crate::kv::server::{Folder, new_fabric};
use chain::Chain;
pub use recovery::{BlockRecovery, BlockRecoveryOptions, BlockRecoveryReport, block_recovery};

pub use peers::{block_peers, block_peers_obstacle};

const ABOUT: &str = "random writes of 4 KiB, durable on three replicas before the reply, whose \
                     files are on one disk; CPU time of this process, with the load generator";
const OURS: &str = "onepipe, 3 replicas";
const CHAIN: &str = "primary-backup, 3 replicas";
const FILE: &str = "a local file, not replicated";

/// Options of [`block`].
#[derive(Clone, Debug, PartialEq)]
pub struct BlockOptions {
    /// Number of rounds, from 1. Default 3.
    pub runs: usize,
    /// Length of each measurement, in s. Default 2.
    pub seconds: f64,
    /// Numbers of writes in flight. Default 1, 4, 16 and 64.
    pub depths: Vec<usize>,
    /// Size of the device in bytes. Default 64 MiB: on file systems that discard freed blocks at
    /// once, removing files with many extents takes long.
    pub size: u64,
}

impl Default for BlockOptions {
    fn default() -> BlockOptions {
        BlockOptions { runs: 3, seconds: 2.0, depths: vec![1, 4, 16, 64], size: 64 << 20 }
    }
}

impl BlockOptions {
    fn check(&self) -> Result<()> {
        ensure!((1..=100).contains(&self.runs), "1 to 100 runs, not {}", self.runs);
        ensure!(self.depths.iter().all(|depth| (1..=512).contains(depth)), "depths are 1 to 512");
        ensure!(self.size >= 1 << 20, "the device has at least 1 MiB");
        Ok(())
    }
}

/// Writes one block, and reports when that is durable.
type Begin<'a> = dyn FnMut(u64, Vec<u8>, Completion) + 'a;

/// Runs the benchmark.
///
/// # Errors
/// If an option is out of range, or a side fails.
pub fn block(options: &BlockOptions, mut progress: impl FnMut(Progress<'_>)) -> Result<KvReport> {
    options.check()?;
    let size = options.size / BLOCK_LEN as u64 * BLOCK_LEN as u64;
    let mut rounds = Rounds::default();
    let total = options.runs * options.depths.len() * 3;
    let mut done = 0;
    let mut measure = |round: usize, name: &str, begin: &mut Begin<'_>| -> Result<()> {
        for depth in &options.depths {
            let load = format!("{depth} in flight");
            progress(Progress { case: &format!("{name}: {load}"), done, total });
            done += 1;
            let trial = drive(options.seconds, *depth, size, round as u64, begin);
            let trial = trial.with_context(|| format!("{name}: {load}"))?;
            rounds.add(&load, (name, (name != CHAIN).then_some(CHAIN)), Ok(trial));
        }
        Ok(())
    };
    for round in 0..options.runs {
        let folder = Folder::create(false)?;
        let device = replicated(Path::new(&folder.path_of("ours")?), size)?;
        measure(round, OURS, &mut |offset, data, completion| {
            device.begin(Command::Write { offset, data, is_durable: true }, completion);
        })?;
        drop(device);
        let chain = Chain::start(Path::new(&folder.path_of("chain")?), size / BLOCK_LEN as u64)?;
        measure(round, CHAIN, &mut |offset, data, completion| {
            chain.begin(offset / BLOCK_LEN as u64, &data, completion);
        })?;
        drop(chain);
        let file = FileOptions { size: Some(size), threads: 64, ..FileOptions::default() };
        let file = FileBlocks::open(Path::new(&folder.path_of("file")?), file)?;
        measure(round, FILE, &mut |offset, data, completion| {
            file.begin(Command::Write { offset, data, is_durable: true }, completion);
        })?;
    }
    Ok(rounds.report("block", ABOUT, options.runs))
}

fn replicated(directory: &Path, size: u64) -> Result<Arc<ReplicatedBlocks>> {
    let options = ReplicatedOptions {
        size: Some(size),
        ..ReplicatedOptions::new(directory.to_path_buf(), new_fabric())
    };
    Ok(Arc::new(ReplicatedBlocks::open(&options)?))
}

/// Writes random blocks, a number of them at a time.
fn drive(seconds: f64, depth: usize, size: u64, seed: u64, begin: &mut Begin<'_>) -> Result<Trial> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let blocks = size / BLOCK_LEN as u64;
    let mut data = vec![0; BLOCK_LEN];
    rng.fill(&mut data[..]);
    let begin = |finish: Finish<Reply>| {
        let block = rng.random_range(0..blocks);
        // Each write has other bytes, as a disk may notice equal ones.
        data[..8].copy_from_slice(&rng.random::<u64>().to_le_bytes());
        let completion = Completion::new(move |reply| finish.with(reply));
        begin(block * BLOCK_LEN as u64, data.clone(), completion);
        Ok(())
    };
    let check = |(), reply: Reply| match reply {
        Ok(_) => Ok(()),
        Err(failure) => Err(anyhow!("a write failed: {}", failure.message)),
    };
    in_process::drive(depth, seconds, begin, check)
}
