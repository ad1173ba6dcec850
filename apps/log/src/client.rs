//! A client of a log: appends entries in one round trip, and repairs the logs of replicas.

mod pending;

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, ResponseTime, Timestamp};

use crate::entry::Position;
use crate::message::{Header, Reply, Request, Status};
use crate::scattering::{Scattering, ScatteringKind};
use crate::view::View;
use pending::{Missing, Pending};

/// The timeout doubles with each repetition, this many times at most.
const DOUBLINGS_MAX: u32 = 4;

/// How a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// Time after which replicas are asked for a reply, in ns, until a response time was measured.
    /// Default 10 ms.
    pub timeout_ns: u64,
    /// Lower limit on that time, in ns, when response times are known: it follows them by RFC 6298.
    /// The time doubles with each repetition, up to the 16-fold. Default 100 us.
    pub timeout_min_ns: u64,
    /// Number of timeouts without a committed entry after which the client asks for a new view,
    /// which makes the logs of all replicas equal. Default 4.
    pub attempts_max: u32,
    /// Limit on entries in flight. Default 1,024.
    pub pending_max: usize,
    /// Time after the last committed entry after which replicas are notified of that, in ns, unless
    /// another entry was appended, which notifies them, too. 0: never. Default 1 ms.
    pub idle_ns: u64,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout_ns: 10_000_000,
            timeout_min_ns: 100_000,
            attempts_max: 4,
            pending_max: 1_024,
            idle_ns: 1_000_000,
        }
    }
}

/// A committed entry: all members of a view have it, in the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Committed {
    /// Its sequence number.
    pub number: u64,
    /// Its position in the log.
    pub position: Position,
}

/// An entry cannot be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The limit on entries in flight is reached.
    #[error("cannot append: {0} entries are already in flight (pending_max = {0})")]
    Full(usize),
}

/// A client of a log. Its driver sends what [`LogClient::poll_scattering`] returns, and passes each
/// delivered message to [`LogClient::on_message`]. Entries are committed in the order in which they
/// were appended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogClient {
    session: u64,
    options: ClientOptions,
    view: View,
    pending: VecDeque<Pending>,
    /// Sequence number of the next entry.
    next: u64,
    /// Number of the last message to replicas.
    request: u64,
    last_committed: Option<Position>,
    committed: VecDeque<Committed>,
    unsent: VecDeque<Scattering>,
    response_time: ResponseTime,
    /// Timeouts since the last committed entry or new view.
    attempts: u32,
    /// Replicas were asked before the timeout, since the last timeout or committed entry.
    has_asked: bool,
    /// Replicas are to be notified of the last committed entry.
    is_unnotified: bool,
    deadline: Option<Mono>,
}

impl LogClient {
    /// Creates a client. `session` distinguishes the clients that a process has or had: the time of
    /// its start in nanoseconds, for example.
    pub fn new(session: u64, view: View, options: ClientOptions) -> Self {
        Self {
            session,
            options,
            view,
            pending: VecDeque::new(),
            next: 1,
            request: 0,
            last_committed: None,
            committed: VecDeque::new(),
            unsent: VecDeque::new(),
            response_time: ResponseTime::default(),
            attempts: 0,
            has_asked: false,
            is_unnotified: false,
            deadline: None,
        }
    }

    /// Appends an entry, and returns its sequence number.
    ///
    /// # Errors
    /// If too many entries are in flight.
    pub fn append(&mut self, now: Mono, payload: Vec<u8>) -> Result<u64, AppendError> {
        if self.pending.len() >= self.options.pending_max {
            return Err(AppendError::Full(self.pending.len()));
        }
        let number = self.next;
        self.next += 1;
        self.pending.push_back(Pending::new(number, payload, now));
        self.send_entry(self.pending.len() - 1);
        if core::mem::take(&mut self.is_unnotified) {
            // The entry notifies replicas.
            self.deadline = None;
        }
        self.arm(now);
        Ok(number)
    }

    /// Returns the next committed entry.
    pub fn poll_committed(&mut self) -> Option<Committed> {
        self.committed.pop_front()
    }

    /// Returns the next scattering to be sent.
    pub fn poll_scattering(&mut self) -> Option<Scattering> {
        self.unsent.pop_front()
    }

    /// Returns the number of entries in flight.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the view that the client knows.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the smallest and the largest number of an entry in flight.
    fn range(&self) -> Option<(u64, u64)> {
        Some((self.pending.front()?.number, self.pending.back()?.number))
    }

    fn header(&mut self) -> Header {
        self.request += 1;
        let stable = self
            .last_committed
            .map_or((0, 0), |last| (last.index.saturating_add(1), last.checksum));
        Header {
            view: self.view.clone(),
            session: self.session,
            request: self.request,
            finished: self.pending.front().map_or(self.next, |first| first.number),
            stable,
        }
    }

    fn send(&mut self, receivers: Vec<ProcessId>, payload: Vec<u8>) {
        let kind = ScatteringKind::BestEffort;
        self.unsent.push_back(Scattering { kind, receivers, payload });
    }

    /// Sends an entry to all members, none of which has it.
    fn send_entry(&mut self, index: usize) {
        let header = self.header();
        let receivers: Vec<_> = self.view.members.iter().copied().collect();
        let entry = &mut self.pending[index];
        entry.on_sent(&receivers, header.request);
        let payload = Request::Append(header, entry.number, &entry.payload).to_bytes();
        self.send(receivers, payload);
    }

    /// Sends an entry to the members that lack it, with the timestamp at which another has it.
    fn repair(&mut self, index: usize, at: Timestamp, receivers: Vec<ProcessId>) {
        let header = self.header();
        let entry = &mut self.pending[index];
        entry.on_sent(&receivers, header.request);
        let payload = Request::Repair(header, entry.number, at, &entry.payload).to_bytes();
        self.send(receivers, payload);
    }

