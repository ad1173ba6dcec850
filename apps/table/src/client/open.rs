//! An operation in flight.

use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_memory::{Completed, Executed, Outcome as Found};

use crate::layout::{Bucket, Location, Node};
use crate::outcome::Outcome;

/// What an operation is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    LookUp,
    Insert(Vec<u8>),
    Update(Vec<u8>),
    Delete,
}

/// What an operation waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The bucket.
    Bucket,
    /// A node, to which the word at the offset `pointer` points.
    Node { bucket: Bucket, pointer: u64, node: u64 },
    /// The bucket again: the outcome is right if it has not changed.
    Confirm { bucket: Bucket, outcome: Outcome },
    /// Free nodes.
    Reserving(Bucket),
    /// The change of a list, with the node that it adds or removes.
    Change { added: Option<u64>, removed: Option<u64> },
    /// The writing of a node that is linked already: a mistake.
    Late,
}

impl Step {
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Change { .. } | Self::Late)
    }
}

/// An operation that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Open {
    pub key: u64,
    pub command: Command,
    pub at: Location,
    /// The replica that the walk reads.
    pub replica: Option<ProcessId>,
    pub step: Step,
    /// The walk reads what the replica has, and is verified by what follows.
    pub is_early: bool,
}

impl Open {
    pub fn waits_for_nodes(&self, shard: u16) -> bool {
        self.at.shard == shard && matches!(self.step, Step::Reserving(_))
    }

    /// Returns the bucket as it was when the operation began to wait for nodes.
    pub fn bucket(&self) -> Option<Bucket> {
        match self.step {
            Step::Reserving(bucket) => Some(bucket),
            _ => None,
        }
    }
}

/// Returns the bucket, which each batch of a walk or a change reads first.
pub fn bucket(executed: &Executed) -> Option<Bucket> {
    match executed.outcomes.first()? {
        Found::Read(bytes) => Bucket::parse(bytes),
        _ => None,
    }
}

/// Returns the node that a batch reads after the bucket.
pub fn node(executed: &Executed) -> Option<Node> {
    match executed.outcomes.get(1)? {
        Found::Read(bytes) => Node::parse(bytes),
        _ => None,
    }
}

/// Returns whether a change was executed.
pub fn is_swapped(executed: &Executed) -> bool {
    matches!(executed.outcomes.get(1), Some(Found::Compared { is_swapped: true, .. }))
}

/// Returns the number of nodes that were reserved before.
pub fn added(executed: &Executed) -> Option<u64> {
    match executed.outcomes.first()? {
        Found::Added { previous } => Some(*previous),
        _ => None,
    }
}

/// Returns whether replicas have executed a request with different results.
pub fn differs(completed: &Completed) -> bool {
    let mut outcomes =
        completed.answers.iter().filter_map(|(_, answer)| Some(&answer.as_ref().ok()?.outcomes));
    let first = outcomes.next();
    outcomes.any(|other| Some(other) != first)
}
