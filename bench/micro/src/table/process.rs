//! One process of the benchmark: joins, does its part, and waits until all have finished.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onepipe::Pipe;
use onepipe::memory::Rights;

use super::job::{Job, KEYS, Outcome, Protocol, Role, TIMEOUT};
use super::{client, leader};
use crate::children::release_flag;
use crate::switch_process::run_switch;

/// Runs one process.
pub(super) fn run(job: &Job) -> Result<()> {
    let is_released = release_flag();
    match job.role {
        Role::Switch => {
            report(&Outcome::default())?;
            let bind = job.switch.as_deref().context("the switch has an address")?;
            run_switch(bind, &is_released)
        }
        Role::Server(replica) => serve(join(job, replica)?, job, &is_released),
        Role::Client => {
            let (outcome, pipe) = client::run(join(job, job.replicas)?, job)?;
            report(&outcome)?;
            finish(pipe, &is_released);
            Ok(())
        }
    }
}

fn join(job: &Job, process: u32) -> Result<Pipe> {
    let builder = Pipe::builder().process(process);
    let builder = match &job.switch {
        Some(switch) => builder.udp(switch),
        None => builder.fabric(&job.fabric).processes(job.replicas + 1),
    };
    let pipe = builder.join().context("joining the fabric")?;
    ensure!(pipe.wait_for_peers(job.replicas as usize, TIMEOUT), "a process did not join");
    Ok(pipe)
}

/// Registers the shard; the program of a leader or a follower also does its work.
fn serve(mut pipe: Pipe, job: &Job, is_released: &AtomicBool) -> Result<()> {
    let layout = job.layout();
    let mut bytes = layout.empty_shard();
    let nodes = layout.fill(&mut bytes, (0..KEYS).map(|key| (key, job.value(key))));
    pipe.register(layout.region(0), bytes, Rights::all()).context("registering the shard")?;
    report(&Outcome::default())?;
    if job.protocol == Protocol::Leader && job.inserts {
        leader::serve(&mut pipe, job, nodes, is_released)?;
    }
    finish(pipe, is_released);
    Ok(())
}

/// Prints the outcome of this process for its parent.
fn report(outcome: &Outcome) -> Result<()> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(())
}

/// Waits until all processes have finished, and leaves.
fn finish(mut pipe: Pipe, is_released: &AtomicBool) {
    while !is_released.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The others end at the same moment, so that some outcomes are not known.
    let _ = pipe.leave();
}
