//! `bench arbiter`: allocation of timeslots and paths (Fastpass, SIGCOMM 2014, sections 3 and 4;
//! docs/design/arbiter.md, "What does a timeslot cost, and where does the time go?").

mod comm;
mod completion;
mod incast;
mod jitter;
mod load;
mod pipeline;
mod plain;
mod realtime;
mod workers;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onepipe_arbiter::{
    Allocator, ArbiterConfig, BATCH_SLOTS_MAX, Config, Core, Fabric, NO_DESTINATION, Paths, Policy,
    Schedule, Timeslot,
};
use onepipe_base::ProcessId;

use crate::{Better, Detail, Harness, Progress, Report};
pub use comm::{CommOptions, arbiter_comm};
use completion::Completion;
pub use incast::{
    Incast, Outcome as IncastOutcome, Phase as IncastPhase, Snapshot as IncastSnapshot,
    Timeslots as IncastTimeslots,
};
use load::Load;
use plain::{PlainAllocator, PlainPaths};
pub use realtime::{RealtimeOptions, arbiter_realtime};

/// Options of [`arbiter_alloc`] and [`arbiter_path`].
#[derive(Clone, Debug, PartialEq)]
pub struct ArbiterOptions {
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Numbers of endpoints. Default 32, 256, 1024, 4096 for timeslots, 512 and 1024 for paths.
    pub nodes: Vec<u32>,
    /// Loads, as fractions of what the endpoints can send. Default 0.1, 0.5, 0.9, 0.99.
    pub loads: Vec<f64>,
    /// Timeslots per batch. Default 64.
    pub batch_slots: u32,
    /// Allocation policy. Default max–min fair.
    pub policy: Policy,
    /// Approximate number of packets granted in one run. Default 8 million.
    pub packets: u64,
    /// Cores: one for everything, or one that keeps the demand table and builds schedules and
    /// others that allocate timeslots, batch by batch in turn. Default 1.
    pub cores: usize,
    /// Traces for the (untimed) completion times of transfers; 0 measures none. Default 3.
    pub traces: u64,
}

impl Default for ArbiterOptions {
    fn default() -> Self {
        Self {
            runs: 3,
            nodes: vec![32, 256, 1_024, 4_096],
            loads: vec![0.1, 0.5, 0.9, 0.99],
            batch_slots: BATCH_SLOTS_MAX,
            policy: Policy::MaxMinFair,
            packets: 8_000_000,
            cores: 1,
            traces: 3,
        }
    }
}

impl ArbiterOptions {
    /// Returns the defaults for paths: racks of 32, four paths, as in the Fastpass paper.
    pub fn of_paths() -> Self {
        Self { nodes: vec![512, 1_024], ..Self::default() }
    }

    fn slots(&self, nodes: u32, load: f64) -> u64 {
        let slots = (self.packets as f64 / (f64::from(nodes) * load)) as u64;
        slots.clamp(2_048, 400_000).next_multiple_of(u64::from(self.batch_slots))
    }
}

const ABOUT_ALLOC: &str = "timeslots on one core or a pipeline of cores: requests in, allocation, schedules out; \
                          transfers of 10 packets in the mean between uniformly random pairs; \
                          yardstick: a plain allocator, one packet a visit, least recently served \
                          first; utilisation: granted of what was requested while measured; \
                          completion: from the arrival of a transfer to the end of its last timeslot, \
                          untimed, of both allocators on the same traces";

/// Measures the time of allocating a timeslot.
///
/// # Errors
/// Returns an error when a timeslot is not a matching, or grants differ from requests.
pub fn arbiter_alloc(
    options: &ArbiterOptions,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let harness = Harness::new("arbiter alloc", ABOUT_ALLOC).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    let policy = match options.policy {
        Policy::MaxMinFair => "fair",
        Policy::ShortestFirst => "shortest",
    };
    for &nodes in &options.nodes {
        for &load in &options.loads {
            let slots = options.slots(nodes, load);
            let batch = options.batch_slots;
            let cores = match options.cores {
                1 => String::new(),
                cores => format!(" cores={cores}"),
            };
            let case = format!("nodes={nodes} load={load} batch={batch} policy={policy}{cores}");
            let mut details = Vec::new();
            harness.measure(
                &case,
                "us/slot",
                Better::Lower,
                || {
                    let outcome = ours(options, nodes, load, slots)?;
                    details = outcome.details();
                    Ok(outcome.slot_us())
                },
                || Ok(plain(options, nodes, load, slots)?.slot_us()),
            )?;
            details.extend(completions(options, nodes, load)?);
            harness.detail(details);
        }
    }
    Ok(harness.finish())
}

