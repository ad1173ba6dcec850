//! One incarnation of a process as a sender of one service: the outcomes of its messages. I2, I3,
//! I4, I5 and I12.

use std::collections::{BTreeMap, VecDeque};

use onepipe_base::{ProcessId, Timestamp};
use onepipe_wire::Service;

use crate::observation::{Failed, Submitted};
use crate::outcome::{MessageOutcome, Outcome, ScatteringOutcome, State};
use crate::stamps::Stamps;
use crate::tag::Tag;
use crate::violation::{Rule, ViolationKind, Violations};

/// Marks a receiver without deliveries.
const NONE: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Message {
    digest: u64,
    to: u32,
    state: State,
}

#[derive(Clone, Debug)]
struct Record {
    /// Index of its first message, counted from the start of the incarnation.
    first: u64,
    count: u32,
    open: u32,
    stamp: Option<Timestamp>,
    /// What the process had delivered at the submission.
    floor: Option<Timestamp>,
    /// Whether the commit barrier of a receiver was above what the process promised then.
    is_behind_commit: bool,
    submitted_at: u64,
    /// Time of the submission, in ns of the run.
    at_ns: u64,
}

/// The open scatterings of a sender.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    service: Service,
    /// Number of the first record.
    base: u64,
    records: VecDeque<Record>,
    /// Index of the first message.
    messages_base: u64,
    messages: VecDeque<Message>,
    /// Messages of retired scatterings whose state may yet change: unknown ones, and delivered ones
    /// that may yet be reported unknown.
    revisable: BTreeMap<(u64, u16), State>,
    /// For each receiver the last scattering delivered there.
    delivered: Vec<u64>,
    /// Reliable: retired scatterings with a message that was not delivered; ascending.
    incomplete: Vec<ScatteringOutcome>,
    /// Reliable: for each receiver the last timestamp delivered there, with its incarnation.
    last: Vec<Option<(Timestamp, u32)>>,
}

impl Sender {
    pub fn new(service: Service) -> Self {
        Self {
            service,
            base: 0,
            records: VecDeque::new(),
            messages_base: 0,
            messages: VecDeque::new(),
            revisable: BTreeMap::new(),
            delivered: Vec::new(),
            incomplete: Vec::new(),
            last: Vec::new(),
        }
    }

    pub fn on_submitted(
        &mut self,
        submitted: &Submitted<'_>,
        (floor, is_behind_commit): (Option<Timestamp>, bool),
        at_ns: u64,
    ) {
        let expected = self.base + self.records.len() as u64;
        assert_eq!(submitted.tag.scattering, expected, "scatterings are numbered consecutively");
        let first = self.messages_base + self.messages.len() as u64;
        let count = submitted.messages.len() as u32;
        let message =
            |&(to, digest): &(ProcessId, u64)| Message { digest, to: to.0, state: State::Open };
        self.messages.extend(submitted.messages.iter().map(message));
        let submitted_at = submitted.submitted_at;
        let (open, stamp) = (count, None);
        let record =
            Record { first, count, open, stamp, floor, is_behind_commit, submitted_at, at_ns };
        self.records.push_back(record);
    }

    /// Handles a delivery of a message of this sender. Returns `submitted_at` of its scattering if
    /// the scattering is still open.
    pub fn on_delivered(
        &mut self,
        from: ProcessId,
        at: Arrival,
        stamps: &mut Stamps,
        log: &mut Violations,
    ) -> Option<u64> {
        let Arrival { process, tag, index, .. } = at;
        if self.service == Service::Reliable {
            self.note_last(at);
        }
        let kind = ViolationKind::Invented { process, from, tag: Some(tag), index };
        if tag.scattering < self.base {
            self.resolve_retired(from, tag, index, Outcome::Delivered, at.at_ns, log);
            return None;
        }
        let Some(position) = self.position(tag, index) else {
            log.add(Rule::I4, at.at_ns, kind);
            return None;
        };
        let message = &self.messages[position];
        if message.to != process.0 {
            log.add(Rule::I4, at.at_ns, kind);
            return None;
        }
        if message.digest != at.digest {
            log.add(Rule::I4, at.at_ns, ViolationKind::Changed { process, from, tag, index });
        }
        self.on_stamp(from, tag, at.stamp, at.at_ns, stamps, log);
        if at.is_fifo {
            self.on_fifo(from, at, log);
        }
        let record = &self.records[(tag.scattering - self.base) as usize];
        let submitted_at = record.submitted_at;
        self.resolve(from, tag, index, Outcome::Delivered, at.at_ns, log);
        Some(submitted_at)
    }

