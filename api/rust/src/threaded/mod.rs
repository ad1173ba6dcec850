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
use crate::engine::{Engine, Fabric};
use crate::pipe_endpoint::SubmitLimits;
use crate::{Builder, Event, Idle, JoinError, LeaveError, ReceiveError, Stats};
use event_batch::EventReader;
use shared::{Shared, lock};
use submission::Submitter;
use thread::Thread;
use waiter::Waiter;

/// The longest single wait: everything waited for is looked at again after that.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// A process's end of the pipe, driven by a thread of its own: messages are received,
/// acknowledged and ordered while the caller does something else.
///
/// # What it costs
/// A scattering is copied once into a parcel (recycled memory, handed over through a ring without
/// locks) and once into the send buffer. A message is copied once onto a sheet (many events each,
/// recycled); [`Pipe::poll`] shows it there, [`Pipe::recv`] and [`Pipe::try_recv`] copy it once
/// more into a vector of its own, which is the only allocation. [`Pipe::on_message`] shows it in
/// the receive buffer: no copy. Locks are taken only to fall asleep, to wake, and for
/// [`Pipe::stats`]. Each way costs a hop to another thread: about 1 us while that one is awake, a
/// wake-up by the kernel, some tens of us, when it sleeps. [`crate::EmbeddedPipe`] has neither.
#[derive(Debug)]
pub struct Pipe {
    limits: SubmitLimits,
    clock: SystemClock,
    idle: Idle,
    shared: Arc<Shared>,
    submitter: Submitter,
    event_reader: EventReader,
    /// The numbers of the next scatterings: best effort, reliable.
    next_ids: [u64; 2],
    builder: Box<Builder>,
    thread: Option<JoinHandle<()>>,
}

impl Pipe {
    /// Says who joins which fabric, and how.
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
            idle,
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

