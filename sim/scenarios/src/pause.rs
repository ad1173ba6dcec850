//! The latency of single messages between pauses, and what links carry at rest.

use onepipe_sim_engine::{NANOSECOND, Random};
use onepipe_sim_network::Placement;
use onepipe_topology::Shape;

use crate::{Fabric, Latency, Plan};

/// Parameters of [`pauses`].
#[derive(Clone, Copy, Debug)]
pub struct PauseOptions {
    /// The topology, with one process on each host.
    pub shape: Shape,
    /// Where the switches' machines run.
    pub placement: Placement,
    /// Heartbeats, in beacon intervals; `None`: beacons at the fixed interval.
    pub heartbeat_intervals: Option<u64>,
    /// Pause before each message, in beacon intervals.
    pub pause_intervals: u64,
    /// Uses the reliable service.
    pub is_reliable: bool,
    /// Number of messages.
    pub messages: u32,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Result of [`pauses`].
#[derive(Clone, Copy, Debug)]
pub struct PauseReport {
    /// Beacon interval of the placement, in ns.
    pub beacon_interval_ns: u64,
    /// Latency from submission to delivery. The first message opens a connection.
    pub latency: Latency,
    /// Frames per second on each link, after the last message.
    pub rest_frames_per_second: f64,
    /// Violations of invariants, and messages without an outcome.
    pub violations: u64,
}

/// Simulates messages from process 0 to the last process, a pause before each. Each is submitted at
/// a random time of a beacon interval.
pub fn pauses(options: &PauseOptions) -> PauseReport {
    let mut random = Random::named(options.seed, "pauses", 0);
    let mut plan = Plan::new(options.shape, 1, options.seed, 1_000_000);
    plan.set_placement(options.placement);
    if let Some(intervals) = options.heartbeat_intervals {
        plan.set_on_demand(intervals);
    }
    let (interval_ns, starts_ns) = (plan.switch.beacon_interval_ns, plan.load_starts_ns);
    let mut fabric = Fabric::new(plan);
    fabric.network().run_for(starts_ns * NANOSECOND);
    let last = fabric.members() - 1;
    for _ in 0..options.messages {
        let pause_ns = options.pause_intervals * interval_ns + random.below(interval_ns);
        fabric.network().run_for(pause_ns * NANOSECOND);
        let scatter = if options.is_reliable { Fabric::scatter_reliably } else { Fabric::scatter };
        // A refused message counts as one without an outcome: the latency lacks it.
        let _ = scatter(&mut fabric, 0, &[(last, 64)]);
    }
    let is_drained = fabric.drain_us(1_000);
    let links = fabric.network().links().count() as f64;
    // Until nothing is undelivered, for longer than the links stay awake.
    fabric.network().run_for(100 * interval_ns * NANOSECOND);
    let rest_ns = 4 * options.heartbeat_intervals.unwrap_or(100) * interval_ns;
    let before = fabric.stats().hops;
    fabric.network().run_for(rest_ns * NANOSECOND);
    let frames = (fabric.stats().hops - before) as f64;
    let report = fabric.finish();
    PauseReport {
        beacon_interval_ns: interval_ns,
        latency: report.latency,
        rest_frames_per_second: frames / links / (rest_ns as f64 / 1e9),
        violations: report.violations
            + u64::from(!is_drained)
            + (u64::from(options.messages) - report.messages.delivered),
    }
}
