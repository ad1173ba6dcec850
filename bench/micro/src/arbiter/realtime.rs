//! `bench arbiter realtime`: timeslots granted in real time, each batch a fixed lead before its
//! first timeslot (docs/design/arbiter.md, "How does an arbiter that was late come back?").

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use onepipe_arbiter::{AllocatedBatch, BatchScheduler, Config, Policy, ScheduledBatch, Timeslot};
use onepipe_transport_clock::cores;

use super::check;
use super::jitter::{self, Jitter};
use super::load::Load;
use super::plain::PlainAllocator;
use super::workers::{self, ControlCore, CpuMeter, CpuTime};
use crate::{Better, Detail, Harness, Progress, Report};

/// Options of [`arbiter_realtime`].
#[derive(Clone, Debug, PartialEq)]
pub struct RealtimeOptions {
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Length of each run, in s. Default 0.3, so that a kernel that limits real-time threads to 95
    /// % of a second does not throttle a run.
    pub seconds: f64,
    /// Numbers of endpoints. Default 256.
    pub nodes: Vec<u32>,
    /// Length of a timeslot, in ns. Default 312: a full packet at 40 Gbit/s.
    pub slot_ns: u64,
    /// Loads, as fractions of what the endpoints can send. Default 0.8.
    pub loads: Vec<f64>,
    /// Timeslots per batch. Default 64.
    pub batch_slots: u32,
    /// Deadline of a batch after its request, in ns; the batch begins then. Default 65 us, the lead
    /// of Fastpass.
    pub lead_ns: u64,
    /// Allocation policy. Default max–min fair.
    pub policy: Policy,
    /// Cores: one for everything, or one that keeps the demand table and builds schedules and
    /// others that allocate timeslots, batch by batch in turn. Default 2.
    pub cores: usize,
}

impl Default for RealtimeOptions {
    fn default() -> Self {
        Self {
            runs: 3,
            seconds: 0.3,
            nodes: vec![256],
            slot_ns: 312,
            loads: vec![0.8],
            batch_slots: 64,
            lead_ns: 65_000,
            policy: Policy::MaxMinFair,
            cores: 2,
        }
    }
}

const ABOUT: &str = "timeslots granted in real time: a batch is requested a lead before it begins; what \
                    is granted later counts for nothing; skipping and holding back when \
                    late follow the daemon; value: time that the busiest core is \
                    busy per timeslot; yardsticks: a plain allocator on one core, as \
                    fast as it can; idle threads on the same cores that only read the clock: \
                    how often the core was taken from them";
/// Capacity for batches in flight: more than the scheduler starts.
const IN_FLIGHT_MAX: usize = 32;
/// Fraction (1/n) of the batches that is warm-up.
const WARM_UP: usize = 8;
/// Interval of checked schedules, in batches; only batches of the warm-up are checked.
const CHECK_INTERVAL: usize = 16;

