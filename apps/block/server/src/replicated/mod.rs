//! A device whose blocks are on several replicas, which apply one log.
//!
//! A write is an entry of the log, and complete when all replicas have stored it there: then it is
//! durable, so a flush has nothing to do. Each replica applies committed entries to its image. A
//! read is answered by any replica that has applied what was acknowledged before.
//!
//! The replicas run in one program, or each in one of its own, with a front for clients. A front
//! does not know what the others have acknowledged: it asks its node what a read must see.

mod appends;
mod identity;
mod nodes;
mod reads;
mod repair_driver;
mod repairer;
mod replace;
mod restart;
mod scrub;
mod state;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use onepipe::{Builder, ProcessId};
use onepipe_block::{BlockSizes, Command, ErrorCode, Extent, Failure, Outcome, Range};
use onepipe_block_replica::{BLOCK_LEN, CHANGE_OVERHEAD, Change, ImageOptions};
use onepipe_journal::{Directory, OpenError};
use onepipe_log_server::NodeError;

use crate::blocks::{Blocks, Completion, Reply};
use crate::workers::Workers;
use appends::Appends;
use nodes::Nodes;
pub use reads::RepairStats;
use reads::{Access, Reads};
use repairer::Repairer;
pub use replace::{ReplaceError, replace_offline};

/// Blocks of which one reply to a query of the status says whether they are zero.
const STATUS_BLOCKS_MAX: u64 = 1 << 15;
/// Pause between two looks at replicas that start.
const START_PAUSE: Duration = Duration::from_millis(50);
/// Time after which the replicas for which the device waits are logged.
const LOG_AFTER: Duration = Duration::from_secs(2);
/// Directory of the logs.
const LOG: &str = "log";

/// How a replicated device runs.
#[derive(Clone, Debug)]
pub struct ReplicatedOptions {
    /// Directory of the device, with one for each replica. One program at a time uses it.
    pub directory: PathBuf,
    /// Size in bytes, a multiple of the block length. A new device needs it; an existing one must
    /// have it.
    pub size: Option<u64>,
    /// Name of the fabric, which no other program on this machine may use.
    pub fabric: String,
    /// Number of replicas, 1 to 5. Default 3.
    pub replicas: u16,
    /// Threads that read. Default 4.
    pub threads: usize,
    /// Longest entry of the log, in bytes of the device. Longer writes are several entries.
    /// Default 64 KiB.
    pub entry_len_max: usize,
    /// Limit on the entries in flight; others wait. Default 512.
    pub in_flight_max: usize,
    /// Limit on the bytes of entries that are not durable in all images yet; others wait. Each
    /// replica has these entries in memory. Default 32 MiB.
    pub undurable_bytes_max: usize,
}

impl ReplicatedOptions {
    /// Returns the usual settings for a device in a directory.
    pub fn new(directory: PathBuf, fabric: String) -> ReplicatedOptions {
        ReplicatedOptions {
            directory,
            size: None,
            fabric,
            replicas: 3,
            threads: 4,
            entry_len_max: 64 << 10,
            in_flight_max: 512,
            undurable_bytes_max: 32 << 20,
        }
    }
}

