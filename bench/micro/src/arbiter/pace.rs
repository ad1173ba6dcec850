//! `bench arbiter pace`: timeslots given out by the clock, each batch so long before it begins
//! (design: arbiter.md section 5, real time).

use std::sync::{Barrier, OnceLock};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use hdrhistogram::Histogram;
use onepipe_arbiter::{Command, Config, Demand, Policy, Timeslot};
use onepipe_daemon_arbiter::{Place, Post, places};
use onepipe_transport_clock::{cores, stay_on};

use super::load::Load;
use super::plain::PlainAllocator;
use super::{check, machine};
use crate::{Better, Detail, Harness, Progress, Report};

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct PaceOptions {
    /// How often each side runs. Default 3.
    pub runs: usize,
    /// How long each run takes, s. Default 0.3: a kernel that lets real-time threads have 95 % of a
    /// second takes none of it then.
    pub seconds: f64,
    /// Endpoints. Default 256.
    pub nodes: Vec<u32>,
    /// Length of a timeslot, ns. Default 312: a full packet at 40 Gbit/s.
    pub slot_ns: u64,
    /// Parts of what the endpoints could send at most. Default 0.8.
    pub loads: Vec<f64>,
    /// Timeslots of a batch. Default 64.
    pub batch_slots: u32,
    /// A batch is to be given out within this time, and begins then, ns. Default 65 us (design:
    /// arbiter.md section 1).
    pub lead_ns: u64,
    /// Whose packets go first. Default max–min fair.
    pub policy: Policy,
    /// Cores that give out timeslots, each every so many-th batch. Default 2.
    pub cores: usize,
}

impl Default for PaceOptions {
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

const PACE: &str = "timeslots given out by the clock on a pipeline of cores: a batch is asked for a \
                    lead before it begins, and what is given out later counts for nothing; value: \
                    busy time of all cores for a timeslot, waiting for each other with it; \
                    yardstick: a plain allocator on one core, as fast as it can";
/// Of the batches, one in so many comes before anything is measured.
const WARM_UP: usize = 8;
/// Batches whose schedules are looked at, one in so many, and before anything is measured only.
const CHECKED: usize = 16;

/// Timeslots given out by the clock.
///
/// # Errors
/// When a timeslot is no matching, or there are fewer cores than are asked for.
pub fn arbiter_pace(options: &PaceOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let there = cores()?;
    ensure!(there.len() >= options.cores, "there are {} cores", there.len());
    let harness = Harness::new("arbiter pace", PACE).with_runs(options.runs);
    let mut harness = harness.with_progress(progress);
    let PaceOptions { slot_ns, batch_slots, policy, .. } = *options;
    for &nodes in &options.nodes {
        for &load in &options.loads {
            let config = Config { batch_slots, policy, ..Config::new(nodes) };
            let slots = (options.seconds * 1e9 / slot_ns as f64) as u64;
            let requests = Requests::new(config, load, slots.max(1_024));
            let case =
                format!("nodes={nodes} slot={slot_ns}ns load={load} cores={}", options.cores);
            let mut runs = Vec::new();
            harness.measure(
                &case,
                "us/slot",
                Better::Lower,
                || {
                    // What others take of the cores, they take now.
                    std::thread::sleep(Duration::from_secs_f64(options.seconds));
                    let run = run(options, config, &there, &requests)?;
                    let slot_us = run.slot_us();
                    runs.push(run);
                    Ok(slot_us)
                },
                || plain(config, &requests),
            )?;
            harness.detail(details(&runs, options));
        }
    }
    Ok(harness.finish())
}

/// What is asked for, batch by batch.
struct Requests {
    all: Vec<(u16, u16, u32)>,
    /// Where the requests of each batch end.
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

    /// What is first measured.
    fn first(&self) -> usize {
        self.batches() / WARM_UP
    }

    fn of(&self, batch: usize) -> &[(u16, u16, u32)] {
        let begin = if batch == 0 { 0 } else { self.ends[batch - 1] };
        &self.all[begin..self.ends[batch]]
    }

