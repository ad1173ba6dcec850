//! All processes of a run, each in all its lives.

use onepipe_base::{ProcessId, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use crate::receiver::Receiver;
use crate::sender::{Arrival, Sender};
use crate::violation::{Rule, Seen, Violations};

/// The name of a scattering among those of one process id: which life, and its number in it,
/// counted from 0. Travels in the payload, so that a delivery says what it claims to be.
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
}

/// What a payload is compared by.
pub fn digest(payload: &[u8]) -> u64 {
    xxh3_64(payload)
}

#[derive(Debug)]
struct Process {
    lives: Vec<Sender>,
    receiver: Receiver,
    is_up: bool,
    /// Whether others may be left in the dark about what it received.
    may_be_unknown: bool,
}

/// Watches all processes of a run.
#[derive(Debug)]
pub struct Checker {
    processes: Vec<Process>,
    /// When each process crashed last, in ns of the run.
    crashes: Vec<Option<u64>>,
    checks_submission_order: bool,
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
        let process = || Process {
            lives: vec![Sender::new()],
            receiver: Receiver::default(),
            is_up: true,
            may_be_unknown: false,
        };
        Self {
            processes: (0..processes).map(|_| process()).collect(),
            crashes: vec![None; processes as usize],
            checks_submission_order,
            now_ns: 0,
            counts: Counts::default(),
            violations: Violations::default(),
        }
    }

    /// What follows happens at `ns` of the run. For the report only.
    #[inline]
    pub fn at_ns(&mut self, ns: u64) {
        self.now_ns = ns;
    }

    /// A process submitted a scattering.
    pub fn submitted(&mut self, process: ProcessId, submitted: Submitted<'_>) {
        let process = &mut self.processes[process.index()];
        let sender = process.lives.get_mut(submitted.tag.life as usize).expect("a known life");
        sender.on_submitted(&submitted, process.receiver.floor(), self.now_ns);
        self.counts.submitted += submitted.messages.len() as u64;
    }

    /// A process delivered a message. Answers `submitted_at` of its scattering, when there is one
    /// still open.
    pub fn delivered(&mut self, process: ProcessId, delivered: Delivered) -> Option<u64> {
        let Delivered { stamp, from, index, tag, digest } = delivered;
        let at_ns = self.now_ns;
        self.counts.delivered += 1;
        let life = tag.map_or(0, |tag| tag.life);
        let receiver = &mut self.processes[process.index()].receiver;
        receiver.on_delivered(process, (stamp, from.0, life, index), at_ns, &mut self.violations);
        let life = life as usize;
        let sender = self.processes.get_mut(from.index()).and_then(|from| from.lives.get_mut(life));
        let (Some(tag), Some(sender)) = (tag, sender) else {
            let seen = Seen::Invented { process, from, tag, index };
            self.violations.add(Rule::I4, at_ns, seen);
            return None;
        };
        let is_fifo = self.checks_submission_order;
        let arrival = Arrival { process, tag, index, stamp, digest, is_fifo, at_ns };
        sender.on_delivered(from, arrival, &mut self.violations)
    }

    /// A process was told about one of its messages.
    pub fn failed(&mut self, process: ProcessId, failed: Failed) {
        debug_assert!(failed.fate != Fate::Delivered, "a delivery is no failure");
        match failed.fate {
            Fate::Lost => self.counts.lost += 1,
            _ => self.counts.unknown += 1,
        }
        let is_needless = failed.fate == Fate::Unknown
            && self.processes.get(failed.to.index()).is_none_or(|to| !to.may_be_unknown);
        if is_needless {
            let Failed { tag, to, .. } = failed;
            let seen = Seen::NeedlesslyUnknown { process, tag, to };
            self.violations.add(Rule::I12, self.now_ns, seen);
        }
        let lives = &mut self.processes[process.index()].lives;
        match lives.get_mut(failed.tag.life as usize) {
            Some(sender) => sender.on_failed(process, &failed, self.now_ns, &mut self.violations),
            None => {
                let Failed { tag, index, to, .. } = failed;
                let seen = Seen::Invented { process: to, from: process, tag: Some(tag), index };
                self.violations.add(Rule::I4, self.now_ns, seen);
            }
        }
    }

    /// A process has handed out all its events: what it says of its barrier and its promise.
    ///
    /// `is_sending`: scatterings that it has stamped already are still leaving. They hold its
    /// promise where they were stamped, lawfully below what it has delivered in the meantime.
    #[inline]
    pub fn drained(
        &mut self,
        process: ProcessId,
        barrier: Option<Timestamp>,
        promise: Option<Timestamp>,
        is_sending: bool,
    ) {
        let receiver = &mut self.processes[process.index()].receiver;
        let (at_ns, log) = (self.now_ns, &mut self.violations);
        receiver.on_drained(process, barrier, promise, is_sending, at_ns, log);
    }

    /// A process has crashed. What it submitted may have any fate, and what it received is unknown.
    pub fn crashed(&mut self, process: ProcessId) {
        self.crashes[process.index()] = Some(self.now_ns);
        let process = &mut self.processes[process.index()];
        (process.is_up, process.may_be_unknown) = (false, true);
    }

    /// A process has started again: a new life, which has delivered nothing.
    pub fn restarted(&mut self, process: ProcessId) {
        let process = &mut self.processes[process.index()];
        process.lives.push(Sender::new());
        process.receiver = Receiver::default();
        process.is_up = true;
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

    /// Messages of living senders without a fate, to receivers that have not crashed since.
    pub fn open(&self) -> u64 {
        let living = self.processes.iter().filter(|process| process.is_up);
        let senders = living.filter_map(|process| process.lives.last());
        senders.map(|sender| sender.open(&self.crashes)).sum()
    }

    /// The run is over: every message of a living sender should have a fate by now (I12).
    pub fn finish(&mut self) {
        for (id, process) in (0u32..).zip(&self.processes) {
            let life = process.lives.len() as u32 - 1;
            if process.is_up {
                let sender = &process.lives[life as usize];
                let until = (self.now_ns, &self.crashes[..]);
                sender.on_end(ProcessId(id), life, until, &mut self.violations);
            }
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
