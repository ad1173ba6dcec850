//! Detection of seeded mistakes of the machines.

use std::panic::{AssertUnwindSafe, catch_unwind};

use onepipe_base::mistake::{Mistake, choose};
use onepipe_sim_check::Rule;

use crate::{Swarm, demand, shared};

/// Runs a seed with a mistake. Returns as text how the mistake was detected: the violated rules, or
/// an assertion of the machines that failed. Only the rules that the mistake breaks count, because
/// the history differs from that without the mistake and may violate others by chance. Without a
/// mistake every rule counts.
///
/// The mistake is selected for the whole program during the run.
pub fn detected(mistake: Option<Mistake>, seed: u64) -> Option<String> {
    choose(mistake);
    if mistake.is_some_and(is_of_demand) {
        return attempt(|| !demand(seed).is_empty(), "I10");
    }
    if mistake == Some(Mistake::PromiseBeforeCopies) {
        return attempt(|| shared(seed).violations_by_rule.contains_key(&Rule::B), "B");
    }
    let outcome = Swarm::draw(seed).attempt();
    choose(None);
    let Some(violated) = outcome.rules() else { return Some("an assertion".to_owned()) };
    let is_relevant =
        |rule: &&Rule| mistake.is_none_or(|mistake| broken_rules(mistake).contains(rule));
    let names: Vec<String> =
        violated.iter().filter(is_relevant).map(|rule| format!("{rule:?}")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Runs a scenario that returns whether `rule` was violated. Ends the selection of the mistake.
fn attempt(is_violated: impl Fn() -> bool, rule: &str) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(is_violated));
    choose(None);
    match outcome {
        Ok(is_violated) => is_violated.then(|| rule.to_owned()),
        Err(_) => Some("an assertion".to_owned()),
    }
}

/// Returns the result of [`detected`] if the seed passes without the mistake.
pub fn caught(mistake: Mistake, seed: u64) -> Option<String> {
    let detected = detected(Some(mistake), seed)?;
    let passes = match mistake {
        Mistake::PromiseBeforeCopies => shared(seed).violations == 0,
        _ if is_of_demand(mistake) => demand(seed).is_empty(),
        _ => self::detected(None, seed).is_none(),
    };
    passes.then_some(detected)
}

/// Returns whether a mistake concerns beacons on demand, for which there is a scenario of its own:
/// elsewhere the next heartbeat makes up for it.
fn is_of_demand(mistake: Mistake) -> bool {
    use Mistake as M;
    matches!(
        mistake,
        M::SolicitOnce | M::AnswerEarly | M::RestWhileUndelivered | M::JoinerNotSolicited
    )
}

/// Returns the rules that a mistake violates.
fn broken_rules(mistake: Mistake) -> &'static [Rule] {
    use Mistake as M;
    use Rule::{B, E, I1, I2, I3, I4, I6, I7, I8, I9, I10, I12, L};
    match mistake {
        M::DeliverAtBarrier | M::LateAccepted => &[B, I1, I2],
        M::NoTieBreak => &[I1, I2],
        M::DeliverBeforeCommit => &[B, I1, I7, I12],
        M::PromiseBeforeCopies => &[B],
        M::RecallForgotten | M::OwnCommitIgnored | M::SiblingNotRecalled => &[I7, I12],
        M::DiscardOffByOne | M::DiscardForgotten => &[I8],
        M::CommitWhileOpen | M::AckBeforeBuffering | M::LiveLinkDropped => &[I6, I7, I12],
        M::BundledAcksMixed => &[I6, I7, I12, L],
        M::NoClockClamp => &[I3],
        M::DuplicateAccepted => &[I1, I4],
        M::DeadLinkRetained => &[I10],
        M::DeadCommitDropped | M::RestartIgnored => &[I8],
        M::BarrierBack => &[I9],
        M::SolicitOnce | M::AnswerEarly | M::RestWhileUndelivered | M::JoinerNotSolicited => &[I10],
        M::TwoActive | M::RefusalIgnored => &[E],
        M::ResumeEarly | M::FailureTooEarly => &[I8],
        M::OldStoreAccepted => &[I7, I8, I12],
        M::FailureTooLate => &[I8, I12],
        M::UnknownEarly => &[I12],
        M::RejoinNotAwaited | M::LeaveCauseLost => &[L],
        // Mistakes of agreed multicast and of transactions, which have their own checks.
        _ => &[],
    }
}
