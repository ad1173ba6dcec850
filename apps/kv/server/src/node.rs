//! A node: one process of the fabric that holds a replica, or is a client, or both.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe::{Builder, Doorbell, EmbeddedPipe, JoinError};
use onepipe_kv::{Command, Store};
use onepipe_transaction::Replica;
use thiserror::Error;

use crate::backend::{Backend, BackendError, OnReplies};
use crate::driven::Driven;
use crate::options::NodeOptions;
use crate::shared::{NodeStats, Shared, Submission};
use crate::storage::{LogWriter, Stored};

/// How long a node waits for a clock that is behind its log.
const CLOCK_WAIT: Duration = Duration::from_secs(2);

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The fabric does not admit the process.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The clock is behind the last stored write by this time: what is written now would come
    /// before it.
    #[error("the clock is {0:?} behind the last write of the log: set the clock, and start again")]
    Clock(Duration),
    /// The system has no descriptor or thread left.
    #[error("cannot start a node: {0}")]
    System(#[from] io::Error),
}

/// A running node. It ends, and its process leaves the fabric, when it is dropped.
pub struct Node {
    handle: NodeHandle,
    thread: Option<JoinHandle<()>>,
}

/// Executes transactions on a [`Node`], from any thread.
#[derive(Clone)]
pub struct NodeHandle {
    submissions: Sender<Submission>,
    bell: Doorbell,
    shared: Arc<Shared>,
    shards: u16,
    /// What the nodes publish whose disks every write needs.
    disks: Arc<[Arc<Shared>]>,
}

impl Node {
    /// Joins the fabric that `builder` describes, in a thread of its own, which holds the replica
    /// that the placement gives to this process, if any.
    ///
    /// # Errors
    /// The fabric does not admit the process, or the system has no threads left.
    pub fn start(builder: Builder, options: NodeOptions) -> Result<Self, NodeError> {
        Self::start_with(builder, options, None)
    }

    /// As [`Node::start`], with a replica that has stored its state.
    pub(crate) fn start_with(
        builder: Builder,
        options: NodeOptions,
        stored: Option<Stored>,
    ) -> Result<Self, NodeError> {
        let (submissions, received) = channel();
        let shared = Arc::new(Shared::default());
        let shards = options.placement.shards();
        let (started, joined) = channel();
        let of_thread = Arc::clone(&shared);
        let run = move || match begin(builder, stored) {
            Ok((pipe, bell, replica)) => {
                // The starter waits for this.
                let _ = started.send(Ok(bell));
                Driven::new(pipe, &options, replica, (received, of_thread)).run();
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("kv-node".into()).spawn(run)?;
        let ended = || io::Error::other("its thread has ended");
        let bell = joined.recv().map_err(|_| ended())??;
        let handle = NodeHandle { submissions, bell, shared, shards, disks: Arc::default() };
        Ok(Self { handle, thread: Some(thread) })
    }

    /// Returns the handle to execute transactions with.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }
}

type Begun = (EmbeddedPipe, Doorbell, Option<(Replica<Store>, LogWriter)>);

fn begin(builder: Builder, stored: Option<Stored>) -> Result<Begun, NodeError> {
    let mut pipe = builder.embedded()?;
    let bell = pipe.doorbell()?;
    let Some(stored) = stored else { return Ok((pipe, bell, None)) };
    let last = stored.last();
    let is_behind = |pipe: &mut EmbeddedPipe| Some(pipe.now()) <= last;
    let began = Instant::now();
    while is_behind(&mut pipe) {
        let behind = last.map_or(0, |last| last.since_ns(pipe.now()));
        if began.elapsed() > CLOCK_WAIT {
            return Err(NodeError::Clock(Duration::from_nanos(behind)));
        }
        let progress = pipe.turn();
        pipe.rest(progress);
    }
    let replica = stored.start(bell.clone())?;
    Ok((pipe, bell, Some(replica)))
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.shared.is_stopping.store(true, Ordering::Release);
        self.handle.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

impl NodeHandle {
    /// Returns the counters, at most 100 ms old.
    pub fn stats(&self) -> NodeStats {
        self.shared.stats()
    }

    /// Refuses writes from now on while the disk of one of `replicas` fails.
    pub(crate) fn needing_disks(mut self, replicas: impl Iterator<Item = Self>) -> Self {
        self.disks = replicas.map(|replica| replica.shared).collect();
        self
    }

    /// Returns why writes are refused, if a disk fails.
    fn disk_failure(&self) -> Option<Arc<str>> {
        self.disks.iter().find_map(|disk| disk.disk_failure())
    }

    /// Returns why the node has ended, if it has.
    pub fn ended(&self) -> Option<Arc<str>> {
        self.shared.ended()
    }
}

impl Backend for NodeHandle {
    fn begin(&self, commands: Vec<Command>, on_replies: OnReplies) {
        if let Some(reason) = self.disk_failure()
            && !commands.iter().all(Command::is_read_only)
        {
            return on_replies(Err(BackendError::Disk(reason)));
        }
        let submission = Submission { commands, on_replies };
        match self.submissions.send(submission) {
            Ok(()) => self.bell.ring(),
            Err(refused) => {
                let reason = self.ended().unwrap_or_else(|| "its thread has ended".into());
                (refused.0.on_replies)(Err(BackendError::Ended(reason)));
            }
        }
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn info(&self) -> Vec<(&'static str, String)> {
        let stats = self.stats();
        vec![
            ("onepipe_shards", self.shards.to_string()),
            ("onepipe_writes", stats.writes.to_string()),
            ("onepipe_reads", stats.reads.to_string()),
            ("onepipe_transactions", stats.transactions.to_string()),
            ("onepipe_retried", stats.retried.to_string()),
            ("onepipe_disagreements", stats.disagreements.to_string()),
        ]
    }
}
