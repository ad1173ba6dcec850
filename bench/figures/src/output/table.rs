//! The table of claims, for documents and terminals.

use std::fmt::{self, Display, Formatter, Write};

use serde::Serialize;

use super::{Figure, QUICK};
use crate::experiment::{Claim, Comparison, Measured, Role};
use crate::verdict::{Outcome, Verdict};

/// A claim with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimResult {
    /// Id of the figure.
    pub figure: &'static str,
    /// Text of the claim.
    pub claim: String,
    /// The paper's value.
    pub paper: String,
    /// Our value.
    pub ours: String,
    /// What the verification shows; `None` if the curve was used for calibration or could not be
    /// verified.
    pub verdict: Option<Outcome>,
    /// Why the claim does not hold or is not verified, or what contradicts what.
    pub remark: String,
}

impl ClaimResult {
    /// Returns the verdict with its reason, as one phrase.
    pub(super) fn state(&self) -> String {
        let name = self.verdict.map_or("no verdict", Outcome::name);
        if self.remark.is_empty() { name.to_owned() } else { format!("{name}: {}", self.remark) }
    }
}

/// Number of claims by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Claims that hold.
    pub hold: usize,
    /// Claims with a value of ours that is better than the paper's by more than the tolerance.
    pub better: usize,
    /// Claims that do not hold, where two numbers of the paper exclude each other.
    pub paper_contradicts_itself: usize,
    /// Claims that do not hold: the debts.
    pub do_not_hold: usize,
    /// Claims without a verdict: calibration, other machines, and what was not measured.
    pub no_verdict: usize,
}

impl Counts {
    /// Counts the verdicts.
    pub fn of(claim_results: &[ClaimResult]) -> Self {
        let count = |verdict| claim_results.iter().filter(|one| one.verdict == verdict).count();
        Self {
            hold: count(Some(Outcome::Holds)),
            better: count(Some(Outcome::Better)),
            paper_contradicts_itself: count(Some(Outcome::PaperContradictsItself)),
            do_not_hold: count(Some(Outcome::DoesNotHold)),
            no_verdict: count(None),
        }
    }
}

impl Display for Counts {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { hold, better, paper_contradicts_itself, do_not_hold, no_verdict } = self;
        write!(
            formatter,
            "{hold} claims hold, {better} are better than the paper's, in \
             {paper_contradicts_itself} the paper contradicts itself, {do_not_hold} do not hold, \
             {no_verdict} have no verdict"
        )
    }
}

/// Returns the results of all claims. Those of a figure begin with one claim for each curve that
/// the paper has: that it lies within 25 % of the paper's points.
pub fn claim_results(figures: &[Figure]) -> Vec<ClaimResult> {
    figures.iter().flat_map(claims_of).collect()
}

/// Returns the results of the claims of a figure.
pub(super) fn claims_of(figure: &Figure) -> Vec<ClaimResult> {
    let Figure { experiment, measured, .. } = figure;
    let id = experiment.id;
    let curves = experiment.comparisons(measured).into_iter();
    let curves = curves.map(|curve| of_curve(id, &curve));
    let claims = experiment.claims.iter().map(|claim| of_claim(id, claim, measured));
    curves.chain(claims).collect()
}

fn of_curve(figure: &'static str, curve: &Comparison) -> ClaimResult {
    let ((least_x, least), (most_x, most)) = (curve.least, curve.most);
    let remark = match (curve.outcome, curve.role) {
        (None, Role::Calibration) => "used for calibration".into(),
        (None, _) => "another machine than the paper's".into(),
        (Some(Outcome::DoesNotHold), _) => match curve.role.contradictions() {
            none if none.is_empty() => reason(curve.remark),
            some => format!("{}; the paper contradicts itself {some}", reason(curve.remark)),
        },
        (Some(Outcome::PaperContradictsItself), _) => curve.role.contradictions(),
        (Some(_), _) => String::new(),
    };
    ClaimResult {
        figure,
        claim: match curve.role.calibrated_at() {
            Some(x) => format!(
                "{}: within 25 % of the paper's points, without that at {x}, which was used for \
                 calibration",
                curve.name
            ),
            None => format!("{}: within 25 % of the paper's points", curve.name),
        },
        paper: "1".into(),
        ours: format!(
            "{:.2} in the median; {least:.2} at {least_x}, {most:.2} at {most_x}",
            curve.median
        ),
        verdict: curve.outcome,
        remark,
    }
}

/// Returns the reason of a claim that does not hold: a debt without one is named as such.
fn reason(remark: &str) -> String {
    if remark.is_empty() { "the reason is not known".into() } else { remark.to_owned() }
}

fn of_claim(figure: &'static str, claim: &Claim, measured: &Measured) -> ClaimResult {
    let claim_text = claim.text.to_owned();
    let Some(verdict) = (claim.verify)(measured) else {
        let (ours, paper, remark) = ("not measured".into(), String::new(), String::new());
        return ClaimResult { figure, claim: claim_text, paper, ours, verdict: None, remark };
    };
    let Verdict { outcome, ours, paper, contradiction, is_calibration } = verdict;
    if is_calibration {
        let remark = "used for calibration".into();
        return ClaimResult { figure, claim: claim_text, paper, ours, verdict: None, remark };
    }
    let remark = match outcome {
        Outcome::DoesNotHold => reason(claim.remark),
        _ => contradiction.map_or_else(String::new, |numbers| numbers.to_string()),
    };
    ClaimResult { figure, claim: claim_text, paper, ours, verdict: Some(outcome), remark }
}

/// Returns the page `docs/evaluation.md`.
pub(super) fn markdown(figures: &[Figure], is_quick: bool) -> String {
    let claim_results = claim_results(figures);
    let option = if is_quick { " --quick" } else { "" };
    let mut text = format!(
        "# The evaluation of the papers, run again\n\nWritten by `onepipe figures all{option}`; \
         not edited. The constants of the simulated testbeds and their\nsources are in bench/figures \
         (`Calibration::PAPER`). One experiment gave the latency of links and hosts\n(figure 9a, \
         unordered); everything else is predicted, unless a row says that it, or one of \
         its\npoints, was used for calibration.{}{}\n\n{}.\n\n\
         | figure | claim | paper | ours | |\n|---|---|---|---|---|\n",
        if is_quick { " " } else { "" },
        if is_quick { QUICK } else { "" },
        Counts::of(&claim_results)
    );
    for line in claim_results {
        let ClaimResult { figure, claim, paper, ours, .. } = &line;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {figure} | {claim} | {paper} | {ours} | {} |", line.state());
    }
    let errors: Vec<&String> = figures.iter().flat_map(|figure| &figure.errors).collect();
    if !errors.is_empty() {
        text.push_str("\nNot measured:\n\n");
        errors.iter().for_each(|error| text.push_str(&format!("- {error}\n")));
    }
    text
}

/// Returns the table for a terminal.
pub(super) fn text(figures: &[Figure]) -> String {
    let mut text = String::new();
    for line in claim_results(figures) {
        let ClaimResult { figure, claim, ours, verdict, .. } = &line;
        let name = verdict.map_or("no verdict", Outcome::name);
        let _ = writeln!(text, "{figure:>4}  {name:<24}  {claim}\n{:32}{ours}", "");
    }
    text
}
