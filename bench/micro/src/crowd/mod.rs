//! Benchmarks that need several processes of the operating system: they start the program that
//! they are part of again, with a [`Job`] each.

mod job;
mod work;
mod yardstick;

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

pub(crate) use job::{Fabric, Job, Outcome, Role};
pub(crate) use yardstick::{datagram_rate, datagram_round_trip_ns, ring_rate, ring_round_trip_ns};

/// The name of the hidden subcommand (or first argument) with which a program that uses this crate
/// must call [`worker`].
pub const WORKER: &str = "bench-worker";

/// What the program does when its first argument is [`WORKER`]: one process's part of a benchmark.
///
/// # Errors
/// When `args` are not what the benchmark passed, or the part went wrong; the benchmark that
/// started it reports that.
pub fn worker(args: &[String]) -> Result<()> {
    let [job] = args else { anyhow::bail!("{WORKER} takes one job, not {} words", args.len()) };
    let job: Job = serde_json::from_str(job).with_context(|| format!("reading the job {job}"))?;
    let outcome = work::work(&job)?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Starts a process for each job, waits for all, answers their outcomes in the same order.
pub(crate) fn run(jobs: &[Job]) -> Result<Vec<Outcome>> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut crowd = Crowd { children: Vec::new() };
    for job in jobs {
        let child = Command::new(&program)
            .arg(WORKER)
            .arg(serde_json::to_string(job)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        crowd.children.push(child);
    }
    crowd.outcomes()
}

/// An address on this machine that is free now.
pub(crate) fn free_address() -> Result<String> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(socket.local_addr()?.to_string())
}

/// Processes that do not outlive the benchmark.
struct Crowd {
    children: Vec<Child>,
}

impl Crowd {
    fn outcomes(mut self) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (at, child) in self.children.iter_mut().enumerate() {
            let mut said = String::new();
            let mut stdout = child.stdout.take().context("its output is piped")?;
            std::io::Read::read_to_string(&mut stdout, &mut said)?;
            let status = child.wait()?;
            ensure!(status.success(), "process {at} of the benchmark failed: {status}");
            let outcome = serde_json::from_str(said.trim());
            outcomes.push(outcome.with_context(|| format!("reading what process {at} said"))?);
        }
        Ok(outcomes)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Gone already when all went well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
