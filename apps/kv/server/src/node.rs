//! A node: one process of the fabric that holds a replica, or is a client, or both.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use onepipe::{Builder, Doorbell, EmbeddedPipe, JoinError, ProcessId};
use onepipe_kv::{Command, Plan, Store};
use onepipe_log_server::{Drive, NodeThread};
use onepipe_transaction::{ClientOptions, LogSummary, OwnLog, Replica, ReplicaOptions, State};
use thiserror::Error;

use crate::backend::{Backend, BackendError, OnReplies, OnResults, Replies, Results};
use crate::driven::{Driven, Shares};
use crate::options::NodeOptions;
use crate::shared::{LogStats, NodeStats, Shared, Submission};
use crate::starting::{CLOCK_WAIT, Cut, Held, Starting};
use crate::storage::{self, ReplicaLog, StorageError, StorageOptions, Stored};

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The fabric does not admit the process.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The clock is behind the last stored write by this time: a write would have a lower timestamp
    /// than that one.
    #[error("the clock is {0:?} behind the last write of the log: set the clock, and start again")]
    Clock(Duration),
    /// The process has no replica to be stored.
    #[error("process {} holds no replica: only replicas have a directory", .0.0)]
    NoReplica(ProcessId),
    /// The log of the replica cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The system has no descriptor or thread left.
    #[error("cannot start a node: {0}")]
    System(#[from] io::Error),
}

/// A running node. It ends, and its process leaves the fabric, when it is dropped.
pub struct Node {
    handle: NodeHandle,
    /// Ends when the node has left the fabric.
    left: Receiver<()>,
}

