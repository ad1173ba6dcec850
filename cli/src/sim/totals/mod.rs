//! `onepipe sim totals`: adds up the results of `onepipe sim fuzz`, and prints them as tables.

mod page;
mod results;
mod table;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

pub use results::{Results, Subject, check_unused, this_build};

const EXAMPLES: &str = "\
Examples:
  onepipe sim totals docs/results/fuzz.json
  onepipe sim totals --json fuzz.json | tail -n 1
  onepipe sim totals shard-*.json --into fuzz.json     adds the shards to what fuzz.json holds
  onepipe sim totals fuzz.json --page fuzz.md          replaces what the page has under \"## Totals\"

The files are those that `onepipe sim fuzz --totals` writes. No build runs a seed twice: a file whose
seeds are in another one is refused.";

/// Add up the results of `onepipe sim fuzz`, by build, service and kind of fault
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Files with results
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Add the results to those of this file, and print their sum
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Replace the tables under "## Totals" of this page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Print the totals as one JSON object
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut sum = Results::default();
    for file in &arguments.files {
        sum.add(Results::read(file)?, file)?;
    }
    if let Some(into) = &arguments.into {
        sum = Results::update(into, sum)?;
    }
    let tables = table::tables(&sum);
    if let Some(path) = &arguments.page {
        page::replace(path, &tables)?;
    }
    let mut out = stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &table::json(&sum))?;
        writeln!(out)?;
    } else {
        write!(out, "{tables}")?;
    }
    Ok(ExitCode::SUCCESS)
}