/// Measures granting timeslots in real time.
///
/// # Errors
/// Returns an error when a timeslot is not a matching, or there are too few cores.
pub fn arbiter_realtime(
    options: &RealtimeOptions,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report> {
    let available = cores()?;
    ensure!(available.len() >= options.cores, "there are {} cores", available.len());
    let harness = Harness::new("arbiter realtime", ABOUT).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    let RealtimeOptions { slot_ns, batch_slots, policy, .. } = *options;
    for &nodes in &options.nodes {
        for &load in &options.loads {
            let config = Config { batch_slots, policy, ..Config::new(nodes) };
            let slots = (options.seconds * 1e9 / slot_ns as f64) as u64;
            let requests = Requests::new(config, load, slots.max(1_024));
            let case =
                format!("nodes={nodes} slot={slot_ns}ns load={load} cores={}", options.cores);
            let (mut runs, mut stalls) = (Vec::new(), Jitter::new()?);
            harness.measure(
                &case,
                "us/slot",
                Better::Lower,
                || {
                    // The kernel stops real-time threads that run for more than 95 % of a second.
                    // This pause is long enough that it stops none during the run.
                    std::thread::sleep(Duration::from_secs_f64(options.seconds));
                    stalls
                        .add(&jitter::run(&available[..options.cores.max(1)], options.seconds)?)?;
                    let run = run(options, config, &available, &requests)?;
                    let slot_us = run.slot_us();
                    runs.push(run);
                    Ok(slot_us)
                },
                || plain(config, &requests),
            )?;
            let mut details = details(&runs, options);
            details.extend(stalls.details(options.lead_ns));
            harness.detail(details);
        }
    }
    Ok(harness.finish())
}

/// The requests of all batches.
struct Requests {
    all: Vec<(u16, u16, u32)>,
    /// End index of the requests of each batch.
    ends: Vec<usize>,
}

impl Requests {
    fn new(config: Config, load: f64, slots: u64) -> Self {
        let mut load = Load::new(config.nodes, load);
        let mut requests = Self { all: Vec::new(), ends: Vec::new() };
        for start in (0..slots).step_by(config.batch_slots as usize) {
            let arrivals = load.until(start).iter();
            requests.all.extend(arrivals.map(|&(src, dst, slots)| (src as u16, dst as u16, slots)));
            requests.ends.push(requests.all.len());
        }
        requests
    }

    fn batches(&self) -> usize {
        self.ends.len()
    }

    /// Returns the first measured batch.
    fn first_measured(&self) -> usize {
        self.batches() / WARM_UP
    }

    fn of(&self, batch: usize) -> &[(u16, u16, u32)] {
        let begin = if batch == 0 { 0 } else { self.ends[batch - 1] };
        &self.all[begin..self.ends[batch]]
    }

    fn requested(&self) -> u64 {
        let measured = (self.first_measured()..self.batches()).flat_map(|batch| self.of(batch));
        measured.map(|(.., slots)| u64::from(*slots)).sum()
    }
}

/// Result of a run.
struct Run {
    /// Measured timeslots.
    slots: u64,
    requested: u64,
    /// Requested and not granted when measuring began, and when it ended.
    backlog_before: u64,
    backlog_after: u64,
    /// Packets granted before their timeslots began, and later.
    in_time: u64,
    too_late: u64,
    /// Batches that were granted after they had begun.
    late: u64,
    /// Timeslots that were skipped.
    skipped: u64,
    /// Number of batches for which part of the demand was held back.
    held_back: u64,
    batches: u64,
    /// Time from the request of a batch to its grant, in ns.
    lag: Histogram<u64>,
    /// Times of each core.
    cores: Vec<CpuTime>,
}

impl Run {
    fn new() -> Result<Self> {
        Ok(Self {
            slots: 0,
            requested: 0,
            backlog_before: 0,
            backlog_after: 0,
            in_time: 0,
            too_late: 0,
            late: 0,
            skipped: 0,
            held_back: 0,
            batches: 0,
            // Values up to ten seconds.
            lag: Histogram::new_with_bounds(1, 10_000_000_000, 3)?,
            cores: Vec::new(),
        })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.slots += other.slots;
        self.requested += other.requested;
        self.backlog_before += other.backlog_before;
        self.backlog_after += other.backlog_after;
        self.in_time += other.in_time;
        self.too_late += other.too_late;
        self.late += other.late;
        self.skipped += other.skipped;
        self.held_back += other.held_back;
        self.batches += other.batches;
        self.cores.resize(self.cores.len().max(other.cores.len()), CpuTime::default());
        self.cores.iter_mut().zip(&other.cores).for_each(|(own, other)| own.add(*other));
        Ok(self.lag.add(&other.lag)?)
    }

    fn slot_us(&self) -> f64 {
        let busiest = self.cores.iter().map(|core| core.busy).max().unwrap_or_default();
        busiest.as_secs_f64() * 1e6 / self.slots as f64
    }

    fn admitted(&self) -> f64 {
        self.in_time as f64 / self.requested as f64
    }
}

fn details(runs: &[Run], options: &RealtimeOptions) -> Vec<Detail> {
    let detail = |name: &str, value: f64, unit: &str| Detail {
        name: name.to_string(),
        value,
        unit: unit.to_string(),
    };
    let Some(all) = sum(runs) else { return Vec::new() };
    let lag_us = |percent: f64| all.lag.value_at_percentile(percent) as f64 / 1e3;
    let admitted = runs.iter().map(Run::admitted);
    let is_perfect = |run: &&Run| run.late + run.skipped == 0;
    let mut details = vec![
        detail("admitted of requested, all runs", all.admitted(), ""),
        detail("in the worst run", admitted.clone().fold(f64::INFINITY, f64::min), ""),
        detail("in the best", admitted.fold(0.0, f64::max), ""),
        detail("backlog before", all.backlog_before as f64 / all.requested as f64, "of requested"),
        detail("backlog after", all.backlog_after as f64 / all.requested as f64, "of requested"),
        detail("granted too late", all.too_late as f64 / all.requested as f64, "of requested"),
        detail("late", all.late as f64, "batches"),
        detail("skipped", all.skipped as f64 / all.slots as f64, "of timeslots"),
        detail("held back", all.held_back as f64, "times"),
        detail("runs without late or skipped", runs.iter().filter(is_perfect).count() as f64, ""),
        detail("batches", all.batches as f64, ""),
        detail("lead", options.lead_ns as f64 / 1e3, "us"),
        detail("lag p50", lag_us(50.0), "us"),
        detail("lag p99", lag_us(99.0), "us"),
        detail("lag p99.9", lag_us(99.9), "us"),
        detail("lag max", all.lag.max() as f64 / 1e3, "us"),
    ];
    for (nth, core) in all.cores.iter().enumerate() {
        details.extend(core.details(&format!("core {nth}"), all.slots));
    }
    details
}

fn sum(runs: &[Run]) -> Option<Run> {
    let mut all = Run::new().ok()?;
    runs.iter().try_for_each(|run| all.add(run)).ok()?;
    Some(all)
}

/// Runs once in real time, on the first of the available cores.
fn run(
    options: &RealtimeOptions,
    config: Config,
    available: &[usize],
    requests: &Requests,
) -> Result<Run> {
    let cores: Vec<_> = available[..options.cores.max(1)].iter().copied().map(Some).collect();
    let run_control = |control: ControlCore, is_measured: &AtomicBool| {
        BatchStarter::new(options, requests, control)?.work(is_measured)
    };
    let (mut run, others) = workers::run(config, options.slot_ns, &cores, run_control)?;
    run.cores.extend(others);
    Ok(run)
}

/// The core that starts batches when they are due.
struct BatchStarter<'a> {
    options: &'a RealtimeOptions,
    requests: &'a Requests,
    control: ControlCore,
    /// The first timeslot begins a lead after the start of the run.
    scheduler: BatchScheduler,
    /// The lead in timeslots.
    lead_slots: u64,
    began: Instant,
    /// Batches whose requests were read.
    requested: usize,
    in_flight: VecDeque<Timeslot>,
    meter: CpuMeter,
    run: Run,
}

