//! What the caller and the pipe's thread share under a lock: the engine and its events.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_endpoint::{Message, OpenScattering, ProcessFailed, SendError};
use onepipe_transport_driver::{IdleAction, Progress, Wait};
use onepipe_wire::Service;

use super::events::{EventQueue, EventReader};
use crate::engine::{FabricEngine, with_engine};
use crate::graceful_leave::GracefulLeave;
use crate::node::NodeEvent;
use crate::process_set::ProcessSet;
use crate::{Event, LeaveError, ReceiveError, Stats};

/// What the pipe's thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadState {
    /// Nothing: the caller drives, or has driven a moment ago.
    Standby,
    /// Takes turns, or has been woken to do so.
    Driving,
    /// Waits for input by the transport's handle, until the given time at the latest.
    Waiting(Mono),
}

/// The engine with its undelivered events. The thread that holds the lock may take a turn.
#[derive(Debug)]
pub(crate) struct Core {
    /// `None` once the pipe has left.
    engine: Option<FabricEngine>,
    events: EventQueue,
    pub(crate) thread_state: ThreadState,
    /// With which the pipe's thread waits. `None` once the pipe has left: it keeps the fabric's
    /// memory alive.
    wait_handle: Option<Arc<dyn Wait>>,
    /// Callbacks that the pipe's thread has yet to take.
    pub(crate) callbacks: Callbacks,
    /// Failures are passed to a callback before they are acknowledged.
    has_failure_callback: bool,
    /// Failures for the callback.
    failures: VecDeque<ProcessFailed>,
    /// How the pipe has left.
    pub(crate) leave_result: Result<(), LeaveError>,
    /// The state when the engine ended, or at the start.
    last: LastState,
}

/// A callback for events.
type OnEvent = Box<dyn FnMut(Event<&[u8]>) + Send>;

/// The functions that the pipe's thread calls.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(crate) on_event: Option<OnEvent>,
    pub(crate) on_process_failed: Option<Box<dyn FnMut(ProcessFailed) + Send>>,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("on_event", &self.on_event.is_some())
            .field("on_process_failed", &self.on_process_failed.is_some())
            .finish()
    }
}

#[derive(Clone, Debug)]
struct LastState {
    stats: Stats,
    barrier: Option<Timestamp>,
    is_member: bool,
    peers: ProcessSet,
}

impl LastState {
    fn of(engine: &FabricEngine) -> Self {
        with_engine!(engine, engine => Self {
            stats: engine.stats(),
            barrier: engine.barrier(),
            is_member: engine.node().endpoint().is_member(),
            peers: engine.peers().clone(),
        })
    }
}

impl Core {
    pub(crate) fn new(engine: FabricEngine, wait_handle: Arc<dyn Wait>) -> Self {
        let last = LastState::of(&engine);
        let process = with_engine!(&engine, engine => engine.process());
        Self {
            engine: Some(engine),
            events: EventQueue::default(),
            thread_state: ThreadState::Driving,
            wait_handle: Some(wait_handle),
            callbacks: Callbacks::default(),
            has_failure_callback: false,
            failures: VecDeque::new(),
            leave_result: Err(LeaveError::Unresolved(process)),
            last,
        }
    }

    /// Whether the pipe has left.
    pub(crate) fn has_ended(&self) -> bool {
        self.engine.is_none()
    }

    /// The engine; `None` once the pipe has left.
    pub(super) fn engine_mut(&mut self) -> Option<&mut FabricEngine> {
        self.engine.as_mut()
    }

    /// Submits a scattering, which leaves with the next turn.
    #[inline]
    pub(crate) fn scatter(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        let Some(engine) = &mut self.engine else { return Err(SendError::Left) };
        with_engine!(engine, engine => engine.node_mut().scatter(service, messages))
    }

