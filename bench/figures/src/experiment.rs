//! Experiments as values: parameters, runs, reference points and claims.

use std::collections::BTreeMap;

use anyhow::Result;
use onepipe_bench_micro::{beacon_cores, reordered};
use onepipe_sim_recovery::{Component, Options, Recovery};
use serde::{Deserialize, Serialize};

use crate::env::{beacon_share, fat_tree};
use crate::reference::Reference;
pub use crate::role::{ContradictedPoints, Role};
use crate::values::Values;
use crate::verdict::Outcome;
pub use crate::verdict::{Verdict, is_near};
use crate::{
    Background, Disruption, Isolation, KeyValue, Large, Multicast, Rack, ReplicaRemoval, Setup,
    Table, Takeover, Tpcc, cores,
};

/// An experiment with one figure.
#[derive(Debug)]
pub struct Experiment {
    /// Id as in the paper: `8a`.
    pub id: &'static str,
    /// Title of the figure.
    pub title: &'static str,
    /// What the paper reports.
    pub headline: &'static str,
    /// The varied parameter.
    pub x: Axis,
    /// The measured quantity.
    pub y: Axis,
    /// Name of the plotted value in [`Values`]. `{x}` stands for the position on the x axis: one
    /// run may measure several.
    pub metric: &'static str,
    /// Curves of the figure.
    pub curves: Vec<Curve>,
    /// Positions on the x axis in a full run.
    pub xs: &'static [f64],
    /// Positions on the x axis in a quick run.
    pub xs_quick: &'static [f64],
    /// Points of the paper.
    pub reference: Reference,
    /// Claims beyond the points.
    pub claims: Vec<Claim>,
}

/// An axis of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Label with the unit.
    pub label: &'static str,
    /// Whether the axis is logarithmic.
    pub is_log: bool,
}

/// A curve of a figure.
#[derive(Debug)]
pub struct Curve {
    /// Name in the legend and in the CSV.
    pub name: &'static str,
    /// Column of [`Experiment::reference`] with the paper's curve, if there is one.
    pub column: Option<&'static str>,
    /// What the comparison with the paper shows.
    pub role: Role,
    /// Explanation of a difference from the paper, if there is one.
    pub remark: &'static str,
    /// Returns the run at `x`; `None` where the curve has no point.
    pub task: fn(f64) -> Option<Task>,
}

impl Curve {
    /// Creates a curve that no constant was derived from.
    pub(crate) fn predicted(
        name: &'static str,
        column: Option<&'static str>,
        remark: &'static str,
        task: fn(f64) -> Option<Task>,
    ) -> Self {
        Self { name, column, role: Role::Predicted, remark, task }
    }
}

/// A claim of the paper that the points of a single curve do not show, or a claim of ours.
#[derive(Debug)]
pub struct Claim {
    pub text: &'static str,
    /// Verifies the claim by the measured curves; `None` if they do not reach far enough.
    pub verify: fn(&Measured) -> Option<Verdict>,
    /// Reason if the claim does not hold.
    pub remark: &'static str,
}

/// Measured points of a figure by curve and x.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Points of each curve, ascending.
    pub curves: BTreeMap<&'static str, Vec<(f64, Values)>>,
    /// Name of the plotted value.
    pub metric: &'static str,
}

/// Returns the value of `metric` at `x`.
pub fn value_at(metric: &str, x: f64, values: &Values) -> Option<f64> {
    match metric.contains("{x}") {
        true => values.get(&metric.replace("{x}", &x.to_string())).copied(),
        false => values.get(metric).copied(),
    }
}

impl Measured {
    /// Returns the plotted value of `curve` at `x`.
    pub fn at(&self, curve: &str, x: f64) -> Option<f64> {
        value_at(self.metric, x, self.values(curve, x)?)
    }

    /// Returns another value measured for `curve` at `x`.
    pub fn other(&self, curve: &str, x: f64, name: &str) -> Option<f64> {
        self.values(curve, x)?.get(name).copied()
    }