impl<'a> BatchStarter<'a> {
    fn new(
        options: &'a RealtimeOptions,
        requests: &'a Requests,
        control: ControlCore,
    ) -> Result<Self> {
        let lead_slots = options.lead_ns.div_ceil(options.slot_ns);
        let workers = options.cores.saturating_sub(1) as u32;
        let mut scheduler = BatchScheduler::new(lead_slots, options.batch_slots, workers);
        scheduler.begin(Timeslot(lead_slots));
        Ok(Self {
            options,
            requests,
            control,
            scheduler,
            lead_slots,
            began: Instant::now() + Duration::from_millis(1),
            requested: 0,
            in_flight: VecDeque::with_capacity(IN_FLIGHT_MAX),
            meter: CpuMeter::new(),
            run: Run::new()?,
        })
    }

    fn work(mut self, is_measured: &AtomicBool) -> Result<Run> {
        let (batches, first_measured) = (self.requests.batches(), self.requests.first_measured());
        let slots = u64::from(self.options.batch_slots);
        // A batch that is due before the end may be started late and still meet its deadline.
        let (from, end) = (
            self.lead_slots + first_measured as u64 * slots,
            self.lead_slots + batches as u64 * slots,
        );
        while self.scheduler.next().0 < end || !self.in_flight.is_empty() {
            self.poll_batch()?;
            let Some(now) = Instant::now().checked_duration_since(self.began) else { continue };
            let now = Timeslot(now.as_nanos() as u64 / self.options.slot_ns);
            let next = self.scheduler.next().0;
            let is_ready = next < end && self.control.is_ready();
            let Some(scheduled) = is_ready.then(|| self.scheduler.poll_batch(now)).flatten() else {
                std::hint::spin_loop();
                continue;
            };
            if scheduled.start.0 >= end {
                self.run.skipped += end - next.max(from);
                continue;
            }
            if self.batch_at(now) >= first_measured {
                if !is_measured.load(Ordering::Relaxed) {
                    self.run.backlog_before = self.control.wanted();
                }
                is_measured.store(true, Ordering::Relaxed);
                self.meter.start();
                self.run.skipped += scheduled.skipped;
                self.run.held_back += u64::from(scheduled.is_overloaded);
            }
            self.start_batch(scheduled)?;
        }
        self.run.slots = (batches - first_measured) as u64 * slots;
        self.run.requested = self.requests.requested();
        self.run.backlog_after = self.control.wanted();
        self.run.cores = vec![self.meter.finish()];
        Ok(self.run)
    }

