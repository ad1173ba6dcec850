//! An endpoint of scheduled transfer, polled on the main thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onepipe::{EmbeddedTransfer, ObjectId, ProcessId, TransferError, TransferEvent};
use onepipe_arbiter::{ClientEvent, ParamsMismatch};

use super::EndpointOptions;
use super::counters::{Counters, RecentCounters};
use crate::units::readable_ns;

/// Delay before an object that a full receiver refused is sent again.
const REFUSED_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Maximum time that a turn counts: beyond it this process was stopped or descheduled, which is not
/// a timeout of its peers.
const TURN_MAX: Duration = Duration::from_secs(1);

/// Replies of one arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ServingArbiter {
    /// Process id of the arbiter.
    pub process: u32,
    /// Control packets received from it.
    pub replies: u64,
}

/// An endpoint with its send queue.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) transfer: EmbeddedTransfer,
    pub(super) options: EndpointOptions,
    pub(super) process: u32,
    outbox: VecDeque<(ProcessId, Vec<u8>)>,
    /// Refused objects, with the time of the next attempt.
    refused: VecDeque<(Instant, ProcessId, Vec<u8>)>,
    /// Objects handed to the endpoint and not acknowledged.
    in_progress: Vec<ObjectId>,
    received: VecDeque<(ProcessId, Vec<u8>)>,
    pub(super) current_arbiter: u32,
    serving_arbiters: Vec<ServingArbiter>,
    /// The arbiter that replied last, and when.
    pub(super) last_reply: Option<(u32, Duration)>,
    /// Arbiters that are configured for other endpoints.
    pub(super) mismatched: Vec<ParamsMismatch>,
    /// Time for which the endpoint has run, as of the last turn.
    pub(super) running: Duration,
    last_turn: Instant,
    pub(super) history: RecentCounters,
    stop: Arc<AtomicBool>,
}

impl Endpoint {
    /// Opens the socket, and joins. No peer but the switch needs to be up yet.
    pub fn open(options: &EndpointOptions, process: u32) -> Result<Self> {
        let builder = EmbeddedTransfer::builder().switch(options.udp).process(process);
        let builder = builder.endpoints(options.nodes).arbiters(&options.arbiter);
        let builder = builder.wait(options.join_args.wait());
        let transfer = builder.slot(Duration::from_nanos(options.slot)).embedded();
        let transfer = transfer
            .with_context(|| format!("cannot open endpoint {process} behind {}", options.udp))?;
        let stop = crate::interrupt::stop_flag(transfer.doorbell(), false)?;
        onepipe_transport_clock::reduce_wakeup_latency();
        Ok(Self {
            transfer,
            options: options.clone(),
            process,
            outbox: VecDeque::new(),
            refused: VecDeque::new(),
            in_progress: Vec::new(),
            received: VecDeque::new(),
            current_arbiter: options.arbiter[0],
            serving_arbiters: Vec::new(),
            last_reply: None,
            mismatched: Vec::new(),
            running: Duration::ZERO,
            last_turn: Instant::now(),
            history: RecentCounters::default(),
            stop,
        })
    }

    /// Returns whether the user has interrupted the command.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the doorbell that wakes the endpoint.
    pub fn doorbell(&self) -> onepipe_transport_driver::Doorbell {
        self.transfer.doorbell()
    }

