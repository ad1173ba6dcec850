//! `onepipe log append`: appends entries, and prints where they are.

use std::io::{self, BufRead, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context, Result};
use clap::Args;
use onepipe_log::Committed;
use onepipe_log_server::AppendFailure;

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

/// What happens next.
enum Event {
    Entry(io::Result<String>),
    /// There are no more entries.
    End,
    Appended(Result<Committed, AppendFailure>),
}

/// Appends all entries, several at once, and prints their indices as they are committed.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let node = arguments.access.client(arguments.process)?;
    let handle = node.handle();
    let (sender, events) = channel();
    let (permits, permitted) = channel();
    (0..IN_FLIGHT_MAX).try_for_each(|_| permits.send(())).context("nothing has ended yet")?;
    let (entries, to_main) = (arguments.entries.clone(), sender.clone());
    // Nothing is returned if the main thread has ended.
    thread::spawn(move || feed(entries, &to_main, &permitted));
    let (mut in_flight, mut is_at_end) = (0, false);
    while !is_at_end || in_flight > 0 {
        match events.recv().context("the node has ended")? {
            Event::Entry(entry) => {
                let entry = entry.context("cannot read standard input")?;
                let sender = sender.clone();
                let on_committed = move |result| {
                    // The program has ended, if this fails.
                    let _ = sender.send(Event::Appended(result));
                };
                handle.append(entry.into_bytes(), Box::new(on_committed));
                in_flight += 1;
            }
            Event::End => is_at_end = true,
            Event::Appended(result) => {
                let committed = result.context("an entry was not appended")?;
                writeln!(stdout(), "{}", committed.position.index).context("cannot print")?;
                in_flight -= 1;
                // There may be no more entries.
                let _ = permits.send(());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends all entries: those given, or the lines of standard input. Each needs a permit.
fn feed(entries: Vec<String>, to: &Sender<Event>, permitted: &Receiver<()>) -> Option<()> {
    let send = |entry| {
        permitted.recv().ok()?;
        to.send(Event::Entry(entry)).ok()
    };
    if entries.is_empty() {
        stdin().lock().lines().try_for_each(send)?;
    } else {
        entries.into_iter().map(Ok).try_for_each(send)?;
    }
    to.send(Event::End).ok()
}
