//! Operations on a region whose owner's application does nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onepipe::memory::{Operation, RegionId, RequestId, Rights};
use onepipe::{Pipe, ProcessId};

use super::job::{Job, Kind, Outcome};
use super::workload::{OWNER, TIMEOUT, memory_len, offset, outcome};
use crate::stopwatch::Stopwatch;

const REGION: RegionId = RegionId(1);

/// Registers the region.
pub(super) fn register(pipe: &mut Pipe, job: &Job) -> Result<()> {
    let region = vec![0; memory_len(job)];
    pipe.register(REGION, region, Rights::all()).context("registering a region")
}

/// Submits operations and takes their results until the time is over.
pub(super) fn run(pipe: &mut Pipe, job: &Job) -> Result<Outcome> {
    wait_for_region(pipe)?;
    let payload = vec![7; job.bytes];
    let mut stopwatch = Stopwatch::start(job.seconds)?;
    let mut in_flight: BTreeMap<RequestId, u64> = BTreeMap::new();
    loop {
        while stopwatch.is_running() && in_flight.len() < job.window as usize {
            let offset = offset(job, stopwatch.submitted());
            let operation = match job.kind {
                Kind::Read => Operation::Read { region: REGION, offset, len: job.bytes as u32 },
                Kind::Write => Operation::Write { region: REGION, offset, bytes: &payload },
                Kind::FetchAdd => Operation::FetchAdd { region: REGION, offset, addend: 1 },
            };
            let now_ns = stopwatch.submit();
            let request = pipe.request(&[(OWNER, &[operation])]).context("submitting")?;
            in_flight.insert(request, now_ns);
        }
        if in_flight.is_empty() {
            break;
        }
        let completed = pipe.completed(TIMEOUT).context("no operation completes")?;
        for (_, answer) in completed.answers {
            answer.context("operating on the region")?;
        }
        let began_ns = in_flight.remove(&completed.request).context("an unknown request")?;
        stopwatch.complete(began_ns)?;
    }
    let stats = pipe.memory_stats().context("the pipe has left")?.client;
    Ok(outcome(stopwatch, stats.failed + stats.asked))
}

/// Waits until the owner has registered its region.
fn wait_for_region(pipe: &mut Pipe) -> Result<()> {
    let began = std::time::Instant::now();
    let read = Operation::Read { region: REGION, offset: 0, len: 1 };
    loop {
        let answers = pipe.execute(&[(OWNER, &[read])])?;
        let is_there = answers.iter().all(|(_, answer): &(ProcessId, _)| answer.is_ok());
        if is_there {
            return Ok(());
        }
        ensure!(began.elapsed() < TIMEOUT, "the owner does not register its region");
        std::thread::sleep(Duration::from_millis(1));
    }
}