    /// Asks all members for what they have of the entries in flight.
    fn ask(&mut self) {
        let Some((first, last)) = self.range() else { return };
        let header = self.header();
        let payload = Request::Ask(header, first, last).to_bytes();
        self.send(self.view.members.iter().copied().collect(), payload);
    }

    /// Handles a delivered message. Anything but a reply to this session is dropped.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        let Some(Reply::Status(status)) = Reply::parse(payload) else { return };
        if status.session != self.session {
            return;
        }
        if status.view.supersedes(&self.view) {
            self.view = status.view.clone();
            // What members of another view have says nothing about this one.
            self.pending.iter_mut().for_each(Pending::forget);
            self.attempts = 0;
            self.is_unnotified = self.options.idle_ns > 0 && self.last_committed.is_some();
            self.ask();
            self.arm(now);
        } else if status.request == 0 && status.view == self.view {
            // The sender has begun the view, and may have ignored requests before.
            self.ask();
        }
        if status.view != self.view || !self.view.members.contains(&from) {
            return;
        }
        self.on_status(from, &status);
        self.commit(now);
        self.send_missing();
    }

    fn on_status(&mut self, from: ProcessId, status: &Status) {
        let Some((first, _)) = self.range() else { return };
        for (number, position) in &status.positions {
            let index = number.checked_sub(first).and_then(|index| usize::try_from(index).ok());
            if let Some(entry) = index.and_then(|index| self.pending.get_mut(index)) {
                entry.on_position(from, *position);
            }
        }
        for entry in self.pending.iter_mut().filter(|entry| entry.number > status.last) {
            entry.on_missing(from, status.request);
        }
    }

    /// Finishes the entries that all members have in the same position of equal logs.
    fn commit(&mut self, now: Mono) {
        let members = &self.view.members;
        while let Some(entry) = self.pending.front()
            && let Some(position) = entry.agreed(members.iter().copied())
        {
            if entry.is_first_attempt() {
                self.response_time.on_sample(now.since_ns(entry.appended_at));
            }
            self.committed.push_back(Committed { number: entry.number, position });
            self.last_committed = Some(position);
            self.pending.pop_front();
            (self.attempts, self.has_asked) = (0, false);
            self.is_unnotified = self.options.idle_ns > 0;
            self.deadline = None;
        }
        if self.deadline.is_none() {
            self.arm(now);
        }
    }

    /// Sends each entry to the members that are known to lack it, in the order of the entries.
    ///
    /// Members refuse an entry before its predecessors. So nothing is sent to a member that lacks
    /// an entry which cannot be sent yet, as another member may have it at a timestamp that is not
    /// known. Otherwise both would repeat an entry and its refusal without a pause.
    fn send_missing(&mut self) {
        let mut blocked = BTreeSet::new();
        for index in 0..self.pending.len() {
            let Missing { lacking, at, is_lost } = self.pending[index].missing(&self.view.members);
            match at {
                Some(at) => {
                    let receivers: Vec<_> = lacking.difference(&blocked).copied().collect();
                    if !receivers.is_empty() {
                        self.repair(index, at, receivers);
                    }
                }
                None if is_lost && blocked.is_empty() => self.send_entry(index),
                None => blocked.extend(lacking),
            }
        }
        if !blocked.is_empty() {
            self.ask_once();
        }
    }

    /// Asks all members before the timeout, once until then.
    fn ask_once(&mut self) {
        if !self.has_asked {
            self.has_asked = true;
            self.ask();
        }
    }

    /// Notes that a scattering was not delivered to some receiver, or may not have been: replicas
    /// are asked before the timeout, once. A receiver that has failed loses these requests, too.
    pub fn on_send_failed(&mut self, kind: ScatteringKind) {
        if kind == ScatteringKind::BestEffort {
            self.ask_once();
        }
    }

    fn arm(&mut self, now: Mono) {
        let timeout_ns = match self.response_time.timeout_ns() {
            0 => self.options.timeout_ns,
            measured_ns => measured_ns.max(self.options.timeout_min_ns),
        };
        let timeout_ns = timeout_ns << self.attempts.min(DOUBLINGS_MAX);
        if self.pending.is_empty() {
            self.deadline = self.is_unnotified.then(|| now.after_ns(self.options.idle_ns));
        } else if self.deadline.is_none() {
            self.deadline = Some(now.after_ns(timeout_ns));
        }
    }

    /// Handles that the deadline has passed: asks all members, and for a new view if that was in
    /// vain for long.
    pub fn handle_timeout(&mut self, now: Mono) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        if core::mem::take(&mut self.is_unnotified) && self.pending.is_empty() {
            return self.send_finished();
        }
        self.attempts = self.attempts.saturating_add(1);
        self.has_asked = false;
        self.ask();
        if self.attempts.is_multiple_of(self.options.attempts_max.max(1)) {
            let receivers = self.view.members.iter().copied().collect();
            let payload = Request::Sync(self.view.clone()).to_bytes();
            let kind = ScatteringKind::Sync;
            self.unsent.push_back(Scattering { kind, receivers, payload });
        }
        self.arm(now);
    }

    /// Ends the client: replicas are notified of the last committed entry, unless others follow.
    pub fn close(&mut self) {
        if core::mem::take(&mut self.is_unnotified) && self.pending.is_empty() {
            self.send_finished();
        }
    }

    fn send_finished(&mut self) {
        let payload = Request::Finished(self.header()).to_bytes();
        self.send(self.view.members.iter().copied().collect(), payload);
    }

    /// Returns when [`LogClient::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadline
    }
}