/// A node that joins the fabric in its thread.
pub(crate) struct Joining {
    shards: u16,
    submissions: Sender<Submission>,
    shared: Arc<Shared>,
    joined: Receiver<Result<Doorbell, NodeError>>,
    left: Receiver<()>,
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
        Self::start_state(builder, options, |_| Store::default())
    }

    /// As [`Node::start`], for another application: a replica of a shard begins with the state that
    /// `initial` returns, in memory only. Its transactions go to [`NodeHandle::execute`].
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_state<S: State + Send + 'static>(
        builder: Builder,
        options: NodeOptions,
        initial: impl FnOnce(u16) -> S + Send + 'static,
    ) -> Result<Self, NodeError> {
        Self::begin_state(&NodeThread::start("kv")?, builder, options, initial).wait()
    }

    /// As [`Node::start_state`], in a given thread.
    pub(crate) fn begin_state<S: State + Send + 'static>(
        thread: &NodeThread,
        builder: Builder,
        options: NodeOptions,
        initial: impl FnOnce(u16) -> S + Send + 'static,
    ) -> Joining {
        let placement = options.placement.clone();
        Self::begin(thread, builder, options, move |pipe, _| {
            let new = |shard| Replica::new(shard, initial(shard), ReplicaOptions::default());
            let shard = placement.shard_of(pipe.process());
            Ok(shard.map_or(Held::Nothing, |shard| Held::Replica(Box::new(new(shard)), None)))
        })
    }

    /// Joins a store whose replicas are nodes of several programs. If the store is open already,
    /// the replica of this node catches up from another one of its shard; otherwise the store opens
    /// when the nodes of all replicas have started. `initial` returns the initial state of a shard.
    /// The replica is in memory only.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn join<S: State + Send + 'static>(
        builder: Builder,
        options: NodeOptions,
        initial: impl FnOnce(u16) -> S + Send + 'static,
    ) -> Result<Self, NodeError> {
        let client = ClientOptions { is_durable: false, ..options.client };
        let options = NodeOptions { client, ..options };
        let of_store = options.clone();
        let joining = Self::begin(&NodeThread::start("kv")?, builder, options, move |pipe, _| {
            let own = (pipe.process(), pipe.now().as_ns());
            let Some(shard) = of_store.placement.shard_of(own.0) else { return Ok(Held::Nothing) };
            let replica = Replica::new(shard, initial(shard), ReplicaOptions::default());
            let log = OwnLog { summary: LogSummary::empty(shard), records: Vec::new() };
            // There are no records in memory that could be void.
            let cut: Cut<S> = |_, _, _| Err("there is no log".into());
            let starting = Starting::new(own, &of_store, (replica, log), cut);
            Ok(Held::Starting(Box::new(starting), None))
        });
        joining.wait()
    }

    /// As [`Node::join`], with a replica that stores what it executes in a log of its own, in the
    /// directory `shard-<shard>-<replica>` of the store. `process` is that of `builder`.
    ///
    /// # Errors
    /// As [`Node::start`]; the log cannot be used; the placement gives no replica to the process.
    pub fn join_stored(
        process: ProcessId,
        builder: Builder,
        options: NodeOptions,
        storage: &StorageOptions,
    ) -> Result<Self, NodeError> {
        let placement = &options.placement;
        let shard = placement.shard_of(process).ok_or(NodeError::NoReplica(process))?;
        let of_shard = placement.replicas(shard);
        let number = of_shard.iter().position(|other| *other == process).unwrap_or(0) as u16;
        let shape = (placement.shards(), of_shard.len() as u16);
        let (stored, own) = storage::open_one(storage, shape, (shard, number))?;
        let of_store = options.clone();
        let joining =
            Self::begin(&NodeThread::start("kv")?, builder, options, move |pipe, bell| {
                wait_for_clock(pipe, &stored)?;
                let session = pipe.now().as_ns();
                let (replica, log) = stored.start(bell.clone())?;
                let cut: Cut<Store> = ReplicaLog::cut;
                let starting = Starting::new((process, session), &of_store, (replica, own), cut);
                Ok(Held::Starting(Box::new(starting), Some(Box::new(log))))
            });
        joining.wait()
    }

    /// As [`Node::start`], in a given thread, with the replica and the log of `stored`, if any.
    pub(crate) fn begin_with(
        thread: &NodeThread,
        builder: Builder,
        options: NodeOptions,
        stored: Option<Stored>,
    ) -> Joining {
        let Some(stored) = stored else {
            return Self::begin_state(thread, builder, options, |_| Store::default());
        };
        let placement = options.placement.clone();
        Self::begin(thread, builder, options, |pipe, bell| {
            wait_for_clock(pipe, &stored)?;
            let (replica, log) = stored.start(bell.clone())?;
            let replica = replica.with_placement(pipe.process(), placement);
            Ok(Held::Replica(Box::new(replica), Some(Box::new(log))))
        })
    }

    /// Joins in `thread`. `hold` returns the replica that the node holds, once the node has joined.
    fn begin<S, H>(thread: &NodeThread, builder: Builder, options: NodeOptions, hold: H) -> Joining
    where
        S: State + Send + 'static,
        H: FnOnce(&mut EmbeddedPipe, &Doorbell) -> Result<Held<S>, NodeError> + Send + 'static,
    {
        let (submissions, received) = channel();
        let shared = Arc::new(Shared::default());
        let shards = options.placement.shards();
        let (started, joined) = channel();
        let (has_left, left) = channel();
        let shares = Shares { submissions: received, shared: Arc::clone(&shared), left: has_left };
        thread.add(Box::new(move || match begin(builder, hold) {
            Ok((pipe, bell, held)) => {
                let driven = Driven::new(pipe, &options, held, shares);
                // The starter waits for this.
                let _ = started.send(Ok(bell));
                Some(Box::new(driven) as Box<dyn Drive>)
            }
            Err(error) => {
                let _ = started.send(Err(error));
                None
            }
        }));
        Joining { shards, submissions, shared, joined, left }
    }

    /// Returns the handle to execute transactions with.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }
}

impl Joining {
    /// Waits until the node has joined.
    pub fn wait(self) -> Result<Node, NodeError> {
        let Self { shards, submissions, shared, joined, left } = self;
        let ended = || io::Error::other("its thread has ended");
        let bell = joined.recv().map_err(|_| ended())??;
        let handle = NodeHandle { submissions, bell, shared, shards, disks: Arc::default() };
        Ok(Node { handle, left })
    }
}

fn begin<S>(
    builder: Builder,
    hold: impl FnOnce(&mut EmbeddedPipe, &Doorbell) -> Result<Held<S>, NodeError>,
) -> Result<(EmbeddedPipe, Doorbell, Held<S>), NodeError> {
    let mut pipe = builder.embedded()?;
    let bell = pipe.doorbell()?;
    let held = hold(&mut pipe, &bell)?;
    Ok((pipe, bell, held))
}

