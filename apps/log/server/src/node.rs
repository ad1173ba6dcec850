//! A node: one process of the fabric that is a client of a log, and holds a replica if it is the
//! process of one.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use onepipe::{Builder, Doorbell, EmbeddedPipe, JoinError, ProcessId, Timestamp};
use onepipe_log::{
    LogReplica, LogStart, NoState, OwnLog, REPLICAS_MAX, ReplicaOptions, State, Stored,
};
use thiserror::Error;

use crate::driven::{Driven, Member, Shares};
use crate::handle::{LogHandle, Submission};
use crate::node_thread::{Drive, NodeThread};
use crate::options::NodeOptions;
use crate::shared::Shared;
use crate::storage::{Opened, Storage, StorageError};

/// Interval in which a node repeats the messages of its start, in ns.
const START_INTERVAL_NS: u64 = 50_000_000;
/// Longest time that a node waits for a clock that is behind the last entry of its log.
const CLOCK_WAIT: Duration = Duration::from_secs(2);

/// What a node of a replica has of its own.
#[derive(Clone, Debug)]
pub struct Own<S> {
    /// The directory of the log, in which each replica has one. `None`: in memory only.
    pub directory: Option<PathBuf>,
    /// The state, which applies committed entries.
    pub state: S,
}

/// Why a node does not start.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The fabric does not admit the process.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The clock is behind the last stored entry by this time.
    #[error("the clock is {0:?} behind the last entry of the log: set the clock, and start again")]
    Clock(Duration),
    /// There are no such numbers of replicas.
    #[error("a log has 1 to {REPLICAS_MAX} replicas, not {0}")]
    Replicas(usize),
    /// The process holds no replica.
    #[error("process {} holds no replica: only replicas have a state", .0.0)]
    NoReplica(ProcessId),
    /// The journal of the replica cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The state cannot be opened.
    #[error("cannot open the state of a replica: {0}")]
    State(io::Error),
    /// The system has no descriptor or thread left.
    #[error("cannot start a node: {0}")]
    System(#[from] io::Error),
}

/// A running node. It ends, and its process leaves the fabric, when it is dropped.
pub struct Node {
    handle: LogHandle,
    /// Ends when the node has left the fabric.
    left: Receiver<()>,
}

/// A node that joins the fabric in its thread.
pub(crate) struct Joining {
    submissions: Sender<Submission>,
    shared: Arc<Shared>,
    joined: Receiver<Result<Doorbell, NodeError>>,
    left: Receiver<()>,
}

impl Node {
    /// Joins the fabric that `builder` describes as `process`, in a thread of its own, with a
    /// replica. The log opens when all replicas have started; if it is open already, the replica
    /// catches up.
    ///
    /// # Errors
    /// The fabric does not admit the process, or its directory cannot be used.
    pub fn start<S: State>(
        process: ProcessId,
        builder: Builder,
        options: &NodeOptions,
        own: Own<S>,
    ) -> Result<Self, NodeError> {
        Self::begin(&NodeThread::start("log")?, process, builder, options, own)?.wait()
    }

    /// As [`Node::start`], for a process that is a client only.
    ///
    /// # Errors
    /// As [`Node::start`].
    pub fn start_client(builder: Builder, options: &NodeOptions) -> Result<Self, NodeError> {
        Self::begin_client(&NodeThread::start("log")?, builder, options)?.wait()
    }

    pub(crate) fn begin_client(
        thread: &NodeThread,
        builder: Builder,
        options: &NodeOptions,
    ) -> Result<Joining, NodeError> {
        check(options)?;
        Ok(Self::add::<NoState>(thread, builder, options, |_, _| Ok(None)))
    }

    pub(crate) fn begin<S: State>(
        thread: &NodeThread,
        process: ProcessId,
        builder: Builder,
        options: &NodeOptions,
        own: Own<S>,
    ) -> Result<Joining, NodeError> {
        check(options)?;
        if !options.replicas.contains(&process) {
            return Err(NodeError::NoReplica(process));
        }
        let of_log = options.clone();
        let opened = match &own.directory {
            Some(directory) => Some(Opened::open(directory, process, options.replicas.len())?),
            None => None,
        };
        let state = own.state;
        Ok(Self::add(thread, builder, options, move |pipe, bell| {
            restore(process, &of_log, opened, state, (pipe, bell)).map(Some)
        }))
    }

