//! Checks of the reliable service once all failures are known: I6, I7 and I8.
//!
//! An incarnation is *correct* if it runs to the end of the history and no process was notified of
//! its failure. The checks use only externally visible facts: deliveries, the outcomes that senders
//! report, and the failure notifications with their timestamps.

use onepipe_base::{ProcessId, Timestamp};

use crate::outcome::{MessageOutcome, ScatteringOutcome, State};
use crate::tag::Tag;
use crate::violation::{Rule, ViolationKind, Violations};

/// Outcome of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SenderStatus {
    /// Correct, or left after all its messages had an outcome.
    Correct,
    /// Failed at this timestamp; `is_exact`: the timestamp is known exactly.
    Failed { at: Timestamp, is_exact: bool },
    /// Crashed, and no process was notified of the failure.
    Crashed,
}

//= spec/failure.md#R10
/// Checks one scattering of `sender`. `is_correct` returns whether a receiver is correct and
/// existed at the submission; `is_known` returns whether the sender could know about it.
pub(crate) fn verify(
    (sender, incarnation, sender_status): (ProcessId, u32, SenderStatus),
    case: &ScatteringOutcome,
    (is_correct, is_known): (impl Fn(ProcessId) -> bool, impl Fn(ProcessId) -> bool),
    at_ns: u64,
    log: &mut Violations,
) {
    let tag = Tag { incarnation, scattering: case.scattering };
    let process = sender;
    let correct = |message: &&MessageOutcome| is_correct(message.to);
    let missing = case.messages.iter().filter(correct).find(|message| !message.is_delivered());
    let Some(missing) = missing.map(|message| message.to) else { return };
    // Atomicity: what one receiver delivers, all correct receivers deliver. But a receiver that
    // failed together with the sender may have delivered more than the recovery retained.
    let counts = |message: &&MessageOutcome| match sender_status {
        SenderStatus::Correct => message.is_delivered(),
        SenderStatus::Failed { at, .. } => {
            let is_below = case.stamp.is_some_and(|stamp| stamp < at);
            message.is_delivered() && (is_below || is_correct(message.to))
        }
        SenderStatus::Crashed => message.is_delivered() && is_correct(message.to),
    };
    if let Some(by) = case.messages.iter().find(counts).map(|message| message.to) {
        return log.add(Rule::I7, at_ns, ViolationKind::Torn { process, tag, by, missing });
    }
    match sender_status {
        SenderStatus::Correct
            if !case.is_behind_commit
                && case
                    .messages
                    .iter()
                    .all(|message| is_correct(message.to) && is_known(message.to)) =>
        {
            let of_missing =
                |message: &MessageOutcome| message.to == missing && !message.is_delivered();
            let index = case.messages.iter().position(of_missing).unwrap_or(0) as u16;
            log.add(
                Rule::I6,
                at_ns,
                ViolationKind::NotDelivered { process, tag, index, to: missing },
            );
        }
        SenderStatus::Failed { at, .. } => {
            let was_recalled = case.messages.iter().any(|message| message.state == State::Lost);
            if let Some(stamp) = case.stamp.filter(|stamp| *stamp < at && !was_recalled) {
                let kind = ViolationKind::Uncommitted { process, tag, stamp, at, missing };
                log.add(Rule::I8, at_ns, kind);
            }
        }
        SenderStatus::Correct | SenderStatus::Crashed => {}
    }
}

/// Checks for a gap in the deliveries of a receiver before it failed: a scattering of `sender` that
/// others delivered and that the receiver skipped. `spans` returns the timestamps of the first and
/// last reliable delivery of each failed incarnation of a receiver.
pub(crate) fn find_gap(
    (sender, incarnation): (ProcessId, u32),
    case: &ScatteringOutcome,
    spans: impl Fn(ProcessId) -> Vec<(Timestamp, Timestamp)>,
    at_ns: u64,
    log: &mut Violations,
) {
    let Some(stamp) = case.stamp else { return };
    if !case.messages.iter().any(|message| message.is_delivered()) {
        return;
    }
    for message in case.messages.iter().filter(|message| message.state == State::Open) {
        let skips = |(first, last): (Timestamp, Timestamp)| first < stamp && stamp < last;
        if spans(message.to).into_iter().any(skips) {
            let tag = Tag { incarnation, scattering: case.scattering };
            let kind = ViolationKind::Skipped { process: message.to, from: sender, tag, stamp };
            log.add(Rule::I7, at_ns, kind);
        }
    }
}
