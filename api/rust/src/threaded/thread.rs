//! The thread that drives a pipe.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use onepipe_base::ScatteringId;
use onepipe_endpoint::{Outcome, SendError, SendFailed};
use onepipe_transport_clock::reduce_wakeup_latency;
use onepipe_transport_driver::{IdleAction, Progress};
use onepipe_wire::Service;

use super::event_batch::EventWriter;
use super::shared::{OnEvent, OnProcessFailed, Shared, lock, sleep_state};
use super::submission::{SendRequest, SubmissionQueue};
use crate::engine::{Engine, Fabric};
use crate::graceful_leave::GracefulLeave;
use crate::node::{Node, NodeEvent};

/// Maximum number of requests accepted between two turns, so that receiving is not starved.
const REQUESTS_PER_TURN: usize = 256;
/// Number of turns between publications of counters while the thread is busy.
const PUBLISH_EVERY: u32 = 64;

/// The state of the driving thread.
pub(crate) struct Thread<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) submission_queue: SubmissionQueue,
    pub(crate) event_writer: EventWriter,
    pub(crate) leave_timeout: Duration,
}

/// The destination of events.
struct EventSink {
    event_writer: EventWriter,
    on_event: Option<OnEvent>,
    on_process_failed: Option<OnProcessFailed>,
    shared: Arc<Shared>,
}

impl EventSink {
    #[inline]
    fn take(&mut self, node: &mut Node, event: NodeEvent) {
        match event {
            NodeEvent::ProcessFailed(failed) => {
                if let Some(on_process_failed) = &mut self.on_process_failed {
                    on_process_failed(failed);
                }
                // Not when the event is read: a slow reader must not stall other processes.
                node.on_failure_handled();
            }
            NodeEvent::Excluded(_) => self.shared.is_excluded.store(true, Ordering::Relaxed),
            _ => {}
        }
        match &mut self.on_event {
            None => self.event_writer.take(node, event),
            Some(on_event) => node.deliver(event, on_event),
        }
    }
}

/// Notifies the caller when the thread ends, even by a panic.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<T: Fabric> Thread<T> {
    /// Drives the pipe until the caller leaves.
    ///
    /// Each pass of the loop accepts requests, takes a turn, publishes what the turn has changed,
    /// carries out the caller's commands, and rests.
    pub(crate) fn run(self) {
        reduce_wakeup_latency();
        let Self { mut engine, shared, mut submission_queue, event_writer, leave_timeout } = self;
        let _end_guard = EndGuard(Arc::clone(&shared));
        let mut event_sink = EventSink {
            event_writer,
            on_event: None,
            on_process_failed: None,
            shared: Arc::clone(&shared),
        };
        // Number of accepted scatterings of each service: best effort, reliable.
        let mut accepted_counts = [0; 2];
        // The request that does not fit the endpoint's send buffer.
        let mut deferred: Option<SendRequest> = None;
        let mut idle_turn_count = 0;
        let mut unpublished = 0;
        let mut graceful_leave: Option<GracefulLeave> = None;
        loop {
            // Requests first: the turn that follows sends them.
            let accepted = accept_requests(
                &mut engine,
                &mut event_sink,
                &mut submission_queue,
                &mut deferred,
                &mut accepted_counts,
            );
            let progress = engine.turn(|node, event| event_sink.take(node, event));
            // The caller may have recycled batches for events that had none.
            let caught_up = event_sink.event_writer.flush_held(engine.node_mut());
            shared.publish_barrier(engine.barrier());
            // Publish peers before events that concern them.
            if engine.take_peers_changed() {
                shared.publish_peers(engine.peers());
            }

            // A plain load in most passes: the swap would take the cache line from the caller.
            let is_commanded = shared.is_commanded.load(Ordering::Relaxed);
            if is_commanded && shared.is_commanded.swap(false, Ordering::Acquire) {
                if let Some(on_event) = lock(&shared.on_event).take() {
                    event_sink.on_event = Some(on_event);
                }
                if let Some(on_process_failed) = lock(&shared.on_process_failed).take() {
                    event_sink.on_process_failed = Some(on_process_failed);
                }
                if shared.is_leaving.load(Ordering::Acquire) && graceful_leave.is_none() {
                    graceful_leave = Some(GracefulLeave::begin(&engine, leave_timeout));
                }
            }
            if let Some(graceful_leave) = graceful_leave {
                // What was submitted before the leave is still sent.
                let has_more = deferred.is_some() || !submission_queue.requests.is_empty();
                if let Some(is_drained) = graceful_leave.step(&mut engine, has_more) {
                    shared.is_drained.store(is_drained, Ordering::Release);
                    break;
                }
            }

            let is_idle = accepted == 0 && !caught_up && progress.is_idle();
            idle_turn_count = if is_idle { idle_turn_count + 1 } else { 0 };
            // An idle thread hands over its batch; a busy one goes on filling it while the caller
            // has others to read.
            if event_sink.event_writer.publish(is_idle) {
                shared.event_waiter.wake();
            }
            // Counters take a lock: publish them rarely, and when the thread has become idle.
            unpublished += 1;
            if idle_turn_count == 1 || unpublished >= PUBLISH_EVERY {
                unpublished = 0;
                shared.publish_stats(engine.stats());
            }
            if !is_idle {
                // Work was done: the idle strategy restarts.
                engine.rest(Progress { events: 1, ..progress });
            } else if graceful_leave
                .is_some_and(|graceful_leave| graceful_leave.is_nearly_done(&engine))
            {
                // Only the acknowledgement delay remains: too short a time to block.
                std::thread::yield_now();
            } else {
                match engine.idle_action(progress) {
                    IdleAction::Block => {
                        // A deferred request waits for frames, as the endpoint does.
                        let can_accept = deferred.is_none();
                        let event_writer = &event_sink.event_writer;
                        sleep(&mut engine, &shared, &submission_queue, can_accept, event_writer);
                    }
                    action => engine.idle(action),
                }
            }
        }
        shared.publish_stats(engine.stats());
        event_sink.event_writer.close(engine.node_mut());
    }
}

