//! What `onepipe kv serve` runs: all nodes of a store, or one of them.

use std::time::Duration;

use anyhow::Result;
use onepipe::{Builder, Pipe, ProcessId};
use onepipe_kv::Store;
use onepipe_kv_server::{
    Cluster, ClusterError, ClusterOptions, Node, NodeError, NodeHandle, NodeOptions,
};
use onepipe_transaction::Placement;

/// Number of processes beyond the replicas that a store in shared memory has room for.
const CLIENTS_MAX: u32 = 16;
/// Time after which the processes that a store waits for are shown.
const SHOW_AFTER: Duration = Duration::from_secs(2);

/// How a node that runs alone joins the fabric.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Through shared memory.
    Memory,
    /// Through a switch.
    Switch(&'a str),
    /// Through an aggregator.
    Aggregator(&'a str),
}

/// The nodes of this program.
pub enum Served {
    /// All nodes of the store.
    Whole(Cluster),
    /// One node.
    One(Node),
}

impl Served {
    /// Starts all nodes.
    pub fn start(options: &ClusterOptions) -> Result<Self, ClusterError> {
        Cluster::start(options).map(Self::Whole)
    }

    /// Starts the node of one process.
    pub fn join(options: &ClusterOptions, process: u32, access: Access<'_>) -> Result<Self> {
        let placement = Placement::consecutive(0, options.shards, options.replicas)?;
        let replicas = u32::from(options.shards) * u32::from(options.replicas);
        let builder: Builder = Pipe::builder().process(process);
        let builder = match access {
            Access::Memory => builder.fabric(&options.fabric).processes(replicas + CLIENTS_MAX),
            Access::Switch(address) => builder.udp(address),
            Access::Aggregator(address) => builder.overlay(address),
        };
        let node = NodeOptions { placement, reads: options.reads, client: options.client };
        let node = match &options.storage {
            Some(storage) => Node::join_stored(ProcessId(process), builder, node, storage),
            None => Node::join(builder, node, |_| Store::default()),
        };
        node.map(Self::One).map_err(|error| advise(error, options, process))
    }

    /// Returns the handle to execute transactions with.
    pub fn handle(&self) -> NodeHandle {
        match self {
            Self::Whole(cluster) => cluster.handle(),
            Self::One(node) => node.handle(),
        }
    }

    /// Returns the handles of all nodes of this program.
    pub fn nodes(&self) -> impl Iterator<Item = NodeHandle> {
        let replicas: Vec<NodeHandle> = match self {
            Self::Whole(cluster) => cluster.replicas().collect(),
            Self::One(_) => Vec::new(),
        };
        std::iter::once(self.handle()).chain(replicas)
    }
}

/// Adds what to do if the log of a replica is damaged.
fn advise(error: NodeError, options: &ClusterOptions, process: u32) -> anyhow::Error {
    let advice = match (&error, &options.storage) {
        (NodeError::Storage(damage), Some(storage)) if damage.is_damage() => format!(
            "cannot start the replica: move its directory away, and it takes the state of another \
             replica of its shard; or, with the directories of all replicas in {}, and none of \
             them running, use `onepipe kv repair --data {}`",
            storage.directory.display(),
            storage.directory.display()
        ),
        _ => format!("cannot join as process {process}"),
    };
    anyhow::Error::new(error).context(advice)
}

/// Shows which processes a store waits for, as they change.
#[derive(Debug, Default)]
pub struct Waiting {
    shown: Vec<ProcessId>,
}

impl Waiting {
    /// Shows on standard error what has changed, after the first seconds.
    pub fn show(&mut self, node: &NodeHandle, elapsed: Duration) {
        let waiting = node.waiting();
        if elapsed < SHOW_AFTER || waiting == self.shown {
            return;
        }
        match waiting.is_empty() {
            true => eprintln!("the store is open"),
            false => {
                let ids: Vec<String> = waiting.iter().map(|id| id.0.to_string()).collect();
                eprintln!("the store opens when these processes are ready: {}", ids.join(", "));
            }
        }
        self.shown = waiting;
    }
}
