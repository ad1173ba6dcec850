//! `onepipe block scrub`: compares the replicas of a device that runs.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::block::control::{self, Command, Outcome, ScrubFigures};
use crate::block::serve::process_directory;
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  onepipe block scrub --data DIR
  onepipe block scrub --data DIR --json
  onepipe block scrub --data DIR --process 0     each replica is a program; process 0 compares all

All replicas are compared as of the last write that was acknowledged before. A copy of a block that
does not fit its checksum, or lacks a change that the other replicas have, is written again from one
of them. The device goes on meanwhile. Replicas that do not answer for 5 seconds are left out, and
named. The status is 1 if no replica has an intact copy of some block.";

/// Compare all replicas of a device that is served, and repair them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the device
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The program that compares, if the replicas are separate programs: any that runs here
    #[arg(long, value_name = "ID")]
    process: Option<u32>,
    /// Print the figures as one JSON object
    #[arg(long)]
    json: bool,
}

/// Scrubs, and prints what was found.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let directory = process_directory(&arguments.data, arguments.process);
    let mut bar = Progress::new();
    let show = |done| bar.show(done, "blocks are compared");
    let Outcome::Scrubbed(figures) = control::send(&directory, Command::Scrub, show)? else {
        bail!("the device has answered another command");
    };
    drop(bar);
    let ScrubFigures { blocks, replicas, missing, damaged, repaired, lost } = &figures;
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
    for replica in missing {
        eprintln!("replica {replica} does not answer, and was not compared: start it");
    }
    Ok(if *lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
