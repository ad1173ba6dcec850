//! A pipe with a thread of its own that drives it while its caller is away.

mod core;
mod events;
mod memory;
mod open;
mod shared;
mod standby;
mod submit;
mod thread;
mod waiter;

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use onepipe_base::{ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Config, Message, ProcessFailed, SendError};
use onepipe_memory::Completed;
use onepipe_transport_clock::{Clock, SystemClock, reduce_wakeup_latency};
use onepipe_transport_driver::{Doorbell, DriverThread, IdleAction, Panicked};
use onepipe_wire::Service;

use crate::deadline::Deadline;
use crate::engine::{FabricEngine, with_engine};
use crate::{Builder, Event, JoinError, LeaveError, ReceiveError, Stats};
use core::Core;
use events::EventReader;
pub use events::Events;
use shared::Shared;
use thread::Thread;

/// Longest single wait; conditions are checked again after it.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A scattering leaves at once if the last turn was at least this many ns ago: about as long as a
/// system call takes that sends and wakes the receiver. Those submitted sooner are sent together,
/// by the next turn.
const COALESCE_NS: u64 = 20_000;

/// A pipe with a thread of its own: messages are received, acknowledged and ordered while the
/// caller does something else.
///
/// The caller drives the pipe itself while it waits in [`Pipe::recv`] and its kin, so that nothing
/// passes through another thread. When it has been away for 50 us (up to 400 us if it did not block
/// lately), the thread takes over until it comes back. Once a callback was set
/// ([`Pipe::on_message`], [`Pipe::on_process_failed`]) the thread always drives, and callbacks run
/// on it.
///
/// # Costs
/// A scattering is copied into the send buffer, and leaves at once, or with others that were
/// submitted within 20 us. A received message is copied once into an event batch (recycled):
/// [`Pipe::poll`], [`Pipe::recv_batch`] and [`Pipe::on_message`] borrow it there, [`Pipe::recv`]
/// and [`Pipe::try_recv`] copy it once more into a vector of its own, which is the only allocation.
/// Each call that finds its batch read takes a lock, which is free unless the thread is in the
/// middle of a turn. [`crate::EmbeddedPipe`] has none of these costs. A call that blocks shortens
/// the scheduling slice and the timer slack of the calling thread, as of the pipe's own.
#[derive(Debug)]
pub struct Pipe {
    config: Config,
    clock: SystemClock,
    shared: Arc<Shared>,
    event_reader: EventReader,
    /// Completed requests to registered memory that were fetched and not returned.
    completions: VecDeque<Completed>,
    builder: Box<Builder>,
    /// Leaves when it is dropped.
    thread: DriverThread,
}

thread_local! {
    /// Whether this thread has asked for short wake-up latency.
    static IS_PREPARED: Cell<bool> = const { Cell::new(false) };
}

impl Pipe {
    /// Returns the settings for joining; finish with [`Builder::join`].
    pub fn builder() -> Builder {
        Builder::new()
    }

    fn start(
        mut fabric_engine: FabricEngine,
        builder: Box<Builder>,
        leave_timeout: Duration,
    ) -> Result<Self, JoinError> {
        let clock = fabric_engine.clock().clone();
        let (config, wait_handle) = with_engine!(&fabric_engine, engine => {
            (engine.config().clone(), engine.wait_handle())
        });
        let process = config.process;
        let failed = |source| JoinError::Thread { process, source };
        let wait_handle = wait_handle.map_err(failed)?;
        let core = Core::new(fabric_engine, Arc::clone(&wait_handle));
        let shared = Shared::new(core).map_err(|error| failed(error.into()))?;
        let shared = Arc::new(shared);
        let thread = Thread::new(Arc::clone(&shared), clock.clone(), wait_handle, leave_timeout);
        let doorbell = Doorbell::new(Arc::clone(&shared) as _);
        let name = format!("onepipe-{}", process.0);
        let thread = DriverThread::start(name, thread, doorbell).map_err(failed)?;
        let (event_reader, completions) = (EventReader::default(), VecDeque::new());
        Ok(Self { config, clock, shared, event_reader, completions, builder, thread })
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

    /// Returns the next event, if there is one. Never blocks.
    #[inline]
    pub fn try_recv(&mut self) -> Option<Event> {
        let is_ready =
            !self.event_reader.is_empty() || self.fetch(Some(Deadline::after(Duration::ZERO)));
        is_ready.then(|| self.next_event()).flatten()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`ReceiveError`] once the pipe has left, or its shared memory was lost, and all events were
    /// handed out.
    pub fn recv(&mut self) -> Result<Event, ReceiveError> {
        self.wait_for_events(None);
        self.next_event().ok_or_else(|| self.receive_error())
    }

    /// Waits for the next event for at most `timeout`.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Event> {
        self.wait_for_events(Some(timeout));
        self.next_event()
    }

