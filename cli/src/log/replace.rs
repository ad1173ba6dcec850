//! `onepipe log replace`: lets a replica whose directory is lost get everything from the others.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onepipe::ProcessId;
use onepipe_log_server::replace_replica;

const EXAMPLES: &str = "\
Examples:
  onepipe log replace --data D --replica 1
  onepipe log serve --data D --process 1

For a replica that does not run, and whose disk or directory is lost. Without this command it does
not start, as nothing would say whether the others lack what it had. What its directory has left is
removed. If the others have ended, too, the log goes on without what the replica had stored.

That is safe unless the replica had gone on alone after all others had ended: entries that were
committed since are lost then.";

/// Remove what a replica has left; when it starts, it gets everything from the others
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the log
    #[arg(long, value_name = "DIR", env = "ONEPIPE_LOG_DATA")]
    data: PathBuf,
    /// The replica, from 0
    #[arg(long, value_name = "NUMBER")]
    replica: u32,
}

/// Replaces a replica.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { data, replica } = arguments;
    replace_replica(data, ProcessId(*replica))?;
    writeln!(stdout(), "replica {replica} is empty: start it, and it gets the log of the others")
        .context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}