    fn asked(&self) -> u64 {
        let measured = (self.first()..self.batches()).flat_map(|batch| self.of(batch));
        measured.map(|(.., slots)| u64::from(*slots)).sum()
    }
}

/// What came of a run, or of one core in it.
struct Run {
    /// Timeslots that were measured.
    slots: u64,
    busy: Duration,
    asked: u64,
    /// Packets given timeslots before these began, and later.
    in_time: u64,
    too_late: u64,
    /// Batches that were given out when they had begun.
    missed: u64,
    batches: u64,
    /// From when a batch is asked for until it is given out, ns.
    lag: Histogram<u64>,
}

impl Run {
    fn new() -> Result<Self> {
        Ok(Self {
            slots: 0,
            busy: Duration::ZERO,
            asked: 0,
            in_time: 0,
            too_late: 0,
            missed: 0,
            batches: 0,
            // Up to ten seconds.
            lag: Histogram::new_with_bounds(1, 10_000_000_000, 3)?,
        })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.slots += other.slots;
        self.busy += other.busy;
        self.asked += other.asked;
        self.in_time += other.in_time;
        self.too_late += other.too_late;
        self.missed += other.missed;
        self.batches += other.batches;
        Ok(self.lag.add(&other.lag)?)
    }

    fn slot_us(&self) -> f64 {
        self.busy.as_secs_f64() * 1e6 / self.slots as f64
    }

    fn admitted(&self) -> f64 {
        self.in_time as f64 / self.asked as f64
    }
}

fn details(runs: &[Run], options: &PaceOptions) -> Vec<Detail> {
    let detail = |name: &str, value: f64, unit: &str| Detail {
        name: name.to_string(),
        value,
        unit: unit.to_string(),
    };
    let Some(all) = sum(runs) else { return Vec::new() };
    let lag_us = |percent: f64| all.lag.value_at_percentile(percent) as f64 / 1e3;
    let admitted = runs.iter().map(Run::admitted);
    vec![
        detail("admitted of requested, all runs", all.admitted(), ""),
        detail("in the worst run", admitted.clone().fold(f64::INFINITY, f64::min), ""),
        detail("in the best", admitted.fold(0.0, f64::max), ""),
        detail("given too late", all.too_late as f64 / all.asked as f64, "of requested"),
        detail("deadlines missed", all.missed as f64, "batches"),
        detail("runs without", runs.iter().filter(|run| run.missed == 0).count() as f64, ""),
        detail("batches", all.batches as f64, ""),
        detail("lead", options.lead_ns as f64 / 1e3, "us"),
        detail("lag p50", lag_us(50.0), "us"),
        detail("lag p99", lag_us(99.0), "us"),
        detail("lag p99.9", lag_us(99.9), "us"),
        detail("lag max", all.lag.max() as f64 / 1e3, "us"),
    ]
}

fn sum(runs: &[Run]) -> Option<Run> {
    let mut all = Run::new().ok()?;
    runs.iter().try_for_each(|run| all.add(run)).ok()?;
    Some(all)
}

/// One run by the clock, on the first of the cores that there are.
fn run(options: &PaceOptions, config: Config, there: &[usize], requests: &Requests) -> Result<Run> {
    let (places, posts) = places(&machine(config, options.slot_ns), options.cores)?;
    let (ready, began) = (Barrier::new(options.cores), OnceLock::new());
    let runs = std::thread::scope(|scope| {
        let cores: Vec<_> = (places.into_iter().zip(posts).zip(there).enumerate())
            .map(|(nth, ((place, post), core))| {
                let (ready, began) = (&ready, &began);
                let core = Core { options, config, nth, requests, place, post, core: *core };
                scope.spawn(move || {
                    stay_on(core.core)?;
                    ready.wait();
                    let soon = || Instant::now() + Duration::from_millis(1);
                    core.work(*began.get_or_init(soon))
                })
            })
            .collect();
        let join = |core: ScopedJoinHandle<'_, _>| {
            core.join().unwrap_or_else(|_| Err(anyhow!("a core has panicked")))
        };
        cores.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let mut run = Run::new()?;
    runs.iter().try_for_each(|one| run.add(one))?;
    run.asked = requests.asked();
    Ok(run)
}

struct Core<'a> {
    options: &'a PaceOptions,
    config: Config,
    nth: usize,
    requests: &'a Requests,
    place: Place,
    post: Post,
    core: usize,
}

impl Core<'_> {
    /// Gives out its batches, of which the first is asked for when it `began`.
    fn work(mut self, began: Instant) -> Result<Run> {
        let mut run = Run::new()?;
        let batch_ns = u64::from(self.config.batch_slots) * self.options.slot_ns;
        let lead = Duration::from_nanos(self.options.lead_ns);
        for number in (self.nth..self.requests.batches()).step_by(self.options.cores) {
            let due = began + Duration::from_nanos(number as u64 * batch_ns);
            let mut begin = Instant::now();
            while begin < due {
                std::hint::spin_loop();
                begin = Instant::now();
            }
            let is_measured = number >= self.requests.first();
            let start = number as u64 * u64::from(self.config.batch_slots);
            demand(&mut self.post, self.requests.of(number), Timeslot(start));
            while !self.post.has_written() {
                self.place.turn();
            }
            let end = Instant::now();
            let slots = self.config.batch_slots;
            let given = self.post.read(|batch| {
                let given = u64::from(batch.given().given);
                if !is_measured && number % CHECKED == 0 {
                    check(batch.schedule(), slots, given)?;
                }
                anyhow::Ok(given)
            });
            let given = given.expect("it has written one")?;
            if !is_measured {
                continue;
            }
            let lag = end.duration_since(due);
            run.batches += 1;
            run.slots += u64::from(slots);
            run.busy += end.duration_since(begin);
            run.lag.saturating_record(lag.as_nanos() as u64);
            if lag <= lead {
                run.in_time += given;
            } else {
                run.too_late += given;
                run.missed += 1;
            }
        }
        Ok(run)
    }
}

