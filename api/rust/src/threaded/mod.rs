//! A pipe with a thread of its own that drives it.

mod event_batch;
mod shared;
mod submission;
mod thread;
mod waiter;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use onepipe_base::{ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Config, Message, ProcessFailed, SendError};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_wire::Service;

use crate::deadline::Deadline;
use crate::engine::{Engine, Fabric, FabricEngine};
use crate::pipe_endpoint::SubmitLimits;
use crate::{Builder, Event, Idle, JoinError, LeaveError, ReceiveError, Stats};
use event_batch::EventReader;
use shared::{Shared, lock};
use submission::Submitter;
use thread::Thread;
use waiter::Waiter;

/// Longest single wait; conditions are checked again after it.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A pipe driven by a thread of its own: messages are received, acknowledged and ordered while the
/// caller does something else.
///
/// # Costs
/// A scattering is copied once into a request (recycled memory, passed through a lock-free ring)
/// and once into the send buffer. A received message is copied once into an event batch (many
/// events each, recycled); [`Pipe::poll`] borrows it there, [`Pipe::recv`] and [`Pipe::try_recv`]
/// copy it once more into a vector of its own, which is the only allocation. [`Pipe::on_message`]
/// borrows it from the receive buffer: no copy. Locks are taken only to sleep, to wake, and for
/// [`Pipe::stats`]. Each direction costs a hop to another thread: about 1 us while that thread is
/// awake, a wake-up by the kernel, some tens of us, when it sleeps. [`crate::EmbeddedPipe`] has
/// none of these costs.
#[derive(Debug)]
pub struct Pipe {
    limits: SubmitLimits,
    clock: SystemClock,
    idle: Idle,
    shared: Arc<Shared>,
    submitter: Submitter,
    event_reader: EventReader,
    /// Ids of the next scatterings: best effort, reliable.
    next_ids: [u64; 2],
    builder: Box<Builder>,
    thread: Option<JoinHandle<()>>,
}

impl Pipe {
    /// Returns the settings for joining; finish with [`Builder::join`].
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn start<T: Fabric>(
        engine: Engine<T>,
        clock: SystemClock,
        builder: Box<Builder>,
        idle: Idle,
        leave_timeout: Duration,
    ) -> Result<Self, JoinError> {
        let limits = engine.node().limits();
        let process = limits.endpoint().process;
        let shared = Arc::new(Shared::new(&engine));
        let (submitter, submission_queue) = submission::submission_queue();
        let (event_writer, event_reader) = event_batch::event_channel();
        let thread = Thread {
            engine,
            shared: Arc::clone(&shared),
            submission_queue,
            event_writer,
            leave_timeout,
        };
        let thread = std::thread::Builder::new()
            .name(format!("onepipe-{}", process.0))
            .spawn(move || thread.run())
            .map_err(|source| JoinError::Thread { process, source })?;
        Ok(Self {
            limits,
            clock,
            idle,
            shared,
            submitter,
            event_reader,
            next_ids: [0; 2],
            builder,
            thread: Some(thread),
        })
    }

