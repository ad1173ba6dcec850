//! A pipe without a thread.

use std::time::Duration;

use onepipe_base::{ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Config, Message, SendError};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_transport_driver::Progress;
use onepipe_transport_shm::Shm;
use onepipe_transport_udp::{UdpLink, UdpOverlay};
use onepipe_wire::Service;

use crate::engine::Engine;
use crate::graceful_leave::GracefulLeave;
use crate::node::{Node, NodeEvent};
use crate::{Builder, Event, JoinError, LeaveError, Stats};

/// A pipe that its caller's own thread drives: no other thread, no lock, no copy on the way out.
///
/// Nothing is sent, received or acknowledged but in [`EmbeddedPipe::turn`], [`EmbeddedPipe::poll`]
/// and [`EmbeddedPipe::leave`]: call one of the first two often. Whoever stays away for longer
/// than [`Config::link_timeout_ns`] with messages on the way holds others up for that long;
/// whoever stays away for longer than its peers' probes last has messages to it reported as
/// [`crate::Outcome::Unknown`].
#[derive(Debug)]
pub struct EmbeddedPipe {
    fabric_engine: FabricEngine,
    builder: Box<Builder>,
    leave_timeout: Duration,
    has_left: bool,
}

/// The same engine on either fabric, with a clock of the fabric's.
#[derive(Debug)]
pub(crate) enum FabricEngine {
    SharedMemory(Box<Engine<Shm>>, SystemClock),
    Udp(Box<Engine<UdpLink>>, SystemClock),
    Overlay(Box<Engine<UdpOverlay>>, SystemClock),
}

macro_rules! with {
    ($fabric_engine:expr, $engine:ident => $body:expr) => {
        match $fabric_engine {
            FabricEngine::SharedMemory($engine, _) => $body,
            FabricEngine::Udp($engine, _) => $body,
            FabricEngine::Overlay($engine, _) => $body,
        }
    };
}

impl EmbeddedPipe {
    /// Says who joins which fabric, and how; end with [`Builder::embedded`].
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(
        fabric_engine: FabricEngine,
        builder: Box<Builder>,
        leave_timeout: Duration,
    ) -> Self {
        Self { fabric_engine, builder, leave_timeout, has_left: false }
    }