/// Blocks: announces that first, then checks once more for work whose
/// submitter saw this thread awake and did not ring the doorbell.
fn sleep<T: Fabric>(
    engine: &mut Engine<T>,
    shared: &Shared,
    submission_queue: &SubmissionQueue,
    can_accept: bool,
    event_writer: &EventWriter,
) {
    let (lacks_batches, has_recycled) = event_writer.batch_state();
    let state =
        if lacks_batches { sleep_state::ASLEEP_WITHOUT_BATCHES } else { sleep_state::ASLEEP };
    shared.sleep_state.store(state, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let has_work = (can_accept && !submission_queue.requests.is_empty())
        || shared.is_commanded.load(Ordering::Relaxed)
        || (lacks_batches && (has_recycled || event_writer.batch_state().1));
    if !has_work {
        engine.idle(IdleAction::Block);
    }
    shared.sleep_state.store(sleep_state::AWAKE, Ordering::Relaxed);
}

/// Passes submitted requests to the endpoint, as far as its send buffer has capacity. Counts the
/// accepted scatterings of each service in `accepted_counts`. Returns the number of requests.
fn accept_requests<T: Fabric>(
    engine: &mut Engine<T>,
    event_sink: &mut EventSink,
    submission_queue: &mut SubmissionQueue,
    deferred: &mut Option<SendRequest>,
    accepted_counts: &mut [u64; 2],
) -> usize {
    let (mut count, mut bytes) = (0, 0);
    while count < REQUESTS_PER_TURN {
        let Some(request) = deferred.take().or_else(|| submission_queue.requests.pop().ok()) else {
            break;
        };
        let node = engine.node_mut();
        let is_reliable = request.service == Service::Reliable;
        let accepted = request.unpack(|messages| node.scatter(request.service, messages));
        let id = ScatteringId(accepted_counts[usize::from(is_reliable)]);
        match accepted {
            Err(SendError::BufferFull { .. }) => {
                *deferred = Some(request);
                break;
            }
            // The request was submitted before the exclusion was known.
            Err(SendError::Excluded) => report_refused(engine.node_mut(), event_sink, &request, id),
            // All other errors were checked at submission.
            accepted => debug_assert!(
                accepted.is_ok(),
                "all other errors are checked at submission: {accepted:?}"
            ),
        }
        accepted_counts[usize::from(is_reliable)] += 1;
        count += 1;
        bytes += request.charge();
        submission_queue.recycle(request);
    }
    if count > 0 {
        let shared = &event_sink.shared;
        shared.accepted_bytes.fetch_add(bytes, Ordering::Release);
        shared.capacity_waiter.wake();
    }
    count
}

/// Reports the messages of a scattering that will never be sent.
#[cold]
fn report_refused(
    node: &mut Node,
    event_sink: &mut EventSink,
    request: &SendRequest,
    scattering: ScatteringId,
) {
    for (index, to) in request.destinations().enumerate() {
        let failed = SendFailed {
            service: request.service,
            scattering,
            index: index as u16,
            to,
            timestamp: None,
            outcome: Outcome::Lost,
        };
        event_sink.take(node, NodeEvent::SendFailed(failed));
    }
}
