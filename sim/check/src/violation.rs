//! Violations of invariants.

use std::collections::BTreeMap;

use onepipe_base::{Cause, ProcessId, Timestamp};

use crate::tag::Tag;

/// A checked invariant: see the table of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Total order at a receiver.
    I1,
    /// Agreement between receivers.
    I2,
    /// Timestamps respect causality.
    I3,
    /// At-most-once delivery and integrity.
    I4,
    /// FIFO per pair.
    I5,
    /// Reliable: messages between correct processes arrive.
    I6,
    /// Reliable: all correct receivers deliver, or none.
    I7,
    /// Reliable: exactly the messages below the failure timestamp of a failed sender.
    I8,
    /// Barriers never regress.
    I9,
    /// Liveness after healing.
    I10,
    /// Bounded memory.
    I11,
    /// One outcome for every message.
    I12,
    /// Barrier soundness.
    B,
    /// One active controller per epoch, and one failure timestamp per incarnation for all
    /// processes.
    E,
    /// Only a process that left is reported as left, and no process that runs and is protected has
    /// failed: see [`crate::Checker::protect_living`].
    L,
    /// Every run ends. Not a guarantee of the protocol, but without it no other rule is decided.
    End,
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} at {at_ns} ns: {what}")]
pub struct Violation {
    /// The violated rule.
    pub rule: Rule,
    /// Time of detection, in ns of the run.
    pub at_ns: u64,
    /// The kind of violation with its values.
    pub what: ViolationKind,
}

