//! Allocation on several cores, as fast as possible.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use onepipe_arbiter::{AllocatedBatch, Config};

use super::load::Load;
use super::workers::{self, ControlCore, CpuMeter};
use super::{Outcome, check};

/// Length of a timeslot; not used, as timeslots are not granted in real time.
const SLOT_NS: u64 = 1_000;

/// Number of consecutive batches over which the fastest rate is taken: on a busy machine the
/// windows in which the cores were available.
const WINDOW: usize = 64;

/// Requests of a batch.
type Requests = Vec<(u16, u16, u32)>;

/// As [`super::run`], with several cores.
pub(super) fn run(config: Config, cores: usize, load: f64, slots: u64) -> Result<Outcome> {
    let batch = u64::from(config.batch_slots);
    let mut load = Load::new(config.nodes, load);
    let requests: Vec<Requests> = (0..slots)
        .step_by(batch as usize)
        .map(|start| {
            let all = load.until(start).iter();
            all.map(|&(src, dst, slots)| (src as u16, dst as u16, slots)).collect()
        })
        .collect();
    let cores = vec![None; cores];
    let run_control = |control: ControlCore, is_measured: &AtomicBool| {
        run_control(config, control, &requests, is_measured)
    };
    let ((mut outcome, own), others) = workers::run(config, SLOT_NS, &cores, run_control)?;
    outcome.cores = std::iter::once(own).chain(others).collect();
    Ok(outcome)
}

fn run_control(
    config: Config,
    mut control: ControlCore,
    requests: &[Requests],
    is_measured: &AtomicBool,
) -> Result<(Outcome, workers::CpuTime)> {
    let middle = requests.len() / 2;
    let mut meter = CpuMeter::new();
    let (mut started, mut received) = (0, 0);
    let (mut granted, mut granted_before, mut requested) = (0, 0, 0);
    let mut begin = Instant::now();
    let mut ends = Vec::with_capacity(requests.len());
    while received < requests.len() {
        let mut checked = Ok(());
        let mut count = |batch: &AllocatedBatch| {
            let packets = u64::from(batch.summary().granted);
            (granted, received) = (granted + packets, received + 1);
            ends.push(Instant::now());
            if received <= middle {
                granted_before += packets;
            }
            // Checked only in the warm-up, as checks would be part of the measured time.
            if received < middle && received % 16 == 1 {
                checked = check(batch.schedule(), config.batch_slots, packets);
            }
        };
        meter.measure(|| control.poll_batch(&mut count).is_some());
        checked?;
        ensure!(
            granted <= requested,
            "{} more packets were granted than requested",
            granted - requested
        );
        let Some(all) = requests.get(started).filter(|_| control.is_ready()) else {
            std::hint::spin_loop();
            continue;
        };
        if started == middle {
            is_measured.store(true, Ordering::Relaxed);
            meter.start();
            begin = Instant::now();
        }
        let mut result = Ok(());
        meter.measure(|| {
            result = control.request(all);
            control.start_batch(started as u64 * u64::from(config.batch_slots));
            true
        });
        result?;
        requested += sum(all);
        started += 1;
    }
    let outcome = Outcome {
        slots: (requests.len() - middle) as u64 * u64::from(config.batch_slots),
        spent: begin.elapsed(),
        requested: requests[middle..].iter().map(|requests| sum(requests)).sum(),
        granted: granted - granted_before,
        fastest: fastest(&ends[middle..], config.batch_slots),
        cores: Vec::new(),
    };
    Ok((outcome, meter.finish()))
}

/// Returns the least time per timeslot over a window of batches.
fn fastest(ends: &[Instant], batch_slots: u32) -> Option<f64> {
    let windows = ends.iter().zip(ends.iter().skip(WINDOW));
    let least = windows.map(|(begin, end)| end.duration_since(*begin)).min()?;
    Some(least.as_secs_f64() * 1e6 / (WINDOW as f64 * f64::from(batch_slots)))
}

fn sum(requests: &[(u16, u16, u32)]) -> u64 {
    requests.iter().map(|(.., slots)| u64::from(*slots)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipeline_grants_all_requests() {
        for cores in [2, 3] {
            let outcome = run(Config::new(24), cores, 0.8, 8_192).expect("valid schedule");
            let utilisation = outcome.granted as f64 / outcome.requested as f64;
            assert!((0.9..1.1).contains(&utilisation), "{utilisation}");
            assert!(
                outcome.cores.len() == cores
                    && outcome.cores.iter().all(|core| !core.busy.is_zero())
            );
        }
    }
}
