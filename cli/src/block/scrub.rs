//! `onepipe block scrub`: compares the replicas of a device that runs.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::block::control::{self, Command, Outcome, ScrubFigures};

const EXAMPLES: &str = "\
Examples:
  onepipe block scrub --data DIR
  onepipe block scrub --data DIR --json

A copy of a block that does not fit its checksum, or lacks a change that the other replicas have, is
written again from one of them. The device goes on meanwhile. The status is 1 if no replica has an
intact copy of some block.";

/// Compare all replicas of a device that is served, and repair them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the device
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
}

/// Scrubs, and prints what was found.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Outcome::Scrubbed(figures) = control::send(&arguments.data, Command::Scrub)? else {
        bail!("the device has answered another command");
    };
    let ScrubFigures { blocks, replicas, damaged, repaired, lost } = figures;
    let mut out = stdout();
    let printed = match arguments.json {
        true => writeln!(out, "{}", serde_json::to_string(&figures)?),
        false => writeln!(
            out,
            "{blocks} blocks of {replicas} replicas: {damaged} damaged copies, {repaired} \
             repaired, {lost} blocks lost"
        ),
    };
    printed.context("cannot print")?;
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
