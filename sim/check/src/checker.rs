//! All processes of a run, each in all its lives.

use onepipe_base::{ProcessId, Promises, Timestamp};
use onepipe_wire::Service;
use xxhash_rust::xxh3::xxh3_64;

use crate::life::{End, Failure, Life};
use crate::sender::Arrival;
use crate::violation::{Rule, Seen, Violations};

mod finish;

/// The name of a scattering among those of one process id and service: which life, and its number
/// in it, counted from 0. Travels in the payload, so that a delivery says what it claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The sender's life, counted from 0.
    pub life: u32,
    /// The scattering's number in that life.
    pub scattering: u64,
}

/// A scattering that was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Submitted<'a> {
    /// How it is sent.
    pub service: Service,
    /// Its name.
    pub tag: Tag,
    /// For each message whom it is for, and the [`digest`] of its payload.
    pub messages: &'a [(ProcessId, u64)],
    /// Given back with each delivery: the instant, say.
    pub submitted_at: u64,
}

/// A message that was delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// How it was sent.
    pub service: Service,
    /// The timestamp that it bore.
    pub stamp: Timestamp,
    /// Who sent it.
    pub from: ProcessId,
    /// Its place in its scattering.
    pub index: u16,
    /// What its payload says it is, if it says anything.
    pub tag: Option<Tag>,
    /// The [`digest`] of its payload.
    pub digest: u64,
}

/// A message that its sender was told about.
#[derive(Clone, Copy, Debug)]
pub struct Failed {
    /// How it was sent.
    pub service: Service,
    /// Its scattering.
    pub tag: Tag,
    /// Its place in it.
    pub index: u16,
    /// Whom it was for.
    pub to: ProcessId,
    /// The timestamp that it bore, if it was sent.
    pub stamp: Option<Timestamp>,
    /// What the sender was told.
    pub fate: Fate,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was delivered.
    Delivered,
    /// It was not and will not be delivered.
    Lost,
    /// It may or may not have been delivered.
    Unknown,
}

impl Fate {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// What a drained process says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Everything of best effort below this is delivered.
    pub barrier: Option<Timestamp>,
    /// Everything of the reliable service below this is delivered.
    pub commit_barrier: Option<Timestamp>,
    /// What it promises.
    pub promises: Option<Promises>,
    /// Scatterings that it has stamped already are still leaving. They hold its promise where they
    /// were stamped, lawfully below what it has delivered in the meantime.
    pub is_sending: bool,
}

/// What was observed, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages submitted.
    pub submitted: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages reported lost.
    pub lost: u64,
    /// Messages reported unknown.
    pub unknown: u64,
    /// Of those delivered, messages of the reliable service.
    pub reliable: u64,
    /// Lives that processes were told have failed.
    pub failures: u64,
    /// Of those, lives whose failure timestamp could not be known for sure: their scatterings may
    /// be torn.
    pub inexact: u64,
    /// Scatterings that were torn lawfully: see [`Checker::excuse_torn`].
    pub torn: u64,
}

/// What a payload is compared by.
pub fn digest(payload: &[u8]) -> u64 {
    xxh3_64(payload)
}

#[derive(Debug)]
struct Process {
    lives: Vec<Life>,
    /// Whether others may be left in the dark about what it received.
    may_be_unknown: bool,
    /// When it crashed or was cut off last, in ns of the run.
    lost_ns: Option<u64>,
}

impl Process {
    fn now(&self) -> &Life {
        self.lives.last().expect("a process has a first life")
    }

    fn now_mut(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a process has a first life")
    }
}

/// Watches all processes of a run.
#[derive(Debug)]
pub struct Checker {
    processes: Vec<Process>,
    checks_submission_order: bool,
    is_merged: bool,
    /// Whether correct processes were cut off from each other for good.
    may_be_torn: bool,
    now_ns: u64,
    counts: Counts,
    violations: Violations,
}

impl Checker {
    /// A checker of `processes` processes, all in their first life.
    ///
    /// `checks_submission_order`: whether the messages of a pair shall come in the order of their
    /// submission, not only of their timestamps (I5).
    pub fn new(processes: u32, checks_submission_order: bool) -> Self {
        let process =
            |_| Process { lives: vec![Life::new(0, false)], may_be_unknown: false, lost_ns: None };
        Self {
            processes: (0..processes).map(process).collect(),
            checks_submission_order,
            is_merged: false,
            may_be_torn: false,
            now_ns: 0,
            counts: Counts::default(),
            violations: Violations::default(),
        }
    }

    /// Both services come as one stream, in one total order.
    #[must_use]
    pub fn merged(mut self, is_merged: bool) -> Self {
        self.is_merged = is_merged;
        for process in &mut self.processes {
            process.lives = vec![Life::new(0, is_merged)];
        }
        self
    }

    /// What follows happens at `ns` of the run.
    #[inline]
    pub fn at_ns(&mut self, ns: u64) {
        self.now_ns = ns;
    }