    /// Handles the report of a failed message by the sender.
    pub fn on_failed(
        &mut self,
        from: ProcessId,
        failed: &Failed,
        at_ns: u64,
        stamps: &mut Stamps,
        log: &mut Violations,
    ) {
        let Failed { tag, index, to, stamp, outcome, .. } = *failed;
        if tag.scattering < self.base {
            return self.resolve_retired(from, tag, index, outcome, at_ns, log);
        }
        let position = self.position(tag, index);
        if position.is_none_or(|position| self.messages[position].to != to.0) {
            let kind = ViolationKind::Invented { process: to, from, tag: Some(tag), index };
            return log.add(Rule::I4, at_ns, kind);
        }
        if let Some(stamp) = stamp {
            self.on_stamp(from, tag, stamp, at_ns, stamps, log);
        }
        self.resolve(from, tag, index, outcome, at_ns, log);
    }

    /// Handles a frame that shows the timestamp of a scattering.
    pub fn on_stamped(
        &mut self,
        process: ProcessId,
        (tag, stamp): (Tag, Timestamp),
        at_ns: u64,
        stamps: &mut Stamps,
        log: &mut Violations,
    ) {
        let end = self.base + self.records.len() as u64;
        if (self.base..end).contains(&tag.scattering) {
            self.on_stamp(process, tag, stamp, at_ns, stamps, log);
        }
    }

    /// Returns the number of messages without an outcome for which `counts`, called with the
    /// receiver and the time of submission, returns true.
    pub fn open(&self, counts: impl Fn(ProcessId, u64) -> bool) -> u64 {
        self.records.iter().map(|record| u64::from(self.open_of(record, &counts))).sum()
    }

    /// Returns when a scattering was submitted, in ns of the run, and how many of its messages have
    /// no outcome; `None` once all scatterings up to it have one.
    pub fn submission(&self, scattering: u64) -> Option<(u64, u32)> {
        let position = scattering.checked_sub(self.base)?;
        self.records.get(position as usize).map(|record| (record.at_ns, record.open))
    }

    //= spec/failure.md#R35
    /// Checks at the end of the run that every message has an outcome.
    pub fn on_end(
        &self,
        process: ProcessId,
        incarnation: u32,
        at_ns: u64,
        counts: impl Fn(ProcessId, u64) -> bool,
        log: &mut Violations,
    ) {
        for (scattering, record) in (self.base..).zip(&self.records) {
            let open = self.open_of(record, &counts);
            if open > 0 {
                let tag = Tag { incarnation, scattering };
                log.add(Rule::I12, at_ns, ViolationKind::NoOutcome { process, tag, open });
            }
        }
    }

    /// Returns the scatterings that are verified when all failures are known.
    pub fn cases(&self) -> impl Iterator<Item = ScatteringOutcome> {
        let open =
            (self.base..).zip(&self.records).map(|(number, record)| self.case(number, record));
        self.incomplete.iter().cloned().chain(open)
    }

    /// Returns for each receiver the last timestamp delivered there, with its incarnation.
    pub fn last(&self) -> impl Iterator<Item = (ProcessId, Timestamp, u32)> {
        let known = (0u32..).zip(&self.last);
        known.filter_map(|(to, last)| {
            last.map(|(stamp, incarnation)| (ProcessId(to), stamp, incarnation))
        })
    }

    /// Returns the number of messages of a scattering without an outcome for which `counts` holds.
    fn open_of(&self, record: &Record, counts: &impl Fn(ProcessId, u64) -> bool) -> u32 {
        if record.open == 0 {
            return 0;
        }
        let open = self.messages_of(record).filter(|message| {
            message.state == State::Open && counts(ProcessId(message.to), record.at_ns)
        });
        open.count() as u32
    }

    fn messages_of(&self, record: &Record) -> impl Iterator<Item = &Message> {
        let first = (record.first - self.messages_base) as usize;
        self.messages.range(first..first + record.count as usize)
    }

    fn case(&self, scattering: u64, record: &Record) -> ScatteringOutcome {
        let message =
            |message: &Message| MessageOutcome { to: ProcessId(message.to), state: message.state };
        ScatteringOutcome {
            scattering,
            stamp: record.stamp,
            submitted_ns: record.at_ns,
            is_behind_commit: record.is_behind_commit,
            messages: self.messages_of(record).map(message).collect(),
        }
    }

    fn note_last(&mut self, at: Arrival) {
        if self.last.len() <= at.process.index() {
            self.last.resize(at.process.index() + 1, None);
        }
        let last = &mut self.last[at.process.index()];
        *last = Some((at.stamp, at.to_incarnation));
    }

    fn position(&self, tag: Tag, index: u16) -> Option<usize> {
        let record = self.records.get((tag.scattering - self.base) as usize)?;
        let is_inside = u32::from(index) < record.count;
        is_inside.then(|| (record.first + u64::from(index) - self.messages_base) as usize)
    }

