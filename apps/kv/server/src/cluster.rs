//! A whole store in this process: replicas over shared memory, in one or more threads.

use std::io;
use std::num::NonZero;

use onepipe::{Builder, Pipe, Rest};
use onepipe_log_server::NodeThread;
use onepipe_transaction::{ClientOptions, Placement, PlacementError, ReadMode, State};
use thiserror::Error;

use crate::node::{Joining, Node, NodeError, NodeHandle};
use crate::options::NodeOptions;
use crate::storage::{self, StorageError, StorageOptions, Stored};

/// How often the nodes look whether others have died, in ns: each look takes several system calls,
/// and nodes of one process do not die alone.
const LIVENESS_INTERVAL_NS: u64 = 100_000_000;

/// A store whose replicas all run in this process. It ends when it is dropped.
pub struct Cluster {
    /// The clients end first: they use the replicas.
    front: Node,
    replicas: Vec<Node>,
}

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Name of the fabric, which no other cluster on this machine may use.
    pub fabric: String,
    /// Number of shards, from 1.
    pub shards: u16,
    /// Number of replicas of each shard, 1 to 5.
    pub replicas: u16,
    /// Where the replicas store what they execute. `None`: in memory only.
    pub storage: Option<StorageOptions>,
    /// What reads guarantee.
    pub reads: ReadMode,
    /// How the client runs.
    pub client: ClientOptions,
    /// Number of threads that drive the replicas and the client. 0: half of the cores, as the
    /// others are for those that submit transactions. If the system cannot wait for several nodes
    /// in one thread (Linux before 5.16), each has one.
    pub threads: usize,
}

/// Why a cluster does not start.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// There are no such numbers of shards and replicas.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The log of a replica cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A node does not start.
    #[error("a store needs a fabric of its own in shared memory (here {fabric})")]
    Node {
        /// The fabric.
        fabric: String,
        /// The reason.
        source: NodeError,
    },
}

impl ClusterOptions {
    fn placement(&self) -> Result<Placement, PlacementError> {
        Placement::consecutive(0, self.shards, self.replicas)
    }
}

impl Cluster {
    /// Starts all replicas, and a node that is a client only.
    ///
    /// # Errors
    /// The numbers are out of range, or a process of the fabric exists already.
    pub fn start(options: &ClusterOptions) -> Result<Self, ClusterError> {
        let placement = options.placement()?;
        let processes = usize::from(options.shards) * usize::from(options.replicas);
        let shape = (options.shards, options.replicas);
        let mut stored: Vec<Option<Stored>> = match &options.storage {
            Some(storage) => storage::open(storage, shape)?.into_iter().map(Some).collect(),
            None => Vec::new(),
        };
        stored.resize_with(processes + 1, || None);
        let mut stored = stored.into_iter();
        Self::assemble(options, &placement, |thread, builder, node| {
            Node::begin_with(thread, builder, node, stored.next().flatten())
        })
    }

    /// As [`Cluster::start`], for another application: each replica begins with the state that
    /// `initial` returns for its shard, in memory only. Transactions go to [`NodeHandle::execute`].
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_states<S: State + Send + 'static>(
        options: &ClusterOptions,
        initial: impl Fn(u16) -> S + Clone + Send + 'static,
    ) -> Result<Self, ClusterError> {
        let placement = options.placement()?;
        // A node that has joined is driven: its thread has no time to build the state of another.
        let replicas =
            (0..options.shards).flat_map(|shard| (0..options.replicas).map(move |_| shard));
        let mut states = replicas.map(&initial).collect::<Vec<S>>().into_iter();
        Self::assemble(options, &placement, |thread, builder, node| {
            let (state, initial) = (states.next(), initial.clone());
            let initial = move |shard| state.unwrap_or_else(|| initial(shard));
            Node::begin_state(thread, builder, node, initial)
        })
    }

    /// Starts the nodes by `start`, in the order of their processes.
    fn assemble(
        options: &ClusterOptions,
        placement: &Placement,
        mut begin: impl FnMut(&NodeThread, Builder, NodeOptions) -> Joining,
    ) -> Result<Self, ClusterError> {
        let processes = u32::from(options.shards) * u32::from(options.replicas);
        let failed = |source| ClusterError::Node { fabric: options.fabric.clone(), source };
        let threads = start_threads(options.threads, processes as usize + 1);
        let threads = threads.map_err(|error| failed(error.into()))?;
        let begin = |(process, thread)| {
            let builder = Pipe::builder().fabric(&options.fabric).process(process);
            let builder = builder
                .tune_shared_memory(|config| config.liveness_interval_ns = LIVENESS_INTERVAL_NS);
            let (placement, reads) = (placement.clone(), options.reads);
            let is_durable = options.storage.is_some();
            let client = ClientOptions { is_durable, ..options.client };
            let node = NodeOptions { placement, reads, client };
            begin(thread, builder.processes(processes + 1), node)
        };
        let joining: Vec<Joining> =
            (0..=processes).zip(threads.iter().cycle()).map(begin).collect();
        let mut nodes = Vec::new();
        for joining in joining {
            nodes.push(joining.wait().map_err(failed)?);
        }
        let front = nodes.pop().expect("there is one node more than replicas");
        Ok(Self { front, replicas: nodes })
    }

    /// Returns the handle to execute transactions with.
    pub fn handle(&self) -> NodeHandle {
        self.front.handle().needing_disks(self.replicas())
    }

    /// Returns the handles of the replicas' nodes.
    pub fn replicas(&self) -> impl Iterator<Item = NodeHandle> {
        self.replicas.iter().map(Node::handle)
    }
}

/// Starts the threads for a number of nodes.
fn start_threads(threads: usize, nodes: usize) -> io::Result<Vec<NodeThread>> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get) / 2,
        threads => threads,
    };
    let least = nodes.div_ceil(Rest::pipes_max());
    (0..threads.max(least).min(nodes)).map(|_| NodeThread::start("kv")).collect()
}
