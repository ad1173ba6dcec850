//! The points as CSV.

use std::fmt::Write;

use super::Figure;
use crate::experiment::value_at;

/// Returns `curve,x,ours,paper` and all other measured values.
pub(super) fn rows(figure: &Figure) -> String {
    let experiment = &figure.experiment;
    let mut names: Vec<&str> = Vec::new();
    for (_, values) in figure.measured.curves.values().flatten() {
        names.extend(values.keys().map(String::as_str));
    }
    names.sort_unstable();
    names.dedup();
    let mut text = format!("curve,x,ours,paper,{}\n", names.join(","));
    for curve in &experiment.curves {
        for (x, values) in figure.measured.curves.get(curve.name).into_iter().flatten() {
            let number =
                |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            let ours = number(value_at(experiment.metric, *x, values));
            let paper = curve.column.and_then(|column| experiment.reference.at(column, *x));
            let rest: Vec<String> =
                names.iter().map(|name| number(values.get(*name).copied())).collect();
            // Writing to a string cannot fail.
            let (name, paper, rest) = (quoted(curve.name), number(paper), rest.join(","));
            let _ = writeln!(text, "{name},{x},{ours},{paper},{rest}");
        }
    }
    text
}

/// Returns a name as a cell.
fn quoted(name: &str) -> String {
    match name.contains(',') {
        true => format!("\"{name}\""),
        false => name.to_owned(),
    }
}