/// Details of a violation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViolationKind {
    /// A delivery is not above its predecessor.
    #[error("process {} delivered {now:?} after {before:?}", process.0)]
    NotAscending {
        /// The receiver.
        process: ProcessId,
        /// Key of the earlier delivery: `(timestamp, sender, its incarnation, index)`.
        before: (Timestamp, u32, u32, u16),
        /// Key of this delivery: `(timestamp, sender, its incarnation, index)`.
        now: (Timestamp, u32, u32, u16),
    },
    /// A scattering has two timestamps.
    #[error("process {}'s {tag:?} has timestamp {now:?} here and {before:?} elsewhere", process.0)]
    TwoStamps {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The timestamp observed first.
        before: Timestamp,
        /// The timestamp observed now.
        now: Timestamp,
    },
    /// Two scatterings share a timestamp.
    #[error("process {}'s {tag:?} and scattering {other} share {stamp:?}", process.0)]
    SharedStamp {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Number of the other scattering.
        other: u64,
        /// The shared timestamp.
        stamp: Timestamp,
    },
    /// A timestamp or promise is not above what the process had delivered.
    #[error("process {} stamped or promised {now:?} after it had delivered {floor:?}", process.0)]
    NotCausal {
        /// The process.
        process: ProcessId,
        /// The timestamp or promise.
        now: Timestamp,
        /// The highest timestamp delivered before.
        floor: Timestamp,
    },
    /// A delivered message was never sent.
    #[error("process {} delivered {tag:?}, message {index} of process {}, which was never sent to it", process.0, from.0)]
    Invented {
        /// The receiver.
        process: ProcessId,
        /// The alleged sender.
        from: ProcessId,
        /// The alleged scattering.
        tag: Option<Tag>,
        /// The alleged index in the scattering.
        index: u16,
    },
    /// A delivered payload differs from the one sent.
    #[error("process {} delivered {tag:?}, message {index} of process {}, with another payload", process.0, from.0)]
    Changed {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Index of the message.
        index: u16,
    },
    /// A second outcome contradicts the first.
    #[error("process {}'s {tag:?}, message {index}, was {before} and is now {now}", process.0)]
    TwoOutcomes {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Index of the message.
        index: u16,
        /// The outcome observed first.
        before: &'static str,
        /// The outcome observed now.
        now: &'static str,
    },
    /// Messages have no outcome.
    #[error("process {}'s {tag:?} has {open} messages that were neither delivered nor reported", process.0)]
    NoOutcome {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Number of its messages without an outcome.
        open: u32,
    },
    /// An unknown outcome was reported although the receiver was always reachable.
    #[error("process {} reports {tag:?} as unknown, but process {} was always reachable", process.0, to.0)]
    NeedlesslyUnknown {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The receiver.
        to: ProcessId,
    },
    /// The first reliable scattering to a restarted process was lost, although its sender knew of
    /// the end of the previous incarnation.
    #[error("process {} reports {tag:?} as lost, its first to the restarted process {}", process.0, to.0)]
    FirstLost {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// The receiver.
        to: ProcessId,
    },
    /// Messages were lost although no fault occurred.
    #[error("{count} messages were reported lost in a fault-free fabric")]
    NeedlesslyLost {
        /// Number of lost messages.
        count: u64,
    },
    /// A delivery is out of the order of submission.
    #[error("process {} delivered scattering {now} of process {} after {before}", process.0, from.0)]
    NotFifo {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// Number of the scattering delivered before.
        before: u64,
        /// Number of the scattering delivered now.
        now: u64,
    },
    /// A barrier regressed.
    #[error("process {}'s barrier regressed from {before:?} to {now:?}", process.0)]
    BarrierBack {
        /// The process.
        process: ProcessId,
        /// The earlier barrier.
        before: Timestamp,
        /// The barrier now.
        now: Timestamp,
    },
    /// A delivery lies outside the barriers that enclose it.
    #[error("process {} delivered {stamp:?} outside its barriers {low:?} to {high:?}", process.0)]
    OutsideBarriers {
        /// The receiver.
        process: ProcessId,
        /// Timestamp of the delivery.
        stamp: Timestamp,
        /// The barrier at the last snapshot: an inclusive lower bound.
        low: Option<Timestamp>,
        /// The barrier now: an exclusive upper bound.
        high: Option<Timestamp>,
    },
    /// A read that waits for the commit barrier ended at a process that had been declared failed.
    #[error("process {}'s commit barrier {barrier:?} has passed {read:?}, when others had gone on without it", process.0)]
    StaleRead {
        /// The process.
        process: ProcessId,
        /// Its commit barrier.
        barrier: Timestamp,
        /// The timestamp that the read had to wait for.
        read: Timestamp,
    },
    /// A promise on a link regressed.
    #[error("link {link}'s promise regressed from {before:?} to {now:?}")]
    PromiseBack {
        /// The link.
        link: u32,
        /// The earlier promise.
        before: Timestamp,
        /// The promise now.
        now: Timestamp,
    },
    /// A message lies below an earlier promise on its link.
    #[error("on link {link} a message of {stamp:?} followed the promise {promise:?}")]
    BelowPromise {
        /// The link.
        link: u32,
        /// Timestamp of the message.
        stamp: Timestamp,
        /// The earlier promise.
        promise: Timestamp,
    },
    /// A message between correct processes did not arrive.
    #[error("process {}'s {tag:?}, message {index}, never reached process {}, and neither had failed", process.0, to.0)]
    NotDelivered {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Index of the message.
        index: u16,
        /// The receiver.
        to: ProcessId,
    },
    /// Some receivers delivered a scattering and a correct one did not.
    #[error("process {}'s {tag:?} was delivered by process {}, but not by process {}", process.0, by.0, missing.0)]
    Torn {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// A receiver that delivered its message.
        by: ProcessId,
        /// A correct receiver that did not.
        missing: ProcessId,
    },
    /// A correct receiver lacks a scattering below the failure timestamp of its sender.
    #[error("process {}'s {tag:?} of {stamp:?} lies below its failure at {at:?}, but process {} did not deliver it", process.0, missing.0)]
    Uncommitted {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Timestamp of the scattering.
        stamp: Timestamp,
        /// Failure timestamp of the sender.
        at: Timestamp,
        /// The correct receiver that lacks it.
        missing: ProcessId,
    },
    /// A delivery lies at or above the failure timestamp of its sender.
    #[error("process {} delivered {stamp:?} of process {}, which had failed at {at:?}", process.0, from.0)]
    AboveFailure {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// Timestamp of the delivery.
        stamp: Timestamp,
        /// Failure timestamp of the sender.
        at: Timestamp,
    },
    /// The deliveries of a failed process have a gap.
    #[error("process {} skipped {tag:?} of process {}, {stamp:?}", process.0, from.0)]
    Skipped {
        /// The receiver.
        process: ProcessId,
        /// The sender.
        from: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Timestamp of the scattering.
        stamp: Timestamp,
    },
    /// Two failure timestamps for one incarnation.
    #[error("process {} was notified that incarnation {incarnation} of process {} failed at {now:?}, others at {before:?}", process.0, failed.0)]
    TwoFailures {
        /// The notified process.
        process: ProcessId,
        /// The failed process.
        failed: ProcessId,
        /// Its incarnation.
        incarnation: u32,
        /// The timestamp observed first.
        before: Timestamp,
        /// The timestamp observed now.
        now: Timestamp,
    },
    /// A correct process was not notified of a failure.
    #[error("process {} was never notified that incarnation {incarnation} of process {} has failed", process.0, failed.0)]
    NotNotified {
        /// The process that was not notified.
        process: ProcessId,
        /// The failed process.
        failed: ProcessId,
        /// Its incarnation.
        incarnation: u32,
    },
    /// A process was declared failed although it runs and no fault has cut it off for long.
    #[error("incarnation {incarnation} of process {} is alive, but has failed: {cause}", process.0)]
    LivingFailed {
        /// The process.
        process: ProcessId,
        /// Its incarnation.
        incarnation: u32,
        /// Why it was declared failed.
        cause: Cause,
    },
    /// A process is reported as left, but did not leave.
    #[error("incarnation {incarnation} of process {} is reported as left, but did not leave", process.0)]
    NotLeft {
        /// The process.
        process: ProcessId,
        /// Its incarnation.
        incarnation: u32,
    },
    /// A process left in a fabric without faults, and is reported as failed.
    #[error("incarnation {incarnation} of process {} left, but is reported as failed: {cause}", process.0)]
    LeaverFailed {
        /// The process.
        process: ProcessId,
        /// Its incarnation.
        incarnation: u32,
        /// Why it was declared failed.
        cause: Cause,
    },
    /// Two controllers are active in one epoch, or one acts in an epoch of another.
    #[error("controller {} is active in epoch {epoch} of controller {}", now.0, before.0)]
    TwoActive {
        /// The epoch.
        epoch: u32,
        /// The controller observed first.
        before: ProcessId,
        /// The controller that acts now.
        now: ProcessId,
    },
    /// A controller takes the latest store for an older copy.
    #[error("controller {} refuses the latest store in epoch {epoch}", controller.0)]
    StoreRefused {
        /// The epoch.
        epoch: u32,
        /// The controller.
        controller: ProcessId,
    },
    /// A controller stays active after it was notified that its epoch has ended.
    #[error("controller {} was notified that epoch {epoch} has ended, and is still active", controller.0)]
    ActiveAfterEnd {
        /// The epoch.
        epoch: u32,
        /// The controller.
        controller: ProcessId,
    },
    /// A barrier did not advance in time.
    #[error("process {}'s barrier is at {now:?} and should have passed {target:?}", process.0)]
    Stuck {
        /// The process.
        process: ProcessId,
        /// The barrier now.
        now: Option<Timestamp>,
        /// The timestamp that it should have passed.
        target: Timestamp,
    },
    /// A reliable scattering did not end in time.
    #[error("process {}'s {tag:?}, submitted at {submitted_ns} ns, has not ended", process.0)]
    NotEnded {
        /// The sender.
        process: ProcessId,
        /// The scattering.
        tag: Tag,
        /// Time of its submission, in ns of the run.
        submitted_ns: u64,
    },
    /// No controller has registered a process.
    #[error("process {} has not been registered", process.0)]
    NotRegistered {
        /// The process.
        process: ProcessId,
    },
    /// A run exceeded its step limit.
    #[error("the run did not end within {steps} steps")]
    NoEnd {
        /// The step limit.
        steps: u64,
    },
    /// A buffer exceeds its limit.
    #[error("process {}'s {buffer} holds {level} of at most {max}", process.0)]
    Overfull {
        /// The process.
        process: ProcessId,
        /// Name of the buffer.
        buffer: &'static str,
        /// Bytes held.
        level: u64,
        /// Capacity of the buffer in bytes.
        max: u64,
    },
}

