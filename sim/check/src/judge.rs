//! The reliable service, judged when it is known who has failed: I6, I7 and I8.
//!
//! A life is *correct* when it runs to the end of the history and nobody was told that it has
//! failed. What is judged is what any observer could see: who delivered what, what senders said of
//! their messages, and which failures with which timestamps processes were told of.

use onepipe_base::{ProcessId, Timestamp};

use crate::checker::Tag;
use crate::sender::State;
use crate::violation::{Rule, Seen, Violations};

/// A scattering, and what became of its messages.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its number in its sender's life.
    pub scattering: u64,
    /// Its timestamp, if that was ever seen.
    pub stamp: Option<Timestamp>,
    /// When it was submitted, in ns of the run.
    pub submitted_ns: u64,
    /// Its sender had yet to catch up with what a receiver had been told: one of the two has just
    /// joined, with a clock that is off. Such a message may come too late.
    pub is_behind: bool,
    pub parts: Vec<Part>,
}

/// One message of it.
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

/// What became of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fortune {
    /// Correct, or it took its leave when all it had sent was settled.
    Correct,
    /// It has failed at this timestamp; `is_exact`: that could be known.
    Failed { at: Timestamp, is_exact: bool },
    /// It is gone, and nobody was told when it failed.
    Gone,
}

/// Judges one scattering of `sender`. `is_correct` says of whom it was for whether that one was
/// there when it was submitted, and is correct; `is_known` whether the sender could know.
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
    // What is delivered by anybody is delivered by all. But who failed together with the sender
    // may have heard more of it than the others did.
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

/// Looks for a gap in what a process had delivered before it failed: a scattering of `sender` that
/// others delivered, which it skipped. `spans`: the timestamps of the first and the last reliable
/// delivery of each life of a receiver that has failed.
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
