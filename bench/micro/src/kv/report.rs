//! Reports of several sides under several loads: JSON for programs, a table for people.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Hardware;

/// Result of one benchmark of the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvReport {
    /// Name of the benchmark.
    pub bench: String,
    /// What is measured, in a sentence.
    pub about: String,
    /// The hardware.
    pub machine: Hardware,
    /// Number of rounds; all figures are medians over them.
    pub runs: usize,
    /// One entry per load, in the order of measurement.
    pub loads: Vec<KvLoad>,
    /// What was checked beside the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// All sides under one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvLoad {
    /// The load.
    pub load: String,
    /// What each side did.
    pub sides: Vec<KvSide>,
}

/// One side under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KvSide {
    /// Name of the side.
    pub side: String,
    /// The reply with which the side refuses the load. All figures are absent then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Requests, or transactions, per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Least rate of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_min: Option<f64>,
    /// Greatest rate of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<f64>,
    /// Median latency, in us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, in us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// CPU time of all processes of the side for each request, in us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Requests per second of CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_core: Option<f64>,
    /// The side with which this one is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yardstick: Option<String>,
    /// Rate, as a multiple of the yardstick's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_ratio: Option<f64>,
    /// Rate per core, as a multiple of the yardstick's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_core_ratio: Option<f64>,
}

impl fmt::Display for KvReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n{}, {} rounds", self.bench, self.about, self.machine, self.runs)?;
        let sides = || self.loads.iter().flat_map(|load| &load.sides);
        let width = sides().map(|side| side.side.len()).max().unwrap_or(0);
        for load in &self.loads {
            writeln!(f, "\n{}", load.load)?;
            let names = ["rate/s", "p50 us", "p99 us", "CPU us", "/s a core", "rate x", "core x"];
            write!(f, "  {:width$}", "")?;
            names.iter().try_for_each(|name| write!(f, "  {name:>9}"))?;
            writeln!(f)?;
            load.sides.iter().try_for_each(|side| line(f, side, width))?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

fn line(f: &mut fmt::Formatter<'_>, side: &KvSide, width: usize) -> fmt::Result {
    write!(f, "  {:width$}", side.side)?;
    if let Some(refused) = &side.refused {
        return writeln!(f, "  refused: {refused}");
    }
    let whole = |number: Option<f64>| number.map(|number| format!("{number:.0}"));
    let exact = |number: Option<f64>| number.map(|number| format!("{number:.2}"));
    let cells = [
        whole(side.rate),
        whole(side.p50_us),
        whole(side.p99_us),
        exact(side.cpu_us),
        whole(side.rate_per_core),
        exact(side.rate_ratio),
        exact(side.per_core_ratio),
    ];
    for cell in cells {
        write!(f, "  {:>9}", cell.unwrap_or_default())?;
    }
    match &side.yardstick {
        Some(yardstick) => writeln!(f, "  {yardstick}"),
        None => writeln!(f),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_figures_refusals_and_notes() {
        let ours = KvSide {
            side: "ours".into(),
            rate: Some(2_000.0),
            cpu_us: Some(1.5),
            yardstick: Some("theirs".into()),
            rate_ratio: Some(0.5),
            ..KvSide::default()
        };
        let refused = Some("CROSSSLOT no".to_string());
        let theirs = KvSide { side: "theirs".into(), refused, ..KvSide::default() };
        let machine = Hardware { cpu: "some".into(), cores: 2, kernel: "some 1".into() };
        let report = KvReport {
            bench: "kv redis".into(),
            about: "about".into(),
            machine,
            runs: 3,
            loads: vec![KvLoad { load: "SET".into(), sides: vec![ours, theirs] }],
            notes: vec!["all well".into()],
        };
        let text = report.to_string();
        let words = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.trim_start().starts_with(start));
            line.unwrap_or_else(|| panic!("{start}: {text}")).split_whitespace().collect()
        };
        assert_eq!(words("ours"), ["ours", "2000", "1.50", "0.50", "theirs"]);
        assert_eq!(words("theirs"), ["theirs", "refused:", "CROSSSLOT", "no"]);
        assert!(text.ends_with("\nall well\n"), "{text}");
        let json = serde_json::to_value(&report).expect("a report is plain data");
        assert_eq!(json["loads"][0]["sides"][1].get("rate"), None, "{json}");
        assert_eq!(serde_json::from_value::<KvReport>(json).expect("it was written"), report);
    }
}
