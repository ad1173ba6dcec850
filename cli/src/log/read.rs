//! `onepipe log read`: prints committed entries.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use super::access::AccessArgs;

/// Time between two looks for more entries.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// Print committed entries, each with its index
#[derive(Debug, Args)]
pub struct Arguments {
    /// Index of the first entry
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    from: u64,
    /// Wait for more entries at the end
    #[arg(long)]
    follow: bool,
    /// Process id of this program [default: the number of replicas, and 1]
    #[arg(long, value_name = "ID")]
    process: Option<u32>,
    #[command(flatten)]
    access: AccessArgs,
}

/// Prints entries until there are no more, or the user interrupts the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let node = arguments.access.client(arguments.process)?;
    let (handle, mut index) = (node.handle(), arguments.from);
    let mut out = stdout().lock();
    loop {
        let (sender, read) = channel();
        let on_entries = move |result| {
            // The program has ended, if this fails.
            let _ = sender.send(result);
        };
        handle.read(index, Box::new(on_entries));
        let read = read.recv().context("the node has ended")?.context("cannot read the log")?;
        for entry in &read.entries {
            let text = String::from_utf8_lossy(&entry.payload);
            writeln!(out, "{index} {text}").context("cannot print")?;
            index += 1;
        }
        match (read.entries.is_empty(), arguments.follow) {
            (true, true) => thread::sleep(FOLLOW_INTERVAL),
            (true, false) => return Ok(ExitCode::SUCCESS),
            (false, _) => {}
        }
    }
}