/// Why a replicated device cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The directory is in use, or cannot be created.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// The system refuses.
    #[error("cannot read or write {}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A new device has no size.
    #[error("{} holds no device: give the size of a new one", .0.display())]
    NoSize(PathBuf),
    /// The size is no number of blocks.
    #[error(
        "{0} bytes are no multiple of {BLOCK_LEN}, the length of a block, or none: choose another"
    )]
    Alignment(u64),
    /// The device exists and has another size.
    #[error(
        "the device in {} has {found} bytes, not {wanted}: a device cannot be resized; give its \
         size or none, or choose another directory",
        path.display()
    )]
    Size {
        /// The directory.
        path: PathBuf,
        /// The size of the device.
        found: u64,
        /// The size that was given.
        wanted: u64,
    },
    /// The description of the device is no such.
    #[error("{} is damaged: restore it from a copy", .0.display())]
    Damaged(PathBuf),
    /// The replicas do not start.
    #[error(transparent)]
    Cluster(#[from] NodeError),
    /// The system has no thread left.
    #[error("cannot start threads")]
    Thread(#[source] io::Error),
    /// A replica has ended while it started.
    #[error("a replica cannot start: {0}")]
    Log(String),
}

/// A device on several replicas, which all run in this program, or one of which does.
pub struct ReplicatedBlocks {
    appends: Arc<Appends>,
    reads: Arc<Reads>,
    image: ImageOptions,
    entry_len_max: usize,
    path: PathBuf,
    replicas: u16,
    /// End after the requests of clients.
    nodes: Nodes,
    _workers: Arc<Workers>,
    /// Holds the lock of the device.
    _directory: Directory,
}

impl ReplicatedBlocks {
    /// Opens a device, or creates it, and waits until its replicas have all that was acknowledged
    /// before.
    ///
    /// # Errors
    /// If the device is in use or has another size, or a replica cannot start.
    pub fn open(options: &ReplicatedOptions) -> Result<ReplicatedBlocks, DeviceError> {
        Self::open_with(options, |image, reads| Nodes::start(options, image, reads))
    }

    /// As [`ReplicatedBlocks::open`], with one replica of the device: the others are in other
    /// programs, and the name of the fabric in `options` is not used. `builder` describes how the
    /// process of the replica joins the fabric.
    ///
    /// # Errors
    /// As [`ReplicatedBlocks::open`].
    pub fn open_one(
        options: &ReplicatedOptions,
        process: u32,
        builder: Builder,
    ) -> Result<ReplicatedBlocks, DeviceError> {
        Self::open_with(options, |image, reads| {
            Nodes::start_one(options, image, reads, (process, builder))
        })
    }

    fn open_with(
        options: &ReplicatedOptions,
        start: impl FnOnce(ImageOptions, &Arc<Reads>) -> Result<Nodes, NodeError>,
    ) -> Result<ReplicatedBlocks, DeviceError> {
        let is_wrong = |size: &u64| *size == 0 || !size.is_multiple_of(BLOCK_LEN as u64);
        if let Some(size) = options.size.filter(is_wrong) {
            return Err(DeviceError::Alignment(size));
        }
        let directory = Directory::open(&options.directory)?;
        let image = identity::read_or_create(&directory, options.size)?;
        let workers = Workers::start(options.threads).map_err(DeviceError::Thread)?;
        let workers = Arc::new(workers);
        let replicas = usize::from(options.replicas);
        let (repairer, commands) = Repairer::new();
        let reads = Arc::new(Reads::new(replicas, &workers, repairer));
        let started =
            repair_driver::start(commands, (replicas, image.blocks), Arc::downgrade(&reads));
        started.map_err(DeviceError::Thread)?;
        let nodes = start(image, &reads)?;
        let limits = (options.in_flight_max, options.undurable_bytes_max);
        let appends = Arc::new(Appends::new(nodes.handles(), Arc::clone(&reads), limits));
        let of_hook = (Arc::downgrade(&appends), Arc::downgrade(&reads));
        reads.notify(move || {
            let (Some(appends), Some(reads)) = (of_hook.0.upgrade(), of_hook.1.upgrade()) else {
                return;
            };
            let first = appends.first_undurable();
            if let Some(until) = first.and_then(|first| reads.durable_from(first)) {
                appends.on_durable(until);
            }
        });
        let device = ReplicatedBlocks {
            appends,
            reads,
            image,
            entry_len_max: options.entry_len_max.max(BLOCK_LEN),
            nodes,
            path: options.directory.clone(),
            replicas: options.replicas,
            _workers: workers,
            _directory: directory,
        };
        device.wait_for_log()?;
        Ok(device)
    }

    /// Appends an entry without a change. Its position is behind all that was acknowledged before
    /// this program started, so that reads wait for that.
    fn wait_for_log(&self) -> Result<(), DeviceError> {
        let (sender, replies) = channel();
        let completion = Completion::new(move |reply| {
            // The receiver waits below.
            let _ = sender.send(reply);
        });
        self.appends.begin(vec![Vec::new()], completion);
        let (began, mut logged) = (Instant::now(), Vec::new());
        loop {
            let waiting = self.waiting();
            if began.elapsed() > LOG_AFTER && waiting != logged && !waiting.is_empty() {
                tracing::warn!(?waiting, "the device opens when these processes have started");
                logged = waiting;
            }
            // A replica that cannot start ends, and the others wait for it.
            let ended = self.appends.nodes().into_iter().find_map(|(_, node)| node.ended());
            match (replies.recv_timeout(START_PAUSE), ended) {
                (Ok(Ok(_)), _) => return self.wait_for_replica(),
                (_, Some(reason)) => return Err(DeviceError::Log(reason.to_string())),
                (Ok(Err(failure)), None) => {
                    return Err(DeviceError::Log(failure.message.into_owned()));
                }
                (Err(RecvTimeoutError::Timeout), None) => {}
                (Err(error), None) => return Err(DeviceError::Log(error.to_string())),
            }
        }
    }

    /// Waits until the only replica of this program is a member of the log's view: clients count on
    /// it to go on when the others end.
    fn wait_for_replica(&self) -> Result<(), DeviceError> {
        let Some(node) = self.nodes.one() else { return Ok(()) };
        while !node.stats().is_serving {
            if let Some(reason) = node.ended() {
                return Err(DeviceError::Log(reason.to_string()));
            }
            thread::sleep(START_PAUSE);
        }
        Ok(())
    }

    /// Returns the processes that have to start before the log is open.
    fn waiting(&self) -> Vec<ProcessId> {
        let nodes = self.appends.nodes();
        nodes.iter().flat_map(|(_, node)| node.stats().waiting).collect()
    }

    /// Returns why the device cannot go on, if all replicas of this program have ended.
    pub fn ended(&self) -> Option<Arc<str>> {
        let ends: Option<Vec<_>> =
            self.appends.nodes().iter().map(|(_, node)| node.ended()).collect();
        ends?.into_iter().next()
    }

    /// Returns the position in the log that each replica has applied; `None` of one that has ended.
    pub fn applied(&self) -> Vec<Option<u64>> {
        self.reads.applied()
    }

    /// Returns what was found damaged, and repaired, since the start.
    pub fn repair_stats(&self) -> RepairStats {
        self.reads.stats()
    }

    /// Returns why the node of a replica has ended, if it has, and was not started again.
    pub fn replica_ended(&self, replica: u32) -> Option<String> {
        let nodes = self.appends.nodes();
        let (_, node) = nodes.iter().find(|(number, _)| *number == replica)?;
        node.ended().map(|reason| reason.to_string())
    }

    /// Returns the number of entries that were removed from the log, as the images of all replicas
    /// that are up include them durably; at most 100 ms ago.
    pub fn trimmed_len(&self) -> u64 {
        let nodes = self.appends.nodes();
        nodes.iter().map(|(_, node)| node.stats().base_len).max().unwrap_or(0)
    }

    /// Returns the number of blocks that a replica has received from another one since the start.
    ///
    /// # Panics
    /// If there is no such replica.
    pub fn copied_blocks(&self, replica: u32) -> u64 {
        self.reads.copied_blocks(replica as usize)
    }

    /// Returns the entries of a write.
    fn entries_of(&self, offset: u64, data: &[u8]) -> Vec<Vec<u8>> {
        let len_max = self.entry_len_max / BLOCK_LEN * BLOCK_LEN;
        let firsts = (offset / BLOCK_LEN as u64..).step_by(len_max / BLOCK_LEN);
        let chunks = data.chunks(len_max).zip(firsts);
        let entry = |(data, first)| Change::Write { first, data }.to_bytes();
        let entries: Vec<Vec<u8>> = chunks.map(entry).collect();
        debug_assert!(entries.iter().all(|entry| entry.len() <= len_max + CHANGE_OVERHEAD));
        entries
    }

    fn begin_zeroes(&self, range: Range, completion: Completion) {
        let (first, count) = blocks_of(range);
        self.appends.begin(vec![Change::Zero { first, count }.to_bytes()], completion);
    }

    fn begin_read(&self, range: Range, completion: Completion) {
        let reads = Arc::clone(&self.reads);
        self.begin_on_image(completion, move |replica, image| {
            let mut data = vec![0; range.length as usize];
            let read = reads.read((replica, image), blocks_of(range).0, &mut data);
            read.map(|()| Outcome::Data(data))
        });
    }

    fn begin_status(&self, range: Range, completion: Completion) {
        self.begin_on_image(completion, move |_, image| status(image, range));
    }

    /// Calls `read` with an image that has all that was acknowledged before.
    fn begin_on_image(
        &self,
        completion: Completion,
        read: impl FnOnce(usize, &Access) -> Reply + Send + 'static,
    ) {
        let read = |replica: usize, image: &Access| completion.complete(read(replica, image));
        let Some(node) = self.nodes.one() else { return self.reads.begin(read) };
        let reads = Arc::clone(&self.reads);
        node.read_index(Box::new(move |index| {
            // A read that is dropped reports that to its client.
            if let Ok(index) = index {
                reads.on_acknowledged(index);
                reads.begin(read);
            }
        }));
    }
}

/// Returns the first block and the number of blocks of an aligned range.
fn blocks_of(range: Range) -> (u64, u64) {
    let block_len = BLOCK_LEN as u64;
    (range.offset / block_len, u64::from(range.length) / block_len)
}

/// Returns which blocks are zero, as their marks say.
fn status(image: &Access, range: Range) -> Reply {
    let (first, count) = blocks_of(range);
    let marks = image.reader.marks(first, count.min(STATUS_BLOCKS_MAX));
    let marks = marks.map_err(|error| Failure::new(ErrorCode::Io, error.to_string()))?;
    let mut extents: Vec<Extent> = Vec::new();
    for (mark, block) in marks.into_iter().zip(first..) {
        let is_zero = mark.is_some_and(|mark| mark.is_zero(block));
        match extents.last_mut().filter(|last| last.is_zero == is_zero) {
            Some(last) => last.length += BLOCK_LEN as u32,
            None => {
                extents.push(Extent { length: BLOCK_LEN as u32, is_allocated: !is_zero, is_zero })
            }
        }
    }
    Ok(Outcome::Extents(extents))
}

impl Blocks for ReplicatedBlocks {
    fn size(&self) -> u64 {
        self.image.blocks * BLOCK_LEN as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_flush_shared(&self) -> bool {
        true
    }

    fn knows_allocation(&self) -> bool {
        true
    }

    /// A block is the unit of writes: a part of one could not be written again after a crash.
    fn block_sizes(&self) -> BlockSizes {
        let block_len = BLOCK_LEN as u32;
        BlockSizes { minimum: block_len, preferred: block_len, ..BlockSizes::default() }
    }

    fn begin(&self, command: Command, completion: Completion) {
        match command {
            Command::Read(range) => self.begin_read(range, completion),
            Command::Status(range) => self.begin_status(range, completion),
            Command::Write { offset, data, .. } => {
                self.appends.begin(self.entries_of(offset, &data), completion);
            }
            Command::Trim { range, .. } | Command::WriteZeroes { range, .. } => {
                self.begin_zeroes(range, completion);
            }
            // A write is complete when it is durable in all replicas.
            Command::Flush | Command::Cache(_) => completion.complete(Ok(Outcome::Done)),
        }
    }
}
