//! `onepipe log append`: appends entries, and prints where they are.

use std::io::{BufRead, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, bail};
use clap::Args;
use onepipe_log::Committed;
use onepipe_log_server::{AppendFailure, LogHandle};

use super::access::AccessArgs;

/// Entries in flight.
const IN_FLIGHT_MAX: usize = 256;

/// Append entries, and print the index of each when it is committed
#[derive(Debug, Args)]
pub struct Arguments {
    /// The entries [default: the lines of standard input]
    #[arg(value_name = "TEXT")]
    entries: Vec<String>,
    /// Process id of this program [default: the number of replicas, and 1]
    #[arg(long, value_name = "ID")]
    process: Option<u32>,
    #[command(flatten)]
    access: AccessArgs,
}

type Outcome = Result<Committed, AppendFailure>;

/// Appends all entries, several at once.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let node = arguments.access.client(arguments.process)?;
    let mut appends = Appends { handle: node.handle(), in_flight: Vec::new() };
    match arguments.entries.is_empty() {
        true => {
            for line in stdin().lock().lines() {
                appends.append(line.context("cannot read standard input")?)?;
            }
        }
        false => arguments.entries.iter().try_for_each(|entry| appends.append(entry.clone()))?,
    }
    while !appends.in_flight.is_empty() {
        appends.finish_first()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The entries in flight, in order.
struct Appends {
    handle: LogHandle,
    in_flight: Vec<Receiver<Outcome>>,
}

impl Appends {
    fn append(&mut self, entry: String) -> Result<()> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            self.finish_first()?;
        }
        let (sender, outcome) = channel();
        let on_committed = move |outcome: Outcome| {
            // The program has ended, if this fails.
            let _ = sender.send(outcome);
        };
        self.handle.append(entry.into_bytes(), Box::new(on_committed));
        self.in_flight.push(outcome);
        Ok(())
    }

    /// Waits for the first entry in flight, and prints its index.
    fn finish_first(&mut self) -> Result<()> {
        let outcome = self.in_flight.remove(0).recv().context("the node has ended")?;
        match outcome {
            Ok(committed) => {
                writeln!(stdout(), "{}", committed.position.index).context("cannot print")
            }
            Err(error) => bail!("an entry was not appended: {error}"),
        }
    }
}