/// Returns the completion times of transfers with our allocator and with the plain one.
fn completions(options: &ArbiterOptions, nodes: u32, load: f64) -> Result<Vec<Detail>> {
    let ArbiterOptions { batch_slots, traces, .. } = *options;
    let workload = (nodes, load, batch_slots);
    if traces == 0 {
        return Ok(Vec::new());
    }
    // With several cores, requests for a drained flow count `renew_after_batches` batches later
    // (see `workers::run`). One core with the same setting grants the same timeslots, so one is
    // run.
    let renew_after_batches = (options.cores as u32 - 1).min(16);
    let config = Config { renew_after_batches, ..config(options, nodes) };
    let ours = Completion::measure(workload, traces, || Ok(Allocator::new(config)?))?;
    let plain =
        Completion::measure(workload, traces, || Ok(PlainAllocator::new(nodes, batch_slots)))?;
    Ok([ours.details(""), plain.details("of plain ")].concat())
}

/// Result of a run.
struct Outcome {
    slots: u64,
    spent: Duration,
    requested: u64,
    granted: u64,
    /// With several cores: the least time per timeslot of a window, in us.
    fastest: Option<f64>,
    /// Times of each core, if there are several.
    cores: Vec<workers::CpuTime>,
}

impl Outcome {
    fn slot_us(&self) -> f64 {
        self.spent.as_secs_f64() * 1e6 / self.slots as f64
    }

    fn details(&self) -> Vec<Detail> {
        let seconds = self.spent.as_secs_f64();
        let detail = |name: &str, value: f64, unit: &str| Detail {
            name: name.to_string(),
            value,
            unit: unit.to_string(),
        };
        let mut details = vec![
            detail("utilisation", self.granted as f64 / self.requested as f64, ""),
            // Packets of 1500 bytes, the unit of the Fastpass paper.
            detail("admitted", self.granted as f64 * 12_000.0 / 1e9 / seconds, "Gbit/s"),
            detail("timeslots", self.slots as f64 / seconds, "slots/s"),
        ];
        details.extend(self.fastest.map(|least| detail("fastest 64 batches", least, "us/slot")));
        for (nth, core) in self.cores.iter().enumerate() {
            details.extend(core.details(&format!("core {nth}"), self.slots));
        }
        details
    }
}

/// Returns an arbiter with this allocator and all endpoints behind one switch, so that nothing but
/// the allocation is measured.
fn arbiter_config(config: Config, slot_ns: u64) -> ArbiterConfig {
    let nodes = config.nodes;
    let arbiter = ArbiterConfig::new(ProcessId(nodes), Core::One { nodes }, slot_ns);
    ArbiterConfig { allocator: config, ..arbiter }
}

/// An allocator under test.
trait SlotAllocator {
    fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<()>;
    /// Writes the next batch into `schedule` and returns the number of its packets.
    fn allocate(&mut self, schedule: &mut Schedule) -> u64;
}

impl SlotAllocator for Allocator {
    fn request(&mut self, src: u32, dst: u32, slots: u32) -> Result<()> {
        Ok(Allocator::request(self, src, dst, slots)?)
    }

    fn allocate(&mut self, schedule: &mut Schedule) -> u64 {
        let batch = self.next_batch();
        schedule.fill(batch.grants());
        u64::from(batch.granted())
    }
}

fn config(options: &ArbiterOptions, nodes: u32) -> Config {
    let ArbiterOptions { batch_slots, policy, .. } = *options;
    Config { batch_slots, policy, ..Config::new(nodes) }
}

fn ours(options: &ArbiterOptions, nodes: u32, load: f64, slots: u64) -> Result<Outcome> {
    let config = config(options, nodes);
    match options.cores {
        1 => run(Allocator::new(config)?, options, nodes, load, slots),
        cores => pipeline::run(config, cores, load, slots),
    }
}

fn plain(options: &ArbiterOptions, nodes: u32, load: f64, slots: u64) -> Result<Outcome> {
    run(PlainAllocator::new(nodes, options.batch_slots), options, nodes, load, slots)
}