    /// Submits a scattering: all its messages share one timestamp. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]; then no message was accepted. [`SendError::BufferFull`] means that the send
    /// buffer or the submission queue is full.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        self.submit(Service::BestEffort, messages)
    }

    /// Submits a reliable scattering: every receiver that does not fail delivers its message, or
    /// none does (see the crate). Otherwise as [`Pipe::scatter`]; its ids are counted separately.
    ///
    /// # Errors
    /// As [`Pipe::scatter`]; [`SendError::Excluded`] if this process was declared failed.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        self.submit(Service::Reliable, messages)
    }

    #[inline]
    fn submit(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        if self.thread.is_none() || self.shared.has_ended.load(Ordering::Relaxed) {
            return Err(SendError::Left);
        }
        if self.shared.is_excluded.load(Ordering::Relaxed) {
            return Err(SendError::Excluded);
        }
        let accepted = || self.shared.accepted_bytes.load(Ordering::Acquire);
        self.submitter.submit(&self.limits, service, messages, accepted)?;
        self.shared.wake_driver(false);
        let next = &mut self.next_ids[usize::from(service == Service::Reliable)];
        let id = ScatteringId(*next);
        *next += 1;
        Ok(id)
    }

    /// Submits a scattering, waiting for at most `timeout` while buffers are full.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::BufferFull`] after the timeout.
    pub fn scatter_wait(
        &mut self,
        messages: &[Message<'_>],
        timeout: Duration,
    ) -> Result<ScatteringId, SendError> {
        self.submit_wait(Service::BestEffort, messages, timeout)
    }

    /// Submits a reliable scattering, waiting for at most `timeout` while buffers are full.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::BufferFull`] after the timeout.
    pub fn scatter_reliably_wait(
        &mut self,
        messages: &[Message<'_>],
        timeout: Duration,
    ) -> Result<ScatteringId, SendError> {
        self.submit_wait(Service::Reliable, messages, timeout)
    }

    fn submit_wait(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
        timeout: Duration,
    ) -> Result<ScatteringId, SendError> {
        let deadline = Deadline::after(timeout);
        loop {
            let accepted = self.shared.accepted_bytes.load(Ordering::Acquire);
            match self.submit(service, messages) {
                Err(full @ SendError::BufferFull { .. }) => {
                    let Some(remaining) = deadline.remaining() else { return Err(full) };
                    let shared = &self.shared;
                    shared.capacity_waiter.wait(remaining.min(WAIT_MAX), || {
                        shared.accepted_bytes.load(Ordering::Acquire) != accepted
                            || shared.has_ended.load(Ordering::Acquire)
                    });
                }
                result => return result,
            }
        }
    }

    /// Returns the next event, if there is one.
    #[inline]
    pub fn try_recv(&mut self) -> Option<Event> {
        self.read(|event| event.map(<[u8]>::to_vec))
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`ReceiveError::Left`] once the pipe has left and all events were handed out.
    pub fn recv(&mut self) -> Result<Event, ReceiveError> {
        loop {
            if let Some(event) = self.try_recv() {
                return Ok(event);
            }
            if self.has_ended() {
                // Everything published before the end is visible now.
                let left = ReceiveError::Left(self.limits.endpoint().process);
                return self.try_recv().ok_or(left);
            }
            self.wait_for_events(None);
        }
    }

    /// Waits for the next event for at most `timeout`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(event) = self.try_recv() {
                return Some(event);
            }
            if self.has_ended() {
                return self.try_recv();
            }
            deadline.remaining()?;
            self.wait_for_events(Some(deadline));
        }
    }

    /// Hands out all available events with borrowed payloads, and returns their number. Never
    /// blocks.
    pub fn poll(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> usize {
        let mut events = 0;
        while self.read(&mut on_event).is_some() {
            events += 1;
        }
        events
    }

    /// Passes further events to `on_event`, called by the driving thread with the payload in the
    /// receive buffer. Earlier events are still received as usual. A callback that takes long
    /// delays this process's acknowledgements, and so its senders; one that panics ends the pipe.
    pub fn on_message(&mut self, on_event: impl FnMut(Event<&[u8]>) + Send + 'static) {
        *lock(&self.shared.on_event) = Some(Box::new(on_event));
        self.shared.command();
    }

    /// Calls `on_failed` for every process that fails, on the driving thread, ahead of
    /// [`Event::ProcessFailed`]. Reliable deliveries of all processes wait until the callbacks of
    /// all processes have returned: use it for recovery that must precede further deliveries, and
    /// do not block in it. Without a callback a failure is acknowledged at once.
    pub fn on_process_failed(&mut self, on_failed: impl FnMut(ProcessFailed) + Send + 'static) {
        *lock(&self.shared.on_process_failed) = Some(Box::new(on_failed));
        self.shared.command();
    }

    /// Whether this process is a member of the fabric: false once it was declared failed.
    pub fn is_member(&self) -> bool {
        !self.shared.is_excluded.load(Ordering::Relaxed)
    }

    /// Rejoins after [`Event::Excluded`] as a new incarnation of the same process, which shares no
    /// state with the previous one: events that were not received are lost, and callbacks must be
    /// set again. A member may rejoin, too; then the outcomes of its messages are resolved first.
    ///
    /// # Errors
    /// [`JoinError`]. The process has left in any case.
    pub fn rejoin(mut self) -> Result<Self, JoinError> {
        // Unresolved messages stay so: the other processes have decided their outcomes.
        let _ = self.leave();
        let mut builder = std::mem::replace(&mut self.builder, Box::new(Builder::new()));
        builder.set_process(self.process());
        drop(self);
        builder.join()
    }

    /// The id of this process.
    pub fn process(&self) -> ProcessId {
        self.limits.endpoint().process
    }

    /// The other live processes, as of a moment ago. Unknown over a switch: empty.
    pub fn peers(&self) -> Vec<ProcessId> {
        self.shared.peers()
    }

    /// Waits until at least `count` other processes have joined, for at most `timeout`. Returns
    /// whether they have. Returns false at once over a switch, which does not report processes.
    pub fn wait_for_peers(&self, count: usize, timeout: Duration) -> bool {
        let knows_peers = self.limits.endpoint().links == onepipe_endpoint::Links::Mesh;
        let deadline = Deadline::after(timeout);
        while knows_peers && self.peers().len() < count {
            if deadline.remaining().is_none() {
                return false;
            }
            // A sleeping thread is not woken when a process joins.
            self.shared.wake_driver(false);
            std::thread::sleep(Duration::from_millis(1));
        }
        knows_peers
    }

    /// Counters since joining, as of a moment ago.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The barrier: every message below it has been or can be delivered; `None` before any promise
    /// was received.
    pub fn barrier(&self) -> Option<Timestamp> {
        self.shared.barrier()
    }

    /// The fabric's time: a lower bound of the timestamp of a message stamped now.
    #[inline]
    pub fn now(&mut self) -> Timestamp {
        self.clock.read().sync
    }

    /// The endpoint's configuration.
    pub fn config(&self) -> &Config {
        self.limits.endpoint()
    }

    /// Leaves the fabric: waits until the outcomes of all submitted messages are known, for at most
    /// the builder's `leave_timeout`. Afterwards no process waits for this one, and its id is free.
    /// Received events can still be read.
    ///
    /// # Errors
    /// [`LeaveError`]. The process has left in any case.
    pub fn leave(&mut self) -> Result<(), LeaveError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.is_leaving.store(true, Ordering::Release);
        self.shared.command();
        let process = self.limits.endpoint().process;
        thread.join().map_err(|_| LeaveError::Panicked(process))?;
        match self.shared.is_drained.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(LeaveError::Unresolved(process)),
        }
    }

    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::Acquire)
    }

    #[inline]
    fn read<R>(&mut self, read: impl FnOnce(Event<&[u8]>) -> R) -> Option<R> {
        let (event, is_batch_returned) = self.event_reader.next(read);
        if is_batch_returned {
            self.shared.wake_driver(true);
        }
        event
    }

    /// Waits for an event according to the idle strategy, until `deadline` if there is one.
    fn wait_for_events(&self, deadline: Option<Deadline>) {
        let is_ready = || self.event_reader.has_events() || self.has_ended();
        let awake = self.idle.awake_turn_count();
        let is_over = || deadline.is_some_and(|deadline| deadline.remaining().is_none());
        let mut polls: u32 = 0;
        while awake.is_none_or(|awake| polls < awake) {
            if is_ready() || (polls.is_multiple_of(64) && is_over()) {
                return;
            }
            match self.idle {
                Idle::Yield => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
            polls = polls.wrapping_add(1);
        }
        let remaining = deadline.map_or(Some(WAIT_MAX), Deadline::remaining).unwrap_or_default();
        let waiter: &Waiter = &self.shared.event_waiter;
        waiter.wait(remaining.min(WAIT_MAX), is_ready);
    }
}

impl Builder {
    /// Joins, with a thread that drives the pipe.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(mut self) -> Result<Pipe, JoinError> {
        let (idle, leave_timeout) = (self.idle, self.leave_timeout);
        match self.join_fabric()? {
            FabricEngine::SharedMemory(engine, clock) => {
                Pipe::start(*engine, clock, Box::new(self), idle, leave_timeout)
            }
            FabricEngine::Udp(engine, clock) => {
                Pipe::start(*engine, clock, Box::new(self), idle, leave_timeout)
            }
            FabricEngine::Overlay(engine, clock) => {
                Pipe::start(*engine, clock, Box::new(self), idle, leave_timeout)
            }
        }
    }
}

impl Drop for Pipe {
    /// Leaves, as [`Pipe::leave`] does.
    fn drop(&mut self) {
        // Callers that need the result call `leave`.
        let _ = self.leave();
    }
}