/// Number of violations kept in full.
const DETAILED_MAX: usize = 32;

/// All violations of a run: the first ones in full, the rest as counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Violations {
    count: u64,
    by_rule: BTreeMap<Rule, u64>,
    first: Vec<Violation>,
}

impl Violations {
    /// Returns the number of violations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of violations of each rule.
    pub fn by_rule(&self) -> &BTreeMap<Rule, u64> {
        &self.by_rule
    }

    /// Returns the first violations.
    pub fn first(&self) -> &[Violation] {
        &self.first
    }

    /// Whether `rule` was violated.
    pub fn has(&self, rule: Rule) -> bool {
        self.by_rule.contains_key(&rule)
    }

    /// Adds the violations of another part of the run.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        for (rule, count) in &other.by_rule {
            *self.by_rule.entry(*rule).or_default() += count;
        }
        let space = DETAILED_MAX - self.first.len();
        self.first.extend(other.first.iter().take(space).cloned());
    }

    /// Records that the run was ended at its step limit.
    pub fn did_not_end(&mut self, at_ns: u64, steps: u64) {
        self.add(Rule::End, at_ns, ViolationKind::NoEnd { steps });
    }

    #[cold]
    pub(crate) fn add(&mut self, rule: Rule, at_ns: u64, what: ViolationKind) {
        self.count += 1;
        *self.by_rule.entry(rule).or_default() += 1;
        if self.first.len() < DETAILED_MAX {
            self.first.push(Violation { rule, at_ns, what });
        }
    }
}
