//! How a node runs.

use onepipe_transaction::{ClientOptions, Placement, ReadMode};

/// What a node does.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where the shards are.
    pub placement: Placement,
    /// What reads guarantee.
    pub reads: ReadMode,
    /// How the client of the node runs.
    pub client: ClientOptions,
}
