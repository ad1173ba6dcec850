//! What an experiment is: a value, not a program.

use std::collections::BTreeMap;

use anyhow::Result;
use onepipe_bench_micro::{beacon_cores, reordered};
use onepipe_sim_recovery::{Component, Options, Recovery};
use serde::{Deserialize, Serialize};

use crate::reference::Reference;
use crate::world::{beacon_share, fat_tree};
use crate::{Background, Large, Multicast, Rack, Setup, Takeover, cores};

/// What a run has measured, by name.
pub type Values = BTreeMap<String, f64>;

/// One figure.
#[derive(Debug)]
pub struct Experiment {
    /// As in the paper: `8a`.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper says of it.
    pub headline: &'static str,
    /// What is varied.
    pub x: Axis,
    /// What is measured.
    pub y: Axis,
    /// The name of that in [`Values`]. `{x}` stands for the place on the x axis: one run may have
    /// measured several.
    pub metric: &'static str,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Where on the x axis, when there is time.
    pub xs: &'static [f64],
    /// Where, when there is little.
    pub xs_quick: &'static [f64],
    /// The paper's points.
    pub reference: Reference,
    /// What is to hold beyond the points.
    pub claims: Vec<Claim>,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// With its unit.
    pub label: &'static str,
    /// Whether it is logarithmic.
    pub is_log: bool,
}

/// A curve.
#[derive(Debug)]
pub struct Curve {
    /// Its name in the legend and in the CSV.
    pub name: &'static str,
    /// The paper's curve beside it: a column of the reference.
    pub column: Option<&'static str>,
    /// What it is judged by, or why it is not.
    pub role: Role,
    /// Why it differs from the paper's, if it does.
    pub remark: &'static str,
    /// The run at `x`; `None` where the curve has no point.
    pub task: fn(f64) -> Option<Task>,
}

/// Whether a curve says anything about the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was predicted: it may fail.
    Predicted,
    /// Calibrated by it: it holds by construction where it was fitted.
    Calibration,
    /// Measured on this machine, which is not the paper's.
    Machine,
    /// Simulated with costs that were measured on this machine.
    MachineCosts,
}

/// Something that is to hold of a whole figure.
#[derive(Debug)]
pub struct Claim {
    /// In words.
    pub text: &'static str,
    /// Judges it by the curves that were measured; `None` when they do not reach far enough.
    pub judge: fn(&Measured) -> Option<Verdict>,
    /// What is to be said when it does not hold.
    pub remark: &'static str,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Whether it holds.
    pub holds: bool,
    /// Our number.
    pub ours: String,
    /// The paper's.
    pub paper: String,
}

/// The points of a figure: by curve, then by x.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Each curve's points, ascending.
    pub curves: BTreeMap<&'static str, Vec<(f64, Values)>>,
    /// Which of the values counts.
    pub metric: &'static str,
}

/// What counts of what was measured for the place `x`.
pub fn value_at(metric: &str, x: f64, values: &Values) -> Option<f64> {
    match metric.contains("{x}") {
        true => values.get(&metric.replace("{x}", &x.to_string())).copied(),
        false => values.get(metric).copied(),
    }
}

impl Measured {
    /// The value of `curve` at `x`.
    pub fn at(&self, curve: &str, x: f64) -> Option<f64> {
        value_at(self.metric, x, self.values(curve, x)?)
    }

    /// Another value that was measured for `curve` at `x`.
    pub fn other(&self, curve: &str, x: f64, name: &str) -> Option<f64> {
        self.values(curve, x)?.get(name).copied()
    }

    fn values(&self, curve: &str, x: f64) -> Option<&Values> {
        let points = self.curves.get(curve)?;
        points.iter().find(|(at, _)| *at == x).map(|(_, values)| values)
    }
}

/// One run. Equal tasks have equal values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// A system under a load.
    Order(Setup),
    /// The same beside flows that share its links.
    Shared(Setup, Background),
    /// A system under a load, with what a message costs this machine, measured in the same run.
    Measured(Setup),
    /// Beacons on an idle testbed.
    BeaconShare {
        /// Between two beacons, in ns.
        interval_ns: u64,
        /// Of all links, in Gbit/s.
        gbps: u32,
    },
    /// The cores of this machine that the beacons of a switch with 32 ports take.
    BeaconCores {
        /// Between two beacons, in ns.
        interval_ns: u64,
    },
    /// A receiver's reorder stage on this machine.
    Reorder {
        /// How long messages wait, in ns.
        delay_ns: u64,
    },
    /// Bulk traffic on Fastpass's rack.
    Rack(Rack),
    /// One arbiter takes over from another there.
    Takeover(Takeover),
    /// Bulk multicast.
    Multicast(Multicast),
    /// A payload of some size in the order, beside small messages.
    Large(Large),
    /// Timeslots given out by a core of this machine.
    Timeslots {
        /// Endpoints.
        nodes: u32,
        /// The load, in thousandths of what they can send.
        load_permille: u32,
    },
    /// Endpoints served by a core of this machine, over UDP.
    Communication {
        /// Endpoints.
        nodes: u32,
    },
    /// Paths chosen by a core of this machine.
    Paths {
        /// Endpoints, 32 to a rack.
        nodes: u32,
        /// The load, in thousandths of what they can send.
        load_permille: u32,
    },
    /// Agreed multicast on the poster's testbed.
    Agreed(Agreed),
    /// A failure.
    Recovery {
        /// Hosts with a process.
        hosts: u32,
        /// What fails: a name of `onepipe_sim_recovery::Component`.
        component: String,
        /// Whatever is left to chance.
        seed: u64,
    },
    /// The failure of a host of a fat tree.
    RecoveryAtScale {
        /// As many as a fat tree has.
        hosts: u32,
        /// The news goes round in waves; else one is told after the other.
        is_tree: bool,
        /// Whatever is left to chance.
        seed: u64,
    },
}

