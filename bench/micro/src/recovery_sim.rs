//! Recovery time of a simulated fabric: figure 10 of 1Pipe, and larger fabrics.

use std::cell::{Cell, RefCell};
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use onepipe_sim_recovery::{Component, FIGURE_HOSTS, Measured, Options, Recovery, paper_us, run};
use onepipe_topology::Shape;

use crate::report::Detail;
use crate::{Better, Harness, Progress, Report};

/// Options of [`recovery_sim`].
#[derive(Clone, Debug, PartialEq)]
pub struct RecoverySimOptions {
    /// Runs of each case, each with another seed. Default 5.
    pub runs: usize,
    /// Maximum number of hosts of a fabric. Default 1,024; 8,192 takes 2 GiB and minutes per run,
    /// 35,152 takes 10 GiB and has not been run to its end.
    pub hosts_max: u32,
}

impl Default for RecoverySimOptions {
    fn default() -> Self {
        Self { runs: 5, hosts_max: 1_024 }
    }
}

/// Port counts of fat trees with at least 1 K, 8 K and 32 K hosts.
const FAT_TREES: [u32; 3] = [16, 32, 52];
/// Largest fabric for flat recovery, whose time is proportional to the number of hosts.
const FLAT_HOSTS_MAX: u32 = 2_048;

/// Fails a process, a host, a rack switch, a core link and a core switch on the paper's testbed and
/// on larger fat trees. The value is the mean time for which the commit barriers of the correct
/// processes stood still, as in figure 10 of 1Pipe, in virtual time. Yardstick: the paper's value
/// (for a process that of a host), and on larger fabrics the testbed in this run.
///
/// # Errors
/// Returns an error when a fabric does not recover.
pub fn recovery_sim(
    options: &RecoverySimOptions,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let about = "mean stall of commit barriers after a failure, simulated, calibration `paper`; \
                 yardstick: 1Pipe, figure 10 (for a process: that of a host; above 32 hosts: the \
                 testbed of 32 in this run)";
    let mut harness =
        Harness::new("recovery-sim", about).with_runs(options.runs).with_progress(progress);
    for recovery in [Recovery::Flat, Recovery::Tree] {
        for component in Component::ALL {
            let mut testbed_us = None;
            for hosts in FIGURE_HOSTS {
                let reference =
                    if component == Component::Process { Component::Host } else { component };
                let Some(paper) = paper_us(reference, hosts) else { continue };
                let case = name(component, recovery, "testbed", hosts);
                let plan = |seed| Options::testbed(hosts, component, recovery, seed);
                testbed_us = Some(measure(&mut harness, &case, plan, paper)?);
            }
            let testbed_us = testbed_us.context("the figure has a value at 32 hosts")?;
            for k in FAT_TREES {
                let shape = Shape::fat_tree(k)?;
                let hosts = shape.host_count();
                let is_slow = recovery == Recovery::Flat && hosts > FLAT_HOSTS_MAX;
                if hosts > options.hosts_max || is_slow {
                    continue;
                }
                let case = name(component, recovery, &shape.to_string(), hosts);
                let plan = |seed| Options::full(shape, component, recovery, seed);
                measure(&mut harness, &case, plan, testbed_us)?;
            }
        }
    }
    Ok(harness.finish())
}

fn name(component: Component, recovery: Recovery, shape: &str, hosts: u32) -> String {
    let mode = match recovery {
        Recovery::Flat => "flat",
        Recovery::Tree => "tree",
    };
    format!("component={} recovery={mode} topology={shape} hosts={hosts}", component.name())
}

/// Measures one case with a seed for each run. Returns the median.
fn measure(
    harness: &mut Harness<'_>,
    case: &str,
    plan: impl Fn(u64) -> Options,
    yardstick: f64,
) -> Result<f64> {
    let (seed, began) = (Cell::new(0), Instant::now());
    let all: RefCell<Vec<Measured>> = RefCell::new(Vec::new());
    let simulate = || {
        seed.set(seed.get() + 1);
        let measured = run(&plan(seed.get()), |_| {})?;
        let stall_us = measured.stall_us();
        all.borrow_mut().push(measured);
        Ok(stall_us)
    };
    let value = harness.measure(case, "us", Better::Lower, simulate, || Ok(yardstick))?.value;
    let all = all.into_inner();
    let mean =
        |part: fn(&Measured) -> f64| all.iter().map(part).sum::<f64>() / all.len().max(1) as f64;
    let detail = |name: &str, value: f64, unit: &str| Detail {
        name: name.to_string(),
        value,
        unit: unit.to_string(),
    };
    let details = vec![
        detail("detection", mean(|one| one.detection_us), "us"),
        detail("determination", mean(|one| one.determination_us), "us"),
        detail("broadcast and callbacks", mean(|one| one.broadcast_us), "us"),
        detail("resume", mean(|one| one.resume_us), "us"),
        detail("last barrier", mean(|one| one.last_us), "us"),
        detail("contacts", mean(|one| one.contacts as f64), ""),
        detail("graph searches", mean(|one| one.controller_work.evaluations as f64), ""),
        detail("nodes visited", mean(|one| one.controller_work.visits as f64), ""),
        detail("search time", mean(|one| one.controller_work.ns as f64 / 1_000.0), "us"),
        detail("wall time per run", began.elapsed().as_secs_f64() / all.len().max(1) as f64, "s"),
        detail("memory, peak so far", memory_mib(), "MiB"),
    ];
    harness.detail(details);
    Ok(value)
}

/// Returns the peak memory of this process in MiB; 0 where the system does not report it.
fn memory_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
