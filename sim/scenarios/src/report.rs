//! The report of a run.

use std::collections::{BTreeMap, VecDeque};

use onepipe_sim_check::{Counts, Rule, Violations};
use onepipe_sim_engine::Instant;
use onepipe_sim_network::{Network, Stats};

use crate::control_plane::ControlPlane;
use crate::{ControlPlaneStats, FabricApp, Node};

/// Results of a run. Wall-clock time is added by the caller because the simulator has no clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Duration in virtual time, in ns.
    pub virtual_ns: u64,
    /// Number of processes.
    pub processes: u32,
    /// Number of hosts.
    pub hosts: u32,
    /// Number of switches.
    pub switches: u32,
    /// Counters of the network: events, packet-hop events, drops by cause.
    pub network: Stats,
    /// Messages submitted, delivered, reported lost and reported unknown.
    pub messages: Counts,
    /// Totals of the controllers.
    pub control_plane: ControlPlaneStats,
    /// Messages of live senders without an outcome.
    pub open: u64,
    /// Hash of the history.
    pub trace_hash: u64,
    /// Number of violations.
    pub violations: u64,
    /// Number of violations of each rule.
    pub violations_by_rule: BTreeMap<Rule, u64>,
    /// The first violations as text.
    pub first_violations: Vec<String>,
    /// Latency from submission to delivery.
    pub latency: Latency,
    /// Peak occupancy of any send buffer, in bytes.
    pub send_buffer_bytes: u64,
    /// Peak occupancy of any receive buffer, in bytes.
    pub receive_buffer_bytes: u64,
    /// The most recent events as text, up to the limit of the plan.
    pub trace_lines: Vec<String>,
}

/// A latency distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Median, in ns.
    pub p50_ns: u64,
    /// 99th percentile, in ns.
    pub p99_ns: u64,
    /// Maximum, in ns.
    pub max_ns: u64,
}

impl Report {
    pub(crate) fn new(network: &Network<Node, FabricApp>, violations: &Violations) -> Self {
        let (app, topology) = (&network.application, network.topology());
        let quantile = |q| app.latency.value_at_quantile(q);
        Self {
            virtual_ns: network.now().as_ns(),
            processes: app.members,
            hosts: topology.hosts(),
            switches: topology.switches(),
            network: *network.stats(),
            messages: app.checker.counts(),
            control_plane: app
                .control_plane
                .as_ref()
                .map_or_else(ControlPlaneStats::default, ControlPlane::stats),
            open: app.checker.open(),
            trace_hash: network.trace_hash(),
            violations: violations.count(),
            violations_by_rule: violations.by_rule().clone(),
            first_violations: violations.first().iter().map(ToString::to_string).collect(),
            latency: Latency {
                p50_ns: quantile(0.50),
                p99_ns: quantile(0.99),
                max_ns: app.latency.max(),
            },
            send_buffer_bytes: app.send_levels.peak(),
            receive_buffer_bytes: app.receive_levels.peak(),
            trace_lines: merge_lines(
                network.trace_lines(),
                &app.log,
                app.plan.network.trace_lines_max,
            ),
        }
    }
}

/// Merges the trace lines of the network and the log of the application in time order. A trace line
/// begins with its time: `@NS.PS`.
fn merge_lines<'a>(
    frames: impl Iterator<Item = &'a str>,
    log: &VecDeque<(Instant, String)>,
    lines_max: usize,
) -> Vec<String> {
    let time_ps = |line: &str| {
        let digits = |text: &str| text.parse::<u64>().unwrap_or(0);
        let stamp = line.split(' ').next().unwrap_or("").trim_start_matches('@');
        stamp.split_once('.').map_or(0, |(ns, ps)| digits(ns) * 1_000 + digits(ps))
    };
    let log_lines = log.iter().map(|(at, text)| {
        let (ns, ps) = (at.as_ns(), at.as_ps() % 1_000);
        (at.as_ps(), format!("@{ns}.{ps:03} {text}"))
    });
    let mut lines: Vec<(u64, String)> =
        frames.map(|line| (time_ps(line), line.to_owned())).chain(log_lines).collect();
    lines.sort_by_key(|(at_ps, _)| *at_ps);
    let excess = lines.len().saturating_sub(lines_max);
    lines.into_iter().skip(excess).map(|(_, line)| line).collect()
}