/// Runs an allocator; the first half of the timeslots is warm-up.
fn run(
    mut allocator: impl SlotAllocator,
    options: &ArbiterOptions,
    nodes: u32,
    load: f64,
    slots: u64,
) -> Result<Outcome> {
    let mut schedule = Schedule::new(nodes);
    let mut load = Load::new(nodes, load);
    let mut outcome = Outcome {
        slots: 0,
        spent: Duration::ZERO,
        requested: 0,
        granted: 0,
        fastest: None,
        cores: Vec::new(),
    };
    let mut waiting = 0i64;
    let batch = u64::from(options.batch_slots);
    for start in (0..slots).step_by(batch as usize) {
        let arrivals = load.until(start);
        let clock = Instant::now();
        for &(src, dst, slots) in arrivals {
            allocator.request(src, dst, slots)?;
        }
        let granted = allocator.allocate(&mut schedule);
        let spent = clock.elapsed();
        let requested: u64 = arrivals.iter().map(|(.., slots)| u64::from(*slots)).sum();
        waiting += requested as i64 - granted as i64;
        ensure!(waiting >= 0, "{} more packets were granted than requested", -waiting);
        if start / batch % 16 == 0 {
            check(&schedule, options.batch_slots, granted)?;
        }
        if start >= slots / 2 {
            outcome.slots += batch;
            outcome.spent += spent;
            outcome.requested += requested;
            outcome.granted += granted;
        }
    }
    Ok(outcome)
}

/// Checks that every timeslot is a matching and that the schedule has `granted` packets.
fn check(schedule: &Schedule, slots: u32, granted: u64) -> Result<()> {
    let mut packets = 0;
    let mut receives = vec![u64::MAX; schedule.nodes() as usize];
    for slot in 0..u64::from(slots) {
        for (src, dst) in schedule.pairs(slot as u32) {
            let before = std::mem::replace(&mut receives[usize::from(dst)], slot);
            ensure!(before != slot, "endpoint {dst} receives twice in a timeslot, from {src}, too");
            packets += 1;
        }
    }
    ensure!(packets == granted, "{granted} packets were granted, {packets} are in the schedule");
    Ok(())
}

const ABOUT_PATH: &str = "one core chooses paths: racks of 32 endpoints, four paths, batches of 64 \
                     timeslots as the allocator gives them; yardstick: colouring the same by a \
                     table of colours, without bit sets";

/// Measures the time of choosing the paths of a timeslot.
///
/// # Errors
/// Returns an error when a link is overloaded.
pub fn arbiter_path(
    options: &ArbiterOptions,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let harness = Harness::new("arbiter path", ABOUT_PATH).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    for &nodes in &options.nodes {
        for &load in &options.loads {
            let schedules = schedules(nodes, load)?;
            let fabric = Fabric { nodes, rack_nodes: 32, paths: 4, is_strict: false };
            // Times per packet that others were recoloured to give it a path.
            let mut flips = 0.0;
            harness.measure(
                &format!("racks={} paths=4 load={load}", nodes.div_ceil(32)),
                "us/slot",
                Better::Lower,
                || {
                    let mut paths = Paths::new(fabric)?;
                    let spent = time_assignment(&schedules, fabric, |schedule, routes| {
                        let without_path = paths.assign(schedule, Timeslot(0), BATCH_SLOTS_MAX);
                        (0..nodes).for_each(|src| routes[src as usize] = *paths.of(src));
                        without_path
                    })?;
                    let stats = paths.stats();
                    flips = stats.flips as f64 / stats.packets.max(1) as f64;
                    Ok(spent)
                },
                || {
                    let mut paths = PlainPaths::new(fabric);
                    time_assignment(&schedules, fabric, |schedule, routes| {
                        paths.assign(schedule, routes)
                    })
                },
            )?;
            let unit = String::new();
            harness.detail(vec![Detail {
                name: "flips per packet".to_string(),
                value: flips,
                unit,
            }]);
        }
    }
    Ok(harness.finish())
}

/// Paths by source and timeslot.
type Routes = [[u8; BATCH_SLOTS_MAX as usize]];