    /// Returns the timeout for a peer that does not reply.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.options.timeout)
    }

    /// Queues an object for `to`.
    pub fn send(&mut self, to: ProcessId, object: Vec<u8>) {
        self.outbox.push_back((to, object));
    }

    /// Cancels all objects that are not acknowledged. Packets that wait for a timeslot still leave.
    pub fn abort(&mut self) {
        self.outbox.clear();
        self.refused.clear();
        for id in self.in_progress.drain(..) {
            // Fails when the object is acknowledged already.
            let _ = self.transfer.cancel(id);
        }
    }

    /// Returns the number of objects that are not acknowledged.
    pub fn pending(&self) -> usize {
        self.outbox.len() + self.refused.len() + self.transfer.sending()
    }

    /// Polls the endpoint, and rests if it is idle.
    pub fn turn(&mut self) {
        self.update_clock();
        self.submit_outbox();
        let Self { transfer, current_arbiter, refused, in_progress, received, mismatched, .. } =
            self;
        let replies = transfer.endpoint_stats().control_received;
        let progress = transfer.poll(|event| match event {
            TransferEvent::Received(from, _, bytes) => received.push_back((from, bytes)),
            TransferEvent::Sent(id, _) => in_progress.retain(|one| *one != id),
            TransferEvent::Refused(id, bytes) => {
                in_progress.retain(|one| *one != id);
                refused.push_back((Instant::now() + REFUSED_RETRY_DELAY, id.dst, bytes));
            }
            TransferEvent::Client(ClientEvent::ArbiterChanged(arbiter)) => {
                *current_arbiter = arbiter.0
            }
            TransferEvent::Client(ClientEvent::ParamsMismatch(one)) => {
                mismatched.retain(|known| known.arbiter != one.arbiter);
                mismatched.push(one);
            }
            _ => {}
        });
        let replies = transfer.endpoint_stats().control_received - replies;
        if replies > 0 {
            self.count_replies(replies);
        }
        if self.received.is_empty() {
            self.transfer.rest(progress);
        }
    }

    /// Fails if the switch does not admit this endpoint any more.
    pub fn check_admitted(&self) -> Result<()> {
        self.transfer.refusal().map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// Advances the running time.
    fn update_clock(&mut self) {
        let now = Instant::now();
        self.running += now.duration_since(self.last_turn).min(TURN_MAX);
        self.last_turn = now;
        if self.history.is_due(self.running) {
            self.history.record(self.counters());
        }
    }

    /// Counts replies of the current arbiter.
    fn count_replies(&mut self, replies: u64) {
        self.last_reply = Some((self.current_arbiter, self.running));
        self.mismatched.retain(|mismatch| mismatch.arbiter.0 != self.current_arbiter);
        match self
            .serving_arbiters
            .iter_mut()
            .find(|arbiter| arbiter.process == self.current_arbiter)
        {
            Some(arbiter) => arbiter.replies += replies,
            None => self
                .serving_arbiters
                .push(ServingArbiter { process: self.current_arbiter, replies }),
        }
    }

    fn submit_outbox(&mut self) {
        while self.refused.front().is_some_and(|(at, ..)| *at <= Instant::now()) {
            self.outbox.extend(self.refused.pop_front().map(|(_, to, object)| (to, object)));
        }
        while let Some((to, object)) = self.outbox.pop_front() {
            match self.transfer.send(to, object) {
                Ok(id) => self.in_progress.push(id),
                Err(TransferError::Full(object)) => {
                    self.outbox.push_front((to, object));
                    break;
                }
                // The receiver is not an endpoint. This cannot happen: the id is from the command
                // line and was checked, or it is that of a process that has sent to this one.
                Err(_) => {}
            }
        }
    }

    /// Returns the next received object.
    pub fn next_received(&mut self) -> Option<(ProcessId, Vec<u8>)> {
        self.received.pop_front()
    }

    /// Runs until nothing is pending, for `least` at least and `most` at most. Meanwhile
    /// acknowledgements are repeated whenever the peer asks for them.
    pub fn linger(&mut self, at_least: Duration, at_most: Duration) {
        let began = Instant::now();
        while began.elapsed() < at_most && (self.pending() > 0 || began.elapsed() < at_least) {
            self.turn();
            self.received.clear();
        }
    }

    /// Returns a snapshot of all counters.
    pub fn counters(&self) -> Counters {
        Counters {
            at: Instant::now(),
            running: self.running,
            endpoint: *self.transfer.endpoint_stats(),
            transfer: *self.transfer.stats(),
        }
    }

    /// Returns the time for which the endpoint has run: the time that peers had to reply.
    pub fn running(&self) -> Duration {
        self.running
    }

    /// Returns the running time since `then`.
    pub fn running_since(&self, then: &Counters) -> Duration {
        self.running - then.running
    }

    /// Returns the arbiters that have replied, in the order of their first reply.
    pub fn serving_arbiters(&self) -> &[ServingArbiter] {
        &self.serving_arbiters
    }

    pub fn process(&self) -> u32 {
        self.process
    }

    /// Formats the process id and the switch.
    pub fn describe(&self) -> String {
        format!("process {} behind {}", self.process, self.options.udp)
    }

    /// Formats the current arbiter and the length of timeslots.
    pub fn describe_arbiter(&self) -> String {
        format!(
            "arbiter {} gives timeslots of {}",
            self.current_arbiter,
            readable_ns(self.options.slot)
        )
    }

    /// Returns whether an arbiter has replied.
    pub fn is_served(&self) -> bool {
        !self.serving_arbiters.is_empty()
    }

    /// Returns whether all arbiters are configured for other endpoints, so that waiting is of no
    /// use.
    pub fn has_no_matching_arbiter(&self) -> bool {
        self.mismatched.len() == self.options.arbiter.len()
    }
}