    /// Submits a scattering: all its messages will bear one timestamp. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]; then nothing of it was accepted. [`SendError::BufferFull`] means that
    /// neither the send buffer nor the way to it has room for now.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        self.submit(Service::BestEffort, messages)
    }

    /// Submits a reliable scattering: every receiver that does not fail delivers its message, or
    /// none does (see the crate). As [`Pipe::scatter`] otherwise; its ids are a count of their own.
    ///
    /// # Errors
    /// As of [`Pipe::scatter`]; [`SendError::Excluded`] if this process was declared failed.
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

    /// Submits a scattering, waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::BufferFull`] if there was no room in all that time.
    pub fn scatter_wait(
        &mut self,
        messages: &[Message<'_>],
        timeout: Duration,
    ) -> Result<ScatteringId, SendError> {
        self.submit_wait(Service::BestEffort, messages, timeout)
    }

    /// Submits a reliable scattering, waiting for room for at most `timeout`.
    ///
    /// # Errors
    /// [`SendError`]; [`SendError::BufferFull`] if there was no room in all that time.
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
                    let Some(left) = deadline.remaining() else { return Err(full) };
                    let shared = &self.shared;
                    shared.capacity_waiter.wait(left.min(WAIT_MAX), || {
                        shared.accepted_bytes.load(Ordering::Acquire) != accepted
                            || shared.has_ended.load(Ordering::Acquire)
                    });
                }
                answer => return answer,
            }
        }
    }

    /// The next event, if there is one now.
    #[inline]
    pub fn try_recv(&mut self) -> Option<Event> {
        self.read(|event| event.map(<[u8]>::to_vec))
    }

    /// The next event, as soon as there is one.
    ///
    /// # Errors
    /// [`ReceiveError::Left`] once the pipe has left and everything was handed out.
    pub fn recv(&mut self) -> Result<Event, ReceiveError> {
        loop {
            if let Some(event) = self.try_recv() {
                return Ok(event);
            }
            if self.has_ended() {
                // What was handed over before it ended is visible now.
                let left = ReceiveError::Left(self.limits.endpoint().process);
                return self.try_recv().ok_or(left);
            }
            self.wait_for_events(None);
        }
    }

    /// The next event, if there is one within `timeout`.
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

    /// Hands out every event that is there now, payloads borrowed. Answers how many there were.
    /// Never blocks.
    pub fn poll(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> usize {
        let mut events = 0;
        while self.read(&mut on_event).is_some() {
            events += 1;
        }
        events
    }

    /// From now on events go to `on_event`, called by the driving thread with the payload where it
    /// lies in the receive buffer. Events from before are still read as usual. A callback that
    /// takes long holds up this process's acknowledgements, and so its senders; one that panics
    /// ends the pipe.
    pub fn on_message(&mut self, on_event: impl FnMut(Event<&[u8]>) + Send + 'static) {
        *lock(&self.shared.on_event) = Some(Box::new(on_event));
        self.shared.command();
    }

    /// From now on `on_failed` is called for every process that fails, by the driving thread, ahead
    /// of [`Event::ProcessFailed`]. Everybody's reliable deliveries wait until it has returned at
    /// everybody: it is the place for what must be done before life goes on, and must not wait for
    /// anything itself. Without it a failure is handled as soon as it is known: who does not care
    /// holds nobody up.
    pub fn on_process_failed(&mut self, on_failed: impl FnMut(ProcessFailed) + Send + 'static) {
        *lock(&self.shared.on_process_failed) = Some(Box::new(on_failed));
        self.shared.command();
    }

    /// Whether this process takes part: it was not declared failed.
    pub fn is_member(&self) -> bool {
        !self.shared.is_excluded.load(Ordering::Relaxed)
    }

    /// Comes back after [`Event::Excluded`] as a new life of the same process, which shares nothing
    /// with the former: what that had received and was not read is gone, and callbacks are to be
    /// set again. Also for one who merely wants to start afresh; then the former life's messages
    /// are settled first.
    ///
    /// # Errors
    /// [`JoinError`]. The process has left all the same.
    pub fn rejoin(mut self) -> Result<Self, JoinError> {
        // Whatever is unsettled stays so: the others have decided its fate.
        let _ = self.leave();
        let mut builder = std::mem::replace(&mut self.builder, Box::new(Builder::new()));
        builder.set_process(self.process());
        drop(self);
        builder.join()
    }

    /// Who it is.
    pub fn process(&self) -> ProcessId {
        self.limits.endpoint().process
    }

    /// The other processes known to be alive, as of a moment ago. Over a switch nobody knows:
    /// none.
    pub fn peers(&self) -> Vec<ProcessId> {
        self.shared.peers()
    }

    /// Waits until at least `count` others are there, for at most `timeout`. Answers whether they
    /// are. Over a switch nobody knows, and it answers false at once.
    pub fn wait_for_peers(&self, count: usize, timeout: Duration) -> bool {
        let knows = self.limits.endpoint().links == onepipe_endpoint::Links::Mesh;
        let deadline = Deadline::after(timeout);
        while knows && self.peers().len() < count {
            if deadline.remaining().is_none() {
                return false;
            }
            // Nobody who sleeps is woken because somebody joins.
            self.shared.wake_driver(false);
            std::thread::sleep(Duration::from_millis(1));
        }
        knows
    }

    /// Counters since joining, as of a moment ago.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Every message below this has been or can be delivered; `None` before anything was heard.
    pub fn barrier(&self) -> Option<Timestamp> {
        self.shared.barrier()
    }

    /// The fabric's time: what a message stamped now would bear, or a little less.
    #[inline]
    pub fn now(&mut self) -> Timestamp {
        self.clock.read().sync
    }

    /// The endpoint's numbers.
    pub fn config(&self) -> &Config {
        self.limits.endpoint()
    }

    /// Leaves: waits until the fate of everything submitted is known, within the builder's
    /// `leave_timeout`; then nobody waits for this process any more and its id is free. What was
    /// received can still be read.
    ///
    /// # Errors
    /// [`LeaveError`]. The process has left all the same.
    pub fn leave(&mut self) -> Result<(), LeaveError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.is_leaving.store(true, Ordering::Release);
        self.shared.command();
        let process = self.limits.endpoint().process;
        thread.join().map_err(|_| LeaveError::Panicked(process))?;
        match self.shared.is_drained.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(LeaveError::Unsettled(process)),
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

    /// Rests until there is something to read, as the idle strategy says; `None`: no deadline.
    fn wait_for_events(&self, deadline: Option<Deadline>) {
        let is_ready = || self.event_reader.has_events() || self.has_ended();
        let awake = self.idle.turns_awake();
        let is_over = || deadline.is_some_and(|deadline| deadline.remaining().is_none());
        let mut looks: u32 = 0;
        while awake.is_none_or(|awake| looks < awake) {
            if is_ready() || (looks.is_multiple_of(64) && is_over()) {
                return;
            }
            match self.idle {
                Idle::Yield => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
            looks = looks.wrapping_add(1);
        }
        let left = deadline.map_or(Some(WAIT_MAX), Deadline::remaining).unwrap_or_default();
        let waiter: &Waiter = &self.shared.event_waiter;
        waiter.wait(left.min(WAIT_MAX), is_ready);
    }
}

impl Drop for Pipe {
    /// Leaves, as [`Pipe::leave`] does.
    fn drop(&mut self) {
        // Whoever wants to know leaves before.
        let _ = self.leave();
    }
}
