//! An end of scheduled transfer on the main thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onepipe::{
    ClientStats, EmbeddedTransfer, ObjectId, ProcessId, TransferError, TransferEvent, TransferStats,
};
use onepipe_arbiter::{ClientEvent, Unlike};

use super::EndpointOptions;
use super::diagnosis::RecentCounters;
use crate::units::readable_ns;

/// What a receiver had no room for is sent again so much later.
const REFUSED_RETRY_DELAY: Duration = Duration::from_millis(50);

/// No turn takes longer, as rests are short: the process was stopped, or had no core, and what is
/// beyond this is nobody else's silence.
const TURN_MAX: Duration = Duration::from_secs(1);

/// How often an arbiter has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ServingArbiter {
    /// Its process id.
    pub process: u32,
    /// Control packets that came from it.
    pub answers: u64,
}

/// Everything that is counted, at one time.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    pub at: Instant,
    /// How long the end has worked by then, without the times in which it could not.
    pub running: Duration,
    pub endpoint: ClientStats,
    pub transfer: TransferStats,
}

/// An end, and what it is to send.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) transfer: EmbeddedTransfer,
    pub(super) options: EndpointOptions,
    pub(super) process: u32,
    outbox: VecDeque<(ProcessId, Vec<u8>)>,
    /// What was refused for want of room, until when it waits.
    refused: VecDeque<(Instant, ProcessId, Vec<u8>)>,
    /// What was handed over and is not through.
    in_progress: Vec<ObjectId>,
    received: VecDeque<(ProcessId, Vec<u8>)>,
    pub(super) current_arbiter: u32,
    serving_arbiters: Vec<ServingArbiter>,
    /// Which arbiter has answered last, and when.
    pub(super) last_answer: Option<(u32, Duration)>,
    /// Arbiters that are set up for other endpoints.
    pub(super) mismatched: Vec<Unlike>,
    /// How long it has worked, as of the last turn.
    pub(super) running: Duration,
    last_turn: Instant,
    pub(super) history: RecentCounters,
    stop: Arc<AtomicBool>,
}

