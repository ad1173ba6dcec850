//! A whole log in this process: replicas over shared memory, in one thread.

use std::path::PathBuf;

use onepipe::{Builder, Pipe, ProcessId};
use onepipe_log::{ClientOptions, ReplicaOptions, State};

use crate::handle::LogHandle;
use crate::node::{Joining, Node, NodeError, Own};
use crate::node_thread::NodeThread;
use crate::options::NodeOptions;

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

    /// Returns how a process of the cluster's own program joins the fabric.
    fn own_builder(&self, process: u32) -> Builder {
        self.builder(process)
            .tune_shared_memory(|config| config.liveness_interval_ns = LIVENESS_INTERVAL_NS)
    }
}

/// A log whose replicas all run in this process. It ends when it is dropped.
pub struct Cluster {
    /// The client ends first: it uses the replicas.
    front: Node,
    /// The nodes of the replicas; `None` of one that was stopped.
    replicas: Vec<Option<Node>>,
    options: ClusterOptions,
    thread: NodeThread,
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
        // All of them before the first node, which would have to end again.
        let open_state = |replica| Ok((replica, open_state(replica).map_err(NodeError::State)?));
        let states: Result<Vec<_>, NodeError> = (0..options.replicas).map(open_state).collect();
        let thread = NodeThread::start("log")?;
        let node = options.node();
        let builder = |process| options.own_builder(process);
        let begin = |(replica, state)| {
            let own = Own { directory: options.directory.clone(), state };
            Node::begin(&thread, ProcessId(replica), builder(replica), &node, own)
        };
        let replicas: Vec<_> = states?.into_iter().map(begin).collect();
        let front = Node::begin_client(&thread, builder(options.replicas), &node);
        // All are awaited before an error is returned: then no node uses a directory any more.
        let wait = |begun: Result<Joining, NodeError>| begun.and_then(Joining::wait);
        let replicas: Vec<_> = replicas.into_iter().map(wait).collect();
        let front = wait(front);
        let replicas: Result<Vec<_>, _> = replicas.into_iter().map(|node| node.map(Some)).collect();
        Ok(Self { front: front?, replicas: replicas?, options: options.clone(), thread })
    }

    /// Ends the node of a replica, which leaves the fabric. The log goes on with the others.
    ///
    /// # Panics
    /// If there is no such replica.
    pub fn stop(&mut self, replica: u32) {
        if let Some(node) = self.replicas[replica as usize].take() {
            node.leave();
        }
    }

    /// Starts the node of a replica again that was stopped, with the files that it has now. It
    /// catches up from the others.
    ///
    /// # Errors
    /// As [`Node::start`].
    ///
    /// # Panics
    /// If there is no such replica, or its node was not stopped.
    pub fn restart<S: State>(&mut self, replica: u32, state: S) -> Result<LogHandle, NodeError> {
        let stopped = &mut self.replicas[replica as usize];
        assert!(stopped.is_none(), "the node of the replica was stopped");
        let own = Own { directory: self.options.directory.clone(), state };
        let builder = self.options.own_builder(replica);
        let node = self.options.node();
        let joining = Node::begin(&self.thread, ProcessId(replica), builder, &node, own)?;
        Ok(stopped.insert(joining.wait()?).handle())
    }

    /// Returns the handle to use the log with.
    pub fn handle(&self) -> LogHandle {
        self.front.handle()
    }

    /// Returns the handles of the nodes of the replicas that were not stopped. Each is a client,
    /// too: what it appends is applied by its own state at once when it is committed.
    pub fn replicas(&self) -> impl Iterator<Item = LogHandle> {
        self.replicas.iter().flatten().map(Node::handle)
    }
}
