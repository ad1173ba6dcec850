//! Senders: the members from which this member may receive blocks.

use alloc::vec::Vec;

use onepipe_reliability::BitSet;

use crate::schedule::Schedule;

/// Number of blocks of a sample object whose schedule shows all senders of a member: enough for all
/// dimensions of the hypercube.
const SAMPLE_BLOCKS: u32 = 64;

/// Possible senders to this member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Senders {
    /// Ranks that may send the first block of an object.
    first: Vec<u32>,
    /// Ranks that may send any block.
    any: BitSet,
}

impl Senders {
    /// Determines the possible senders to `own` of `members`, before any object is known.
    pub fn new(schedule: &Schedule, own: u32, members: u32) -> Self {
        let mut senders = Self { first: Vec::new(), any: BitSet::new(members) };
        for blocks in [1, SAMPLE_BLOCKS] {
            if let Some(first) = schedule.first_block(own, blocks)
                && !senders.first.contains(&first.from)
            {
                senders.first.push(first.from);
            }
            for step in 0..schedule.steps(blocks) {
                if let Some(found) = schedule.incoming(own, blocks, step) {
                    senders.any.set(found.peer);
                }
            }
        }
        senders.check_invariants(own);
        senders
    }

    /// Returns the ranks that may send the first block of an object.
    pub fn first(&self) -> &[u32] {
        &self.first
    }

    #[inline]
    pub fn has(&self, rank: u32) -> bool {
        self.any.has(rank)
    }

    /// Adds a member that has sent a block.
    #[inline]
    pub fn add(&mut self, rank: u32) {
        self.any.set(rank);
    }

    /// Panics if this member is its own sender.
    pub fn check_invariants(&self, own: u32) {
        assert!(!self.first.contains(&own), "first blocks come from other members");
        assert!(!self.any.has(own), "blocks come from other members");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Algorithm, Plain};

    #[test]
    fn chain_has_one_sender_and_root_has_none() {
        let algorithm = Algorithm::Plain(Plain::Chain);
        let schedule = Schedule::new(&algorithm, 3).expect("a chain of three members");
        let mut senders = Senders::new(&schedule, 2, 3);
        assert_eq!((senders.first(), senders.has(0), senders.has(1)), (&[1][..], false, true));
        senders.add(0);
        assert!(senders.has(0));
        assert_eq!(Senders::new(&schedule, 0, 3).first(), [0; 0]);
    }
}
