//! The worker pool of an arbiter without its control plane over the network: one core keeps the
//! demand table and builds schedules, the others allocate timeslots (docs/design/arbiter.md,
//! "How do several cores give out what one would?").

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use onepipe_arbiter::{AllocatedBatch, Command, Config, Demand, Dispatcher, Timeslot};
use onepipe_daemon_arbiter::{RingWorker, WorkerRings, connect_workers};
use onepipe_transport_clock::pin_to_core;
use rustix::time::{ClockId, clock_gettime};

use super::arbiter_config;
use crate::Detail;

/// Polls of empty rings before a thread yields its core, where timeslots are not granted in real
/// time.
const SPINS: u32 = 10_000;

/// Returns the CPU time of the calling thread.
pub(super) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Time spent by a core while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTime {
    /// Wall time with work to do, including the time in which the core was taken away.
    pub busy: Duration,
    /// CPU time, including polls of empty rings.
    pub cpu: Duration,
}

impl CpuTime {
    pub fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.cpu += other.cpu;
    }

    /// Returns the times of core `name` per timeslot.
    pub fn details(self, name: &str, slots: u64) -> [Detail; 2] {
        let us = |time: Duration| time.as_secs_f64() * 1e6 / slots as f64;
        [("busy", us(self.busy)), ("CPU time", us(self.cpu))].map(|(what, value)| Detail {
            name: format!("{name}, {what}"),
            value,
            unit: "us/slot".to_string(),
        })
    }
}

/// Measures the time that a thread spends.
pub(super) struct CpuMeter {
    began: Option<Duration>,
    busy: Duration,
}

impl CpuMeter {
    pub const fn new() -> Self {
        Self { began: None, busy: Duration::ZERO }
    }

    /// Starts measuring; further calls have no effect.
    pub fn start(&mut self) {
        if self.began.is_none() {
            self.began = Some(thread_cpu_time());
        }
    }

    /// Runs `work`, and counts its time if it returns that there was something to do.
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

/// The core that keeps the demand table; it allocates as well if it is the only one.
pub(super) struct ControlCore {
    dispatcher: Dispatcher,
    rings: WorkerRings,
    own: Option<RingWorker>,
}

impl ControlCore {
    /// Returns whether a batch can be started; otherwise a finished one has to be polled first.
    pub fn is_ready(&self) -> bool {
        self.dispatcher.is_ready()
    }

    /// Adds requests, which count from the next batch on.
    pub fn request(&mut self, requests: &[(u16, u16, u32)]) -> Result<()> {
        for &(src, dst, slots) in requests {
            let want = Demand::Want { src: src.into(), dst: dst.into(), slots };
            let refused = self.dispatcher.execute(Command::Demand(want), &mut self.rings);
            ensure!(refused.is_none(), "no space for {refused:?}");
        }
        Ok(())
    }

    /// Reports that the control core is late: see [`Command::Overload`].
    pub fn on_overload(&mut self) {
        self.dispatcher.execute(Command::Overload, &mut self.rings);
    }

    /// Returns the timeslots requested and not yet granted.
    pub fn wanted(&self) -> u64 {
        self.dispatcher.wanted()
    }

    pub fn start_batch(&mut self, start: u64) {
        self.dispatcher.execute(Command::Batch(Timeslot(start)), &mut self.rings);
    }

    /// Polls the next finished batch and passes it to `read`.
    pub fn poll_batch<R>(&mut self, read: impl FnOnce(&AllocatedBatch) -> R) -> Option<R> {
        let Self { dispatcher, rings, own } = self;
        if let Some(own) = own {
            own.turn();
        }
        rings.read(|rings, batch, _| {
            dispatcher.on_batch_allocated(batch, rings);
            batch.build_schedule();
            read(batch)
        })
    }
}

/// Runs `run_control` on the first of `cores` with the control core, and a worker on each of the
/// others until `run_control` returns. A worker without a fixed core yields now and then. Measuring
/// starts when `run_control` sets the flag that it is given. Returns its result and the times of
/// the workers.
pub(super) fn run<R: Send>(
    config: Config,
    slot_ns: u64,
    cores: &[Option<usize>],
    run_control: impl FnOnce(ControlCore, &AtomicBool) -> Result<R> + Send,
) -> Result<(R, Vec<CpuTime>)> {
    let workers = cores.len().max(2) - 1;
    // Each worker may have a finished batch while another one is started.
    let renew_after_batches = config.renew_after_batches.max(workers.min(16) as u32);
    let config = Config { renew_after_batches, ..config };
    let (ring_workers, rings) = connect_workers(&arbiter_config(config, slot_ns), workers)?;
    let mut control =
        ControlCore { dispatcher: Dispatcher::new(&config, workers)?, rings, own: None };
    let mut ring_workers: Vec<_> = ring_workers.into_iter().map(Some).collect();
    if cores.len() < 2 {
        control.own = ring_workers[0].take();
    }
    let (is_measured, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let others = cores.get(1..).unwrap_or_default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (ring_workers.into_iter().flatten().zip(others))
            .map(|(ring_worker, core)| {
                let (is_measured, stop) = (&is_measured, &stop);
                scope.spawn(move || work(ring_worker, *core, is_measured, stop))
            })
            .collect();
        let control_thread = scope.spawn(|| {
            if let Some(&core) = cores.first().and_then(Option::as_ref) {
                pin_to_core(core)?;
            }
            let result = run_control(control, &is_measured);
            stop.store(true, Ordering::Release);
            result
        });
        let result = control_thread.join();
        // Also stops the workers if the control thread has panicked.
        stop.store(true, Ordering::Release);
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a worker thread panicked")))
        };
        let spent = workers.into_iter().map(join).collect::<Result<Vec<_>>>()?;
        Ok((result.unwrap_or_else(|_| Err(anyhow!("the control thread panicked")))?, spent))
    })
}

fn work(
    mut ring_worker: RingWorker,
    core: Option<usize>,
    is_measured: &AtomicBool,
    stop: &AtomicBool,
) -> Result<CpuTime> {
    if let Some(core) = core {
        pin_to_core(core)?;
    }
    let mut meter = CpuMeter::new();
    let mut spins = 0;
    while !stop.load(Ordering::Acquire) {
        if is_measured.load(Ordering::Relaxed) {
            meter.start();
        }
        if meter.measure(|| ring_worker.turn().is_busy) {
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