    //= spec/ordering.md#R2
    //= spec/ordering.md#R4
    /// Checks the timestamp of a scattering: one for all its messages (I2), and above everything
    /// that the process had delivered (I3).
    fn on_stamp(
        &mut self,
        process: ProcessId,
        tag: Tag,
        now: Timestamp,
        at_ns: u64,
        stamps: &mut Stamps,
        log: &mut Violations,
    ) {
        let record = &mut self.records[(tag.scattering - self.base) as usize];
        if let Some(before) = record.stamp {
            if before != now {
                log.add(Rule::I2, at_ns, ViolationKind::TwoStamps { process, tag, before, now });
            }
            return;
        }
        record.stamp = Some(now);
        if let Some(floor) = record.floor
            && now <= floor
        {
            log.add(Rule::I3, at_ns, ViolationKind::NotCausal { process, now, floor });
        }
        stamps.add((process, self.service), tag, now, at_ns, log);
    }

    fn on_fifo(&mut self, from: ProcessId, at: Arrival, log: &mut Violations) {
        let (process, now) = (at.process, at.tag.scattering);
        if self.delivered.len() <= process.index() {
            self.delivered.resize(process.index() + 1, NONE);
        }
        let before = std::mem::replace(&mut self.delivered[process.index()], now);
        if before != NONE && now < before {
            log.add(Rule::I5, at.at_ns, ViolationKind::NotFifo { process, from, before, now });
        }
    }

    //= spec/ordering.md#R27
    fn resolve(
        &mut self,
        process: ProcessId,
        tag: Tag,
        index: u16,
        outcome: Outcome,
        at_ns: u64,
        log: &mut Violations,
    ) {
        let position = self.position(tag, index).expect("checked by the caller");
        let before = self.messages[position].state;
        let Some(state) = before.after(outcome) else {
            return report_two_outcomes(process, tag, index, before, outcome, at_ns, log);
        };
        self.messages[position].state = state;
        if before == State::Open {
            self.records[(tag.scattering - self.base) as usize].open -= 1;
        }
        while self.records.front().is_some_and(|record| record.open == 0) {
            self.retire();
        }
    }

    /// Retires the first scattering: keeps only what may yet change or must be verified at the end.
    fn retire(&mut self) {
        if self.service == Service::Reliable
            && let Some(record) = self.records.front()
            && self.messages_of(record).any(|message| message.state != State::Delivered)
        {
            self.incomplete.push(self.case(self.base, record));
        }
        let record = self.records.pop_front().expect("checked by the caller");
        for index in 0..record.count {
            let message = self.messages.pop_front().expect("every record has its messages");
            if matches!(message.state, State::Unknown) {
                self.revisable.insert((self.base, index as u16), message.state);
            }
        }
        self.messages_base += u64::from(record.count);
        self.base += 1;
    }

    fn resolve_retired(
        &mut self,
        process: ProcessId,
        tag: Tag,
        index: u16,
        outcome: Outcome,
        at_ns: u64,
        log: &mut Violations,
    ) {
        let known = self.incomplete.binary_search_by_key(&tag.scattering, |case| case.scattering);
        if let Ok(known) = known
            && let Some(message) = self.incomplete[known].messages.get_mut(usize::from(index))
        {
            match message.state.after(outcome) {
                Some(state) => message.state = state,
                None => {
                    report_two_outcomes(process, tag, index, message.state, outcome, at_ns, log)
                }
            }
            return;
        }
        let key = (tag.scattering, index);
        // A message that is not kept was delivered or lost. A delivered one may yet be reported as
        // unknown by its sender.
        let before = self.revisable.get(&key).copied().unwrap_or(State::Delivered);
        match before.after(outcome) {
            Some(state) => {
                self.revisable.insert(key, state);
            }
            None => report_two_outcomes(process, tag, index, before, outcome, at_ns, log),
        }
    }
}

/// A delivery, as a sender's record is checked against it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Receiver of the message.
    pub process: ProcessId,
    /// Incarnation of the receiver.
    pub to_incarnation: u32,
    pub tag: Tag,
    pub index: u16,
    pub stamp: Timestamp,
    pub digest: u64,
    /// Whether the order of submission is checked.
    pub is_fifo: bool,
    pub at_ns: u64,
}

#[cold]
fn report_two_outcomes(
    process: ProcessId,
    tag: Tag,
    index: u16,
    before: State,
    outcome: Outcome,
    at_ns: u64,
    log: &mut Violations,
) {
    let (before, now) = (before.name(), outcome.name());
    let rule = if now == "delivered" && before == "delivered" { Rule::I4 } else { Rule::I12 };
    log.add(rule, at_ns, ViolationKind::TwoOutcomes { process, tag, index, before, now });
}
