//! What is wrong with a history.

use std::collections::BTreeMap;

use onepipe_base::{ProcessId, Timestamp};

use crate::Tag;

/// Which invariant was broken (design: ordering.md section 7; B: testing.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Total order at a receiver.
    I1,
    /// Receivers agree.
    I2,
    /// Causality.
    I3,
    /// At most once, nothing invented, intact.
    I4,
    /// FIFO per pair.
    I5,
    /// Reliable: what correct processes send each other arrives.
    I6,
    /// Reliable: all correct receivers or none.
    I7,
    /// Reliable: of a failed process exactly what lies below its failure timestamp.
    I8,
    /// Barriers never move back.
    I9,
    /// Liveness after healing.
    I10,
    /// Bounded memory.
    I11,
    /// One fate for every message.
    I12,
    /// Barrier soundness.
    B,
    /// One active controller an epoch, one failure timestamp a life, the same for everybody.
    E,
    /// Every run ends: no promise of the design, but without it there is no verdict on the others.
    End,
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} at {at_ns} ns: {what}")]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// When it showed, in ns of the run.
    pub at_ns: u64,
    /// What was seen.
    pub what: Seen,
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Seen {
    /// A delivery not above its predecessor.
    #[error("process {} delivered {now:?} after {before:?}", process.0)]
    NotAscending {
        /// Where.
        process: ProcessId,
        /// `(timestamp, sender, its life, index)` delivered before.
        before: (Timestamp, u32, u32, u16),
        /// `(timestamp, sender, its life, index)` delivered now.
        now: (Timestamp, u32, u32, u16),
    },
    /// Two timestamps for one scattering.
    #[error("process {}'s {tag:?} bears {now:?} here and {before:?} elsewhere", process.0)]
    TwoStamps {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The timestamp known before.
        before: Timestamp,
        /// The timestamp seen now.
        now: Timestamp,
    },
    /// One timestamp for two scatterings.
    #[error("process {}'s {tag:?} and scattering {other} share {stamp:?}", process.0)]
    SharedStamp {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The other one's number.
        other: u64,
        /// Their timestamp.
        stamp: Timestamp,
    },
    /// A timestamp or promise not above what the process had delivered.
    #[error("process {} went on at {now:?} although it had delivered {floor:?}", process.0)]
    NotCausal {
        /// The process.
        process: ProcessId,
        /// What it stamped or promised.
        now: Timestamp,
        /// What it had delivered.
        floor: Timestamp,
    },
    /// A delivery that nobody sent.
    #[error("process {} delivered {tag:?}, message {index} of process {}, which was never sent to it", process.0, from.0)]
    Invented {
        /// The receiver.
        process: ProcessId,
        /// The alleged sender.
        from: ProcessId,
        /// The alleged scattering.
        tag: Option<Tag>,
        /// The alleged place in it.
        index: u16,
    },
    /// A delivery with other bytes than were sent.
    #[error("process {} delivered {tag:?}, message {index} of process {}, changed", process.0, from.0)]
    Changed {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The place in it.
        index: u16,
    },
    /// A second fate that does not go with the first.
    #[error("process {}'s {tag:?}, message {index}, was {before} and is now {now}", process.0)]
    TwoFates {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The place in it.
        index: u16,
        /// The fate known before.
        before: &'static str,
        /// The fate seen now.
        now: &'static str,
    },
    /// No fate at all.
    #[error("process {}'s {tag:?} has {open} messages that were neither delivered nor reported", process.0)]
    NoFate {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// How many of its messages.
        open: u32,
    },
    /// An unknown outcome although the receiver was there all the time.
    #[error("process {} reports {tag:?} as unknown, but process {} was never out of reach", process.0, to.0)]
    NeedlesslyUnknown {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The receiver.
        to: ProcessId,
    },
    /// Losses although nothing on the way lost anything.
    #[error("{count} messages were reported lost in a fabric that loses nothing")]
    NeedlesslyLost {
        /// How many.
        count: u64,
    },
    /// Out of the order of submission.
    #[error("process {} delivered scattering {now} of process {} after {before}", process.0, from.0)]
    NotFifo {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// The number of the scattering delivered before.
        before: u64,
        /// The number of the scattering delivered now.
        now: u64,
    },
    /// A barrier that moved back.
    #[error("process {}'s barrier moved from {before:?} back to {now:?}", process.0)]
    BarrierBack {
        /// Where.
        process: ProcessId,
        /// From.
        before: Timestamp,
        /// To.
        now: Timestamp,
    },
    /// A delivery outside the barriers between which it should lie.
    #[error("process {} delivered {stamp:?} outside its barriers {low:?} to {high:?}", process.0)]
    OutsideBarriers {
        /// Where.
        process: ProcessId,
        /// The delivery's timestamp.
        stamp: Timestamp,
        /// The barrier at the last look: it should not lie below.
        low: Option<Timestamp>,
        /// The barrier now: it should lie below.
        high: Option<Timestamp>,
    },
    /// A promise on a link that moved back.
    #[error("link {link}'s promise moved from {before:?} back to {now:?}")]
    PromiseBack {
        /// The link.
        link: u32,
        /// From.
        before: Timestamp,
        /// To.
        now: Timestamp,
    },
    /// A message on a link below what the link had promised.
    #[error("on link {link} a message of {stamp:?} followed the promise {promise:?}")]
    BelowPromise {
        /// The link.
        link: u32,
        /// The message's timestamp.
        stamp: Timestamp,
        /// The promise before it.
        promise: Timestamp,
    },
    /// A message between correct processes that did not arrive.
    #[error("process {}'s {tag:?}, message {index}, never reached process {}, and nobody had failed", process.0, to.0)]
    NotDelivered {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The place in it.
        index: u16,
        /// The receiver.
        to: ProcessId,
    },
    /// A scattering that some receivers delivered and a correct one did not.
    #[error("process {}'s {tag:?} was delivered by process {}, but not by process {}", process.0, by.0, missing.0)]
    Torn {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Somebody who delivered his part.
        by: ProcessId,
        /// A correct receiver who did not.
        missing: ProcessId,
    },
    /// A scattering below the failure timestamp of its sender that a correct receiver lacks.
    #[error("process {}'s {tag:?} of {stamp:?} lies below its failure at {at:?}, but process {} did not deliver it", process.0, missing.0)]
    Uncommitted {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Its timestamp.
        stamp: Timestamp,
        /// The sender's failure timestamp.
        at: Timestamp,
        /// A correct receiver.
        missing: ProcessId,
    },
    /// A delivery at or above the failure timestamp of its sender.
    #[error("process {} delivered {stamp:?} of process {}, which had failed at {at:?}", process.0, from.0)]
    AboveFailure {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// The delivery's timestamp.
        stamp: Timestamp,
        /// The sender's failure timestamp.
        at: Timestamp,
    },
    /// A gap in what a process had delivered before it failed.
    #[error("process {} skipped {tag:?} of process {}, {stamp:?}", process.0, from.0)]
    Skipped {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Its timestamp.
        stamp: Timestamp,
    },
    /// Two failure timestamps for one life.
    #[error("process {} was told that life {life} of process {} failed at {now:?}, others {before:?}", process.0, failed.0)]
    TwoFailures {
        /// Who was told.
        process: ProcessId,
        /// Who has failed.
        failed: ProcessId,
        /// Which life of it.
        life: u32,
        /// What was told before.
        before: Timestamp,
        /// What was told now.
        now: Timestamp,
    },
    /// A failure that a correct process was not told of.
    #[error("process {} was never told that life {life} of process {} has failed", process.0, failed.0)]
    NotTold {
        /// Who was not told.
        process: ProcessId,
        /// Who has failed.
        failed: ProcessId,
        /// Which life of it.
        life: u32,
    },
    /// Two controllers that are active in one epoch, or one that is in an old one.
    #[error("controller {} is active in epoch {epoch}, which is that of controller {}", now.0, before.0)]
    TwoActive {
        /// The epoch.
        epoch: u32,
        /// Whose it is.
        before: ProcessId,
        /// Who acts in it.
        now: ProcessId,
    },
    /// A controller that stays active though it was told that its epoch is over.
    #[error("controller {} was told that epoch {epoch} is over, and goes on", controller.0)]
    GoesOn {
        /// The epoch.
        epoch: u32,
        /// Who was told.
        controller: ProcessId,
    },
    /// A barrier that did not advance in time.
    #[error("process {}'s barrier is at {now:?} and should have passed {target:?}", process.0)]
    Stuck {
        /// Where.
        process: ProcessId,
        /// The barrier.
        now: Option<Timestamp>,
        /// What it should have passed.
        target: Timestamp,
    },
    /// A run that took more steps than it may.
    #[error("the run did not end within {steps} steps")]
    NoEnd {
        /// How many it may take.
        steps: u64,
    },
    /// A buffer above its limit.
    #[error("process {}'s {buffer} holds {level} of at most {max}", process.0)]
    Overfull {
        /// Where.
        process: ProcessId,
        /// Which buffer.
        buffer: &'static str,
        /// How much it holds.
        level: u64,
        /// How much it may hold.
        max: u64,
    },
}

