//! The entry point of the processes that benchmarks start.

use anyhow::{Context, Result};

use crate::children::{WORKER, die_with_parent};

/// Runs one process of a benchmark; for a program whose first argument is [`WORKER`].
///
/// # Errors
/// Returns an error when `args` are not those of the benchmark, or the process fails; its parent
/// reports that.
pub fn worker(args: &[String]) -> Result<()> {
    if let [word, parent_pid, job] = args
        && word == crate::bulk::BULK
    {
        die_with_parent(parent_pid.parse().context("invalid pid of the parent")?)?;
        return crate::bulk::work(job);
    }
    if let [word, parent_pid, job] = args
        && word == crate::light::LIGHT
    {
        return crate::light::work(parent_pid, job);
    }
    if let [word, parent_pid, job] = args
        && word == crate::memory::MEMORY
    {
        return crate::memory::work(parent_pid, job);
    }
    if let [word, parent_pid, job] = args
        && word == crate::table::TABLE
    {
        return crate::table::work(parent_pid, job);
    }
    if let [word, parent_pid, command] = args
        && word == crate::rival_process::RIVAL
    {
        return crate::rival_process::work(parent_pid, command);
    }
    let [job] = args else { anyhow::bail!("{WORKER} takes one job, not {} arguments", args.len()) };
    crate::processes::work(job)
}
