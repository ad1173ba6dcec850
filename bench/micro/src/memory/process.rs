//! One process of the benchmark: joins, does its part, and waits until all have finished.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onepipe::Pipe;

use super::job::{Job, Outcome, Role};
use super::workload::{OWNER, TIMEOUT};
use super::{one_sided, request_reply};
use crate::children::release_flag;
use crate::switch_process::run_switch;

const CLIENT: u32 = 1;

/// Runs one process.
pub(super) fn run(job: &Job) -> Result<()> {
    let is_released = release_flag();
    if job.role == Role::Switch {
        report(&Outcome::default())?;
        let bind = job.switch.as_deref().context("the switch has an address")?;
        return run_switch(bind, &is_released);
    }
    let is_owner = matches!(job.role, Role::Owner | Role::Server);
    let process = if is_owner { OWNER.0 } else { CLIENT };
    let builder = Pipe::builder().process(process);
    let builder = match &job.switch {
        Some(switch) => builder.udp(switch),
        None => builder.fabric(&job.fabric).processes(2),
    };
    let mut pipe = builder.join().context("joining the fabric")?;
    ensure!(pipe.wait_for_peers(1, TIMEOUT), "the other process did not join");
    match job.role {
        Role::Owner => {
            one_sided::register(&mut pipe, job)?;
            report(&Outcome::default())?;
        }
        Role::Server => {
            report(&Outcome::default())?;
            request_reply::serve(&mut pipe, job, &is_released)?;
        }
        Role::Client => report(&one_sided::run(&mut pipe, job)?)?,
        Role::Requester => report(&request_reply::request(&mut pipe, job)?)?,
        Role::Switch => {}
    }
    while !is_released.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The others end at the same moment, so that some outcomes are not known.
    let _ = pipe.leave();
    Ok(())
}

/// Prints the outcome of this process for its parent.
fn report(outcome: &Outcome) -> Result<()> {
    println!("{}", serde_json::to_string(outcome)?);
    Ok(())
}
