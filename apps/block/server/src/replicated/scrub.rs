//! Compares all replicas, and repairs what differs.

use std::sync::Arc;

use onepipe_block::Failure;
use onepipe_block_replica::{Finding, Summary};

use super::reads::{Access, Reads};

/// Blocks that are compared at once, which bounds the memory.
const BLOCKS_AT_ONCE: u64 = 1_024;
/// Rounds over the same blocks, as those that change meanwhile are not repaired.
const ROUNDS_MAX: usize = 8;

/// What a scrub has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Replicas that were compared.
    pub replicas: u64,
    /// Copies of blocks that were damaged, or lacked a change.
    pub damaged: u64,
    /// Those that were repaired.
    pub repaired: u64,
    /// Blocks of which no intact copy is known.
    pub lost: u64,
}

/// Compares all blocks of all replicas that are up. Writes go on meanwhile.
pub fn scrub(reads: &Reads, blocks: u64) -> Result<ScrubReport, Failure> {
    let images = reads.images();
    let replicas = images.len() as u64;
    let mut report = ScrubReport { replicas, ..ScrubReport::default() };
    let mut first = 0;
    while first < blocks {
        let count = BLOCKS_AT_ONCE.min(blocks - first);
        scrub_range(reads, &images, (first, count), &mut report)?;
        report.blocks += count;
        first += count;
    }
    reads.count_damaged(report.damaged);
    Ok(report)
}

fn scrub_range(
    reads: &Reads,
    images: &[(usize, Arc<Access>)],
    range: (u64, u64),
    report: &mut ScrubReport,
) -> Result<(), Failure> {
    for round in 0..ROUNDS_MAX {
        let findings = compare(images, range)?;
        let bad: u64 = findings.iter().map(|finding| finding.bad.len() as u64).sum();
        let lost = findings.iter().filter(|finding| finding.good.is_empty()).count() as u64;
        if round == 0 {
            report.damaged += bad;
        }
        let is_last = round + 1 == ROUNDS_MAX || bad == 0 || lost == findings.len() as u64;
        if is_last {
            report.lost += lost;
            return Ok(());
        }
        for finding in findings {
            repair(reads, images, &finding, report)?;
        }
    }
    Ok(())
}

fn compare(
    images: &[(usize, Arc<Access>)],
    (first, count): (u64, u64),
) -> Result<Vec<Finding>, Failure> {
    let summarize = |(_, image): &(usize, Arc<Access>)| image.reader.summarize(first, count);
    let summaries: Vec<Summary> =
        images.iter().map(summarize).collect::<Result<_, _>>().map_err(|error| failure(&error))?;
    Ok(Summary::compare(&summaries))
}

fn repair(
    reads: &Reads,
    images: &[(usize, Arc<Access>)],
    finding: &Finding,
    report: &mut ScrubReport,
) -> Result<(), Failure> {
    let Some((_, good)) = finding.good.first().map(|at| &images[*at]) else { return Ok(()) };
    for (replica, image) in finding.bad.iter().map(|at| &images[*at]) {
        let as_of = good.reader.applied();
        let is_repaired = reads.repair(image, (good, as_of), finding.block);
        let is_repaired = is_repaired.map_err(|error| failure(&error))?;
        report.repaired += u64::from(is_repaired);
        let block = finding.block;
        tracing::warn!(replica, block, is_repaired, "a scrub has found a damaged block");
    }
    Ok(())
}

fn failure(error: &std::io::Error) -> Failure {
    Failure::new(onepipe_block::ErrorCode::Io, error.to_string())
}