/// A load on the testbed of P4mCast's poster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Whether switches order; else processes on hosts, as PrimCast has it.
    pub is_in_switches: bool,
    /// Whether the frames of these go through their kernels.
    pub has_kernel: bool,
    /// Bytes of a request.
    pub bytes: u32,
    /// Requests a second.
    pub offered_per_s: u64,
}

/// 1Pipe section 7.2.
const SWITCH_PORTS: u16 = 32;
/// Intervals over which a switch's beacons are measured: some ten milliseconds.
const ROUNDS: usize = 20_000;

impl Task {
    /// Whether it is to run alone: it measures real time, or takes gigabytes.
    pub fn is_alone(&self) -> bool {
        match self {
            Self::Measured(_) | Self::BeaconCores { .. } | Self::Reorder { .. } => true,
            Self::Timeslots { .. } | Self::Paths { .. } | Self::Communication { .. } => true,
            Self::Order(setup) => setup.processes > 5_000,
            Self::Multicast(multicast) => multicast.is_large(),
            Self::RecoveryAtScale { hosts, .. } => *hosts > 5_000,
            _ => false,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// When it cannot be laid out, or something that must hold was broken.
    pub fn run(&self) -> Result<Values> {
        match self {
            Self::Order(setup) => setup.run(),
            Self::Shared(setup, background) => setup.run_beside(*background),
            Self::Measured(setup) => {
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
                let mega = |value: f64| value / 1e6;
                let values = [
                    ("throughput_mps", mega(measured.rate_per_s)),
                    ("memory_mb", mega(measured.waiting_bytes_max as f64)),
                ];
                Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
            }
            Self::Rack(rack) => rack.run(),
            Self::Takeover(takeover) => takeover.run(),
            Self::Multicast(multicast) => multicast.run(),
            Self::Communication { nodes } => cores::communication(*nodes),
            Self::Large(large) => large.run(),
            Self::Timeslots { nodes, load_permille } => cores::timeslots(*nodes, *load_permille),
            Self::Paths { nodes, load_permille } => cores::paths(*nodes, *load_permille),
            Self::Agreed(agreed) => Ok(agreed.run()),
            Self::Recovery { hosts, component, seed } => {
                let component = Component::ALL.into_iter().find(|one| one.name() == component);
                let component = component.unwrap_or(Component::Host);
                let options = Options::testbed(*hosts, component, Recovery::Flat, *seed);
                recovered(&options)
            }
            Self::RecoveryAtScale { hosts, is_tree, seed } => {
                let shape = fat_tree(*hosts)?;
                let how = if *is_tree { Recovery::Tree } else { Recovery::Flat };
                recovered(&Options::full(shape, Component::Host, how, *seed))
            }
        }
    }
}

fn recovered(options: &Options) -> Result<Values> {
    let measured = onepipe_sim_recovery::run(options, |_| {})?;
    Ok([("recovery_us".to_owned(), measured.stall_us())].into())
}

impl crate::Experiment {
    /// Its runs: curve, x and task.
    pub fn cases(&self, is_quick: bool) -> Vec<(&'static str, f64, Task)> {
        let xs = if is_quick { self.xs_quick } else { self.xs };
        let of = |curve: &Curve| {
            let (name, task) = (curve.name, curve.task);
            xs.iter().filter_map(move |x| Some((name, *x, task(*x)?))).collect::<Vec<_>>()
        };
        self.curves.iter().flat_map(of).collect()
    }

    /// Each curve that has one beside it in the paper: its name, the median of our value over the
    /// paper's, and whether every point lies within 25 % (experiments.md, "a figure counts as
    /// reproduced").
    pub fn compared(&self, measured: &Measured) -> Vec<Compared> {
        let compare = |curve: &Curve| {
            let column = curve.column?;
            let points = measured.curves.get(curve.name)?;
            let ratio = |(x, values): &(f64, Values)| {
                Some((*x, value_at(measured.metric, *x, values)? / self.reference.at(column, *x)?))
            };
            let mut ratios: Vec<(f64, f64)> = points.iter().filter_map(ratio).collect();
            ratios.sort_by(|one, other| one.1.total_cmp(&other.1));
            let (least, most) = (*ratios.first()?, *ratios.last()?);
            let median = ratios[ratios.len() / 2].1;
            let holds = least.1 >= 0.75 && most.1 <= 1.25;
            let (name, role, remark) = (curve.name, curve.role, curve.remark);
            Some(Compared { name, role, remark, median, least, most, holds })
        };
        self.curves.iter().filter_map(compare).collect()
    }
}

/// A curve beside the paper's.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The curve.
    pub name: &'static str,
    /// Whether it could have failed.
    pub role: Role,
    /// Why it differs, if it does.
    pub remark: &'static str,
    /// Half of the points have a lower ratio of our value to the paper's.
    pub median: f64,
    /// The lowest, with its x.
    pub least: (f64, f64),
    /// The highest.
    pub most: (f64, f64),
    /// Whether all lie within 25 %.
    pub holds: bool,
}
