//! One process of the benchmark: joins, does its part, and waits until all have finished.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onepipe::Pipe;
use onepipe_daemon_switch::SoftwareSwitch;

use super::job::{Job, Outcome, Role};
use super::workload::{OWNER, TIMEOUT};
use super::{one_sided, request_reply};
use crate::children::release_flag;

const CLIENT: u32 = 1;

/// Runs one process.
pub(super) fn run(job: &Job) -> Result<()> {
    let is_released = release_flag();
    if job.role == Role::Switch {
        report(&Outcome::default())?;
        return run_switch(job, &is_released);
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

/// How long the switch runs after the measurement, in which the other processes leave.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// Runs the switch until all other processes have finished.
fn run_switch(job: &Job, is_released: &AtomicBool) -> Result<()> {
    let bind = job.switch.as_deref().context("the switch has an address")?;
    let mut switch = SoftwareSwitch::new(&onepipe_daemon_switch::Config::new(bind.parse()?))?;
    let (stop, doorbell) = (AtomicBool::new(false), switch.doorbell());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_released.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(LEAVE_TIME);
            stop.store(true, Ordering::Release);
            doorbell.ring();
        });
        switch.run(&stop, |_| {});
    });
    Ok(())
}