fn demand(post: &mut Post, requests: &[(u16, u16, u32)], start: Timeslot) {
    let want = |&(src, dst, slots): &(u16, u16, u32)| {
        Command::Demand(Demand::Want { src: src.into(), dst: dst.into(), slots })
    };
    post.command_all(requests.iter().map(want));
    post.command(Command::Batch(start));
}

/// What a timeslot costs the plain allocator, us.
fn plain(config: Config, requests: &Requests) -> Result<f64> {
    let mut allocator = PlainAllocator::new(config.nodes, config.batch_slots);
    // Enough to know it: it need not keep the pace.
    let batches = requests.batches().min(4_000);
    let mut schedule = onepipe_arbiter::Schedule::new(config.nodes);
    let begin = Instant::now();
    for batch in 0..batches {
        for &(src, dst, slots) in requests.of(batch) {
            super::Allocates::request(&mut allocator, src.into(), dst.into(), slots)?;
        }
        super::Allocates::give(&mut allocator, &mut schedule);
    }
    let slots = batches as f64 * f64::from(config.batch_slots);
    Ok(begin.elapsed().as_secs_f64() * 1e6 / slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_out_in_time_is_told_from_what_comes_too_late() {
        let slow = PaceOptions {
            nodes: vec![16],
            // Far longer than a debug build needs, however busy the machine is.
            slot_ns: 40_000,
            lead_ns: 1_000_000_000,
            cores: 1,
            ..PaceOptions::default()
        };
        let there = cores().expect("the kernel says");
        let config = Config::new(16);
        let requests = Requests::new(config, 0.5, 2_048);
        let some = run(&slow, config, &there, &requests).expect("it is a matching");
        assert_eq!((some.missed, some.too_late, some.batches), (0, 0, 28));
        assert!((0.5..1.5).contains(&some.admitted()), "{}", some.admitted());
        let hasty = PaceOptions { lead_ns: 0, slot_ns: 1, ..slow };
        let none = run(&hasty, config, &there, &requests).expect("it is a matching");
        assert_eq!((none.missed, none.in_time), (28, 0));
        assert!(none.lag.min() > 0 && none.slot_us() > 0.0);
    }
}
