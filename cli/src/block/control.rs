//! Commands about a replicated device that runs: a line of JSON to its program, and lines back,
//! over a Unix socket in its directory.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use onepipe_block_server::ReplicatedBlocks;
use serde::{Deserialize, Serialize};

/// Name of the socket in the directory of a device.
const SOCKET: &str = "control";
/// Time between two lines about a progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Time that such a line may take to be written.
const PROGRESS_TIMEOUT: Duration = Duration::from_millis(10);
/// Limit on the length of a command.
const COMMAND_BYTES_MAX: u64 = 4_096;

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Compare all replicas, and repair them.
    Scrub,
    /// Fill new files of a replica from the others.
    Replace(u32),
}

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFigures {
    /// Blocks that were compared.
    pub blocks: u64,
    /// Replicas that were compared.
    pub replicas: u64,
    /// Replicas that do not answer, and were not compared.
    pub missing: Vec<usize>,
    /// Copies of blocks that were damaged, or lacked a change.
    pub damaged: u64,
    /// Those that were repaired.
    pub repaired: u64,
    /// Blocks of which no intact copy is known.
    pub lost: u64,
}

/// The answer to a command.
type Answer = Result<Outcome, String>;

/// A line from the program of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    /// How much is done, of how much. An answer follows.
    Progress(u64, u64),
    /// The last line.
    Answer(Answer),
}

/// What a command has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The replicas were compared.
    Scrubbed(ScrubFigures),
    /// The replica has what was acknowledged before the command.
    Replaced,
}

/// Takes commands until it is dropped.
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Takes commands about the device in a directory, whose lock this program holds.
    pub fn serve(directory: &Path, blocks: &Arc<ReplicatedBlocks>) -> Result<Control> {
        let path = directory.join(SOCKET);
        // A program that was killed has left its socket.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)
            .with_context(|| format!("cannot take commands at {}", path.display()))?;
        // The device ends with its clients, not with this thread, which waits until the program
        // ends.
        let blocks = Arc::downgrade(blocks);
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if let Err(error) = answer(stream, &blocks) {
                    tracing::warn!(%error, "a command about a block device is not answered");
                }
            }
        };
        thread::Builder::new().name("block-control".into()).spawn(serve)?;
        Ok(Control { path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn answer(mut stream: UnixStream, blocks: &Weak<ReplicatedBlocks>) -> Result<()> {
    let mut line = String::new();
    BufReader::new((&stream).take(COMMAND_BYTES_MAX)).read_line(&mut line)?;
    let answer: Answer = match (serde_json::from_str(&line), blocks.upgrade()) {
        (Ok(Command::Scrub), Some(blocks)) => scrub(&blocks, &stream),
        (Ok(Command::Replace(replica)), Some(blocks)) => match blocks.replace(replica) {
            Ok(()) => Ok(Outcome::Replaced),
            Err(error) => Err(format!("{:#}", anyhow::Error::new(error))),
        },
        (Ok(_), None) => Err("the device is ending".into()),
        (Err(error), _) => Err(format!("this is no command: {error}")),
    };
    write_line(&mut stream, &Line::Answer(answer))
}

fn write_line(mut stream: impl Write, line: &Line) -> Result<()> {
    writeln!(stream, "{}", serde_json::to_string(line)?)?;
    Ok(())
}

fn scrub(blocks: &ReplicatedBlocks, stream: &UnixStream) -> Answer {
    let mut stream = stream.try_clone().map_err(|error| error.to_string())?;
    // A thread that repairs blocks calls this, and must not wait for a slow terminal.
    stream.set_write_timeout(Some(PROGRESS_TIMEOUT)).map_err(|error| error.to_string())?;
    let mut next = Instant::now();
    let report = blocks.scrub_with(move |done, total| {
        if Instant::now() >= next {
            next = Instant::now() + PROGRESS_INTERVAL;
            // The command may have been interrupted. The scrub goes on.
            let _ = write_line(&mut stream, &Line::Progress(done, total));
        }
    });
    let report = report.map_err(|failure| failure.message.into_owned())?;
    Ok(Outcome::Scrubbed(ScrubFigures {
        blocks: report.blocks,
        replicas: report.replicas,
        missing: report.missing.into_iter().collect(),
        damaged: report.damaged,
        repaired: report.repaired,
        lost: report.lost,
    }))
}

/// Sends a command to the program that serves the device in a directory. Calls `on_progress` with
/// what is done, as a fraction of all.
pub fn send(
    directory: &Path,
    command: Command,
    mut on_progress: impl FnMut(f64),
) -> Result<Outcome> {
    let path = directory.join(SOCKET);
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!(
            "no program serves {}: start `onepipe block serve --data` (`replace` has --offline), \
             or give --process if each replica is a program",
            directory.display()
        )
    })?;
    writeln!(stream, "{}", serde_json::to_string(&command)?)?;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the device does not answer")?;
        match serde_json::from_str(&line).context("the device has ended")? {
            Line::Progress(done, total) => on_progress(done as f64 / total.max(1) as f64),
            Line::Answer(Ok(outcome)) => return Ok(outcome),
            Line::Answer(Err(error)) => bail!("{error}"),
        }
    }
    bail!("the device has ended")
}