    /// Cancels a reliable scattering; the recall leaves with the next turn.
    pub(crate) fn cancel(&mut self, scattering: ScatteringId) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        with_engine!(engine, engine => engine.node_mut().cancel(scattering))
    }

    /// The reliable scatterings without an outcome.
    pub(crate) fn open_scatterings(&self) -> Vec<OpenScattering> {
        let Some(engine) = &self.engine else { return Vec::new() };
        with_engine!(engine, engine => engine.node().open_scatterings())
    }

    /// Takes one turn; its events are queued. Never blocks.
    #[inline]
    pub(crate) fn turn(&mut self) -> Progress {
        let Self { engine, events, failures, has_failure_callback, .. } = self;
        let Some(engine) = engine else { return Progress::default() };
        let (progress, is_lost) = with_engine!(engine, engine => {
            let progress = engine.turn(|node, event| match event {
                NodeEvent::ProcessFailed(failed) if *has_failure_callback => {
                    failures.push_back(failed);
                }
                NodeEvent::ProcessFailed(_) => {
                    // Not when the event is read: a slow reader must not stall other processes.
                    node.on_failure_handled();
                    events.push(node, event);
                }
                event => events.push(node, event),
            });
            (progress, engine.node().has_reported_loss())
        });
        if is_lost {
            self.end_lost();
        }
        progress
    }

    /// Ends because the shared memory is lost. The pipe's thread and all later calls find it ended.
    #[cold]
    fn end_lost(&mut self) {
        let Some(engine) = &self.engine else { return };
        if let Some(lost) = with_engine!(engine, engine => engine.loss()) {
            self.leave_result = Err(LeaveError::SegmentLost(lost));
        }
        self.end();
    }

    /// Why no further event will come, once the pipe has ended.
    pub(crate) fn receive_error(&self, process: ProcessId) -> ReceiveError {
        match &self.leave_result {
            Err(LeaveError::SegmentLost(lost)) => ReceiveError::SegmentLost(lost.clone()),
            _ => ReceiveError::Left(process),
        }
    }

    /// Takes a turn while the pipe's thread may wait, and wakes it if the turn has left it
    /// something to do before the time until which it waits.
    #[inline]
    pub(crate) fn turn_beside_thread(&mut self) {
        let progress = self.turn();
        if let ThreadState::Waiting(until) = self.thread_state
            && (progress.is_blocked || self.deadline().is_some_and(|due| due < until))
        {
            self.wake_thread(ThreadState::Driving);
        }
    }

    /// Whether there are events to fetch.
    #[inline]
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Passes all queued events to `reader`, which has read its own. Returns whether there were
    /// any.
    #[inline]
    pub(crate) fn fetch(&mut self, reader: &mut EventReader) -> bool {
        let is_filled = self.has_events() && self.events.fetch(reader);
        if is_filled
            && let Some(engine) = &mut self.engine
            && with_engine!(engine, engine => self.events.refill(engine.node_mut()))
        {
            // What was held back has left the receive buffer: its sender must learn that.
            if let ThreadState::Waiting(_) = self.thread_state {
                self.wake_thread(ThreadState::Driving);
            }
        }
        is_filled
    }

    /// Sets a callback for failures, which wait for it from now on.
    pub(crate) fn set_on_process_failed(
        &mut self,
        on_failed: impl FnMut(ProcessFailed) + Send + 'static,
    ) {
        self.callbacks.on_process_failed = Some(Box::new(on_failed));
        self.has_failure_callback = true;
    }

    /// Returns the next failure for the callback. [`Core::on_failure_handled`] must follow.
    pub(crate) fn next_failure(&mut self) -> Option<ProcessFailed> {
        self.failures.pop_front()
    }

    /// Acknowledges a failure that the callback has handled, and queues its event.
    pub(crate) fn on_failure_handled(&mut self, failed: ProcessFailed) {
        let Some(engine) = &mut self.engine else { return };
        with_engine!(engine, engine => {
            engine.node_mut().on_failure_handled();
            self.events.push(engine.node_mut(), NodeEvent::ProcessFailed(failed));
        });
    }

    /// Returns how to idle after a turn that did `progress`.
    #[inline]
    pub(crate) fn idle_action(&mut self, progress: Progress) -> IdleAction {
        let Some(engine) = &mut self.engine else { return IdleAction::Yield };
        with_engine!(engine, engine => engine.idle_action(progress))
    }

    /// Spins or yields as [`Core::idle_action`] said.
    #[inline]
    pub(crate) fn idle(&mut self, action: IdleAction) {
        let Some(engine) = &mut self.engine else { return };
        with_engine!(engine, engine => engine.idle(action));
    }

    /// Blocks until there is something to do, for at most `timeout`.
    pub(crate) fn block(&mut self, timeout: Duration) {
        let Some(engine) = &mut self.engine else { return };
        let timeout_ns = timeout.as_nanos().try_into().unwrap_or(u64::MAX);
        with_engine!(engine, engine => engine.block_for(timeout_ns));
    }

    /// Announces that the pipe's thread waits for input without the lock. Returns the longest time
    /// to wait, in ns; `None` if there is something to do at once.
    pub(crate) fn begin_wait(&mut self) -> Option<u64> {
        let engine = self.engine.as_mut()?;
        with_engine!(engine, engine => {
            let timeout_ns = engine.begin_wait()?;
            let until = engine.last_turn()?.after_ns(timeout_ns);
            self.thread_state = ThreadState::Waiting(until);
            Some(timeout_ns)
        })
    }

    /// Sets the state of the pipe's thread. Ends its wait, if it waits.
    pub(crate) fn set_thread_state(&mut self, state: ThreadState) {
        if let ThreadState::Waiting(_) = self.thread_state
            && let Some(engine) = &mut self.engine
        {
            with_engine!(engine, engine => engine.end_wait());
        }
        self.thread_state = state;
    }

    /// Wakes the pipe's thread from its wait, if it waits, and sets its state.
    pub(crate) fn wake_thread(&mut self, state: ThreadState) {
        if let ThreadState::Waiting(_) = self.thread_state
            && let Some(wait_handle) = &self.wait_handle
        {
            wait_handle.ring();
        }
        self.set_thread_state(state);
    }

    /// The time of the last turn; `None` before the first one.
    #[inline]
    pub(crate) fn last_turn(&self) -> Option<Mono> {
        let engine = self.engine.as_ref()?;
        with_engine!(engine, engine => engine.last_turn())
    }

    /// When the endpoint must take a turn at the latest.
    fn deadline(&self) -> Option<Mono> {
        let engine = self.engine.as_ref()?;
        with_engine!(engine, engine => engine.deadline())
    }

    /// Advances the leave between two turns. Returns whether the process has left.
    pub(crate) fn step_leave(&mut self, graceful_leave: &GracefulLeave) -> bool {
        let Some(engine) = &mut self.engine else { return true };
        let result = with_engine!(engine, engine => graceful_leave.step(engine));
        let has_left = result.is_some();
        if let Some(result) = result {
            self.leave_result = result;
        }
        has_left
    }

    /// Ends: drops the engine, and so the fabric's resources. Queued events can still be fetched.
    pub(crate) fn end(&mut self) {
        let Some(mut engine) = self.engine.take() else { return };
        with_engine!(&mut engine, engine => {
            for failed in std::mem::take(&mut self.failures) {
                self.events.push(engine.node_mut(), NodeEvent::ProcessFailed(failed));
            }
            self.events.release_held(engine.node_mut());
        });
        self.last = LastState::of(&engine);
        self.wait_handle = None;
    }

    /// Counters since joining.
    pub(crate) fn stats(&self) -> Stats {
        match &self.engine {
            Some(engine) => with_engine!(engine, engine => engine.stats()),
            None => self.last.stats,
        }
    }

    /// The barrier; `None` before any promise was received.
    pub(crate) fn barrier(&self) -> Option<Timestamp> {
        match &self.engine {
            Some(engine) => with_engine!(engine, engine => engine.barrier()),
            None => self.last.barrier,
        }
    }

    /// Whether this process has not been declared failed.
    pub(crate) fn is_member(&self) -> bool {
        match &self.engine {
            Some(engine) => {
                with_engine!(engine, engine => engine.node().endpoint().is_member())
            }
            None => self.last.is_member,
        }
    }

    /// The other live processes, as far as known.
    pub(crate) fn peers(&self) -> Vec<ProcessId> {
        match &self.engine {
            Some(engine) => with_engine!(engine, engine => engine.peers().iter().collect()),
            None => self.last.peers.iter().collect(),
        }
    }
}