/// Returns batches in the steady state.
fn schedules(nodes: u32, load: f64) -> Result<Vec<Schedule>> {
    const WARM_UP: u64 = 128;
    const MEASURED: u64 = 16;
    let mut allocator = Allocator::new(Config::new(nodes))?;
    let mut load = Load::new(nodes, load);
    let mut schedules = Vec::new();
    for number in 0..WARM_UP + MEASURED {
        for &(src, dst, slots) in load.until(number * u64::from(BATCH_SLOTS_MAX)) {
            allocator.request(src, dst, slots)?;
        }
        let mut schedule = Schedule::new(nodes);
        schedule.fill(allocator.next_batch().grants());
        if number >= WARM_UP {
            schedules.push(schedule);
        }
    }
    Ok(schedules)
}

/// Returns the time of assigning paths per timeslot, over all schedules, in us; results are checked
/// untimed.
fn time_assignment(
    schedules: &[Schedule],
    fabric: Fabric,
    mut assign: impl FnMut(&Schedule, &mut Routes) -> u32,
) -> Result<f64> {
    let row = [Paths::NONE; BATCH_SLOTS_MAX as usize];
    let mut routes = vec![row; fabric.nodes as usize];
    let mut spent = Duration::ZERO;
    for schedule in schedules {
        let clock = Instant::now();
        let without_path = assign(schedule, &mut routes);
        spent += clock.elapsed();
        ensure!(without_path == 0, "{without_path} packets have no path");
        check_paths(schedule, fabric, &routes)?;
    }
    let slots = schedules.len() as f64 * f64::from(BATCH_SLOTS_MAX);
    Ok(spent.as_secs_f64() * 1e6 / slots)
}

/// Checks that every packet between racks has a path, and that no link exceeds its share.
fn check_paths(schedule: &Schedule, fabric: Fabric, routes: &Routes) -> Result<()> {
    let (racks, paths) = (fabric.nodes.div_ceil(fabric.rack_nodes), fabric.paths);
    let packets_max = fabric.rack_nodes.div_ceil(paths);
    for slot in 0..BATCH_SLOTS_MAX {
        let mut packets = vec![0; (2 * racks * paths) as usize];
        for src in 0..fabric.nodes {
            let dst = schedule.of(src)[slot as usize];
            let [from, to] = [src, u32::from(dst)].map(|node| node / fabric.rack_nodes);
            if dst == NO_DESTINATION || from == to {
                continue;
            }
            let path = u32::from(routes[src as usize][slot as usize]);
            ensure!(path < paths, "no path from {src} to {dst}");
            for link in [from * paths + path, (racks + to) * paths + path] {
                packets[link as usize] += 1;
                ensure!(packets[link as usize] <= packets_max, "link {link} is overloaded");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_allocators_grant_all_requests() {
        let options = ArbiterOptions { batch_slots: 16, ..ArbiterOptions::default() };
        for outcome in [ours(&options, 24, 0.8, 4_096), plain(&options, 24, 0.8, 4_096)] {
            let outcome = outcome.expect("every timeslot is a matching");
            let utilisation = outcome.granted as f64 / outcome.requested as f64;
            assert!((0.9..1.1).contains(&utilisation), "{utilisation}");
        }
    }

    #[test]
    fn paths_are_valid_and_overloaded_link_is_detected() {
        let fabric = Fabric { nodes: 128, rack_nodes: 32, paths: 4, is_strict: false };
        let schedules = schedules(128, 0.9).expect("valid settings");
        let mut plain = PlainPaths::new(fabric);
        time_assignment(&schedules, fabric, |schedule, routes| plain.assign(schedule, routes))
            .expect("no link is overloaded");
        let bad = time_assignment(&schedules, fabric, |_, routes| {
            routes.fill([0; BATCH_SLOTS_MAX as usize]);
            0
        });
        assert!(bad.is_err());
    }

    #[test]
    fn detects_schedule_that_is_not_a_matching() {
        let mut schedule = Schedule::new(3);
        let grant = |src| onepipe_arbiter::Grant { src, dst: 0, slots: 1 };
        schedule.fill(&[grant(1), grant(2)]);
        assert!(check(&schedule, 64, 2).is_err());
        schedule.fill(&[grant(1)]);
        assert!(check(&schedule, 64, 2).is_err(), "one is missing");
        assert!(check(&schedule, 64, 1).is_ok());
    }
}