    /// Waits for an event, and returns all that are available, with borrowed payloads: no copy, no
    /// allocation and no lock for each of them. What is not taken is returned by the next call.
    ///
    /// ```
    /// use onepipe::{Event, Message, Pipe, ProcessId};
    ///
    /// let mut pipe = Pipe::builder().fabric(format!("doc-batch-{}", std::process::id())).join()?;
    /// for number in 0..3u8 {
    ///     pipe.scatter(&[Message { to: pipe.process(), payload: &[number] }])?;
    /// }
    /// let mut received = Vec::new();
    /// while received.len() < 3 {
    ///     for event in pipe.recv_batch()? {
    ///         let Event::Message(message) = event else { panic!("expected a message") };
    ///         received.push(message.payload[0]);
    ///     }
    /// }
    /// assert_eq!(received, [0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError`] once the pipe has left, or its shared memory was lost, and all events were
    /// handed out.
    pub fn recv_batch(&mut self) -> Result<Events<'_>, ReceiveError> {
        self.wait_for_events(None);
        match self.event_reader.is_empty() {
            false => Ok(self.event_reader.events()),
            true => Err(self.receive_error()),
        }
    }

    /// As [`Pipe::recv_batch`], but waits for at most `timeout`: then there may be none.
    pub fn recv_batch_timeout(&mut self, timeout: Duration) -> Events<'_> {
        self.wait_for_events(Some(timeout));
        self.event_reader.events()
    }

    /// Hands out all available events with borrowed payloads, and returns their number. Never
    /// blocks.
    pub fn poll(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> usize {
        let mut count = 0;
        // Not for ever, though more arrives meanwhile.
        for _ in 0..2 {
            for event in self.event_reader.events() {
                on_event(event);
                count += 1;
            }
            if count > 0 || !self.fetch(Some(Deadline::after(Duration::ZERO))) {
                break;
            }
        }
        count
    }

    /// Passes further events to `on_event`, called by the pipe's thread. Those of the batch that is
    /// being read are still received as usual. A callback that takes long delays this process's
    /// acknowledgements, and so its senders; one that panics ends the pipe.
    pub fn on_message(&mut self, on_event: impl FnMut(Event<&[u8]>) + Send + 'static) {
        self.shared.hand_to_thread(|core| core.callbacks.on_event = Some(Box::new(on_event)));
    }

    /// Calls `on_failed` for every process that fails, on the pipe's thread, ahead of
    /// [`Event::ProcessFailed`]. Reliable deliveries of all processes wait until the callbacks of
    /// all processes have returned: use it for recovery that must precede further deliveries, and
    /// do not block in it. Without a callback a failure is acknowledged at once.
    pub fn on_process_failed(&mut self, on_failed: impl FnMut(ProcessFailed) + Send + 'static) {
        self.shared.hand_to_thread(|core| core.set_on_process_failed(on_failed));
    }

    /// Whether this process is a member of the fabric: false once it was declared failed.
    pub fn is_member(&self) -> bool {
        self.shared.lock().is_member()
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
        let (process, mut builder) = (self.process(), self.builder);
        builder.set_process(process);
        builder.join()
    }

    /// The id of this process.
    pub fn process(&self) -> ProcessId {
        self.config.process
    }

    /// The other live processes, as of a moment ago: those whose links to the fabric are up,
    /// without the controllers. Over a network the switch or the aggregator reports them; one of an
    /// earlier version does not, and the list is empty.
    pub fn peers(&self) -> Vec<ProcessId> {
        self.shared.lock().peers()
    }

    /// Waits until at least `count` other processes have joined, for at most `timeout`. Returns
    /// whether they have.
    pub fn wait_for_peers(&self, count: usize, timeout: Duration) -> bool {
        let deadline = Deadline::after(timeout);
        while self.peers().len() < count {
            if deadline.remaining().is_none() {
                return false;
            }
            // A sleeping thread is not woken when a process joins.
            self.shared.turn(&mut self.shared.lock());
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Counters since joining, as of a moment ago.
    pub fn stats(&self) -> Stats {
        self.shared.lock().stats()
    }

    /// The barrier: every message below it has been or can be delivered; `None` before any promise
    /// was received.
    pub fn barrier(&self) -> Option<Timestamp> {
        self.shared.lock().barrier()
    }

    /// The fabric's time: a lower bound of the timestamp of a message stamped now.
    #[inline]
    pub fn now(&mut self) -> Timestamp {
        self.clock.read().sync
    }

    /// The endpoint's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Leaves the fabric: accepts no more messages, and waits until the outcomes of all submitted
    /// ones are known, all received ones can be delivered, and the switch has acknowledged the
    /// leave, for at most the builder's `leave_timeout`. Afterwards no process waits for this one,
    /// and its id is free. Received events can still be read; what was acknowledged and could not
    /// be delivered in time is among them as [`Event::Undelivered`].
    ///
    /// # Errors
    /// [`LeaveError`]. The process has left in any case.
    pub fn leave(&mut self) -> Result<(), LeaveError> {
        if self.thread.is_joined() {
            return Ok(());
        }
        self.thread.stop().map_err(|Panicked| LeaveError::Panicked(self.config.process))?;
        self.shared.lock().leave_result.clone()
    }

    #[cold]
    fn receive_error(&self) -> ReceiveError {
        self.shared.lock().receive_error(self.process())
    }

    #[inline]
    fn next_event(&mut self) -> Option<Event> {
        self.event_reader.events().next().map(|event| event.map(<[u8]>::to_vec))
    }

    /// Waits until there is an event to read, for at most `timeout` if there is one.
    #[inline]
    fn wait_for_events(&mut self, timeout: Option<Duration>) {
        if self.event_reader.is_empty() {
            self.fetch(timeout.map(Deadline::after));
        }
    }

    /// Fetches events, which have all been read; waits for them until `deadline`, if there is one.
    /// Returns whether there are any.
    fn fetch(&mut self, deadline: Option<Deadline>) -> bool {
        let Self { shared, clock, event_reader, .. } = self;
        Self::drive(shared, clock, deadline, |core| core.fetch(event_reader).then_some(()))
            .is_some()
    }

    /// Drives the pipe until `attempt` succeeds, until `deadline` if there is one, or until the
    /// pipe has left.
    #[inline]
    fn drive<R>(
        shared: &Shared,
        clock: &mut SystemClock,
        deadline: Option<Deadline>,
        mut attempt: impl FnMut(&mut Core) -> Option<R>,
    ) -> Option<R> {
        if shared.is_thread_driven() {
            return Self::wait_for_thread(shared, deadline, attempt);
        }
        let mut caller = shared.enter();
        let mut has_blocked = false;
        let result = loop {
            if let Some(result) = attempt(&mut caller.core) {
                break Some(result);
            }
            let progress = caller.core.turn();
            if let Some(result) = attempt(&mut caller.core) {
                break Some(result);
            }
            let remaining = deadline.map_or(Some(WAIT_MAX), Deadline::remaining);
            let Some(remaining) = remaining.filter(|_| !caller.core.has_ended()) else {
                break None;
            };
            match caller.core.idle_action(progress) {
                IdleAction::Block => {
                    has_blocked = true;
                    if !IS_PREPARED.replace(true) {
                        reduce_wakeup_latency();
                    }
                    caller.block(remaining);
                }
                action => caller.core.idle(action),
            }
        };
        caller.leave(clock.read().mono, has_blocked);
        result
    }

    /// Waits until `attempt` succeeds while the thread drives, as [`Pipe::drive`].
    #[cold]
    fn wait_for_thread<R>(
        shared: &Shared,
        deadline: Option<Deadline>,
        mut attempt: impl FnMut(&mut Core) -> Option<R>,
    ) -> Option<R> {
        loop {
            let seen = shared.progress();
            let mut core = shared.lock();
            if let Some(result) = attempt(&mut core) {
                return Some(result);
            }
            if core.has_ended() {
                return None;
            }
            drop(core);
            let remaining = deadline.map_or(Some(WAIT_MAX), Deadline::remaining)?;
            shared.wait_for_thread(seen, remaining.min(WAIT_MAX));
        }
    }
}

impl Builder {
    /// Joins, with a thread that drives the pipe while the caller is away.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(mut self) -> Result<Pipe, JoinError> {
        let leave_timeout = self.leave_timeout;
        Pipe::start(self.join_fabric()?, Box::new(self), leave_timeout)
    }
}