    /// A process submitted a scattering.
    pub fn submitted(&mut self, process: ProcessId, submitted: Submitted<'_>) {
        let is_behind =
            submitted.service == Service::Reliable && self.is_behind(process, &submitted);
        let lives = &mut self.processes[process.index()].lives;
        let life = lives.get_mut(submitted.tag.life as usize).expect("a known life");
        let floor = (life.receiver.floor(), is_behind);
        life.senders[submitted.service as usize].on_submitted(&submitted, floor, self.now_ns);
        self.counts.submitted += submitted.messages.len() as u64;
    }

    /// Whether a receiver has been told commits above what `process` promises.
    fn is_behind(&self, process: ProcessId, submitted: &Submitted<'_>) -> bool {
        let promises = self.processes[process.index()].now().receiver.promises();
        let promise = promises.map(|promises| promises.barrier);
        submitted.messages.iter().any(|(to, _)| {
            let to = self.processes.get(to.index());
            to.is_some_and(|to| to.now().receiver.commit_barrier() > promise)
        })
    }

    /// A frame on the wire showed that a scattering of a process bears `stamp`.
    pub fn stamped(&mut self, process: ProcessId, service: Service, tag: Tag, stamp: Timestamp) {
        let process_of = self.processes.get_mut(process.index());
        let life = process_of.and_then(|process| process.lives.get_mut(tag.life as usize));
        if let Some(Life { senders, stamps, .. }) = life {
            let (at_ns, log) = (self.now_ns, &mut self.violations);
            senders[service as usize].on_stamped(process, (tag, stamp), at_ns, stamps, log);
        }
    }

    /// A process delivered a message. Answers `submitted_at` of its scattering, when there is one
    /// still open.
    pub fn delivered(&mut self, process: ProcessId, delivered: Delivered) -> Option<u64> {
        let Delivered { service, stamp, from, index, tag, digest } = delivered;
        let (at_ns, log) = (self.now_ns, &mut self.violations);
        self.counts.delivered += 1;
        self.counts.reliable += u64::from(service == Service::Reliable);
        let life = tag.map_or(0, |tag| tag.life);
        let to = &mut self.processes[process.index()];
        let to_life = to.lives.len() as u32 - 1;
        let key = (stamp, from.0, life, index);
        let to = to.now_mut();
        to.receiver.on_delivered((process, service), key, at_ns, log);
        if life > 0 && service == Service::Reliable {
            to.met.entry((from.0, life)).or_insert(at_ns);
        }
        let life = life as usize;
        let from_life = self.processes.get_mut(from.index());
        let from_life = from_life.and_then(|from| from.lives.get_mut(life));
        let (Some(tag), Some(from_life)) = (tag, from_life) else {
            log.add(Rule::I4, at_ns, Seen::Invented { process, from, tag, index });
            return None;
        };
        let is_fifo = self.checks_submission_order;
        let arrival = Arrival { process, to_life, tag, index, stamp, digest, is_fifo, at_ns };
        let Life { senders, stamps, .. } = from_life;
        senders[service as usize].on_delivered(from, arrival, stamps, log)
    }

    /// A process was told about one of its messages.
    pub fn failed(&mut self, process: ProcessId, failed: Failed) {
        debug_assert!(failed.fate != Fate::Delivered, "a delivery is no failure");
        match failed.fate {
            Fate::Lost => self.counts.lost += 1,
            _ => self.counts.unknown += 1,
        }
        // Whoever was cut off itself, or was declared failed, cannot ask any more.
        let may_be_unknown = |process: ProcessId| {
            self.processes.get(process.index()).is_some_and(|process| process.may_be_unknown)
        };
        let is_needless =
            failed.fate == Fate::Unknown && !may_be_unknown(failed.to) && !may_be_unknown(process);
        if is_needless {
            let Failed { tag, to, .. } = failed;
            let seen = Seen::NeedlesslyUnknown { process, tag, to };
            self.violations.add(Rule::I12, self.now_ns, seen);
        }
        let lives = &mut self.processes[process.index()].lives;
        let (at_ns, log) = (self.now_ns, &mut self.violations);
        match lives.get_mut(failed.tag.life as usize) {
            Some(Life { senders, stamps, .. }) => {
                senders[failed.service as usize].on_failed(process, &failed, at_ns, stamps, log);
            }
            None => {
                let Failed { tag, index, to, .. } = failed;
                let seen = Seen::Invented { process: to, from: process, tag: Some(tag), index };
                log.add(Rule::I4, at_ns, seen);
            }
        }
    }

    /// A process was told that `victim` has failed at `at`, in its life `life` and all before it.
    pub fn told_failed(
        &mut self,
        process: ProcessId,
        (victim, life): (ProcessId, u32),
        at: Timestamp,
    ) {
        self.note_failure(process, (victim, life), at);
        for former in 0..=life {
            let told = &mut self.processes[process.index()].now_mut().told;
            told.entry((victim.0, former)).or_insert(self.now_ns);
        }
    }

