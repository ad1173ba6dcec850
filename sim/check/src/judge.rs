//! Checks of the reliable service once all failures are known: I6, I7 and I8.
//!
//! An incarnation is *correct* if it runs to the end of the history and no process was notified of
//! its failure. The checks use only externally visible facts: deliveries, the outcomes that senders
//! report, and the failure notifications with their timestamps.

use onepipe_base::{ProcessId, Timestamp};

use crate::checker::Tag;
use crate::sender::State;
use crate::violation::{Rule, Seen, Violations};

/// A scattering with the outcomes of its messages.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Number of the scattering in its sender's incarnation.
    pub scattering: u64,
    /// Its timestamp, if one was observed.
    pub stamp: Option<Timestamp>,
    /// Time of submission, in ns of the run.
    pub submitted_ns: u64,
    /// Whether the sender's promise was below the commit barrier of a receiver: one of the two has
    /// just joined with a deviating clock. Such a message may arrive too late.
    pub is_behind: bool,
    pub parts: Vec<Part>,
}

/// One message of a scattering.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub to: ProcessId,
    pub state: State,
}

impl Part {
    fn is_delivered(self) -> bool {
        matches!(self.state, State::Delivered | State::DeliveredAndUnknown)
    }
}

/// Outcome of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fortune {
    /// Correct, or left after all its messages had an outcome.
    Correct,
    /// Failed at this timestamp; `is_exact`: the timestamp is known exactly.
    Failed { at: Timestamp, is_exact: bool },
    /// Crashed, and no process was notified of the failure.
    Gone,
}

/// Checks one scattering of `sender`. `is_correct` returns whether a receiver is correct and
/// existed at the submission; `is_known` returns whether the sender could know about it.
pub(crate) fn judge(
    (sender, life, fortune): (ProcessId, u32, Fortune),
    case: &Case,
    (is_correct, is_known): (impl Fn(ProcessId) -> bool, impl Fn(ProcessId) -> bool),
    at_ns: u64,
    log: &mut Violations,
) {
    let tag = Tag { life, scattering: case.scattering };
    let process = sender;
    let correct = |part: &&Part| is_correct(part.to);
    let missing = case.parts.iter().filter(correct).find(|part| !part.is_delivered());
    let Some(missing) = missing.map(|part| part.to) else { return };
    // Atomicity: what one receiver delivers, all correct receivers deliver. But a receiver that
    // failed together with the sender may have delivered more than the recovery retained.
    let counts = |part: &&Part| match fortune {
        Fortune::Correct => part.is_delivered(),
        Fortune::Failed { at, .. } => {
            let is_below = case.stamp.is_some_and(|stamp| stamp < at);
            part.is_delivered() && (is_below || is_correct(part.to))
        }
        Fortune::Gone => part.is_delivered() && is_correct(part.to),
    };
    if let Some(by) = case.parts.iter().find(counts).map(|part| part.to) {
        return log.add(Rule::I7, at_ns, Seen::Torn { process, tag, by, missing });
    }
    match fortune {
        Fortune::Correct
            if !case.is_behind
                && case.parts.iter().all(|part| is_correct(part.to) && is_known(part.to)) =>
        {
            let of_missing = |part: &Part| part.to == missing && !part.is_delivered();
            let index = case.parts.iter().position(of_missing).unwrap_or(0) as u16;
            log.add(Rule::I6, at_ns, Seen::NotDelivered { process, tag, index, to: missing });
        }
        Fortune::Failed { at, .. } => {
            let was_recalled = case.parts.iter().any(|part| part.state == State::Lost);
            if let Some(stamp) = case.stamp.filter(|stamp| *stamp < at && !was_recalled) {
                let seen = Seen::Uncommitted { process, tag, stamp, at, missing };
                log.add(Rule::I8, at_ns, seen);
            }
        }
        Fortune::Correct | Fortune::Gone => {}
    }
}

/// Checks for a gap in the deliveries of a receiver before it failed: a scattering of `sender` that
/// others delivered and that the receiver skipped. `spans` returns the timestamps of the first and
/// last reliable delivery of each failed incarnation of a receiver.
pub(crate) fn find_gap(
    (sender, life): (ProcessId, u32),
    case: &Case,
    spans: impl Fn(ProcessId) -> Vec<(Timestamp, Timestamp)>,
    at_ns: u64,
    log: &mut Violations,
) {
    let Some(stamp) = case.stamp else { return };
    if !case.parts.iter().any(|part| part.is_delivered()) {
        return;
    }
    for part in case.parts.iter().filter(|part| part.state == State::Open) {
        let skips = |(first, last): (Timestamp, Timestamp)| first < stamp && stamp < last;
        if spans(part.to).into_iter().any(skips) {
            let tag = Tag { life, scattering: case.scattering };
            let seen = Seen::Skipped { process: part.to, from: sender, tag, stamp };
            log.add(Rule::I7, at_ns, seen);
        }
    }
}
