//! Reads from the images of all replicas.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use onepipe_block::{ErrorCode, Failure};
use onepipe_block_replica::{
    BLOCK_LEN, ImageReader, ImageWriter, ReadError, ReadGate, ReadStart, ScrubReport,
};

use super::repairer::{Repaired, Repairer};
use crate::workers::Workers;

/// A read, which gets the replica that answers it.
type Job = Box<dyn FnOnce(usize) + Send>;

/// How other threads than that of its node use the image of a replica.
pub struct Access {
    pub reader: ImageReader<File>,
    pub writer: Mutex<ImageWriter<File>>,
}

/// What was repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Damaged blocks that reads or scrubs have found.
    pub damaged: u64,
    /// Blocks that were repaired from another replica.
    pub repaired: u64,
}

/// What a replica has received of the image of another one.
#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    parts: u64,
    blocks: u64,
}

/// The images of all replicas, and the reads that wait for them.
pub struct Reads {
    state: Mutex<State>,
    /// The pool waits for its threads when it is dropped, so none of its jobs owns it.
    workers: Weak<Workers>,
    /// Lets writes go on that wait until images are durable.
    on_durable: OnceLock<Box<dyn Fn() + Send + Sync>>,
    repairer: Repairer,
    damaged: AtomicU64,
    repaired: AtomicU64,
}

struct State {
    gate: ReadGate,
    waiting: BTreeMap<u64, Job>,
    images: Vec<Option<Arc<Access>>>,
    /// Position up to which each image is durable.
    durable: Vec<u64>,
    /// What each replica has received of the image of another one.
    copies: Vec<Copies>,
}

