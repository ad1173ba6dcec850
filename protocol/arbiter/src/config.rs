//! What an operator chooses, and what is refused.

use crate::timeslot::BATCH_SLOTS_MAX;

/// Endpoints that one arbiter serves at most: what the measurements of the design page go up to.
pub(crate) const NODES_MAX: u32 = 4096;
/// The longest timeslot, ns.
pub(crate) const SLOT_NS_MAX: u64 = 1 << 30;
/// Whose packets go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Whoever was served least recently, so that competing pairs get equal shares in the long run;
    /// but who has two busy ends gives way to who has one, 64 times at most as long as it wants
    /// something, so that transfers are complete sooner.
    MaxMinFair,
    /// Whoever has the least left, so that transfers are complete soon; but nobody waits for ever.
    /// In all less is given than max–min fair: of few endpoints at load 0.9 not all that is wanted.
    ShortestFirst,
}

/// How an [`crate::Allocator`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Endpoints, numbered from 0; 2 to 4096.
    pub nodes: u32,
    /// Timeslots of a batch, 1 to 64. Longer batches cost less for each timeslot and answer later.
    /// Default 64.
    pub batch_slots: u32,
    /// Whose packets go first. Default max–min fair.
    pub policy: Policy,
    /// Timeslots that a pair gets at a time while others wait, 1 to 64. With 1 competing pairs take
    /// turns timeslot by timeslot; more cost less, and soon complete what is long already. Default
    /// 32.
    pub share_slots: u32,
    /// Pairs that may want timeslots at one time. Default 256 for each endpoint, or all pairs there
    /// are if these are fewer.
    pub pairs_max: u32,
    /// So many batches after a pair was given all that it wanted, it is given what it has asked for
    /// since: at most 16. On several cores so many batches, and one more, may be under way, and one
    /// is the least; 0, in the same batch, is for one core. Default 0.
    pub return_batches: u32,
}

impl Config {
    /// The defaults for so many endpoints.
    pub const fn new(nodes: u32) -> Self {
        let all = nodes.saturating_mul(nodes);
        let some = nodes.saturating_mul(256);
        Self {
            nodes,
            batch_slots: BATCH_SLOTS_MAX,
            policy: Policy::MaxMinFair,
            share_slots: 32,
            pairs_max: if some < all { some } else { all },
            return_batches: 0,
        }
    }

    /// Timeslots that a pair is given at a time.
    pub(crate) fn share(&self) -> u32 {
        match self.policy {
            Policy::MaxMinFair => self.share_slots,
            Policy::ShortestFirst => self.batch_slots,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let slots = 1..=BATCH_SLOTS_MAX;
        check((2..=NODES_MAX).contains(&self.nodes), "nodes", self.nodes)?;
        check(slots.contains(&self.batch_slots), "batch_slots", self.batch_slots)?;
        check(slots.contains(&self.share_slots), "share_slots", self.share_slots)?;
        let returns = self.return_batches;
        check((0..=16).contains(&returns), "return_batches", returns)?;
        check((1..=1 << 24).contains(&self.pairs_max), "pairs_max", self.pairs_max)
    }
}

/// A setting that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{name} cannot be {value}")]
pub struct ConfigError {
    /// Which one.
    pub name: &'static str,
    /// What it was.
    pub value: u64,
}

/// Refuses a setting that is not right.
pub(crate) fn check(
    is_right: bool,
    name: &'static str,
    value: impl Into<u64>,
) -> Result<(), ConfigError> {
    match is_right {
        true => Ok(()),
        false => Err(ConfigError { name, value: value.into() }),
    }
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No such endpoint.
    #[error("there is no endpoint {node}: they are numbered below {nodes}")]
    UnknownNode {
        /// The number given.
        node: u32,
        /// [`Config::nodes`].
        nodes: u32,
    },
    /// An endpoint needs no network to reach itself.
    #[error("endpoint {0} asks for timeslots to itself")]
    ToItself(u32),
    /// More than any pair may wait for; what fits was taken.
    #[error("{refused} timeslots are more than a pair may wait for")]
    TooMuch {
        /// Timeslots that were not taken.
        refused: u32,
    },
    /// As many pairs wait as may. Nothing was taken; ask again when some are done.
    #[error("{0} pairs wait for timeslots already")]
    Full(u32),
}
