//! `onepipe kv repair`: completes damaged logs from those of other replicas and shards.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_kv_server::{RepairedLog, repair};
use serde_json::json;

/// Repair the damaged logs of a store that no program uses
///
/// Each log that `onepipe kv serve` refuses as damaged is replaced by what precedes the damage, and
/// by what the logs of other replicas and shards hold after that, or by the snapshot and the log of
/// another replica of its shard. The damaged log remains beside it. If writes that may have been
/// acknowledged are in no log, nothing is changed.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Directory of the store
    #[arg(long, value_name = "DIR", env = "ONEPIPE_KV_DATA")]
    data: PathBuf,
    /// Repair also if writes are lost that may have been acknowledged
    #[arg(long)]
    accept_loss: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Repairs the store, and prints what was replaced.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let data = arguments.data.display();
    let repaired = repair(&arguments.data, arguments.accept_loss)
        .with_context(|| format!("cannot repair the store in {data}"))?;
    let mut out = stdout().lock();
    let printed = match (arguments.json, repaired.is_empty()) {
        (true, _) => {
            let logs: Vec<_> = repaired.iter().map(to_json).collect();
            writeln!(out, "{}", json!({ "repaired": logs }))
        }
        (false, true) => writeln!(out, "all logs in {data} are intact"),
        (false, false) => repaired.iter().try_for_each(|log| writeln!(out, "{}", line(log))),
    };
    printed.context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

fn line(log: &RepairedLog) -> String {
    let RepairedLog { directory, copied_from, retained, added, lost, copy, .. } = log;
    let (directory, copy) = (directory.display(), copy.display());
    let retained = match copied_from {
        Some(from) => format!("{retained} writes from {}", from.display()),
        None => format!("{retained} writes before the damage"),
    };
    let lost = lost.map_or("an unknown number".into(), |lost| lost.to_string());
    format!(
        "{directory}: {retained}, {added} from other logs, {lost} lost; the damaged log is {copy}"
    )
}

fn to_json(log: &RepairedLog) -> serde_json::Value {
    let RepairedLog { directory, damage, copied_from, retained, added, lost, copy } = log;
    json!({
        "directory": directory,
        "damage": damage,
        "copied_from": copied_from,
        "retained": retained,
        "added": added,
        "lost": lost,
        "copy": copy,
    })
}