/// Waits until the clock is past the last write of the log.
fn wait_for_clock(pipe: &mut EmbeddedPipe, stored: &Stored) -> Result<(), NodeError> {
    let last = stored.last();
    let is_behind = |pipe: &mut EmbeddedPipe| Some(pipe.now()) <= last;
    let began = Instant::now();
    while is_behind(pipe) {
        let behind = last.map_or(0, |last| last.since_ns(pipe.now()));
        if began.elapsed() > CLOCK_WAIT {
            return Err(NodeError::Clock(Duration::from_nanos(behind)));
        }
        let progress = pipe.turn();
        pipe.rest(progress);
    }
    Ok(())
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.shared.is_stopping.store(true, Ordering::Release);
        self.handle.bell.ring();
        // An error means that the node has left, too. A panic was reported by the thread's hook.
        let _ = self.left.recv();
    }
}

impl NodeHandle {
    /// Begins a transaction of these parts, at most one for each shard, in ascending order of the
    /// shards. Otherwise as [`Backend::begin`].
    pub fn execute(&self, is_read_only: bool, parts: Vec<(u16, Vec<u8>)>, on_results: OnResults) {
        let submission = Submission { is_read_only, parts, on_results };
        match self.submissions.send(submission) {
            Ok(()) => self.bell.ring(),
            Err(refused) => {
                let reason = self.ended().unwrap_or_else(|| "its thread has ended".into());
                (refused.0.on_results)(Err(BackendError::Ended(reason)));
            }
        }
    }

    /// Returns the counters, at most 100 ms old.
    pub fn stats(&self) -> NodeStats {
        self.shared.stats()
    }

    /// Returns the processes that the start of the store waits for. Empty once the store is open,
    /// and while this node completes its log.
    pub fn waiting(&self) -> Vec<ProcessId> {
        self.shared.waiting()
    }

    /// Returns whether the node has a replica that serves: it has not to catch up, or has done so.
    pub fn is_serving(&self) -> bool {
        self.shared.is_serving.load(Ordering::Relaxed)
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
        let mut plan = Plan::new(&commands, self.shards);
        let parts = plan.take_parts();
        if parts.is_empty() {
            // Every command is refused.
            return on_replies(replies_of(&plan, &[]));
        }
        let is_read_only = plan.is_read_only();
        let on_results = move |results: Results| {
            on_replies(results.and_then(|results| replies_of(&plan, &results)));
        };
        self.execute(is_read_only, parts, Box::new(on_results));
    }

    fn shards(&self) -> u16 {
        self.shards
    }

    fn info(&self) -> Vec<(&'static str, String)> {
        let stats = self.stats();
        let logs: Vec<LogStats> = self.disks.iter().map(|disk| disk.stats().log).collect();
        let sum = |of: fn(&LogStats) -> u64| logs.iter().map(of).sum::<u64>().to_string();
        vec![
            ("onepipe_shards", self.shards.to_string()),
            ("onepipe_caught_up", u8::from(self.is_serving()).to_string()),
            ("onepipe_writes", stats.writes.to_string()),
            ("onepipe_reads", stats.reads.to_string()),
            ("onepipe_transactions", stats.transactions.to_string()),
            ("onepipe_retried", stats.retried.to_string()),
            ("onepipe_disagreements", stats.disagreements.to_string()),
            ("onepipe_log_bytes", sum(|log| log.log_bytes)),
            ("onepipe_snapshot_bytes", sum(|log| log.snapshot_bytes)),
            ("onepipe_snapshots", sum(|log| log.snapshots)),
            ("onepipe_failed_snapshots", sum(|log| log.failed_snapshots)),
        ]
    }
}

fn replies_of(plan: &Plan, results: &[(u16, Vec<u8>)]) -> Replies {
    let results: Vec<(u16, &[u8])> =
        results.iter().map(|(shard, results)| (*shard, results.as_slice())).collect();
    plan.replies(&results).map_err(|error| BackendError::Results(error.to_string()))
}
