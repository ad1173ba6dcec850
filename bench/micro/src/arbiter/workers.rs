//! An arbiter's cores without its desk: one that keeps the counts and spreads out schedules, and
//! others that give out timeslots (design: arbiter.md section 2).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use onepipe_arbiter::{Allocated, Clerk, Command, Config, Demand, Timeslot};
use onepipe_daemon_arbiter::{Place, Posts, places};
use onepipe_transport_clock::stay_on;
use rustix::time::{ClockId, clock_gettime};

use super::machine;
use crate::Detail;

/// Looks at empty rings before others get the core, where nothing is given out by the clock.
const SPINS: u32 = 10_000;

/// Processor time of the calling thread.
pub(super) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// What a core has done while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTime {
    /// Time in which it had something to do, and if somebody else had the core then, that too.
    pub busy: Duration,
    /// Processor time, looking at empty rings with it.
    pub cpu: Duration,
}

impl CpuTime {
    pub fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.cpu += other.cpu;
    }

    /// As `name` has spent it for each of so many timeslots.
    pub fn details(self, name: &str, slots: u64) -> [Detail; 2] {
        let us = |time: Duration| time.as_secs_f64() * 1e6 / slots as f64;
        [("busy", us(self.busy)), ("CPU time", us(self.cpu))].map(|(what, value)| Detail {
            name: format!("{name}, {what}"),
            value,
            unit: "us/slot".to_string(),
        })
    }
}

/// Where a thread is in what it spends.
pub(super) struct CpuMeter {
    began: Option<Duration>,
    busy: Duration,
}

impl CpuMeter {
    pub const fn new() -> Self {
        Self { began: None, busy: Duration::ZERO }
    }

    /// From now on it is measured.
    pub fn start(&mut self) {
        if self.began.is_none() {
            self.began = Some(thread_cpu_time());
        }
    }

    /// Does something, and counts the time if that was of any use.
    pub fn measure(&mut self, work: impl FnOnce() -> bool) -> bool {
        let begin = Instant::now();
        let is_busy = work();
        if is_busy && self.began.is_some() {
            self.busy += begin.elapsed();
        }
        is_busy
    }

    pub fn finish(&self) -> CpuTime {
        let cpu = self.began.map_or(Duration::ZERO, |began| thread_cpu_time() - began);
        CpuTime { busy: self.busy, cpu }
    }
}

/// The core that keeps the counts; the only one, if there are no others.
pub(super) struct ControlCore {
    clerk: Clerk,
    posts: Posts,
    own: Option<Place>,
}

impl ControlCore {
    /// Whether a batch can be ordered now: else there is one to be read first.
    pub fn is_ready(&self) -> bool {
        self.clerk.is_ready()
    }

    /// Takes requests that count in the batch that is ordered next.
    pub fn request(&mut self, requests: &[(u16, u16, u32)]) -> Result<()> {
        for &(src, dst, slots) in requests {
            let want = Demand::Want { src: src.into(), dst: dst.into(), slots };
            let refused = self.clerk.obey(Command::Demand(want), &mut self.posts);
            ensure!(refused.is_none(), "no space for {refused:?}");
        }
        Ok(())
    }

    /// It is late: see [`Command::Late`].
    pub fn on_late(&mut self) {
        self.clerk.obey(Command::Late, &mut self.posts);
    }

    /// Timeslots that are wanted and not known to be given.
    pub fn wanted(&self) -> u64 {
        self.clerk.wanted()
    }

    pub fn start_batch(&mut self, start: u64) {
        self.clerk.obey(Command::Batch(Timeslot(start)), &mut self.posts);
    }

    /// Reads the next batch, if there is one.
    pub fn poll_batch<R>(&mut self, read: impl FnOnce(&Allocated) -> R) -> Option<R> {
        let Self { clerk, posts, own } = self;
        if let Some(own) = own {
            own.turn();
        }
        posts.read(|posts, batch, _| {
            clerk.on_allocated(batch, posts);
            batch.spread();
            read(batch)
        })
    }
}

/// Runs `run_control` on the first of `cores`, with a desk, and on each of the others one that gives out
/// timeslots until it has ended. Whoever is not told on which core it runs yields now and then.
/// They are measured from when `run_control` sets what it is given. Answers what the others have spent,
/// too.
pub(super) fn run<R: Send>(
    config: Config,
    slot_ns: u64,
    cores: &[Option<usize>],
    run_control: impl FnOnce(ControlCore, &AtomicBool) -> Result<R> + Send,
) -> Result<(R, Vec<CpuTime>)> {
    let workers = cores.len().max(2) - 1;
    // That each may have one while another is ordered.
    let return_batches = config.return_batches.max(workers.min(16) as u32);
    let config = Config { return_batches, ..config };
    let (places, posts) = places(&machine(config, slot_ns), workers)?;
    let mut control = ControlCore { clerk: Clerk::new(&config, workers)?, posts, own: None };
    let mut places: Vec<_> = places.into_iter().map(Some).collect();
    if cores.len() < 2 {
        control.own = places[0].take();
    }
    let (is_measured, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let others = cores.get(1..).unwrap_or_default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (places.into_iter().flatten().zip(others))
            .map(|(place, core)| {
                let (is_measured, stop) = (&is_measured, &stop);
                scope.spawn(move || work(place, *core, is_measured, stop))
            })
            .collect();
        let run_control = scope.spawn(|| {
            if let Some(&core) = cores.first().and_then(Option::as_ref) {
                stay_on(core)?;
            }
            let result = run_control(control, &is_measured);
            stop.store(true, Ordering::Release);
            result
        });
        let result = run_control.join();
        // If it has panicked.
        stop.store(true, Ordering::Release);
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a worker thread panicked")))
        };
        let spent = workers.into_iter().map(join).collect::<Result<Vec<_>>>()?;
        Ok((result.unwrap_or_else(|_| Err(anyhow!("the control thread panicked")))?, spent))
    })
}

fn work(
    mut place: Place,
    core: Option<usize>,
    is_measured: &AtomicBool,
    stop: &AtomicBool,
) -> Result<CpuTime> {
    if let Some(core) = core {
        stay_on(core)?;
    }
    let mut meter = CpuMeter::new();
    let mut spins = 0;
    while !stop.load(Ordering::Acquire) {
        if is_measured.load(Ordering::Relaxed) {
            meter.start();
        }
        if meter.measure(|| place.turn().is_busy) {
            spins = 0;
            continue;
        }
        spins += 1;
        if spins >= SPINS && core.is_none() {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
    Ok(meter.finish())
}
