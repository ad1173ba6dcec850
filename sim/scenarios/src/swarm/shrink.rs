//! Shrinks a failing seed: delta debugging over its timeline (Zeller, Hildebrandt: TSE 2002).

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use onepipe_sim_check::Rule;

use super::Swarm;
use crate::Report;

/// Outcome of a run.
#[derive(Clone, Debug)]
pub enum RunOutcome {
    /// The run completed.
    Report(Box<Report>),
    /// An assertion of a machine failed.
    Panic(String),
}

impl RunOutcome {
    /// Whether the run completed without violations.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Report(report) if report.violations == 0)
    }

    /// Returns the violations as text.
    pub fn violations(&self) -> Vec<String> {
        match self {
            Self::Report(report) => report.first_violations.clone(),
            Self::Panic(text) => vec![format!("panic: {text}")],
        }
    }

    /// Returns the violated rules; `None` for a panic.
    pub fn rules(&self) -> Option<BTreeSet<Rule>> {
        match self {
            Self::Report(report) => Some(report.violations_by_rule.keys().copied().collect()),
            Self::Panic(_) => None,
        }
    }

    /// Whether the two outcomes share a violated rule or are both panics.
    fn is_like(&self, other: &Self) -> bool {
        match (self.rules(), other.rules()) {
            (None, None) => true,
            (Some(one), Some(other)) => one.intersection(&other).next().is_some(),
            _ => false,
        }
    }
}

impl Swarm {
    /// Runs the scenario and catches panics. Silencing the panic hook is up to the caller.
    pub fn attempt(&self) -> RunOutcome {
        match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(report) => RunOutcome::Report(Box::new(report)),
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned();
                let literal = || payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
                RunOutcome::Panic(text.or_else(literal).unwrap_or_default())
            }
        }
    }

    /// Returns a scenario with as few faults as possible that still violates a rule that `outcome`
    /// violated, in at most `attempts_max` runs.
    #[must_use]
    pub fn shrunk(&self, outcome: &RunOutcome, attempts_max: u32) -> Self {
        let mut best = self.clone();
        let mut attempts = 0;
        if best.removed.is_some() && attempts_max > 0 {
            let candidate = Self { removed: None, ..best.clone() };
            attempts += 1;
            if candidate.attempt().is_like(outcome) {
                best = candidate;
            }
        }
        let mut pieces = 2;
        loop {
            let removable = best.removable();
            if removable.len() <= 1 || attempts >= attempts_max {
                break;
            }
            let size = removable.len().div_ceil(pieces);
            let mut smaller = None;
            for piece in removable.chunks(size) {
                let mut candidate = best.clone();
                for at in piece.iter().rev() {
                    candidate.timeline.remove(*at);
                }
                attempts += 1;
                if candidate.attempt().is_like(outcome) {
                    smaller = Some(candidate);
                    break;
                }
                if attempts == attempts_max {
                    break;
                }
            }
            match smaller {
                Some(candidate) => {
                    best = candidate;
                    pieces = (pieces - 1).max(2);
                }
                None if size == 1 => break,
                None => pieces = (pieces * 2).min(removable.len()),
            }
        }
        best
    }

    /// Returns the positions of faults that a smaller scenario may lack. In a calm one each fault
    /// keeps its end: a process that stops and never resumes is declared failed, as it must be.
    fn removable(&self) -> Vec<usize> {
        let faults = self.timeline.iter().enumerate();
        let removable = faults.filter(|(_, (_, fault))| !self.is_calm || fault.name().is_some());
        removable.map(|(position, _)| position).collect()
    }
}