    /// Returns the ratio of one curve to another at `x`.
    pub fn ratio(&self, one: &str, other: &str, x: f64) -> Option<f64> {
        Some(self.at(one, x)? / self.at(other, x)?)
    }

    fn values(&self, curve: &str, x: f64) -> Option<&Values> {
        let points = self.curves.get(curve)?;
        points.iter().find(|(at, _)| *at == x).map(|(_, values)| values)
    }
}

/// One run. Equal tasks give equal values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// A system under load.
    Order(Setup),
    /// A system under load, with background flows on the same links.
    Shared(Setup, Background),
    /// A system under load, with the CPU time of a message measured on this machine.
    MachineCosts(Setup),
    /// Beacons on an idle testbed.
    BeaconShare {
        /// Beacon interval in ns.
        interval_ns: u64,
        /// Rate of all links in Gbit/s.
        gbps: u32,
    },
    /// CPU cores of this machine used for the beacons of a 32-port switch.
    BeaconCores {
        /// Beacon interval in ns.
        interval_ns: u64,
    },
    /// The reorder stage of a receiver on this machine.
    Reorder {
        /// Time that messages wait, in ns.
        delay_ns: u64,
    },
    /// Bulk traffic on Fastpass's rack.
    Rack(Rack),
    /// Takeover from a primary to a secondary arbiter on Fastpass's rack.
    Takeover(Takeover),
    /// A link that drops packets, until the arbiter avoids it.
    Isolation(Isolation),
    /// Crashes of members of a bulk multicast.
    Disruption(Disruption),
    /// Bulk multicast.
    Multicast(Multicast),
    /// A large payload in the total order, beside small messages.
    Large(Large),
    /// Timeslot allocation on one core of this machine.
    Timeslots {
        /// Number of endpoints.
        nodes: u32,
        /// Load in thousandths of the endpoints' capacity.
        load_permille: u32,
    },
    /// Communication with endpoints over UDP on one core of this machine.
    Communication {
        /// Number of endpoints.
        nodes: u32,
    },
    /// Path selection on one core of this machine.
    Paths {
        /// Number of endpoints, 32 per rack.
        nodes: u32,
        /// Load in thousandths of the endpoints' capacity.
        load_permille: u32,
    },
    /// Agreed multicast on P4mCast's testbed.
    Agreed(Agreed),
    /// A transactional key-value store on 1Pipe's testbed.
    KeyValue(KeyValue),
    /// TPC-C on 1Pipe's testbed.
    Tpcc(Tpcc),
    /// A host with a replica is cut off under TPC-C.
    ReplicaRemoval(ReplicaRemoval),
    /// A hash table in the memory of others on 1Pipe's testbed.
    Table(Table),
    /// Recovery from a failure on the testbed.
    Recovery {
        /// Number of hosts with a process.
        hosts: u32,
        /// Failing component: a name of `onepipe_sim_recovery::Component`.
        component: String,
        /// What differs from our controller.
        #[serde(default)]
        variant: Variant,
        /// Seed of the run.
        seed: u64,
    },
    /// Recovery from the failure of a host of a fat tree.
    RecoveryAtScale {
        /// Number of hosts, rounded to that of a fat tree.
        hosts: u32,
        /// Whether notifications are flooded along the fabric; otherwise they are sent one by one.
        is_tree: bool,
        /// Seed of the run.
        seed: u64,
    },
}

/// A load on the testbed of P4mCast's poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Whether switches order the messages; otherwise processes on hosts do, as in PrimCast.
    pub is_in_switches: bool,
    /// Whether frames of hosts pass through their kernels.
    pub has_kernel: bool,
    /// Whether messages cost the processes on hosts what our PrimCast was measured to take.
    #[serde(default)]
    pub has_measured_costs: bool,
    /// Size of a request in bytes.
    pub bytes: u32,
    /// Offered load in requests per second.
    pub offered_per_s: u64,
}

/// What differs from our controller in a recovery: shows the reason of a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// Our controller.
    #[default]
    None,
    /// Each failure has a notice of its own.
    NoticePerFailure,
    /// The controller does not wait for further reports, and evaluates its graph in no time.
    NoWaits,
}

