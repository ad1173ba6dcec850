//! Measures a part and its yardstick alternately.

use anyhow::{Context, Result, ensure};

use crate::{Case, Detail, Digest, Hardware, Report};

/// Minimum number of runs of each side for which a median is reported.
pub const RUNS_MIN: usize = 3;

/// The direction in which a measured number is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// For rates: a higher number is better.
    Higher,
    /// For times: a lower number is better.
    Lower,
}

/// Position of a running benchmark, for a progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The case being measured.
    pub case: &'a str,
    /// Runs done so far, of both sides together.
    pub done: usize,
    /// Runs of this case, of both sides together.
    pub total: usize,
}

/// Runs the cases of one benchmark and collects their report.
pub struct Harness<'p> {
    report: Report,
    runs: usize,
    progress: Box<dyn FnMut(Progress<'_>) + 'p>,
}

impl<'p> Harness<'p> {
    /// Creates a benchmark; `about` describes in a sentence what is measured and the yardstick.
    pub fn new(bench: &str, about: &str) -> Self {
        Self {
            report: Report {
                bench: bench.to_string(),
                about: about.to_string(),
                machine: Hardware::detect(),
                results: Vec::new(),
            },
            runs: 5,
            progress: Box::new(|_| {}),
        }
    }

    /// Sets the number of runs of each side of a case; at least [`RUNS_MIN`], 5 by default.
    #[must_use]
    pub fn with_runs(mut self, runs: usize) -> Self {
        self.runs = runs.max(RUNS_MIN);
        self
    }

    /// Calls `progress` before every run.
    #[must_use]
    pub fn with_progress(mut self, progress: impl FnMut(Progress<'_>) + 'p) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Runs the part and the yardstick alternately (A B A B …), so that both see the same load of
    /// the machine, and adds their medians to the report.
    pub fn measure(
        &mut self,
        case: &str,
        unit: &str,
        better: Better,
        mut part: impl FnMut() -> Result<f64>,
        mut yardstick: impl FnMut() -> Result<f64>,
    ) -> Result<&Case> {
        let mut values = Vec::with_capacity(self.runs);
        let mut yardsticks = Vec::with_capacity(self.runs);
        let total = 2 * self.runs;
        for run in 0..self.runs {
            (self.progress)(Progress { case, done: 2 * run, total });
            values.push(checked(part()).with_context(|| format!("measuring {case}"))?);
            (self.progress)(Progress { case, done: 2 * run + 1, total });
            let number = checked(yardstick());
            yardsticks.push(number.with_context(|| format!("yardstick of {case}"))?);
        }
        (self.progress)(Progress { case, done: total, total });
        values.sort_by(f64::total_cmp);
        yardsticks.sort_by(f64::total_cmp);
        let (value, yardstick) = (median(&values), median(&yardsticks));
        self.report.results.push(Case {
            case: case.to_string(),
            value,
            unit: unit.to_string(),
            yardstick,
            ratio: match better {
                Better::Higher => value / yardstick,
                Better::Lower => yardstick / value,
            },
            min: values[0],
            max: values[values.len() - 1],
            runs: self.runs,
            digests: Vec::new(),
            details: Vec::new(),
        });
        Ok(&self.report.results[self.report.results.len() - 1])
    }

    /// Sets the digests of the case that was measured last.
    pub fn digests(&mut self, digests: Vec<Digest>) {
        if let Some(case) = self.report.results.last_mut() {
            case.digests = digests;
        }
    }

    /// Sets the details of the case that was measured last.
    pub fn detail(&mut self, details: Vec<Detail>) {
        if let Some(case) = self.report.results.last_mut() {
            case.details = details;
        }
    }

    /// Returns the report of all cases.
    pub fn finish(self) -> Report {
        self.report
    }
}

/// Checks that a ratio can be formed with this number.
fn checked(number: Result<f64>) -> Result<f64> {
    let number = number?;
    ensure!(number.is_finite() && number > 0.0, "{number} is no measurement");
    Ok(number)
}

/// Returns the median of ascending numbers.
fn median(ascending: &[f64]) -> f64 {
    let middle = ascending.len() / 2;
    match ascending.len() % 2 {
        0 => f64::midpoint(ascending[middle - 1], ascending[middle]),
        _ => ascending[middle],
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn alternates_sides_and_reports_medians() {
        let log = RefCell::new(String::new());
        let mut seen = Vec::new();
        let mut harness = Harness::new("b", "about")
            .with_runs(3)
            .with_progress(|progress| seen.push((progress.done, progress.total)));
        let (mut parts, mut yardsticks) = (vec![9.0, 1.0, 4.0], vec![2.0, 1.0, 90.0]);
        let part = || {
            log.borrow_mut().push('A');
            Ok(parts.pop().expect("three runs"))
        };
        let yardstick = || {
            log.borrow_mut().push('B');
            Ok(yardsticks.pop().expect("three runs"))
        };
        let case = harness.measure("n=1", "/s", Better::Higher, part, yardstick).expect("runs");
        assert_eq!((case.value, case.min, case.max), (4.0, 1.0, 9.0));
        assert_eq!((case.yardstick, case.ratio, case.runs), (2.0, 2.0, 3));
        drop(harness);
        assert_eq!(log.into_inner(), "ABABAB");
        assert_eq!(seen, (0..=6).map(|done| (done, 6)).collect::<Vec<_>>());
    }

    #[test]
    fn lower_time_has_ratio_above_one() {
        let mut harness = Harness::new("b", "about");
        let case = harness.measure("n=1", "us", Better::Lower, || Ok(2.0), || Ok(5.0));
        assert_eq!(case.expect("runs").ratio, 2.5);
    }

    #[test]
    fn failing_side_fails_benchmark() {
        let mut harness = Harness::new("b", "about");
        let wrong = || anyhow::bail!("out of order");
        assert!(harness.measure("n=1", "us", Better::Lower, || Ok(1.0), wrong).is_err());
        assert!(harness.measure("n=1", "us", Better::Lower, || Ok(0.0), || Ok(1.0)).is_err());
    }
}
