//! `onepipe block replace`: fills new files of a replica while the device goes on, or lets one
//! whose files are lost get everything from the others when it starts.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe_block_server::replace_offline;

use crate::block::control::{self, Command, Outcome};
use crate::block::serve::process_directory;

const EXAMPLES: &str = "\
Examples:
  onepipe block replace --data DIR --replica 1               the device is served
  onepipe block replace --data DIR --replica 1 --offline     it is not
  onepipe block replace --data DIR --process 1               process 1 is not running

For a replica whose disk has failed, or whose files are damaged or lost. What is left of its files
is removed, and new ones are filled from the other replicas: at once while the device is served,
otherwise when it starts again. Requests of clients go on meanwhile; they are replicated on one
replica less until the new files are filled.

The log of a replica that is not running may have the last writes alone, if the replica had gone on
after all others had ended. Such writes are lost. In all other cases none is.";

/// Remove the files of a replica, and fill new ones from the others
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Directory of the device
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The replica of a device whose replicas are in one program, from 0
    #[arg(long, value_name = "NUMBER", required_unless_present = "process")]
    replica: Option<u32>,
    /// The replica of a device whose replicas are separate programs; this one is not running
    #[arg(long, value_name = "ID", conflicts_with_all = ["replica", "offline"])]
    process: Option<u32>,
    /// No program serves the device: the files are filled when one does
    #[arg(long)]
    offline: bool,
}

/// Replaces a replica, and prints how long that took.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let began = Instant::now();
    let Arguments { data, replica, process, offline } = arguments;
    let Some(replica) = replica.or(*process) else { bail!("give --replica or --process") };
    let text = if *offline || process.is_some() {
        replace_offline(&process_directory(data, *process), replica)?;
        format!("replica {replica} is empty: start it, and it is filled from the others")
    } else {
        let Outcome::Replaced = control::send(data, Command::Replace(replica), |_| {})? else {
            bail!("the device has answered another command");
        };
        let seconds = began.elapsed().as_secs_f64();
        format!("replica {replica} is filled from the others, in {seconds:.1} s")
    };
    writeln!(stdout(), "{text}").context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}
