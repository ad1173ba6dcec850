//! `onepipe block serve`: a device on replicas of this program, one replica of a device, or a file
//! of this machine.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use onepipe_block_server::{
    Address, Blocks, FileBlocks, FileOptions, ReplicatedBlocks, ReplicatedOptions, Server,
    ServerOptions, ServerStats, serve,
};
use onepipe_transport_driver::{Doorbell, Waker};
use serde_json::json;

use crate::args::{self, ServeArgs};
use crate::block::control::Control;
use crate::units;

/// How often the replicas are looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  onepipe block serve --data DIR --size 1GiB            a new device on three replicas, at port 10809
  onepipe block serve --data DIR                        the same device again
  onepipe block scrub --data DIR                        compares its replicas, and repairs them
  onepipe block serve --data DIR --process 0 --udp SWITCH --size 1GiB     one of three replicas
  onepipe block serve --file disk.img --size 1GiB       a local file, not replicated
  onepipe block serve --data DIR --nbd unix:/tmp/disk.socket
  nbdcopy image.raw nbd://127.0.0.1:10809               writes an image to the device
  fio --ioengine=nbd --uri=nbd://127.0.0.1:10809 --name=x --rw=randwrite --bs=4k --size=64M

With --process each replica is a program, which clients may use as well as any other. The device
opens when all have started, and goes on without those that end if the fabric has a controller. The
files of process 0 are in DIR/process-0.

With --data a write is durable in the logs of all replicas before its reply, and requests are
multiples of 4096 bytes. With --file a flush, and a write with forced unit access, is durable before
its reply. Every program that reaches the address can use the device.";

/// Serve a block device on three replicas in this program, one of its replicas, or a file
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[group(id = "where", required = true, multiple = false, args = ["data", "file"])]
pub struct Arguments {
    /// Directory of a replicated device; created if it does not exist
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// File that holds the device, not replicated; created if it does not exist
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Size of a new device, like 1GiB; an existing one keeps its size
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    size: Option<usize>,
    /// Number of replicas of a device in a directory
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=5))]
    #[arg(conflicts_with = "file")]
    replicas: u16,
    /// Serve this replica only, from 0: each is a separate program
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    process: Option<u32>,
    /// Name of the fabric in this machine's shared memory [default: one for each program, or
    /// "block" with --process]
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    fabric: Option<String>,
    /// Address of the switch to join through, instead of shared memory
    #[arg(
        long, value_name = "ADDRESS", requires = "process", conflicts_with = "fabric",
        value_parser = args::checked_address
    )]
    udp: Option<String>,
    /// Address of the aggregator to join through, over any IP network
    #[arg(
        long, value_name = "ADDRESS", requires = "process", conflicts_with_all = ["udp", "fabric"],
        value_parser = args::checked_address
    )]
    overlay: Option<String>,
    /// Where clients connect: HOST:PORT, or unix:PATH; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10809", value_parser = address)]
    nbd: Address,
    /// Name of the device; clients may leave it out
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Refuse writes
    #[arg(long, conflicts_with = "data")]
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

/// A device that is served.
struct Served {
    server: Server,
    /// What the device is, for people.
    what: String,
    /// The replicated device.
    replicas: Option<Arc<ReplicatedBlocks>>,
    /// Takes commands about a replicated device; ends before the device.
    _control: Option<Control>,
}

/// Serves a file.
fn serve_file(arguments: &Arguments, path: &Path) -> Result<Served> {
    let size = arguments.size.map(|size| size as u64);
    let file = FileOptions { size, is_read_only: arguments.read_only, ..FileOptions::default() };
    let blocks = FileBlocks::open(path, file)?;
    let mode = if arguments.read_only { ", read-only" } else { "" };
    let what = format!("{} bytes{mode}, a local file, not replicated", blocks.size());
    let server = start(arguments, path, Arc::new(blocks))?;
    Ok(Served { server, what, replicas: None, _control: None })
}

/// Serves a device on replicas.
fn serve_replicas(arguments: &Arguments, directory: &Path) -> Result<Served> {
    let Arguments { process, fabric, udp, overlay, .. } = arguments;
    let own = || match process {
        Some(_) => "block".into(),
        None => format!("block-{}", std::process::id()),
    };
    let fabric = fabric.clone().unwrap_or_else(own);
    let directory = &process_directory(directory, *process);
    let options = ReplicatedOptions {
        size: arguments.size.map(|size| size as u64),
        replicas: arguments.replicas,
        ..ReplicatedOptions::new(directory.clone(), fabric.clone())
    };
    let blocks = Arc::new(match process {
        Some(process) => {
            let builder = args::builder(*process, (udp.as_deref(), overlay.as_deref()), &fabric);
            ReplicatedBlocks::open_one(&options, *process, builder)
                .with_context(|| format!("cannot serve as process {process}"))?
        }
        None => ReplicatedBlocks::open(&options)?,
    });
    let part = process.map_or(String::new(), |process| format!(", process {process}"));
    let what = format!("{} bytes, replicas {}{part}", blocks.size(), arguments.replicas);
    let control = Control::serve(directory, &blocks)?;
    let server = start(arguments, directory, Arc::clone(&blocks) as Arc<dyn Blocks>)?;
    Ok(Served { server, what, replicas: Some(blocks), _control: Some(control) })
}

fn start(arguments: &Arguments, path: &Path, blocks: Arc<dyn Blocks>) -> Result<Server> {
    let options = ServerOptions {
        export_name: arguments.name.clone(),
        description: path.display().to_string(),
        ..ServerOptions::default()
    };
    Ok(serve(&arguments.nbd, blocks, options)?)
}

/// Returns the directory of a replica that is a program of its own, or that of all replicas.
pub fn process_directory(directory: &Path, process: Option<u32>) -> PathBuf {
    match process {
        Some(process) => directory.join(format!("process-{process}")),
        None => directory.to_path_buf(),
    }
}

/// Serves until the user interrupts the command, or all replicas of this program have ended.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (path, served) = match (&arguments.data, &arguments.file) {
        (Some(directory), _) => (directory, serve_replicas(arguments, directory)?),
        (None, Some(file)) => (file, serve_file(arguments, file)?),
        (None, None) => bail!("give --data DIR or --file PATH"),
    };
    let Served { server, what, replicas, _control } = served;
    let doorbell = Doorbell::new(Arc::new(Unpark(thread::current())));
    let stop = crate::interrupt::stop_flag(doorbell, arguments.serve_args.exit_on_stdin_eof)?;
    let mut out = stdout();
    writeln!(out, "{}: {what}", path.display())
        .and_then(|()| writeln!(out, "nbdinfo '{}'", server.address()))
        .context("cannot print")?;

    let interval = arguments.serve_args.stats_interval.map(Duration::from_nanos);
    let began = Instant::now();
    let mut next_print = interval.map(|interval| began + interval);
    while !stop.load(Ordering::Acquire) {
        if let Some(reason) = replicas.as_ref().and_then(|replicas| replicas.ended()) {
            bail!("the replica has ended: {reason}");
        }
        let watch = replicas.as_ref().map(|_| Instant::now() + WATCH_INTERVAL);
        match [next_print, watch].into_iter().flatten().min() {
            Some(at) => thread::park_timeout(at.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
        if let (Some(at), Some(interval)) = (next_print, interval)
            && at <= Instant::now()
        {
            eprintln!("{}", line(&server.stats()));
            next_print = Some(at + interval);
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
