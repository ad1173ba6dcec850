//! `onepipe block serve`: a device in a file of this machine.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use onepipe_block_server::{
    Address, Blocks, FileBlocks, FileOptions, ServerOptions, ServerStats, serve,
};
use onepipe_transport_driver::{Doorbell, Waker};
use serde_json::json;

use crate::args::{self, ServeArgs};
use crate::units;

const EXAMPLES: &str = "\
Examples:
  onepipe block serve --file disk.img --size 1GiB       a new device, at 127.0.0.1:10809
  onepipe block serve --file disk.img                   the same device again
  onepipe block serve --file disk.img --nbd unix:/tmp/disk.socket
  nbdcopy image.raw nbd://127.0.0.1:10809               writes an image to the device
  fio --ioengine=nbd --uri=nbd://127.0.0.1:10809 --name=x --rw=randwrite --size=64M

A flush, and a write with forced unit access, is durable before its reply. The device is a file of
this machine: it is not replicated yet. Every program that reaches the address can use it.";

/// Serve a file of this machine as a block device; it is not replicated yet
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// File that holds the device; created if it does not exist
    #[arg(long, value_name = "PATH")]
    file: PathBuf,
    /// Size of a new device, like 1GiB; an existing one keeps its size
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    size: Option<usize>,
    /// Where clients connect: HOST:PORT, or unix:PATH; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10809", value_parser = address)]
    nbd: Address,
    /// Name of the device; clients may leave it out
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    serve_args: ServeArgs,
}

/// Ends the wait of the main thread.
struct Unpark(Thread);

impl Waker for Unpark {
    fn ring(&self) {
        self.0.unpark();
    }
}

fn address(text: &str) -> Result<Address> {
    match text.strip_prefix("unix:") {
        Some(path) => {
            ensure!(!path.is_empty(), "{text:?} has no path: write for example unix:/tmp/nbd");
            Ok(Address::Unix(path.into()))
        }
        None => args::address(text).map(Address::Tcp),
    }
}

/// Serves until the user interrupts the command.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let size = arguments.size.map(|size| size as u64);
    let file = FileOptions { size, is_read_only: arguments.read_only, ..FileOptions::default() };
    let blocks = FileBlocks::open(&arguments.file, file)?;
    let size = blocks.size();
    let options = ServerOptions {
        export_name: arguments.name.clone(),
        description: arguments.file.display().to_string(),
        ..ServerOptions::default()
    };
    let server = serve(&arguments.nbd, Arc::new(blocks), options)?;
    let doorbell = Doorbell::new(Arc::new(Unpark(thread::current())));
    let stop = crate::interrupt::stop_flag(doorbell, arguments.serve_args.exit_on_stdin_eof)?;
    let mut out = stdout();
    let path = arguments.file.display();
    let mode = if arguments.read_only { ", read-only" } else { "" };
    writeln!(out, "{path}: {size} bytes{mode}, a local file, not replicated")
        .and_then(|()| writeln!(out, "nbdinfo '{}'", server.address()))
        .context("cannot print")?;

    let interval = arguments.serve_args.stats_interval.map(Duration::from_nanos);
    let began = Instant::now();
    let mut next_print = interval.map(|interval| began + interval);
    while !stop.load(Ordering::Acquire) {
        match (next_print, interval) {
            (Some(at), Some(interval)) => {
                let now = Instant::now();
                if at <= now {
                    eprintln!("{}", line(&server.stats()));
                    next_print = Some(at + interval);
                } else {
                    thread::park_timeout(at - now);
                }
            }
            _ => thread::park(),
        }
    }
    let stats = server.stop();
    let printed = match arguments.serve_args.json {
        true => writeln!(
            out,
            "{}",
            json!({
                "seconds": began.elapsed().as_secs_f64(),
                "connections": stats.connections,
                "reads": stats.reads,
                "read_bytes": stats.read_bytes,
                "writes": stats.writes,
                "written_bytes": stats.written_bytes,
                "flushes": stats.flushes,
                "others": stats.others,
                "failed": stats.failed,
            })
        ),
        false => writeln!(out, "{}", line(&stats)),
    };
    printed.context("cannot print")?;
    Ok(ExitCode::SUCCESS)
}

fn line(stats: &ServerStats) -> String {
    let ServerStats { connections, reads, read_bytes, writes, written_bytes, .. } = stats;
    let ServerStats { flushes, others, failed, .. } = stats;
    format!(
        "{connections} connections, {reads} reads of {read_bytes} bytes, {writes} writes of \
         {written_bytes} bytes, {flushes} flushes, {others} others, {failed} failed"
    )
}
