//! What is left in the directory when all is run.

mod chart;
mod csv;
mod report;
mod table;

use std::path::Path;

use anyhow::{Context, Result};

pub use self::table::{Line, lines};

use crate::Experiment;
use crate::experiment::Measured;

/// An experiment with what was measured.
#[derive(Debug)]
pub struct Figure {
    /// What was asked.
    pub experiment: Experiment,
    /// What came out.
    pub measured: Measured,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// Writes `ID.csv` and `ID.svg` of each figure, `report.html` and `evaluation.md`.
///
/// # Errors
/// When something cannot be drawn or written.
pub fn write(directory: &Path, figures: &[Figure], is_quick: bool) -> Result<()> {
    let put = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let mut charts = Vec::new();
    for figure in figures {
        let id = figure.experiment.id;
        let chart = chart::draw(figure).with_context(|| format!("drawing figure {id}"))?;
        put(&format!("{id}.csv"), &csv::rows(figure))?;
        put(&format!("{id}.svg"), &chart)?;
        charts.push(chart);
    }
    put("evaluation.md", &table::markdown(figures, is_quick))?;
    put("report.html", &report::page(figures, &charts, is_quick))
}

/// The table of claims, for people at a terminal.
pub fn summary(figures: &[Figure]) -> String {
    table::text(figures)
}
