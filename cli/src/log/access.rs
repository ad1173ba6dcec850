//! How the programs of a log join its fabric.

use anyhow::{Context, Result};
use clap::Args;
use onepipe::{Builder, ProcessId};
use onepipe_log::{ClientOptions, ReplicaOptions};
use onepipe_log_server::{Node, NodeOptions};

use crate::args::{self, checked_address};

/// Options of all programs of a log.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// Number of replicas: the processes from 0 on
    #[arg(
        long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub replicas: u32,
    /// Name of the fabric in this machine's shared memory
    #[arg(long, value_name = "NAME", default_value = "log")]
    pub fabric: String,
    /// Address of the switch to join through, instead of shared memory
    #[arg(long, value_name = "ADDRESS", conflicts_with = "fabric", value_parser = checked_address)]
    pub udp: Option<String>,
    /// Address of the aggregator to join through, over any IP network
    #[arg(
        long, value_name = "ADDRESS", conflicts_with_all = ["udp", "fabric"],
        value_parser = checked_address
    )]
    pub overlay: Option<String>,
}

impl AccessArgs {
    /// Returns what the nodes of the log have in common.
    pub fn node(&self) -> NodeOptions {
        NodeOptions {
            replicas: (0..self.replicas).map(ProcessId).collect(),
            client: ClientOptions::default(),
            replica: ReplicaOptions::default(),
        }
    }

    /// Returns how a process joins.
    pub fn builder(&self, process: u32) -> Builder {
        args::builder(process, (self.udp.as_deref(), self.overlay.as_deref()), &self.fabric)
    }

    /// Joins as a client. `process`: its id; otherwise the second one behind those of the replicas,
    /// as `onepipe log serve` has the first.
    pub fn client(&self, process: Option<u32>) -> Result<Node> {
        let process = process.unwrap_or(self.replicas + 1);
        Node::start_client(self.builder(process), &self.node())
            .with_context(|| format!("cannot join the log as process {process}"))
    }
}
