//! Idling of a thread that drives several pipes.

use std::time::Duration;

use onepipe_transport_driver::{IdleAction, Idleness, Idler};
use onepipe_transport_shm::Shm;

use crate::{EmbeddedPipe, Idle};

/// How often a thread looks at pipes that it cannot wait for together.
const LOOK_INTERVAL_NS: u64 = 1_000_000;

/// Number of yields in a row after which a thread that waits for promises of other processes looks
/// for them every [`NAP_NS`] only: some process is likely to be stopped. A thousand yields take a
/// millisecond or longer, so that a nap delays what comes by a tenth at most.
const YIELDS_MAX: u32 = 1_000;
const NAP_NS: u64 = 100_000;

/// How a thread idles that drives several pipes, one turn of each after the other: as
/// [`EmbeddedPipe::rest`] does for one with [`Idle::Backoff`]. The doorbell of each pipe ends it.
///
/// ```
/// use onepipe::{EmbeddedPipe, Event, Idleness, Message, ProcessId, Rest};
///
/// let fabric = format!("doc-rest-{}", std::process::id());
/// let join = |process| EmbeddedPipe::builder().fabric(&fabric).process(process).embedded();
/// let mut pipes = [join(0)?, join(1)?];
/// pipes[0].scatter(&[Message { to: ProcessId(1), payload: b"hello" }])?;
/// let mut rest = Rest::new(pipes.len());
/// let mut has_arrived = false;
/// while !has_arrived {
///     let mut idleness = Idleness::Waits;
///     for pipe in &mut pipes {
///         let progress = pipe.poll(|event| has_arrived |= matches!(event, Event::Message(_)));
///         idleness = idleness.min(pipe.idleness(progress));
///     }
///     rest.rest(&mut pipes.each_mut(), idleness);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rest {
    idler: Idler,
    yields: u32,
}

impl Rest {
    /// Makes the strategy for a number of pipes.
    pub fn new(pipes: usize) -> Self {
        Self { idler: Idler::new(Idle::Backoff.strategy().among(pipes)), yields: 0 }
    }

    /// Returns the number of pipes in shared memory that a thread can block for: 1 if the system
    /// has no call for more (Linux before 5.16). A thread that has more of them, or several over
    /// other fabrics, looks at them every millisecond while it idles.
    pub fn pipes_max() -> usize {
        Shm::waits_for_any_max()
    }

    /// Spins, yields, or blocks for at most 100 ms, after a turn of each pipe. `idleness` is the
    /// least that [`EmbeddedPipe::idleness`] returned for one of them.
    pub fn rest<P: AsMut<EmbeddedPipe>>(&mut self, pipes: &mut [P], idleness: Idleness) {
        match self.idler.next(idleness) {
            IdleAction::Spin => self.yields = 0,
            IdleAction::Yield if self.yields < YIELDS_MAX => {
                self.yields += 1;
                std::thread::yield_now();
            }
            IdleAction::Yield => block(pipes, NAP_NS),
            IdleAction::Block => block(pipes, u64::MAX),
        }
    }
}

/// Blocks until one of the pipes has something to do, for at most `max_ns`.
fn block<P: AsMut<EmbeddedPipe>>(pipes: &mut [P], max_ns: u64) {
    let mut pipes: Vec<&mut EmbeddedPipe> = pipes.iter_mut().map(AsMut::as_mut).collect();
    let mut announced = 0;
    let mut wait_ns = max_ns;
    while let Some(pipe) = pipes.get_mut(announced)
        && let Some(pipe_ns) = pipe.begin_wait()
    {
        wait_ns = wait_ns.min(pipe_ns);
        announced += 1;
    }
    if announced == pipes.len() && announced > 0 {
        wait(&pipes, wait_ns);
    }
    pipes[..announced].iter_mut().for_each(|pipe| pipe.end_wait());
}

/// Waits for pipes that have announced it.
fn wait(pipes: &[&mut EmbeddedPipe], wait_ns: u64) {
    let attachments = || pipes.iter().filter_map(|pipe| pipe.shared_memory());
    let are_attachments = attachments().count() == pipes.len();
    if !are_attachments || !Shm::wait_for_any(attachments(), wait_ns) {
        std::thread::sleep(Duration::from_nanos(wait_ns.min(LOOK_INTERVAL_NS)));
    }
}
