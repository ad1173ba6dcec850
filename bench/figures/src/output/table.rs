//! The table of claims, for documents and terminals.

use std::fmt::Write;

use serde::Serialize;

use super::Figure;
use crate::experiment::Role;

/// A claim with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Id of the figure.
    pub figure: &'static str,
    /// The claim.
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

impl Line {
    pub(super) fn state(&self) -> &'static str {
        match self.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "not judged",
        }
    }
}

/// Returns every claim of every figure: first each curve within 25 % of the paper's, then the
/// others.
pub fn lines(figures: &[Figure]) -> Vec<Line> {
    let mut lines = Vec::new();
    for Figure { experiment, measured, .. } in figures {
        for curve in experiment.compared(measured) {
            let ((least_x, least), (most_x, most)) = (curve.least, curve.most);
            let is_predicted = curve.role == Role::Predicted;
            lines.push(Line {
                figure: experiment.id,
                claim: format!("{}: within 25 % of the paper's points", curve.name),
                paper: "1".into(),
                ours: format!(
                    "{:.2} in the median; {least:.2} at {least_x}, {most:.2} at {most_x}",
                    curve.median
                ),
                holds: is_predicted.then_some(curve.holds),
                remark: match (is_predicted, curve.holds) {
                    (false, _) if curve.role == Role::Calibration => "calibrated by it",
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
            let (ours, paper) = verdict.map_or_else(missing, |said| (said.ours, said.paper));
            lines.push(Line {
                figure: experiment.id,
                claim: claim.text.to_owned(),
                paper,
                ours,
                holds,
                remark: if holds == Some(false) { claim.remark } else { "" },
            });
        }
    }
    lines
}

/// Returns the page `docs/evaluation.md`.
pub(super) fn markdown(figures: &[Figure], is_quick: bool) -> String {
    let how = if is_quick { " --quick" } else { "" };
    let mut text = format!(
        "# The evaluation of the papers, run again\n\nWritten by `onepipe figures all{how}`; not edited. How \
         to do that again, and how long it takes, is in\n[the README](../README.md). Calibration \
         `paper`: every number and its source is in\n`Calibration::PAPER` (bench/figures). One \
         experiment gave the latency of links and hosts (figure 9a,\nunordered); everything else is \
         predicted. \"(run apart)\" is what was found with a change made for that.\n\n\
         | figure | claim | paper | ours | |\n|---|---|---|---|---|\n"
    );
    for line in lines(figures) {
        let remark =
            if line.remark.is_empty() { String::new() } else { format!(": {}", line.remark) };
        let Line { figure, claim, paper, ours, .. } = &line;
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
    for line in lines(figures) {
        let Line { figure, claim, ours, .. } = &line;
        let _ = writeln!(text, "{figure:>4}  {:<13}  {claim}\n{:21}{ours}", line.state(), "");
    }
    text
}
