//! Reports of benchmarks: JSON for programs, a table for people.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Hardware;

/// Result of one benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the benchmark.
    pub bench: String,
    /// What is measured, and the yardstick, in a sentence.
    pub about: String,
    /// The hardware.
    pub machine: Hardware,
    /// One entry per case, in the order of measurement.
    pub results: Vec<Case>,
}

/// Result of one case: the part against its yardstick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// Parameters: a list like `nodes=256 load=0.9 batch=64`.
    pub case: String,
    /// Median over the runs of the part.
    pub value: f64,
    /// Unit of all numbers but `ratio` and `runs`.
    pub unit: String,
    /// Median over the runs of the yardstick.
    pub yardstick: f64,
    /// How many times better than the yardstick: above 1 is better for rates and times alike.
    pub ratio: f64,
    /// Least value of a run of the part.
    pub min: f64,
    /// Greatest value of a run of the part.
    pub max: f64,
    /// Number of runs of each side.
    pub runs: usize,
    /// Digests of what the part and the yardstick computed, where they must agree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<Digest>,
    /// Further numbers of the case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// A digest of what one side of a case computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// The side.
    pub name: String,
    /// 16 hexadecimal digits.
    pub digest: String,
}

/// A further number of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// Name of the number.
    pub name: String,
    /// Mean over the runs of the part.
    pub value: f64,
    /// Unit of the number.
    pub unit: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n{}", self.bench, self.about, self.machine)?;
        let width = self.results.iter().map(|case| case.case.len()).max().unwrap_or(0).max(4);
        writeln!(
            f,
            "{:width$}  {:>14}  {:>14}  {:>14}  {:>14}  {:>6}  runs",
            "case", "value", "min", "max", "yardstick", "ratio"
        )?;
        for case in &self.results {
            write!(f, "{:width$}", case.case)?;
            for number in [case.value, case.min, case.max, case.yardstick] {
                write!(f, "  {:>14}", readable(number, &case.unit))?;
            }
            writeln!(f, "  {:>6.2}  {}", case.ratio, case.runs)?;
            let digests = case.digests.iter();
            let digests = digests.map(|side| format!("{}: history {}", side.name, side.digest));
            let digests: Vec<String> = digests.collect();
            if !digests.is_empty() {
                writeln!(f, "    {}", digests.join(" · "))?;
            }
            let details: Vec<String> = (case.details.iter())
                .map(|detail| format!("{} {}", detail.name, readable(detail.value, &detail.unit)))
                .collect();
            if !details.is_empty() {
                writeln!(f, "    {}", details.join(" · "))?;
            }
        }
        Ok(())
    }
}

/// Formats a number with three or four significant digits, with k, M or G before the unit of a rate
/// or a count.
fn readable(number: f64, unit: &str) -> String {
    let takes_prefix = unit.ends_with("/s") || unit.is_empty();
    let (scaled, prefix) = match number.abs() {
        size if takes_prefix && size >= 1e9 => (number / 1e9, "G "),
        size if takes_prefix && size >= 1e6 => (number / 1e6, "M "),
        size if takes_prefix && size >= 1e4 => (number / 1e3, "k "),
        _ => (number, ""),
    };
    let decimals = match scaled.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_with_units() {
        assert_eq!(readable(81_234_567.0, "msg/s"), "81.2 M msg/s");
        assert_eq!(readable(0.456, "us"), "0.46 us");
        assert_eq!(readable(12_345.0, "us"), "12345 us");
    }

    #[test]
    fn json_has_documented_keys() {
        let case = Case {
            case: "senders=1".to_string(),
            value: 2.0,
            unit: "msg/s".to_string(),
            yardstick: 1.0,
            ratio: 2.0,
            min: 1.5,
            max: 2.5,
            runs: 3,
            digests: Vec::new(),
            details: Vec::new(),
        };
        let machine = Hardware { cpu: "some".to_string(), cores: 2, kernel: "some 1".to_string() };
        let report =
            Report { bench: "x".to_string(), about: String::new(), machine, results: vec![case] };
        let json = serde_json::to_value(&report).expect("a report is plain data");
        let keys: Vec<_> =
            json["results"][0].as_object().expect("a case is an object").keys().collect();
        let mut expected = ["case", "value", "unit", "yardstick", "ratio", "min", "max", "runs"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert!(json["bench"].is_string() && json["machine"].is_object());
        let read: Report = serde_json::from_value(json).expect("what was written can be read");
        assert_eq!(read, report);
    }
}
