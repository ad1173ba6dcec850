//! How the nodes of a log run.

use std::collections::BTreeSet;

use onepipe::ProcessId;
use onepipe_log::{ClientOptions, ReplicaOptions};

/// What all nodes of a log have in common.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The processes that hold replicas.
    pub replicas: BTreeSet<ProcessId>,
    /// How clients run.
    pub client: ClientOptions,
    /// How replicas run. Whether they are durable follows from [`crate::Own::directory`].
    pub replica: ReplicaOptions,
}