    /// Returns the batch that is due in this timeslot.
    fn batch_at(&self, now: Timeslot) -> usize {
        (now.0 / u64::from(self.options.batch_slots)) as usize
    }

    /// Reads the requests that are due, and starts the batch.
    fn start_batch(&mut self, scheduled: ScheduledBatch) -> Result<()> {
        let batch = self.batch_at(Timeslot(scheduled.start.0 - self.lead_slots));
        let (control, requests) = (&mut self.control, self.requests);
        let (requested, until) = (self.requested, (batch + 1).min(requests.batches()));
        let mut result = Ok(());
        self.meter.measure(|| {
            result = (requested..until).try_for_each(|number| control.request(requests.of(number)));
            if scheduled.is_overloaded {
                control.on_overload();
            }
            control.start_batch(scheduled.start.0);
            true
        });
        self.requested = requested.max(until);
        self.in_flight.push_back(scheduled.start);
        result
    }

    fn poll_batch(&mut self) -> Result<()> {
        let Some(&start) = self.in_flight.front() else { return Ok(()) };
        let batch = self.batch_at(Timeslot(start.0 - self.lead_slots));
        let is_measured = batch >= self.requests.first_measured();
        let (control, slots) = (&mut self.control, self.options.batch_slots);
        let mut granted = None;
        self.meter.measure(|| {
            granted = control.poll_batch(|allocated: &AllocatedBatch| {
                let packets = u64::from(allocated.summary().granted);
                if !is_measured && batch.is_multiple_of(CHECK_INTERVAL) {
                    check(allocated.schedule(), slots, packets)?;
                }
                anyhow::Ok(packets)
            });
            granted.is_some()
        });
        let Some(granted) = granted else { return Ok(()) };
        let (granted, now) = (granted?, self.began.elapsed().as_nanos() as u64);
        self.in_flight.pop_front();
        self.scheduler.on_batch_granted(Timeslot(now / self.options.slot_ns), start);
        if is_measured {
            let run = &mut self.run;
            let lag_ns = now.saturating_sub((start.0 - self.lead_slots) * self.options.slot_ns);
            run.batches += 1;
            run.lag.saturating_record(lag_ns);
            if lag_ns < self.lead_slots * self.options.slot_ns {
                run.in_time += granted;
            } else {
                run.too_late += granted;
                run.late += 1;
            }
        }
        Ok(())
    }
}

/// Returns the time of the plain allocator per timeslot, in us.
fn plain(config: Config, requests: &Requests) -> Result<f64> {
    let mut allocator = PlainAllocator::new(config.nodes, config.batch_slots);
    // A sample is enough, as the plain allocator has no deadlines.
    let batches = requests.batches().min(4_000);
    let mut schedule = onepipe_arbiter::Schedule::new(config.nodes);
    let begin = Instant::now();
    for batch in 0..batches {
        for &(src, dst, slots) in requests.of(batch) {
            super::SlotAllocator::request(&mut allocator, src.into(), dst.into(), slots)?;
        }
        super::SlotAllocator::allocate(&mut allocator, &mut schedule);
    }
    let slots = batches as f64 * f64::from(config.batch_slots);
    Ok(begin.elapsed().as_secs_f64() * 1e6 / slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_grants_in_time_from_late_grants() {
        let slow = RealtimeOptions {
            nodes: vec![16],
            // Far longer than a debug build needs on a busy machine.
            slot_ns: 1_000_000,
            lead_ns: 60_000_000_000,
            cores: 1,
            ..RealtimeOptions::default()
        };
        let available = cores().expect("list of cores");
        let config = Config::new(16);
        let requests = Requests::new(config, 0.5, 1_024);
        let some = run(&slow, config, &available, &requests).expect("valid schedule");
        assert_eq!((some.late, some.skipped, some.too_late, some.batches), (0, 0, 0, 14));
        assert!((0.5..1.5).contains(&some.admitted()), "{}", some.admitted());
        // Impossible deadlines: every batch is skipped or late.
        let hasty = RealtimeOptions { lead_ns: 0, slot_ns: 1, ..slow };
        let none = run(&hasty, config, &available, &requests).expect("valid schedule");
        assert_eq!((none.in_time, none.late), (0, none.batches));
        assert!(none.skipped > 0 && none.skipped <= 14 * 64, "{}", none.skipped);
    }
}
