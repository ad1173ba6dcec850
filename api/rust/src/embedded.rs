//! A pipe without a thread.

mod memory;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use onepipe_base::{ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Config, Message, OpenScattering, SendError};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::{Doorbell, IdleAction, Idleness, Progress, Wait, Waker};
use onepipe_transport_shm::Shm;
use onepipe_wire::Service;

use crate::engine::{FabricEngine, with_engine};
use crate::graceful_leave::GracefulLeave;
use crate::node::{Node, NodeEvent};
use crate::{Builder, Event, JoinError, LeaveError, Stats};

/// A pipe driven by the caller's own thread: no other thread, no lock, no copy on receipt.
///
/// Frames are only sent, received and acknowledged in [`EmbeddedPipe::turn`],
/// [`EmbeddedPipe::poll`] and [`EmbeddedPipe::leave`]: call one of the first two often. A pipe not
/// driven for longer than [`Config::link_timeout_ns`] while it is sending delays other processes
/// for that long. If it is not driven for longer than its peers' probes last, their new messages to
/// it fail, and after [`Config::unknown_after_ns`] those in flight have an unknown outcome.
#[derive(Debug)]
pub struct EmbeddedPipe {
    fabric_engine: FabricEngine,
    builder: Box<Builder>,
    leave_timeout: Duration,
    has_left: bool,
    /// Made by the first call of [`EmbeddedPipe::doorbell`].
    bell: Option<Bell>,
}

/// Ends a wait of the transport.
#[derive(Clone)]
struct Bell(Arc<dyn Wait>);

impl Waker for Bell {
    fn ring(&self) {
        self.0.ring();
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Bell")
    }
}

impl EmbeddedPipe {
    /// Returns the settings for joining; finish with [`Builder::embedded`].
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(
        fabric_engine: FabricEngine,
        builder: Box<Builder>,
        leave_timeout: Duration,
    ) -> Self {
        Self { fabric_engine, builder, leave_timeout, has_left: false, bell: None }
    }

