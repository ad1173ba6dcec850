//! What holds and what does not: for documents and for terminals.

use std::fmt::Write;

use serde::Serialize;

use super::Figure;
use crate::experiment::Role;

/// A line of the table: a claim, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Of which figure.
    pub figure: &'static str,
    /// In words.
    pub claim: String,
    /// The paper's number.
    pub paper: String,
    /// Ours.
    pub ours: String,
    /// `None`: it was calibrated by this curve, or could not be judged.
    pub holds: Option<bool>,
    /// Why it does not hold, or is not judged.
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

/// Every claim of every figure: each curve within 25 % of the paper's, then the others.
pub fn lines(figures: &[Figure]) -> Vec<Line> {
    let mut lines = Vec::new();
    for Figure { experiment, measured, .. } in figures {
        for curve in experiment.compared(measured) {
            let ((least_x, least), (most_x, most)) = (curve.least, curve.most);
            let is_judged = curve.role == Role::Predicted;
            lines.push(Line {
                figure: experiment.id,
                claim: format!("{}: within 25 % of the paper's points", curve.name),
                paper: "1".into(),
                ours: format!(
                    "{:.2} in the median; {least:.2} at {least_x}, {most:.2} at {most_x}",
                    curve.median
                ),
                holds: is_judged.then_some(curve.holds),
                remark: match (is_judged, curve.holds) {
                    (false, _) if curve.role == Role::Calibration => "calibrated by it",
                    (false, _) => "another machine than the paper's",
                    (true, true) => "",
                    (true, false) => curve.remark,
                },
            });
        }
        for claim in &experiment.claims {
            let verdict = (claim.judge)(measured);
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

/// The page `docs/evaluation.md`.
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

/// The same for a terminal.
pub(super) fn text(figures: &[Figure]) -> String {
    let mut text = String::new();
    for line in lines(figures) {
        let Line { figure, claim, ours, .. } = &line;
        let _ = writeln!(text, "{figure:>4}  {:<13}  {claim}\n{:21}{ours}", line.state(), "");
    }
    text
}
