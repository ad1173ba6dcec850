//! The table of claims, for documents and terminals.

use std::fmt::Write;

use serde::Serialize;

use super::Figure;
use crate::experiment::Role;

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
    /// Whether the claim holds; `None` if the curve was used for calibration or could not be
    /// verified.
    pub holds: Option<bool>,
    /// Why the claim does not hold or is not verified.
    pub remark: &'static str,
}

impl ClaimResult {
    pub(super) fn state(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "no verdict",
        }
    }
}

/// Returns the results of all claims. Those of a figure begin with one claim for each curve that
/// the paper has: that it lies within 25 % of the paper's points.
pub fn claim_results(figures: &[Figure]) -> Vec<ClaimResult> {
    let mut claim_results = Vec::new();
    for Figure { experiment, measured, .. } in figures {
        for curve in experiment.comparisons(measured) {
            let ((least_x, least), (most_x, most)) = (curve.least, curve.most);
            let is_predicted = curve.role == Role::Predicted;
            claim_results.push(ClaimResult {
                figure: experiment.id,
                claim: format!("{}: within 25 % of the paper's points", curve.name),
                paper: "1".into(),
                ours: format!(
                    "{:.2} in the median; {least:.2} at {least_x}, {most:.2} at {most_x}",
                    curve.median
                ),
                holds: is_predicted.then_some(curve.holds),
                remark: match (is_predicted, curve.holds) {
                    (false, _) if curve.role == Role::Calibration => "used for calibration",
                    (false, _) => "another machine than the paper's",
                    (true, true) => "",
                    (true, false) => curve.remark,
                },
            });
        }
        for claim in &experiment.claims {
            let verdict = (claim.verify)(measured);
            let holds = verdict.as_ref().map(|verdict| verdict.holds);
            let missing = || ("not measured".to_owned(), String::new());
            let (ours, paper) =
                verdict.map_or_else(missing, |verdict| (verdict.ours, verdict.paper));
            claim_results.push(ClaimResult {
                figure: experiment.id,
                claim: claim.text.to_owned(),
                paper,
                ours,
                holds,
                remark: if holds == Some(false) { claim.remark } else { "" },
            });
        }
    }
    claim_results
}

/// Returns the page `docs/evaluation.md`.
pub(super) fn markdown(figures: &[Figure], is_quick: bool) -> String {
    let option = if is_quick { " --quick" } else { "" };
    let mut text = format!(
        "# The evaluation of the papers, run again\n\nWritten by `onepipe figures all{option}`; \
         not edited. The constants of the simulated testbeds and their\nsources are in bench/figures \
         (`Calibration::PAPER`). One experiment gave the latency of links and hosts\n(figure 9a, \
         unordered); everything else is predicted. \"(separate run)\" marks the result of a \
         run\nwith a changed setup, which this command does not repeat.\n\n\
         | figure | claim | paper | ours | |\n|---|---|---|---|---|\n"
    );
    for line in claim_results(figures) {
        let remark =
            if line.remark.is_empty() { String::new() } else { format!(": {}", line.remark) };
        let ClaimResult { figure, claim, paper, ours, .. } = &line;
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "| {figure} | {claim} | {paper} | {ours} | {}{remark} |", line.state());
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
        let ClaimResult { figure, claim, ours, .. } = &line;
        let _ = writeln!(text, "{figure:>4}  {:<13}  {claim}\n{:21}{ours}", line.state(), "");
    }
    text
}
