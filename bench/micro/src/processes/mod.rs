//! Benchmarks with several processes of the operating system: they start the running program again,
//! with a [`Job`] for each process.

mod delivery_log;
mod job;
mod relay;
mod rival;
mod window;
mod worker;
mod yardstick;

use std::process::Command;

use anyhow::{Context, Result};

use crate::children::{Children, WORKER, die_with_parent};

pub use job::RivalMethod;
pub(crate) use job::{Api, Fabric, Job, Location, Outcome, Role};
pub(crate) use yardstick::{datagram_one_way_ns, datagram_rate, ring_one_way_ns, ring_rate};

/// Runs a process for each job and returns their outcomes in the same order.
pub(crate) fn run(jobs: &[Job]) -> Result<Vec<Outcome>> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut children = Children::default();
    for job in jobs {
        let mut command = match &job.location.namespace {
            None => Command::new(&program),
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(&program);
                command
            }
        };
        let job = serde_json::to_string(&(job, std::process::id()))?;
        children.start(command.arg(WORKER).arg(job))?;
    }
    let is_member = |job: &&Job| job.method.is_none() && job.role != Role::Switch;
    children.outcomes(jobs.iter().take_while(is_member).count())
}

/// Returns a local UDP address that is free now. Its port is none that the kernel assigns to the
/// sockets of the other processes before the switch has bound it.
pub(crate) fn free_address() -> Result<String> {
    const PORTS: std::ops::Range<u16> = 20_000..32_000;
    let first = std::process::id() % u32::from(PORTS.end - PORTS.start);
    let mut ports = PORTS.cycle().skip(first as usize).take(PORTS.len());
    let port = ports.find(|port| std::net::UdpSocket::bind(("127.0.0.1", *port)).is_ok());
    Ok(format!("127.0.0.1:{}", port.context("looking for a free port")?))
}

/// Runs one process of these benchmarks.
pub(crate) fn work(job: &str) -> Result<()> {
    let (job, parent_pid): (Job, u32) =
        serde_json::from_str(job).with_context(|| format!("reading the job {job}"))?;
    die_with_parent(parent_pid)?;
    worker::pin_to_core(job.core);
    if let Some(method) = job.method {
        return report(&rival_outcome(&job, method)?);
    }
    match (&job.fabric, job.window) {
        (Fabric::Udp { switch, frame_len }, _) if job.role == Role::Switch => {
            report(&worker::run_switch(switch, *frame_len, &job)?)
        }
        (_, Some((window, api))) => window::work(&job, window, api),
        (_, None) => worker::work(&job),
    }
}

/// Runs a process of a rival: its relay, its sequencer or a member.
fn rival_outcome(job: &Job, method: RivalMethod) -> Result<Outcome> {
    match &job.fabric {
        Fabric::Udp { switch, frame_len } if job.role == Role::Switch => {
            relay::relay(job, switch, *frame_len, method)
        }
        _ => rival::work(job, method),
    }
}

/// Prints the outcome of this process for its parent.
fn report(outcome: &Outcome) -> Result<()> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(())
}