impl Reads {
    pub fn new(replicas: usize, workers: &Arc<Workers>, repairer: Repairer) -> Reads {
        let images = (0..replicas).map(|_| None).collect();
        let durable = vec![0; replicas];
        let (gate, waiting) = (ReadGate::new(replicas), BTreeMap::new());
        let copies = vec![Copies::default(); replicas];
        Reads {
            state: Mutex::new(State { gate, waiting, images, durable, copies }),
            workers: Arc::downgrade(workers),
            on_durable: OnceLock::new(),
            repairer,
            damaged: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the image of a replica, which answers reads from now on.
    pub fn add(&self, replica: usize, access: Access) {
        let applied = access.reader.applied();
        self.lock().images[replica] = Some(Arc::new(access));
        self.set_applied(replica, Some(applied));
    }

    /// Removes a replica that has ended. Without any all reads fail.
    pub fn remove(&self, replica: usize) {
        let mut state = self.lock();
        state.images[replica] = None;
        state.gate.handle_applied(replica, None);
        let failed = match state.images.iter().all(Option::is_none) {
            true => std::mem::take(&mut state.waiting),
            false => BTreeMap::new(),
        };
        drop(state);
        // Each reports to its client that it was dropped.
        drop(failed);
    }

    /// Notes what a replica has applied, or that it answers no reads for now.
    pub fn set_applied(&self, replica: usize, position: Option<u64>) {
        let mut ready = Vec::new();
        let mut state = self.lock();
        state.gate.handle_applied(replica, position);
        while let Some((number, replica)) = state.gate.poll_ready() {
            ready.extend(state.waiting.remove(&number).map(|job| (job, replica)));
        }
        drop(state);
        for (job, replica) in ready {
            self.submit(job, replica);
        }
    }

    /// Notes up to which position the image of a replica is durable.
    pub fn set_durable(&self, replica: usize, position: u64) {
        self.lock().durable[replica] = position;
        if let Some(on_durable) = self.on_durable.get() {
            on_durable();
        }
    }

    /// Calls `on_durable` whenever an image has become durable.
    pub fn notify(&self, on_durable: impl Fn() + Send + Sync + 'static) {
        // Called once.
        let _ = self.on_durable.set(Box::new(on_durable));
    }

    /// Returns up to which position the images are durable of the replicas that have applied a
    /// position. One that is being filled does not count: the log is trimmed without it.
    pub fn durable_from(&self, first: u64) -> Option<u64> {
        let state = self.lock();
        let counts = |(image, _): &(&Option<Arc<Access>>, &u64)| {
            image.as_ref().is_some_and(|image| image.reader.applied() >= first)
        };
        let of_images = state.images.iter().zip(&state.durable).filter(counts);
        of_images.map(|(_, durable)| *durable).min()
    }

    /// Notes that the write at a position was acknowledged.
    pub fn on_acknowledged(&self, position: u64) {
        self.lock().gate.handle_acknowledged(position);
    }

    /// Begins a read: `job` runs on a thread of the pool with the number and the image of a replica
    /// that can answer it.
    pub fn begin(self: &Arc<Reads>, job: impl FnOnce(usize, &Access) + Send + 'static) {
        let reads = Arc::clone(self);
        self.begin_on(move |replica| match reads.image(replica) {
            Some(image) => job(replica, &image),
            // The replica has ended since it was chosen.
            None => reads.begin(job),
        });
    }

    /// Begins a read: `job` runs on a thread of the pool once a replica can answer it.
    fn begin_on(&self, job: impl FnOnce(usize) + Send + 'static) {
        let mut state = self.lock();
        match state.gate.begin() {
            ReadStart::Now(replica) => {
                drop(state);
                self.submit(Box::new(job), replica);
            }
            ReadStart::Waits(number) => {
                state.waiting.insert(number, Box::new(job));
            }
        }
    }

    fn submit(&self, job: Job, replica: usize) {
        // Without a pool the device has ended; the job reports that it is dropped.
        if let Some(workers) = self.workers.upgrade() {
            workers.submit(move || job(replica));
        }
    }

    /// Returns the image of a replica, unless it has ended.
    pub fn image(&self, replica: usize) -> Option<Arc<Access>> {
        self.lock().images[replica].clone()
    }

    /// Reads blocks of a replica. What is damaged there is read from another one, and repaired.
    pub fn read(
        &self,
        (replica, image): (usize, &Access),
        first: u64,
        bytes: &mut [u8],
    ) -> Result<(), Failure> {
        let damaged = match image.reader.read(first, bytes) {
            Ok(latest) => {
                self.lock().gate.handle_read(latest);
                return Ok(());
            }
            Err(ReadError::Damaged(blocks)) => blocks,
            Err(ReadError::System(error)) => {
                tracing::error!(%error, replica, "cannot read from a replica's disk");
                (first..).take(bytes.len() / BLOCK_LEN).collect()
            }
        };
        for block in damaged {
            let start = (block - first) as usize * BLOCK_LEN;
            self.read_damaged((replica, image), block, &mut bytes[start..start + BLOCK_LEN])?;
        }
        // Not lower than the positions of the intact blocks that were read above.
        let marks = image.reader.marks(first, (bytes.len() / BLOCK_LEN) as u64);
        let marks = marks.map_err(|error| Failure::new(ErrorCode::Io, error.to_string()))?;
        let latest = marks.iter().flatten().map(|mark| mark.position).max();
        self.lock().gate.handle_read(latest.unwrap_or(0));
        Ok(())
    }

    /// Reads a block that is damaged in one replica from another one, and repairs it.
    fn read_damaged(
        &self,
        (replica, image): (usize, &Access),
        block: u64,
        bytes: &mut [u8],
    ) -> Result<(), Failure> {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        // Without an intact mark the block is replaced only by what is as of all that is applied.
        let has_mark = image.reader.marks(block, 1).is_ok_and(|marks| marks[0].is_some());
        let applied = if has_mark { 0 } else { image.reader.applied() };
        let repaired = self.repairer.repair(replica, block, self.seen().max(applied));
        let Some(Repaired { block: Some(copied), is_repaired }) = repaired else {
            let message = format!("block {block} is damaged in all replicas that answer");
            return Err(Failure::new(ErrorCode::Io, message));
        };
        tracing::warn!(replica, block, is_repaired, "a block was damaged");
        self.repaired.fetch_add(u64::from(is_repaired), Ordering::Relaxed);
        bytes.copy_from_slice(&copied.bytes);
        self.lock().gate.handle_read(copied.position);
        Ok(())
    }

    /// Returns what repairs blocks.
    pub fn repairer(&self) -> &Repairer {
        &self.repairer
    }

    /// Returns the position up to which all writes were acknowledged, or returned by a read.
    pub fn seen(&self) -> u64 {
        self.lock().gate.seen()
    }

    /// Counts a part of an image that a replica has received from another one.
    pub fn count_part(&self, replica: usize, blocks: u64) {
        let copies = &mut self.lock().copies[replica];
        copies.parts += 1;
        copies.blocks += blocks;
    }

    /// Returns the number of blocks that a replica has received from another one.
    pub fn copied_blocks(&self, replica: usize) -> u64 {
        self.lock().copies[replica].blocks
    }

    /// Returns the position that a replica has applied, and the number of parts of an image that it
    /// has received.
    pub fn progress(&self, replica: usize) -> (u64, u64) {
        let state = self.lock();
        let applied = state.images[replica].as_ref().map(|image| image.reader.applied());
        (applied.unwrap_or(0), state.copies[replica].parts)
    }

    /// Returns the positions that the replicas have applied; `None` of one that has ended.
    pub fn applied(&self) -> Vec<Option<u64>> {
        let state = self.lock();
        let applied = |image: &Option<Arc<Access>>| Some(image.as_ref()?.reader.applied());
        state.images.iter().map(applied).collect()
    }

    /// Counts what a scrub has found.
    pub fn count_scrubbed(&self, report: &ScrubReport) {
        self.damaged.fetch_add(report.damaged, Ordering::Relaxed);
        self.repaired.fetch_add(report.repaired, Ordering::Relaxed);
    }

    pub fn stats(&self) -> RepairStats {
        RepairStats {
            damaged: self.damaged.load(Ordering::Relaxed),
            repaired: self.repaired.load(Ordering::Relaxed),
        }
    }
}
