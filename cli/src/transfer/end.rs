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

use super::Place;
use super::trouble::Recent;
use crate::number::readable_ns;

/// What a receiver had no room for is sent again so much later.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// No turn takes longer, as rests are short: the process was stopped, or had no core, and what is
/// beyond this is nobody else's silence.
const TURN_MAX: Duration = Duration::from_secs(1);

/// How often an arbiter has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Served {
    /// Its process id.
    pub process: u32,
    /// Control packets that came from it.
    pub answers: u64,
}

/// Everything that is counted, at one time.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    pub at: Instant,
    /// How long the end has worked by then, without the times in which it could not.
    pub lived: Duration,
    pub endpoint: ClientStats,
    pub transfer: TransferStats,
}

/// An end, and what it is to send.
#[derive(Debug)]
pub struct End {
    pub(super) transfer: EmbeddedTransfer,
    pub(super) place: Place,
    pub(super) process: u32,
    outbox: VecDeque<(ProcessId, Vec<u8>)>,
    /// What was refused for want of room, until when it waits.
    refused: VecDeque<(Instant, ProcessId, Vec<u8>)>,
    /// What was handed over and is not through.
    going: Vec<ObjectId>,
    came: VecDeque<(ProcessId, Vec<u8>)>,
    pub(super) asked: u32,
    served: Vec<Served>,
    /// Which arbiter has answered last, and when.
    pub(super) answered: Option<(u32, Duration)>,
    /// Arbiters that are set up for other endpoints.
    pub(super) unlike: Vec<Unlike>,
    /// How long it has worked, as of the last turn.
    pub(super) lived: Duration,
    turned: Instant,
    pub(super) recent: Recent,
    stop: Arc<AtomicBool>,
}

impl End {
    /// Opens its socket. Nobody needs to be there yet.
    pub fn open(place: &Place, process: u32) -> Result<Self> {
        let builder = EmbeddedTransfer::builder().switch(place.udp).process(process);
        let builder = builder.endpoints(place.nodes).arbiters(&place.arbiter);
        let transfer = builder.slot(Duration::from_nanos(place.slot)).embedded();
        let transfer = transfer
            .with_context(|| format!("cannot be process {process} behind {}", place.udp))?;
        let stop = crate::interrupt::stop_flag(transfer.doorbell(), false)?;
        onepipe_transport_clock::sharpen_timers();
        Ok(Self {
            transfer,
            place: place.clone(),
            process,
            outbox: VecDeque::new(),
            refused: VecDeque::new(),
            going: Vec::new(),
            came: VecDeque::new(),
            asked: place.arbiter[0],
            served: Vec::new(),
            answered: None,
            unlike: Vec::new(),
            lived: Duration::ZERO,
            turned: Instant::now(),
            recent: Recent::default(),
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
    pub fn patience(&self) -> Duration {
        Duration::from_nanos(self.place.wait)
    }

    /// An object for `to`; it leaves in the turns to come.
    pub fn send(&mut self, to: ProcessId, object: Vec<u8>) {
        self.outbox.push_back((to, object));
    }

    /// Sends nothing any more of what is not through. What waits for its timeslot leaves in it.
    pub fn give_up(&mut self) {
        self.outbox.clear();
        self.refused.clear();
        for id in self.going.drain(..) {
            // If there is none it is through.
            let _ = self.transfer.cancel(id);
        }
    }

    /// Objects that are not through.
    pub fn under_way(&self) -> usize {
        self.outbox.len() + self.refused.len() + self.transfer.sending()
    }

    /// Works on, and rests if there is nothing to do.
    pub fn turn(&mut self) {
        self.live();
        self.hand_over();
        let Self { transfer, asked, refused, going, came, unlike, .. } = self;
        let answers = transfer.endpoint_stats().control_received;
        let progress = transfer.poll(|event| match event {
            TransferEvent::Received(from, _, bytes) => came.push_back((from, bytes)),
            TransferEvent::Sent(id, _) => going.retain(|one| *one != id),
            TransferEvent::Refused(id, bytes) => {
                going.retain(|one| *one != id);
                refused.push_back((Instant::now() + REFUSED_PAUSE, id.dst, bytes));
            }
            TransferEvent::Client(ClientEvent::Asks(arbiter)) => *asked = arbiter.0,
            TransferEvent::Client(ClientEvent::Unlike(one)) => {
                unlike.retain(|known| known.arbiter != one.arbiter);
                unlike.push(one);
            }
            _ => {}
        });
        let answers = transfer.endpoint_stats().control_received - answers;
        if answers > 0 {
            self.count(answers);
        }
        if self.came.is_empty() {
            self.transfer.rest(progress);
        }
    }

    /// Time goes on.
    fn live(&mut self) {
        let now = Instant::now();
        self.lived += now.duration_since(self.turned).min(TURN_MAX);
        self.turned = now;
        if self.recent.is_due(self.lived) {
            self.recent.note(self.counted());
        }
    }

    /// So many answers of the arbiter that is asked.
    fn count(&mut self, answers: u64) {
        self.answered = Some((self.asked, self.lived));
        self.unlike.retain(|unlike| unlike.arbiter.0 != self.asked);
        match self.served.iter_mut().find(|served| served.process == self.asked) {
            Some(served) => served.answers += answers,
            None => self.served.push(Served { process: self.asked, answers }),
        }
    }

    fn hand_over(&mut self) {
        while self.refused.front().is_some_and(|(at, ..)| *at <= Instant::now()) {
            self.outbox.extend(self.refused.pop_front().map(|(_, to, object)| (to, object)));
        }
        while let Some((to, object)) = self.outbox.pop_front() {
            match self.transfer.send(to, object) {
                Ok(id) => self.going.push(id),
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
        self.came.pop_front()
    }

    /// Turns until nothing is under way, for `most` at most, and for `least` at least: what was
    /// heard last is told as often as the other end asks.
    pub fn linger(&mut self, least: Duration, most: Duration) {
        let began = Instant::now();
        while began.elapsed() < most && (self.under_way() > 0 || began.elapsed() < least) {
            self.turn();
            self.came.clear();
        }
    }

    /// Everything that is counted.
    pub fn counted(&self) -> Counted {
        Counted {
            at: Instant::now(),
            lived: self.lived,
            endpoint: *self.transfer.endpoint_stats(),
            transfer: *self.transfer.stats(),
        }
    }

    /// How long it has worked, and whoever is waited for has had time.
    pub fn lived(&self) -> Duration {
        self.lived
    }

    /// How much of that was since `then`.
    pub fn since(&self, then: &Counted) -> Duration {
        self.lived - then.lived
    }

    /// The arbiters that have answered, in the order in which they did so first.
    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Which process it is.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// For people: who it is, and where.
    pub fn name(&self) -> String {
        format!("process {} behind {}", self.process, self.place.udp)
    }

    /// For people: how long its timeslots are, and who gives them.
    pub fn arbiter(&self) -> String {
        format!("arbiter {} gives timeslots of {}", self.asked, readable_ns(self.place.slot))
    }

    /// Whether an arbiter has answered.
    pub fn is_served(&self) -> bool {
        !self.served.is_empty()
    }

    /// Whether all arbiters are set up for other endpoints: to wait is of no use.
    pub fn suits_nobody(&self) -> bool {
        self.unlike.len() == self.place.arbiter.len()
    }
}