    /// Submits a scattering: all its messages bear one timestamp. Payloads are copied into the
    /// send buffer; they leave in the next turn, stamped then. Never blocks.
    ///
    /// # Errors
    /// [`SendError`]; then nothing of it was accepted.
    #[inline]
    pub fn scatter(&mut self, messages: &[Message<'_>]) -> Result<ScatteringId, SendError> {
        with!(&mut self.fabric_engine, engine => engine.node_mut().scatter(Service::BestEffort, messages))
    }

    /// Submits a reliable scattering: every receiver that does not fail delivers its message, or
    /// none does (see the crate). As [`EmbeddedPipe::scatter`] otherwise; its ids are a count of
    /// their own.
    ///
    /// # Errors
    /// [`SendError`]; then nothing of it was accepted.
    #[inline]
    pub fn scatter_reliably(
        &mut self,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        with!(&mut self.fabric_engine, engine => {
            engine.node_mut().scatter(Service::Reliable, messages)
        })
    }

    /// Drives the pipe once: receives, acknowledges, sends. Events wait for
    /// [`EmbeddedPipe::poll`]. Never blocks.
    #[inline]
    pub fn turn(&mut self) -> Progress {
        with!(&mut self.fabric_engine, engine => {
            engine.node_mut().hold_events(true);
            let progress = engine.turn(|_, _| {});
            engine.node_mut().hold_events(false);
            progress
        })
    }

    /// Drives the pipe once and hands out every event that is there, messages in the total order.
    /// A payload is borrowed from the receive buffer; its room is free again when the callback
    /// returns, and that is when it is through with an [`Event::ProcessFailed`]: whoever turns and
    /// never polls keeps the others waiting after a failure. Never blocks.
    #[inline]
    pub fn poll(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> Progress {
        with!(&mut self.fabric_engine, engine => {
            engine.turn(|node, event| deliver(node, event, &mut on_event))
        })
    }

    /// Rests as the idle strategy says after a turn that did `progress`: [`crate::Idle::Backoff`]
    /// blocks in the end, until there is something to do, for 100 ms at most.
    pub fn rest(&mut self, progress: Progress) {
        with!(&mut self.fabric_engine, engine => engine.rest(progress));
    }

    /// Who it is.
    pub fn process(&self) -> ProcessId {
        with!(&self.fabric_engine, engine => engine.process())
    }

    /// The other processes known to be alive, as of a recent turn. Over a switch nobody knows:
    /// none.
    pub fn peers(&self) -> Vec<ProcessId> {
        with!(&self.fabric_engine, engine => engine.peers().iter().collect())
    }

    /// Counters since joining.
    pub fn stats(&self) -> Stats {
        with!(&self.fabric_engine, engine => engine.stats())
    }

    /// Every reliable message below this has been or can be delivered; `None` before anything was
    /// heard.
    pub fn commit_barrier(&self) -> Option<Timestamp> {
        with!(&self.fabric_engine, engine => engine.node().endpoint().commit_barrier())
    }

    /// Whether this process takes part: it was not declared failed.
    pub fn is_member(&self) -> bool {
        with!(&self.fabric_engine, engine => engine.node().endpoint().is_member())
    }

    /// Whether reliable scatterings leave: the controllers have taken note of this process, or
    /// there are none. Until then what is submitted waits.
    pub fn is_registered(&self) -> bool {
        with!(&self.fabric_engine, engine => engine.node().endpoint().is_registered())
    }

    /// Comes back after [`Event::Excluded`] as a new life of the same process, which shares nothing
    /// with the former: what that had received and not handed out is gone. Also for one who merely
    /// wants to start afresh; then the former life's messages are settled first.
    ///
    /// # Errors
    /// [`JoinError`]. The process has left all the same.
    pub fn rejoin(mut self) -> Result<Self, JoinError> {
        // Whatever is unsettled stays so: the others have decided its fate.
        let _ = self.drive_leave(|_| {});
        let mut builder = std::mem::replace(&mut self.builder, Box::new(Builder::new()));
        builder.set_process(self.process());
        drop(self);
        builder.embedded()
    }

    /// Every message below this has been or can be delivered; `None` before anything was heard.
    pub fn barrier(&self) -> Option<Timestamp> {
        with!(&self.fabric_engine, engine => engine.barrier())
    }

    /// The fabric's time: what a message stamped now would bear, or a little less.
    #[inline]
    pub fn now(&mut self) -> Timestamp {
        match &mut self.fabric_engine {
            FabricEngine::SharedMemory(_, clock)
            | FabricEngine::Udp(_, clock)
            | FabricEngine::Overlay(_, clock) => clock.read().sync,
        }
    }

    /// The endpoint's numbers.
    pub fn config(&self) -> &Config {
        with!(&self.fabric_engine, engine => engine.config())
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_drained(&self) -> bool {
        with!(&self.fabric_engine, engine => engine.node().is_drained())
    }

    /// Leaves: waits until the fate of everything submitted is known, within the builder's
    /// `leave_timeout`, handing out events meanwhile; then nobody waits for this process any more.
    ///
    /// # Errors
    /// [`LeaveError::Unsettled`]. The process has left all the same.
    pub fn leave(mut self, on_event: impl FnMut(Event<&[u8]>)) -> Result<(), LeaveError> {
        self.drive_leave(on_event)
    }

    fn drive_leave(&mut self, mut on_event: impl FnMut(Event<&[u8]>)) -> Result<(), LeaveError> {
        self.has_left = true;
        with!(&mut self.fabric_engine, engine => {
            let graceful_leave = GracefulLeave::begin(engine, self.leave_timeout);
            loop {
                match graceful_leave.step(engine, false) {
                    Some(true) => return Ok(()),
                    Some(false) => return Err(LeaveError::Unsettled(engine.process())),
                    None => {}
                }
                let progress = engine.turn(|node, event| deliver(node, event, &mut on_event));
                match graceful_leave.is_near(engine) {
                    true => std::thread::yield_now(),
                    false => engine.rest(progress),
                }
            }
        })
    }
}

/// Hands out an event; a failure is handled when that returns.
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
            // Whoever wants to know leaves before.
            let _ = self.drive_leave(|_| {});
        }
    }
}
