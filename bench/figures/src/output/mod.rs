//! Output files of an evaluation.

mod axis;
mod chart;
mod csv;
mod picture;
mod report;
mod table;

use std::path::Path;

use anyhow::{Context, Result};

pub use self::table::{ClaimResult, Counts, claim_results};

use crate::Experiment;
use crate::experiment::Measured;

/// What the pages of a quick run say about themselves.
const QUICK: &str = "This is a quick run, of fewer points and shorter windows: its verdicts are not \
                     final.";

/// An experiment with its results.
#[derive(Debug)]
pub struct Figure {
    /// The experiment.
    pub experiment: Experiment,
    /// Measured points.
    pub measured: Measured,
    /// Errors of the experiment's runs.
    pub errors: Vec<String>,
}

/// Writes `ID.csv` and `ID.svg` of each figure, `report.html` and `evaluation.md`.
///
/// # Errors
/// If a file cannot be drawn or written.
pub fn write(directory: &Path, figures: &[Figure], is_quick: bool) -> Result<()> {
    let put = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let mut charts = Vec::new();
    for figure in figures {
        let id = figure.experiment.id;
        let chart =
            chart::draw(&picture::of(figure)).with_context(|| format!("drawing figure {id}"))?;
        put(&format!("{id}.csv"), &csv::rows(figure)?)?;
        put(&format!("{id}.svg"), &chart)?;
        charts.push(chart);
    }
    put("evaluation.md", &table::markdown(figures, is_quick))?;
    put("report.html", &report::page(figures, &charts, is_quick))
}

/// Returns the table of claims for a terminal.
pub fn summary(figures: &[Figure]) -> String {
    table::text(figures)
}