/// Which tasks run at the same time as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// None: the task measures real time.
    None,
    /// Any that do not need gigabytes, as the task does.
    Small,
    /// Any that do not measure real time.
    All,
}

/// Number of ports of the switch in [`Task::BeaconCores`] (1Pipe section 7.2).
const SWITCH_PORTS: u16 = 32;
/// Rate of the links whose messages wait in [`Task::Reorder`]: 100 Gbit/s (1Pipe section 7.1).
const LINK_BYTES_PER_NS: f64 = 12.5;
/// Number of beacon intervals that [`Task::BeaconCores`] measures.
const ROUNDS: usize = 20_000;

impl Task {
    /// Returns what runs beside the task.
    pub(crate) fn neighbours(&self) -> Neighbours {
        match self {
            Self::MachineCosts(_) | Self::BeaconCores { .. } | Self::Reorder { .. } => {
                Neighbours::None
            }
            Self::Timeslots { .. } | Self::Paths { .. } | Self::Communication { .. } => {
                Neighbours::None
            }
            _ if self.needs_gigabytes() => Neighbours::Small,
            _ => Neighbours::All,
        }
    }

    fn needs_gigabytes(&self) -> bool {
        match self {
            Self::Order(setup) => setup.processes > 5_000,
            Self::Multicast(multicast) => multicast.is_large(),
            Self::RecoveryAtScale { hosts, .. } => *hosts > 5_000,
            _ => false,
        }
    }

