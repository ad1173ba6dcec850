//! `onepipe block replace`: fills new files of a replica while the device goes on.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::block::control::{self, Command, Outcome};

const EXAMPLES: &str = "\
Examples:
  onepipe block replace --data DIR --replica 1

For a replica whose disk has failed, or whose files are damaged. The files of the replica are removed, and new ones filled from the other replicas. Requests of
clients go on meanwhile; they are replicated on one replica less until the command ends.";

/// Remove the files of a replica, and fill new ones from the others
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the device
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The replica, from 0
    #[arg(long, value_name = "NUMBER")]
    replica: u32,
}

/// Replaces a replica, and prints how long that took.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let began = Instant::now();
    let replica = arguments.replica;
    let Outcome::Replaced = control::send(&arguments.data, Command::Replace(replica))? else {
        bail!("the device has answered another command");
    };
    let seconds = began.elapsed().as_secs_f64();
    writeln!(stdout(), "replica {replica} is filled from the others, in {seconds:.1} s")
        .context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}
