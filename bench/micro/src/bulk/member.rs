//! One process of our bulk multicast.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use onepipe_bulk::{Config, Event, Group, Outcome};
use onepipe_transport_bulk::{Carrier, GroupDriver, Listener, ObjectBytes, PageIndex, Rendezvous};
use onepipe_transport_clock::SystemClock;
use serde::{Deserialize, Serialize};

/// Time for which an idle process yields its core before it blocks: a wake-up costs more than a
/// small object.
const YIELD_NS: u64 = 500_000;
const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time for which an idle process blocks.
const WAIT_NS: u64 = 10_000_000;

/// Parameters of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Name of the transport.
    pub carrier: String,
    pub members: Vec<SocketAddr>,
    pub own: u32,
    pub bytes: usize,
    pub rounds: u32,
    pub block_len: u32,
    pub has_digests: bool,
    pub memory: BulkMemory,
}

/// Where objects lie in a group that shares memory. Memory is private over other transports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BulkMemory {
    /// In private memory of each process; the root copies its object into shared memory.
    Private,
    /// The root writes into shared memory; the others copy to private memory.
    Shared,
    /// As [`BulkMemory::Shared`], but receivers use the object in place: nothing is copied.
    Mapped,
}

/// Timestamps of a process, in ns of the machine's monotonic clock: at the root the start of each
/// round, at a receiver the completion of each round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub at_ns: Vec<u64>,
    /// CPU time, in s.
    pub cpu_seconds: f64,
}

pub(super) fn work(job: &Job) -> Result<Measured> {
    let own = job.own;
    let listener =
        Listener::bind(if own == 0 { "0.0.0.0:0".parse()? } else { job.members[own as usize] })
            .context("cannot listen")?;
    let rendezvous =
        Rendezvous { group: 1, members: &job.members, own, timeout: RENDEZVOUS_TIMEOUT };
    let carrier = Carrier::by_name(&job.carrier).context("unknown transport")?;
    let config = Config {
        block_len: job.block_len,
        has_digests: job.has_digests,
        dead_after_ns: 20_000_000_000,
        ..carrier.config(1, job.members.len(), own)
    };
    let clock = SystemClock::calibrated();
    let driver =
        GroupDriver::join(carrier, Group::with_memory(config)?, &rendezvous, &listener, clock)?;
    let mut run = Run {
        driver,
        expected: pattern(job.bytes),
        at_ns: Vec::new(),
        idle_since: None,
        may_block: false,
    };
    match own {
        0 => run.send(job)?,
        _ => run.receive(job)?,
    }
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    Ok(Measured { at_ns: run.at_ns, cpu_seconds })
}

struct Run {
    driver: GroupDriver<SystemClock>,
    expected: Vec<u8>,
    at_ns: Vec<u64>,
    /// Start of the idle period.
    idle_since: Option<u64>,
    /// Whether the idle period has lasted [`YIELD_NS`].
    may_block: bool,
}

impl Run {
    /// Runs the root: each object is sent when all receivers have compared the one before.
    fn send(&mut self, job: &Job) -> Result<()> {
        let mut buffer = vec![0; job.bytes];
        let page_pool =
            self.driver.page_pool().filter(|_| job.memory != BulkMemory::Private).cloned();
        for round in 0..job.rounds {
            stamp(&mut self.expected, round);
            let object = match &page_pool {
                Some(page_pool) => {
                    let mut page =
                        page_pool.alloc(job.bytes).context("the shared memory is full")?;
                    page.copy_from_slice(&self.expected);
                    page.into()
                }
                None => {
                    buffer.copy_from_slice(&self.expected);
                    ObjectBytes::Private(buffer)
                }
            };
            self.at_ns.push(now_ns());
            self.driver.group_mut().send(object).ok().context("the group accepts no objects")?;
            let mut returned = None;
            while returned.is_none() {
                let mut ended = None;
                let progress = self.driver.turn(self.wait_ns(), |_, event| match event {
                    Event::Stable { memory, .. } => returned = Some(memory),
                    Event::Closed(outcome) => ended = Some(outcome),
                    _ => {}
                })?;
                self.on_turn(progress.is_idle());
                ensure!(ended.is_none(), "the group has ended: {ended:?}");
            }
            buffer = match returned.context("the loop ends when the object is stable")? {
                ObjectBytes::Private(buffer) => buffer,
                ObjectBytes::Shared(_) => Vec::new(),
            };
        }
        self.driver.group_mut().close()?;
        self.finish(|_, _| {})
    }

    fn receive(&mut self, job: &Job) -> Result<()> {
        let page_index =
            self.driver.page_index().filter(|_| job.memory == BulkMemory::Mapped).cloned();
        if page_index.is_none() {
            // Written once, as in broadcast.c, so that the pages are mapped. The next object may be
            // announced before the memory of the previous one has come back, hence two buffers.
            for _ in 0..2 {
                self.driver.group_mut().offer_memory(vec![1; job.bytes].into());
            }
        }
        let (mut expected, mut at_ns) = (std::mem::take(&mut self.expected), Vec::new());
        let mut mismatch = None;
        self.finish(|group, event| match event {
            Event::Delivered { object } => {
                at_ns.push(now_ns());
                stamp(&mut expected, object);
                // Compared after the timestamp, and before the root starts the next round: not
                // measured.
                if group.bytes(object) != Some(&expected[..]) {
                    mismatch = Some(object);
                }
            }
            Event::Announced { object, bytes } => {
                let page = page_index
                    .as_ref()
                    .and_then(|index: &PageIndex| index.page(object, bytes as usize));
                // Memory that has come back since the announcement.
                let memory = page.map(ObjectBytes::from).or_else(|| group.take_spare());
                let memory = memory.unwrap_or_else(|| vec![0; bytes as usize].into());
                let provided = group.provide(object, memory);
                debug_assert!(provided.is_ok(), "the object was announced");
            }
            Event::Stable { memory: memory @ ObjectBytes::Private(_), .. } => {
                group.offer_memory(memory)
            }
            _ => {}
        })?;
        ensure!(mismatch.is_none(), "round {mismatch:?}: received other data than was sent");
        self.at_ns = at_ns;
        Ok(())
    }

    /// Runs until the group is done, and checks that it has transferred all objects.
    fn finish(
        &mut self,
        mut on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
    ) -> Result<()> {
        while !self.driver.group().is_done() {
            let wait_ns = self.wait_ns();
            let progress = self.driver.turn(wait_ns, &mut on_event)?;
            self.on_turn(progress.is_idle());
        }
        let outcome = self.driver.group().outcome();
        ensure!(outcome == Some(Outcome::Complete), "the group has ended: {outcome:?}");
        Ok(())
    }

    fn wait_ns(&self) -> u64 {
        if self.may_block { WAIT_NS } else { 0 }
    }

    fn on_turn(&mut self, is_idle: bool) {
        if !is_idle {
            (self.idle_since, self.may_block) = (None, false);
            return;
        }
        let now = now_ns();
        let since = *self.idle_since.get_or_insert(now);
        self.may_block = now - since >= YIELD_NS;
        if !self.may_block {
            std::thread::yield_now();
        }
    }
}

/// Returns the contents from which every round starts, as in broadcast.c.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Marks the contents with the number of the round.
fn stamp(bytes: &mut [u8], round: u32) {
    for (byte, at) in bytes.iter_mut().zip(0..8) {
        *byte = round.wrapping_add(at) as u8;
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