impl Endpoint {
    /// Opens its socket. Nobody needs to be there yet.
    pub fn open(options: &EndpointOptions, process: u32) -> Result<Self> {
        let builder = EmbeddedTransfer::builder().switch(options.udp).process(process);
        let builder = builder.endpoints(options.nodes).arbiters(&options.arbiter);
        let transfer = builder.slot(Duration::from_nanos(options.slot)).embedded();
        let transfer = transfer
            .with_context(|| format!("cannot open endpoint {process} behind {}", options.udp))?;
        let stop = crate::interrupt::stop_flag(transfer.doorbell(), false)?;
        onepipe_transport_clock::sharpen_timers();
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
            last_answer: None,
            mismatched: Vec::new(),
            running: Duration::ZERO,
            last_turn: Instant::now(),
            history: RecentCounters::default(),
            stop,
        })
    }

    /// Whether the user has interrupted it.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// What wakes it.
    pub fn doorbell(&self) -> onepipe_transport_driver::Doorbell {
        self.transfer.doorbell()
    }

    /// How long whoever does not answer is waited for.
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.options.timeout)
    }

    /// An object for `to`; it leaves in the turns to come.
    pub fn send(&mut self, to: ProcessId, object: Vec<u8>) {
        self.outbox.push_back((to, object));
    }

    /// Sends nothing any more of what is not through. What waits for its timeslot leaves in it.
    pub fn abort(&mut self) {
        self.outbox.clear();
        self.refused.clear();
        for id in self.in_progress.drain(..) {
            // If there is none it is through.
            let _ = self.transfer.cancel(id);
        }
    }

    /// Objects that are not through.
    pub fn pending(&self) -> usize {
        self.outbox.len() + self.refused.len() + self.transfer.sending()
    }

    /// Works on, and rests if there is nothing to do.
    pub fn turn(&mut self) {
        self.update_clock();
        self.submit_outbox();
        let Self { transfer, current_arbiter, refused, in_progress, received, mismatched, .. } =
            self;
        let answers = transfer.endpoint_stats().control_received;
        let progress = transfer.poll(|event| match event {
            TransferEvent::Received(from, _, bytes) => received.push_back((from, bytes)),
            TransferEvent::Sent(id, _) => in_progress.retain(|one| *one != id),
            TransferEvent::Refused(id, bytes) => {
                in_progress.retain(|one| *one != id);
                refused.push_back((Instant::now() + REFUSED_RETRY_DELAY, id.dst, bytes));
            }
            TransferEvent::Client(ClientEvent::Asks(arbiter)) => *current_arbiter = arbiter.0,
            TransferEvent::Client(ClientEvent::Unlike(one)) => {
                mismatched.retain(|known| known.arbiter != one.arbiter);
                mismatched.push(one);
            }
            _ => {}
        });
        let answers = transfer.endpoint_stats().control_received - answers;
        if answers > 0 {
            self.count(answers);
        }
        if self.received.is_empty() {
            self.transfer.rest(progress);
        }
    }

    /// Time goes on.
    fn update_clock(&mut self) {
        let now = Instant::now();
        self.running += now.duration_since(self.last_turn).min(TURN_MAX);
        self.last_turn = now;
        if self.history.is_due(self.running) {
            self.history.record(self.counters());
        }
    }

    /// So many answers of the arbiter that is asked.
    fn count(&mut self, answers: u64) {
        self.last_answer = Some((self.current_arbiter, self.running));
        self.mismatched.retain(|mismatched| mismatched.arbiter.0 != self.current_arbiter);
        match self
            .serving_arbiters
            .iter_mut()
            .find(|serving_arbiters| serving_arbiters.process == self.current_arbiter)
        {
            Some(serving_arbiters) => serving_arbiters.answers += answers,
            None => self
                .serving_arbiters
                .push(ServingArbiter { process: self.current_arbiter, answers }),
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
                // It is no endpoint: whoever names it was checked, or has sent something itself.
                Err(_) => {}
            }
        }
    }

    /// An object that has come.
    pub fn next(&mut self) -> Option<(ProcessId, Vec<u8>)> {
        self.received.pop_front()
    }

    /// Turns until nothing is under way, for `most` at most, and for `least` at least: what was
    /// heard last is told as often as the other end asks.
    pub fn linger(&mut self, least: Duration, most: Duration) {
        let began = Instant::now();
        while began.elapsed() < most && (self.pending() > 0 || began.elapsed() < least) {
            self.turn();
            self.received.clear();
        }
    }

    /// Everything that is counted.
    pub fn counters(&self) -> Counters {
        Counters {
            at: Instant::now(),
            running: self.running,
            endpoint: *self.transfer.endpoint_stats(),
            transfer: *self.transfer.stats(),
        }
    }

    /// How long it has worked, and whoever is waited for has had time.
    pub fn running(&self) -> Duration {
        self.running
    }

    /// How much of that was since `then`.
    pub fn running_since(&self, then: &Counters) -> Duration {
        self.running - then.running
    }

    /// The arbiters that have answered, in the order in which they did so first.
    pub fn serving_arbiters(&self) -> &[ServingArbiter] {
        &self.serving_arbiters
    }

    /// Which process it is.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// For people: who it is, and where.
    pub fn name(&self) -> String {
        format!("process {} behind {}", self.process, self.options.udp)
    }

    /// For people: how long its timeslots are, and who gives them.
    pub fn arbiter(&self) -> String {
        format!(
            "arbiter {} gives timeslots of {}",
            self.current_arbiter,
            readable_ns(self.options.slot)
        )
    }

    /// Whether an arbiter has answered.
    pub fn is_served(&self) -> bool {
        !self.serving_arbiters.is_empty()
    }

    /// Whether all arbiters are set up for other endpoints: to wait is of no use.
    pub fn has_no_matching_arbiter(&self) -> bool {
        self.mismatched.len() == self.options.arbiter.len()
    }
}
