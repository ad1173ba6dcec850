//! A whole store in this process: a thread for each replica, over shared memory.

use onepipe::{Builder, Pipe};
use onepipe_transaction::{ClientOptions, Placement, PlacementError, ReadMode, State};
use thiserror::Error;

use crate::node::{Node, NodeError, NodeHandle};
use crate::options::NodeOptions;
use crate::storage::{self, StorageError, StorageOptions, Stored};

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
        Self::assemble(options, &placement, |builder, node| {
            Node::start_with(builder, node, stored.next().flatten())
        })
    }

    /// As [`Cluster::start`], for another application: each replica begins with the state that
    /// `initial` returns for its shard, in memory only. Transactions go to [`NodeHandle::execute`].
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_states<S: State>(
        options: &ClusterOptions,
        initial: impl Fn(u16) -> S + Clone + Send + 'static,
    ) -> Result<Self, ClusterError> {
        let placement = options.placement()?;
        Self::assemble(options, &placement, |builder, node| {
            Node::start_state(builder, node, initial.clone())
        })
    }

    /// Starts the nodes by `start`, in the order of their processes.
    fn assemble(
        options: &ClusterOptions,
        placement: &Placement,
        mut start: impl FnMut(Builder, NodeOptions) -> Result<Node, NodeError>,
    ) -> Result<Self, ClusterError> {
        let processes = u32::from(options.shards) * u32::from(options.replicas);
        let start = |process| {
            let builder = Pipe::builder().fabric(&options.fabric).process(process);
            let (placement, reads) = (placement.clone(), options.reads);
            let is_durable = options.storage.is_some();
            let client = ClientOptions { is_durable, ..options.client };
            let node = NodeOptions { placement, reads, client };
            let fabric = options.fabric.clone();
            start(builder.processes(processes + 1), node)
                .map_err(|source| ClusterError::Node { fabric, source })
        };
        let mut nodes = (0..=processes).map(start).collect::<Result<Vec<_>, _>>()?;
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