    /// Returns the text that identifies the run.
    pub(crate) fn key(&self) -> String {
        // Every task is a struct of numbers and names, which JSON can represent.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Runs the task.
    ///
    /// # Errors
    /// If the setup is invalid, or a guarantee was violated.
    pub fn run(&self) -> Result<Values> {
        match self {
            Self::Order(setup) => setup.run(),
            Self::Shared(setup, background) => setup.run_beside(*background),
            Self::MachineCosts(setup) => {
                let message_ns = crate::calibration::message_ns()?;
                let mut values = setup.on_this_machine(message_ns).run()?;
                values.insert("message_ns".to_owned(), message_ns);
                Ok(values)
            }
            Self::BeaconShare { interval_ns, gbps } => beacon_share(*interval_ns, *gbps),
            Self::BeaconCores { interval_ns } => {
                let cores = beacon_cores(SWITCH_PORTS, *interval_ns, ROUNDS)?;
                Ok([("cores".to_owned(), cores)].into())
            }
            Self::Reorder { delay_ns } => {
                let measured = reordered(*delay_ns)?;
                let received_mb = measured.waiting_bytes_max as f64 / 1e6;
                // A sender holds what it has sent until the barrier has passed it.
                let sent_mb = LINK_BYTES_PER_NS * *delay_ns as f64 / 1e6;
                let values = [
                    ("throughput_mps", measured.rate_per_s / 1e6),
                    ("memory_mb", received_mb),
                    ("memory_both_mb", received_mb + sent_mb),
                ];
                Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
            }
            Self::Rack(rack) => rack.run(),
            Self::Takeover(takeover) => takeover.run(),
            Self::Isolation(isolation) => isolation.run(),
            Self::Disruption(disruption) => disruption.run(),
            Self::Multicast(multicast) => multicast.run(),
            Self::Communication { nodes } => cores::communication(*nodes),
            Self::Large(large) => large.run(),
            Self::Timeslots { nodes, load_permille } => cores::timeslots(*nodes, *load_permille),
            Self::Paths { nodes, load_permille } => cores::paths(*nodes, *load_permille),
            Self::Agreed(agreed) => Ok(agreed.run()),
            Self::KeyValue(store) => store.run(),
            Self::Table(table) => table.run(),
            Self::Tpcc(tpcc) => tpcc.run(),
            Self::ReplicaRemoval(removal) => removal.run(),
            Self::Recovery { hosts, component, variant, seed } => {
                let component = Component::ALL.into_iter().find(|one| one.name() == component);
                let component = component.unwrap_or(Component::Host);
                let options = Options::testbed(*hosts, component, Recovery::Flat, *seed);
                let calibration = match variant {
                    Variant::None => options.calibration,
                    Variant::NoticePerFailure => onepipe_sim_recovery::Calibration {
                        has_notice_per_failure: true,
                        ..options.calibration
                    },
                    Variant::NoWaits => options.calibration.without_waits(),
                };
                recovered(&Options { calibration, ..options })
            }
            Self::RecoveryAtScale { hosts, is_tree, seed } => {
                let shape = fat_tree(*hosts)?;
                let recovery = if *is_tree { Recovery::Tree } else { Recovery::Flat };
                recovered(&Options::full(shape, Component::Host, recovery, *seed))
            }
        }
    }
}

/// Runs a recovery. Returns `recovery_us`, the mean stall of the barriers, `recovery_min_us` and
/// `recovery_max_us`, the shortest and the longest, and `detection_us`, the time until a neighbour
/// detected the failure.
fn recovered(options: &Options) -> Result<Values> {
    let measured = onepipe_sim_recovery::run(options, |_| {})?;
    let stalls = &measured.stalls_us;
    let values = [
        ("recovery_us", Some(measured.stall_us())),
        ("recovery_min_us", stalls.first().copied()),
        ("recovery_max_us", stalls.last().copied()),
        ("detection_us", Some(measured.detection_us)),
    ];
    Ok(values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

impl crate::Experiment {
    /// Returns the runs of the experiment: curve, x and task. Quick runs are fewer and shorter.
    pub fn cases(&self, is_quick: bool) -> Vec<(&'static str, f64, Task)> {
        let xs = if is_quick { self.xs_quick } else { self.xs };
        let cases_of = |curve: &Curve| {
            let at = |x: &f64| {
                let task = (curve.task)(*x)?;
                Some((curve.name, *x, if is_quick { task.quick()? } else { task }))
            };
            xs.iter().filter_map(at).collect::<Vec<_>>()
        };
        self.curves.iter().flat_map(cases_of).collect()
    }

    /// Compares each curve with its counterpart in the paper, if there is one: the median of the
    /// ratios of our values to the paper's, and whether every point lies within 25 %, which counts
    /// as reproduced. A curve of [`Role::Ours`] is better if no point is worse than that, and some
    /// point is better.
    pub fn comparisons(&self, measured: &Measured) -> Vec<Comparison> {
        let compare = |curve: &Curve| {
            let column = curve.column?;
            let points = measured.curves.get(curve.name)?;
            let ratio = |(x, values): &(f64, Values)| {
                Some((*x, value_at(measured.metric, *x, values)? / self.reference.at(column, *x)?))
            };
            let is_compared = |(x, _): &(f64, f64)| curve.role.calibrated_at() != Some(*x);
            let ratios = points.iter().filter_map(ratio).filter(is_compared);
            let mut ratios: Vec<(f64, f64)> = ratios.collect();
            ratios.sort_by(|one, other| one.1.total_cmp(&other.1));
            let (least, most) = (*ratios.first()?, *ratios.last()?);
            let median = ratios[ratios.len() / 2].1;
            let (name, role, remark) = (curve.name, curve.role, curve.remark);
            let outcome = role.outcome(&ratios);
            Some(Comparison { name, role, remark, median, least, most, outcome })
        };
        self.curves.iter().filter_map(compare).collect()
    }
}

/// Comparison of a curve with the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Name of the curve.
    pub name: &'static str,
    /// What the comparison shows.
    pub role: Role,
    /// Explanation of a difference, if there is one.
    pub remark: &'static str,
    /// Median of the ratios of our values to the paper's.
    pub median: f64,
    /// Lowest ratio, with its x.
    pub least: (f64, f64),
    /// Highest ratio, with its x.
    pub most: (f64, f64),
    /// What all ratios show; `None` if the comparison is no test of the model.
    pub outcome: Option<Outcome>,
}