/// How many violations are kept in full.
const KEPT_MAX: usize = 32;

/// All violations of a run: the first ones in full, the rest counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    count: u64,
    by_rule: BTreeMap<Rule, u64>,
    first: Vec<Violation>,
}

impl Violations {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many there were against each rule.
    pub fn by_rule(&self) -> &BTreeMap<Rule, u64> {
        &self.by_rule
    }

    /// The first ones.
    pub fn first(&self) -> &[Violation] {
        &self.first
    }

    /// Whether one of them is against `rule`.
    pub fn has(&self, rule: Rule) -> bool {
        self.by_rule.contains_key(&rule)
    }

    /// Adds those of another part of the run.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        for (rule, count) in &other.by_rule {
            *self.by_rule.entry(*rule).or_default() += count;
        }
        let room = KEPT_MAX - self.first.len();
        self.first.extend(other.first.iter().take(room).cloned());
    }

    /// The run had to be ended after so many steps.
    pub fn did_not_end(&mut self, at_ns: u64, steps: u64) {
        self.add(Rule::End, at_ns, Seen::NoEnd { steps });
    }

    #[cold]
    pub(crate) fn add(&mut self, rule: Rule, at_ns: u64, what: Seen) {
        self.count += 1;
        *self.by_rule.entry(rule).or_default() += 1;
        if self.first.len() < KEPT_MAX {
            self.first.push(Violation { rule, at_ns, what });
        }
    }
}