    /// Submits a scattering: all its messages share one timestamp. Copies payloads into the send
    /// buffer; they are stamped and sent in the next turn. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]; then no message was accepted.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        with_engine!(&mut self.fabric_engine, engine => engine.node_mut().scatter(Service::BestEffort, messages))
    }

    /// Submits a reliable scattering: every receiver that does not fail delivers its message, or
    /// none does (see the crate). Otherwise as [`EmbeddedPipe::scatter`]; its ids are counted
    /// separately.
    ///
    /// # Errors
    /// [`SendError`]; then no message was accepted.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        with_engine!(&mut self.fabric_engine, engine => {
            engine.node_mut().scatter(Service::Reliable, messages)
        })
    }

    /// Cancels a reliable scattering: it is recalled where it has arrived, so that no receiver
    /// delivers it, and [`Event::SendFailed`] follows for each of its messages, with
    /// [`crate::FailureReason::Cancelled`]. Returns false if its outcome is known, or if it was
    /// recalled before. If all receivers acknowledge it before the recall is sent, it is delivered.
    ///
    /// ```
    /// use onepipe::{EmbeddedPipe, Event, FailureReason, Message, ProcessId};
    ///
    /// let fabric = format!("doc-cancel-embedded-{}", std::process::id());
    /// let mut pipe = EmbeddedPipe::builder().fabric(fabric).process(0).embedded()?;
    /// // Process 1 has not joined, so this one waits.
    /// let waiting = pipe.scatter_reliably(&[Message { to: ProcessId(1), payload: b"hello" }])?;
    /// assert_eq!(pipe.open_scatterings()[0].receivers, [ProcessId(1)]);
    /// assert!(pipe.cancel(waiting));
    /// let mut reason = None;
    /// while reason.is_none() {
    ///     pipe.poll(|event| {
    ///         if let Event::SendFailed(failed) = event {
    ///             reason = Some(failed.reason);
    ///         }
    ///     });
    /// }
    /// assert_eq!(reason, Some(FailureReason::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&mut self, scattering: ScatteringId) -> bool {
        with_engine!(&mut self.fabric_engine, engine => engine.node_mut().cancel(scattering))
    }

    /// The reliable scatterings without an outcome: those that were sent by ascending timestamp,
    /// then those that wait to be sent, each with the receivers that it waits for.
    pub fn open_scatterings(&self) -> Vec<OpenScattering> {
        with_engine!(&self.fabric_engine, engine => engine.node().open_scatterings())
    }

    /// Drives the pipe once: receives, acknowledges, sends. Events are kept for
    /// [`EmbeddedPipe::poll`], and so are operations on registered memory. Never blocks.
    #[inline]
    pub fn turn(&mut self) -> Progress {
        with_engine!(&mut self.fabric_engine, engine => {
            engine.node_mut().hold_events(true);
            let progress = engine.turn(|_, _| {});
            engine.node_mut().hold_events(false);
            progress
        })
    }

    /// Drives the pipe once and hands out every available event, messages in the total order. A
    /// payload is borrowed from the receive buffer and released when the callback returns. The
    /// return of the callback also acknowledges an [`Event::ProcessFailed`]: a pipe that turns
    /// without polling stalls the other processes after a failure. Never blocks.
    #[inline]
    pub fn poll(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> Progress {
        with_engine!(&mut self.fabric_engine, engine => {
            engine.turn(|node, event| deliver(node, event, &mut on_event))
        })
    }

    /// Spins, yields or blocks by the idle strategy after a turn that did `progress`. Blocks for at
    /// most 100 ms, and only with [`crate::Idle::Backoff`]; the handles of
    /// [`EmbeddedPipe::doorbell`] end this.
    pub fn rest(&mut self, progress: Progress) {
        with_engine!(&mut self.fabric_engine, engine => {
            let Some(bell) = &self.bell else { return engine.rest(progress) };
            match engine.idle_action(progress) {
                IdleAction::Block => {
                    if let Some(wait_ns) = engine.begin_wait() {
                        bell.0.wait(wait_ns);
                        engine.end_wait();
                    }
                }
                action => engine.idle(action),
            }
        });
    }

    /// Returns what a turn that did `progress` means for a thread that drives several pipes, and
    /// rests once for all of them: see [`Rest`](crate::Rest).
    pub fn idleness(&self, progress: Progress) -> Idleness {
        with_engine!(&self.fabric_engine, engine => engine.idleness(progress))
    }

    /// Announces a wait. Returns the longest time to wait, in ns; `None` if there is something to
    /// do at once.
    pub(crate) fn begin_wait(&mut self) -> Option<u64> {
        with_engine!(&mut self.fabric_engine, engine => engine.begin_wait())
    }

    /// Ends an announced wait.
    pub(crate) fn end_wait(&mut self) {
        with_engine!(&mut self.fabric_engine, engine => engine.end_wait());
    }

    /// The attachment to shared memory, if the pipe has one.
    pub(crate) fn shared_memory(&self) -> Option<&Shm> {
        match &self.fabric_engine {
            FabricEngine::SharedMemory(engine, _) => Some(engine.transport()),
            FabricEngine::Udp(..) | FabricEngine::Overlay(..) => None,
        }
    }

    /// The handle by which another thread ends the current [`EmbeddedPipe::rest`], or else the
    /// next one that blocks: to hand over work to the thread that drives the pipe.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn doorbell(&mut self) -> io::Result<Doorbell> {
        let bell = match &self.bell {
            Some(bell) => bell.clone(),
            None => {
                let wait = with_engine!(&self.fabric_engine, engine => engine.wait_handle())?;
                self.bell.insert(Bell(wait)).clone()
            }
        };
        Ok(Doorbell::new(Arc::new(bell)))
    }

    /// The id of this process.
    pub fn process(&self) -> ProcessId {
        with_engine!(&self.fabric_engine, engine => engine.process())
    }

    /// The other live processes, as of a recent turn; see [`crate::Pipe::peers`].
    pub fn peers(&self) -> Vec<ProcessId> {
        with_engine!(&self.fabric_engine, engine => engine.peers().iter().collect())
    }

    /// Counters since joining.
    pub fn stats(&self) -> Stats {
        with_engine!(&self.fabric_engine, engine => engine.stats())
    }

    /// The commit barrier: every reliable message below it has been or can be delivered; `None`
    /// before any promise was received.
    pub fn commit_barrier(&self) -> Option<Timestamp> {
        with_engine!(&self.fabric_engine, engine => engine.node().endpoint().commit_barrier())
    }

    /// Sets the timestamp that the commit barrier has to pass, as the program waits for that: the
    /// fabric hurries, as for a reliable message. `None`: the program does not wait. A process that
    /// has registered memory does not call this: its reads set the timestamp.
    pub fn await_commit(&mut self, above: Option<Timestamp>) {
        with_engine!(&mut self.fabric_engine, engine => {
            engine.node_mut().endpoint_mut().await_commit(above);
        });
    }

    /// Whether this process is a member of the fabric: false once it was declared failed.
    pub fn is_member(&self) -> bool {
        with_engine!(&self.fabric_engine, engine => engine.node().endpoint().is_member())
    }

    /// Whether reliable scatterings can be sent: the controllers have acknowledged this process, or
    /// there are none. Until then submitted scatterings wait.
    pub fn is_registered(&self) -> bool {
        with_engine!(&self.fabric_engine, engine => engine.node().endpoint().is_registered())
    }

    /// Rejoins after [`Event::Excluded`] as a new incarnation of the same process, which shares no
    /// state with the previous one: events that were not handed out are lost. A member may rejoin,
    /// too; then the outcomes of its messages are resolved first.
    ///
    /// # Errors
    /// [`JoinError`]. The process has left in any case.
    pub fn rejoin(mut self) -> Result<Self, JoinError> {
        // Unresolved messages stay so: the other processes have decided their outcomes.
        let _ = self.drive_leave(|_| {});
        let mut builder = std::mem::replace(&mut self.builder, Box::new(Builder::new()));
        builder.set_process(self.process());
        drop(self);
        builder.embedded()
    }

    /// The barrier: every message below it has been or can be delivered; `None` before any promise
    /// was received.
    pub fn barrier(&self) -> Option<Timestamp> {
        with_engine!(&self.fabric_engine, engine => engine.barrier())
    }

    /// The fabric's time: a lower bound of the timestamp of a message stamped now.
    #[inline]
    pub fn now(&mut self) -> Timestamp {
        self.fabric_engine.clock().read().sync
    }

    /// The endpoint's configuration.
    pub fn config(&self) -> &Config {
        with_engine!(&self.fabric_engine, engine => engine.config())
    }

    /// Whether the outcomes of all submitted messages are known.
    pub fn is_drained(&self) -> bool {
        with_engine!(&self.fabric_engine, engine => engine.node().is_drained())
    }

    /// Number of received messages that are not delivered yet: they wait for the barrier, or for
    /// [`EmbeddedPipe::poll`].
    pub fn pending(&self) -> usize {
        with_engine!(&self.fabric_engine, engine => engine.node().endpoint().pending())
    }

    /// Leaves the fabric: accepts no more messages, and waits until the outcomes of all submitted
    /// ones are known, all received ones are delivered, and the switch has acknowledged the leave,
    /// for at most the builder's `leave_timeout`. Hands out events meanwhile; at the end of the
    /// timeout those messages that were acknowledged and cannot be delivered, as
    /// [`Event::Undelivered`]. Afterwards no process waits for this one.
    ///
    /// # Errors
    /// [`LeaveError`]. The process has left in any case.
    pub fn leave(mut self, on_event: impl FnMut(Event<&[u8]>)) -> Result<(), LeaveError> {
        self.drive_leave(on_event)
    }

    fn drive_leave(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> Result<(), LeaveError> {
        self.has_left = true;
        with_engine!(&mut self.fabric_engine, engine => {
            let graceful_leave = GracefulLeave::begin(self.leave_timeout);
            loop {
                if let Some(result) = graceful_leave.step(engine) {
                    return result;
                }
                let progress = engine.turn(|node, event| deliver(node, event, &mut on_event));
                engine.rest(progress);
            }
        })
    }
}

impl AsMut<EmbeddedPipe> for EmbeddedPipe {
    fn as_mut(&mut self) -> &mut EmbeddedPipe {
        self
    }
}

impl Builder {
    /// Joins without a thread: the caller drives the pipe by calling it often.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn embedded(mut self) -> Result<EmbeddedPipe, JoinError> {
        let leave_timeout = self.leave_timeout;
        Ok(EmbeddedPipe::new(self.join_fabric()?, Box::new(self), leave_timeout))
    }
}

/// Hands out an event, and acknowledges a failure when the callback returns.
#[inline]
fn deliver(node: &mut Node, event: NodeEvent, on_event: &mut impl FnMut(Event<&[u8]>)) {
    let is_failure = matches!(event, NodeEvent::ProcessFailed(_));
    node.deliver(event, on_event);
    if is_failure {
        node.on_failure_handled();
    }
}

impl Drop for EmbeddedPipe {
    /// Leaves, as [`EmbeddedPipe::leave`] does.
    fn drop(&mut self) {
        if !self.has_left && !std::thread::panicking() {
            // Callers that need the result call `leave`.
            let _ = self.drive_leave(|_| {});
        }
    }
}