    /// Joins in `thread`. `hold` returns the replica that the node holds, once the node has joined.
    fn add<S: State>(
        thread: &NodeThread,
        builder: Builder,
        options: &NodeOptions,
        hold: impl FnOnce(&mut EmbeddedPipe, &Doorbell) -> Result<Option<Member<S>>, NodeError>
        + Send
        + 'static,
    ) -> Joining {
        let (submissions, received) = channel();
        let shared = Arc::new(Shared::default());
        let (started, joined) = channel();
        let (has_left, left) = channel();
        let shares = Shares { submissions: received, shared: Arc::clone(&shared), left: has_left };
        let options = options.clone();
        let begin = move || {
            let mut pipe = builder.embedded()?;
            let bell = pipe.doorbell()?;
            let member = hold(&mut pipe, &bell)?;
            Ok((pipe, bell, member))
        };
        thread.add(Box::new(move || match begin() {
            Ok((pipe, bell, member)) => {
                let driven = Driven::new(pipe, &options, member, shares);
                // The starter waits for this.
                let _ = started.send(Ok(bell));
                Some(Box::new(driven) as Box<dyn Drive>)
            }
            Err(error) => {
                let _ = started.send(Err(error));
                None
            }
        }));
        Joining { submissions, shared, joined, left }
    }

    /// Ends the node, and lets the other replicas go on without it. They wait for one that is only
    /// dropped, unless the fabric has controllers.
    pub fn leave(self) {
        self.handle.shared.leave();
    }

    /// Returns the handle to use the log with.
    pub fn handle(&self) -> LogHandle {
        self.handle.clone()
    }
}

fn check(options: &NodeOptions) -> Result<(), NodeError> {
    let replicas = options.replicas.len();
    (1..=REPLICAS_MAX).contains(&replicas).then_some(()).ok_or(NodeError::Replicas(replicas))
}

/// Restores the replica from its directory.
fn restore<S: State>(
    process: ProcessId,
    options: &NodeOptions,
    opened: Option<Opened>,
    state: S,
    (pipe, bell): (&mut EmbeddedPipe, &Doorbell),
) -> Result<Member<S>, NodeError> {
    let replica_options = ReplicaOptions { is_durable: opened.is_some(), ..options.replica };
    let replicas = options.replicas.clone();
    let mut stored = Stored { checkpoint: None, records: &[], applied: state.durable_len() };
    if let Some(opened) = &opened {
        let checkpoint = opened.checkpoint.as_ref();
        stored.checkpoint = checkpoint.map(|(number, bytes)| (*number, &bytes[..]));
        stored.records = &opened.records;
    }
    let restored = LogReplica::restore(process, replicas, replica_options, stored);
    let replica = restored.map_err(|source| StorageError::Restore {
        directory: opened.as_ref().map(|opened| opened.directory.clone()).unwrap_or_default(),
        source,
    })?;
    wait_for_clock(pipe, replica.last_timestamp())?;
    // A replica without a disk has lost whatever it had, and nothing is expected of it.
    let own = opened.as_ref().map_or(OwnLog::Replaced, |opened| opened.own_log(&replica));
    let session = pipe.now().as_ns();
    let start = LogStart::new((process, session), &options.replicas, own, START_INTERVAL_NS);
    let storage = match opened {
        Some(opened) => Some(Storage::start(opened.journal, bell.clone())?),
        None => None,
    };
    Ok(Member::new(replica, state, storage, start))
}

/// Waits until the clock is past the last entry of the log.
fn wait_for_clock(pipe: &mut EmbeddedPipe, last: Option<Timestamp>) -> Result<(), NodeError> {
    let Some(last) = last else { return Ok(()) };
    let began = Instant::now();
    while pipe.now() <= last {
        if began.elapsed() > CLOCK_WAIT {
            return Err(NodeError::Clock(Duration::from_nanos(last.since_ns(pipe.now()))));
        }
        let progress = pipe.turn();
        pipe.rest(progress);
    }
    Ok(())
}

impl Joining {
    /// Waits until the node has joined.
    pub fn wait(self) -> Result<Node, NodeError> {
        let Self { submissions, shared, joined, left } = self;
        let ended = || io::Error::other("its thread has ended");
        let bell = joined.recv().map_err(|_| ended())??;
        Ok(Node { handle: LogHandle { submissions, bell, shared }, left })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.shared.stop();
        self.handle.bell.ring();
        // An error means that the node has left, too. A panic was reported by the thread's hook.
        let _ = self.left.recv();
    }
}
