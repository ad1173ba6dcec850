//! One run with a few parameters, as offered on the command line.

use std::num::NonZeroUsize;

use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{ClockConfig, LinkFaults, Load, Loss, Placement, SendPattern, Workload};
use onepipe_topology::{Shape, ShapeError};

use crate::{Fabric, Plan, Report};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Switches and hosts.
    pub shape: Shape,
    /// Total number of processes; rounded up to a multiple of the hosts.
    pub processes: u32,
    /// Where the switches' machines run. Default [`Placement::Chip`].
    pub placement: Placement,
    /// Seed of all random streams.
    pub seed: u64,
    /// Loss rate of every link, in parts per million.
    pub loss_ppm: u32,
    /// Duration of the load, in ns of virtual time.
    pub duration_ns: u64,
    /// Load that the processes generate.
    pub load: Load,
    /// Ranges of clock offset and drift.
    pub clocks: ClockConfig,
    /// Number of most recent events that are kept as text.
    pub trace_lines_max: usize,
    /// Number of threads: see [`onepipe_sim_network::Config::threads`].
    pub threads: Option<NonZeroUsize>,
}

impl Options {
    /// All-to-all traffic in a closed loop: scatterings of 8 messages of 64 bytes, 64 messages
    /// outstanding per process, clock offsets within 500 ns and drifts within 10 ppm, no loss.
    pub fn new(shape: Shape, processes: u32, seed: u64, duration_ns: u64) -> Self {
        Self {
            shape,
            processes,
            placement: Placement::Chip,
            seed,
            loss_ppm: 0,
            duration_ns,
            load: Load {
                workload: Workload::AllToAll { fan_out: 8, bytes: 64 },
                pattern: SendPattern::ClosedLoop { messages_max: 64 },
            },
            clocks: ClockConfig { offset_ns_max: 500, drift_ppb_max: 10_000 },
            trace_lines_max: 0,
            threads: None,
        }
    }
}

/// Builds a fabric and runs it up to the start of its load. Enables lookahead: see
/// [`onepipe_sim_network::Config::uses_lookahead`].
///
/// # Errors
/// If the processes do not fit the shape.
pub fn start(options: &Options) -> Result<Fabric, ShapeError> {
    let hosts = options.shape.host_count();
    let per_host = options.processes.div_ceil(hosts).max(1);
    let per_host = u16::try_from(per_host).map_err(|_| ShapeError::Zero { field: "processes" })?;
    onepipe_topology::Topology::new(options.shape, per_host)?;
    let mut plan = Plan::new(options.shape, per_host, options.seed, options.duration_ns);
    plan.set_placement(options.placement);
    plan.load = Some(options.load);
    plan.network.clocks = options.clocks;
    plan.network.trace_lines_max = options.trace_lines_max;
    plan.network.uses_lookahead = true;
    plan.network.threads = options.threads;
    let starts_ns = plan.load_starts_ns;
    let mut fabric = Fabric::new(plan);
    if options.loss_ppm > 0 {
        let loss = Loss::uniform(options.loss_ppm);
        fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
    }
    fabric.network().run_for(starts_ns * NANOSECOND);
    if options.loss_ppm == 0 {
        fabric.set_strict();
    }
    Ok(fabric)
}

/// Stops the load, ends all faults, waits for the outcome of every message, and returns the report.
pub fn end(mut fabric: Fabric) -> Report {
    fabric.stop_load();
    fabric.heal();
    fabric.drain_us(DRAIN_US);
    fabric.finish()
}

/// Number of progress reports of a run.
const SLICES: u64 = 200;
/// Time in which messages must get their outcome after the load and the losses have ended, in us: a
/// sender gives a receiver up after eight probes, with doubling timeouts from 200 us on.
const DRAIN_US: u64 = 200_000;

/// Runs and checks a fabric. Calls `progress` with the finished part in thousandths.
///
/// # Errors
/// If the processes do not fit the shape.
pub fn run(options: &Options, mut progress: impl FnMut(u32)) -> Result<Report, ShapeError> {
    let mut fabric = start(options)?;
    for slice in 0..SLICES {
        progress((slice * 1_000 / SLICES) as u32);
        fabric.network().run_for(options.duration_ns * NANOSECOND / SLICES);
    }
    let report = end(fabric);
    progress(1_000);
    Ok(report)
}
