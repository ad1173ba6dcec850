//! Settings of the allocator, and the errors of invalid settings and requests.

use crate::timeslot::BATCH_SLOTS_MAX;

/// Maximum number of endpoints of one arbiter.
pub(crate) const NODES_MAX: u32 = 4096;

/// The order in which pairs are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Serves the pair that was served least recently, so that competing pairs get equal shares in
    /// the long run. A pair with two busy ends yields to pairs with one busy end, at most 64 times
    /// while it has demand, which shortens the mean completion time.
    MaxMinFair,
    /// Serves the pair with the least remaining demand, so that short transfers complete sooner. A
    /// pair that has waited long becomes urgent. Grants fewer timeslots in total than max–min
    /// fairness: with few endpoints, fewer than an offered load of 0.9 requests.
    ShortestFirst,
}

/// Configuration of an [`crate::Allocator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Number of endpoints, 2 to 4096; they are numbered from 0.
    pub nodes: u32,
    /// Timeslots per batch, 1 to 64. Longer batches cost less per timeslot and add latency.
    /// Default 64.
    pub batch_slots: u32,
    /// The order in which pairs are served. Default max–min fair.
    pub policy: Policy,
    /// Timeslots that a pair gets per visit while others wait, 1 to 64. With 1, competing pairs
    /// alternate per timeslot; larger values cost less and complete long transfers earlier.
    /// Default 32.
    pub share_slots: u32,
    /// Maximum number of pairs with unmet demand. Default 256 per endpoint, or all pairs if these
    /// are fewer.
    pub pairs_max: u32,
    /// Number of batches after which a drained flow is renewed with what its pair has requested
    /// meanwhile, at most 16. A pipeline may have this number of batches in flight and one more,
    /// and needs at least 1. With 0 (one core only) a flow is renewed within the same batch.
    /// Default 0.
    pub renew_after_batches: u32,
}

impl Config {
    /// Returns the defaults for `nodes` endpoints.
    pub const fn new(nodes: u32) -> Self {
        let all = nodes.saturating_mul(nodes);
        let some = nodes.saturating_mul(256);
        Self {
            nodes,
            batch_slots: BATCH_SLOTS_MAX,
            policy: Policy::MaxMinFair,
            share_slots: 32,
            pairs_max: if some < all { some } else { all },
            renew_after_batches: 0,
        }
    }

    /// Returns the timeslots that a pair gets per visit under the configured policy.
    pub(crate) fn share(&self) -> u32 {
        match self.policy {
            Policy::MaxMinFair => self.share_slots,
            Policy::ShortestFirst => self.batch_slots,
        }
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let slots = 1..=BATCH_SLOTS_MAX;
        check_setting((2..=NODES_MAX).contains(&self.nodes), "nodes", self.nodes)?;
        check_setting(slots.contains(&self.batch_slots), "batch_slots", self.batch_slots)?;
        check_setting(slots.contains(&self.share_slots), "share_slots", self.share_slots)?;
        let returns = self.renew_after_batches;
        check_setting((0..=16).contains(&returns), "renew_after_batches", returns)?;
        check_setting((1..=1 << 24).contains(&self.pairs_max), "pairs_max", self.pairs_max)
    }
}

/// A setting that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{name} cannot be {value}")]
pub struct ConfigError {
    /// The setting.
    pub name: &'static str,
    /// The rejected value.
    pub value: u64,
}

/// Returns `Ok` if `is_valid`.
///
/// # Errors
/// Otherwise: an error that names the setting.
pub fn check_setting(
    is_valid: bool,
    name: &'static str,
    value: impl Into<u64>,
) -> Result<(), ConfigError> {
    match is_valid {
        true => Ok(()),
        false => Err(ConfigError { name, value: value.into() }),
    }
}

/// Why a request was not taken in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The endpoint does not exist.
    #[error("there is no endpoint {node}: the number must be below {nodes} (nodes)")]
    UnknownNode {
        /// The unknown endpoint.
        node: u32,
        /// [`Config::nodes`].
        nodes: u32,
    },
    /// Source and destination are the same endpoint.
    #[error("endpoint {0} cannot request timeslots to itself")]
    ToItself(u32),
    /// The request exceeds the backlog limit of a pair; the part below the limit was taken.
    #[error("rejected {refused} timeslots: the backlog of the pair is full")]
    TooMuch {
        /// Timeslots that were not taken.
        refused: u32,
    },
    /// The maximum number of pairs is waiting already. Nothing was taken; retry later.
    #[error("cannot add a pair: {0} pairs wait for timeslots already (pairs_max)")]
    Full(u32),
}
