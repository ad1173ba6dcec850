//! The tables of results, as aligned Markdown, and the same as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use onepipe_sim_engine::{Tally, Totals};
use serde::Serialize;

use super::results::{Entry, Range, Results};

/// Columns of every table: the counts of a [`Tally`].
const COUNTS: [&str; 7] = [
    "seeds",
    "scheduled faults",
    "deliveries checked",
    "of these reliable",
    "violations",
    "failures reported",
    "processor s",
];

/// The results of one service over all builds, in the JSON output.
type ByService<'a> = BTreeMap<&'a str, Totals>;

/// The JSON output.
#[derive(Serialize)]
pub struct Json<'a> {
    all: Tally,
    services: ByService<'a>,
    builds: &'a [Entry],
}

/// Returns the JSON output.
pub fn json(results: &Results) -> Json<'_> {
    let mut all = Tally::default();
    results.entries.iter().for_each(|entry| all.add(&entry.totals.all));
    Json { all, services: by_service(results), builds: &results.entries }
}

fn by_service(results: &Results) -> ByService<'_> {
    let mut services = ByService::new();
    for entry in &results.entries {
        services.entry(entry.subject.service.as_str()).or_default().add(&entry.totals);
    }
    services
}

/// Returns the tables: by build, and by kind of fault.
pub fn tables(results: &Results) -> String {
    let Json { all, services, builds } = json(results);
    let mut by_build = Table::new(&["service", "build", "first to last seed"]);
    for Entry { subject, ranges, totals, .. } in builds {
        by_build.row(&[&subject.service, &subject.build, &range_text(ranges)], &totals.all);
    }
    for (service, totals) in &services {
        by_build.row(&[service, "all", ""], &totals.all);
    }
    by_build.row(&["all", "all", ""], &all);
    let mut by_kind = Table::new(&["service", "seeds with this fault"]);
    for (service, totals) in &services {
        for (kind, tally) in &totals.kinds {
            by_kind.row(&[service, kind], tally);
        }
    }
    let mut text = by_build.markdown() + "\n" + &by_kind.markdown();
    for entry in builds.iter().filter(|entry| !entry.failing.is_empty()) {
        let seeds: Vec<String> = entry.failing.iter().map(u64::to_string).collect();
        let (service, build) = (&entry.subject.service, &entry.subject.build);
        let _ =
            write!(text, "\nFailing seeds of {service}, build {build}: {}.\n", seeds.join(", "));
    }
    text
}

fn range_text(ranges: &[Range]) -> String {
    let ranges: Vec<String> =
        ranges.iter().map(|range| format!("{} to {}", range.first, range.last)).collect();
    ranges.join(", ")
}

/// A Markdown table whose columns are aligned, so that a terminal shows it as well.
struct Table {
    /// Number of the first columns, which are text; all others are numbers.
    texts: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(texts: &[&str]) -> Self {
        let head = texts.iter().chain(&COUNTS).map(|title| (*title).to_owned());
        Self { texts: texts.len(), rows: vec![head.collect()] }
    }

    fn row(&mut self, texts: &[&str], tally: &Tally) {
        let Tally { seeds, faults, deliveries, reliable, violations, failures, processor_us } =
            *tally;
        let seconds = processor_us.div_ceil(1_000_000);
        let counts = [seeds, faults, deliveries, reliable, violations, failures, seconds];
        let texts = texts.iter().map(|text| (*text).to_owned());
        self.rows.push(texts.chain(counts.map(grouped)).collect());
    }

    fn markdown(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].len()).max();
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        let is_text = |column: usize| column < self.texts;
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = match is_text(column) {
                    true => write!(text, "| {cell:<width$} "),
                    false => write!(text, "| {cell:>width$} "),
                };
            }
            text.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let end = if is_text(column) { '-' } else { ':' };
                    let _ = write!(text, "|{}{end}", "-".repeat(width + 1));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// Formats a number with a comma after every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_digits_by_thousands() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