    /// A process was told that it has failed itself: it stops.
    pub fn excluded(&mut self, process: ProcessId, at: Timestamp) {
        self.note_failure(process, (process, self.life(process)), at);
        self.end(process, End::Exclusion);
    }

    /// A controller has decided that `victim` has failed, in its life `life`, before anybody is
    /// told: others may rightly be in doubt about what it has received. Where it could not know for
    /// sure when, what correct processes have of that life may differ.
    pub fn decided(&mut self, victim: ProcessId, life: u32, is_exact: bool) {
        self.excuse(victim);
        let lives = &mut self.processes[victim.index()].lives;
        if let Some(life) = lives.get_mut(life as usize)
            && !is_exact
            && !std::mem::replace(&mut life.is_inexact, true)
        {
            self.counts.inexact += 1;
        }
    }

    /// Correct processes were cut off from each other in a way that no controller can mend: what
    /// breaks I6 and I7 is counted, and is no violation (design: ordering.md section 5, 2).
    pub fn excuse_torn(&mut self) {
        self.may_be_torn = true;
    }

    fn note_failure(
        &mut self,
        process: ProcessId,
        (victim, life): (ProcessId, u32),
        now: Timestamp,
    ) {
        let at_ns = self.now_ns;
        let lives = self.processes.get_mut(victim.index()).map(|process| &mut process.lives);
        let Some(victim_life) = lives.and_then(|lives| lives.get_mut(life as usize)) else {
            let seen = Seen::NotTold { process, failed: victim, life };
            return self.violations.add(Rule::E, at_ns, seen);
        };
        match &mut victim_life.failed {
            Some(Failure { at: before, .. }) if *before != now => {
                let before = *before;
                let seen = Seen::TwoFailures { process, failed: victim, life, before, now };
                self.violations.add(Rule::E, at_ns, seen);
            }
            Some(known) => known.last_told_ns = at_ns,
            None => {
                let failure = Failure { at: now, last_told_ns: at_ns };
                victim_life.failed = Some(failure);
                self.counts.failures += 1;
            }
        }
        let victim = &mut self.processes[victim.index()];
        victim.may_be_unknown = true;
        if life as usize + 1 == victim.lives.len() {
            victim.lost_ns = Some(at_ns);
        }
    }

    /// A process has handed out all its events: what it says of itself.
    #[inline]
    pub fn drained(&mut self, process: ProcessId, look: Look) {
        let receiver = &mut self.processes[process.index()].now_mut().receiver;
        receiver.on_drained(process, &look, self.now_ns, &mut self.violations);
    }

    /// A process has crashed. What it submitted may have any fate, and what it received is unknown.
    pub fn crashed(&mut self, process: ProcessId) {
        self.end(process, End::Crash);
    }

    /// A process has taken its leave: the fate of all that it submitted is known to it, and it
    /// delivers nothing more.
    pub fn left(&mut self, process: ProcessId) {
        self.end(process, End::Leave);
    }

    fn end(&mut self, process: ProcessId, end: End) {
        let process = &mut self.processes[process.index()];
        process.now_mut().end.get_or_insert(end);
        process.lost_ns = Some(self.now_ns);
        process.may_be_unknown = true;
    }

    /// A process has started again: a new life, which has delivered nothing.
    pub fn restarted(&mut self, process: ProcessId) {
        let life = Life::new(self.now_ns, self.is_merged);
        let process = &mut self.processes[process.index()];
        process.now_mut().end.get_or_insert(End::Crash);
        process.lives.push(life);
    }

    /// Others may rightly be in doubt about what `process` has received: it was cut off, or frames
    /// to or from it are lost.
    pub fn excuse(&mut self, process: ProcessId) {
        self.processes[process.index()].may_be_unknown = true;
    }

    /// The fabric was sound since `lost_before` messages had been reported lost: links lost,
    /// changed and overtook nothing, nobody failed. Then no message is lost either.
    pub fn nothing_was_lost_on_the_way(&mut self, lost_before: u64) {
        let count = self.counts.lost - lost_before;
        if count > 0 {
            self.violations.add(Rule::I12, self.now_ns, Seen::NeedlesslyLost { count });
        }
    }

    /// Which life a process is in, counted from 0.
    pub fn life(&self, process: ProcessId) -> u32 {
        self.processes[process.index()].lives.len() as u32 - 1
    }

    /// Messages of living senders without a fate, to receivers that have not been lost since.
    pub fn open(&self) -> u64 {
        let living = self.processes.iter().map(Process::now).filter(|life| life.end.is_none());
        let senders = living.flat_map(|life| &life.senders);
        senders.map(|sender| sender.open(self.counts_for())).sum()
    }

    /// Whether a message must get a fate: not when its receiver was lost since, which may have
    /// acknowledged it and taken it with it.
    fn counts_for(&self) -> impl Fn(ProcessId, u64) -> bool {
        |to: ProcessId, submitted_ns: u64| {
            let to = self.processes.get(to.index());
            to.is_some_and(|to| to.lost_ns.is_none_or(|lost_ns| lost_ns < submitted_ns))
        }
    }

    /// What was observed, counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What was wrong.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
