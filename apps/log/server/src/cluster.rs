//! A whole log in this process: replicas over shared memory, in one thread.

use std::path::PathBuf;

use onepipe::{Builder, Pipe, ProcessId};
use onepipe_log::{ClientOptions, ReplicaOptions, State};

use crate::handle::LogHandle;
use crate::node::{Joining, Node, NodeError, Own};
use crate::options::NodeOptions;
use crate::thread::NodeThread;

/// How often the nodes look whether others have died, in ns: each look takes several system calls,
/// and nodes of one process do not die alone.
const LIVENESS_INTERVAL_NS: u64 = 100_000_000;

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Name of the fabric, which no other cluster on this machine may use.
    pub fabric: String,
    /// Number of replicas.
    pub replicas: u32,
    /// The directory of the log, in which each replica has one. `None`: in memory only.
    pub directory: Option<PathBuf>,
    /// How clients run.
    pub client: ClientOptions,
    /// How replicas run.
    pub replica: ReplicaOptions,
    /// Number of processes beyond the replicas and the client of the cluster that may join the
    /// fabric.
    pub clients: u32,
}

impl ClusterOptions {
    /// Returns the usual settings: in memory, no other clients.
    pub fn new(fabric: impl Into<String>, replicas: u32) -> Self {
        Self {
            fabric: fabric.into(),
            replicas,
            directory: None,
            client: ClientOptions::default(),
            replica: ReplicaOptions::default(),
            clients: 0,
        }
    }

    /// Returns what the nodes have in common.
    pub fn node(&self) -> NodeOptions {
        let replicas = (0..self.replicas).map(ProcessId).collect();
        NodeOptions { replicas, client: self.client, replica: self.replica }
    }

    /// Returns how a process joins the fabric.
    pub fn builder(&self, process: u32) -> Builder {
        let builder = Pipe::builder().fabric(&self.fabric).process(process);
        builder.processes(self.replicas + 1 + self.clients)
    }
}

/// A log whose replicas all run in this process. It ends when it is dropped.
pub struct Cluster {
    /// The client ends first: it uses the replicas.
    front: Node,
    replicas: Vec<Node>,
}

impl Cluster {
    /// Starts all replicas, each with the state that `open_state` returns, and a node that is a
    /// client only.
    ///
    /// # Errors
    /// A directory cannot be used, or a process of the fabric exists already.
    pub fn start<S: State>(
        options: &ClusterOptions,
        mut open_state: impl FnMut(u32) -> S,
    ) -> Result<Self, NodeError> {
        Self::try_start(options, |replica| Ok(open_state(replica)))
    }

    /// As [`Cluster::start`], with states that cannot always be opened.
    ///
    /// # Errors
    /// As [`Cluster::start`]; [`NodeError::State`].
    pub fn try_start<S: State>(
        options: &ClusterOptions,
        mut open_state: impl FnMut(u32) -> std::io::Result<S>,
    ) -> Result<Self, NodeError> {
        let thread = NodeThread::start()?;
        let node = options.node();
        let builder = |process| {
            options
                .builder(process)
                .tune_shared_memory(|config| config.liveness_interval_ns = LIVENESS_INTERVAL_NS)
        };
        let mut joining: Vec<Joining> = Vec::new();
        for replica in 0..options.replicas {
            let state = open_state(replica).map_err(NodeError::State)?;
            let own = Own { directory: options.directory.clone(), state };
            let process = ProcessId(replica);
            joining.push(Node::begin(&thread, process, builder(replica), &node, own)?);
        }
        let front = Node::begin_client(&thread, builder(options.replicas), &node)?;
        let replicas: Result<Vec<_>, _> = joining.into_iter().map(Joining::wait).collect();
        Ok(Self { front: front.wait()?, replicas: replicas? })
    }

    /// Returns the handle to use the log with.
    pub fn handle(&self) -> LogHandle {
        self.front.handle()
    }

    /// Returns the handles of the replicas' nodes. Each is a client, too: what it appends is
    /// applied by its own state at once when it is committed.
    pub fn replicas(&self) -> impl Iterator<Item = LogHandle> {
        self.replicas.iter().map(Node::handle)
    }
}
