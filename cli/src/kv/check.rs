//! `onepipe kv check`: judges a recorded history.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_history::{Report, Verdict, check_file};
use serde_json::json;

/// Check a recorded history of transactions: serializability, linearizability, durability
///
/// A history is a file of JSON lines, one for each beginning and end of a transaction, with the
/// operations that Elle knows: ["append",key,element], ["w",key,value], ["r",key,found].
#[derive(Debug, Args)]
pub struct Arguments {
    /// The history
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the verdicts. Fails if a check found an anomaly or was undecided.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let path = arguments.file.display();
    let report = check_file(&arguments.file).with_context(|| format!("cannot check {path}"))?;
    let mut out = stdout().lock();
    let printed = match arguments.json {
        true => writeln!(out, "{}", to_json(&report)),
        false => writeln!(out, "{report}"),
    };
    printed.context("cannot print")?;
    Ok(if report.is_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn to_json(report: &Report) -> serde_json::Value {
    let verdict = |verdict: &Verdict| match verdict {
        Verdict::Valid => json!({"verdict": "valid"}),
        Verdict::Undecided(reason) => json!({"verdict": "undecided", "reason": reason}),
        Verdict::Violated(anomalies) => {
            let anomaly = |anomaly: &onepipe_history::Anomaly| json!({"kind": anomaly.kind.to_string(), "explanation": anomaly.explanation});
            let anomalies: Vec<_> = anomalies.iter().map(anomaly).collect();
            json!({"verdict": "violated", "anomalies": anomalies})
        }
    };
    json!({
        "valid": report.is_valid(),
        "strict_serializability": verdict(&report.strict),
        "session_serializability": verdict(&report.session),
        "serializability": verdict(&report.serializable),
        "linearizability": verdict(&report.linearizable),
        "durability": report.durable.as_ref().map(verdict),
    })
}
