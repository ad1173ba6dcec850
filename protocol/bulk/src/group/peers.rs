//! Peers: the other members by rank, and which of them are to be served.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut, Range};

use onepipe_base::Mono;
use onepipe_reliability::BitSet;

use super::membership::Membership;
use crate::object::HaveWord;
use crate::peer::Peer;

/// Members of a group, seen from one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peers {
    own: u32,
    /// Peers by rank; the own entry is unused.
    peers: Vec<Peer>,
    /// Ranks with something to send.
    ready: BitSet,
}

impl Index<u32> for Peers {
    type Output = Peer;

    #[inline]
    fn index(&self, rank: u32) -> &Peer {
        &self.peers[rank as usize]
    }
}

impl IndexMut<u32> for Peers {
    #[inline]
    fn index_mut(&mut self, rank: u32) -> &mut Peer {
        &mut self.peers[rank as usize]
    }
}

impl Peers {
    /// Returns the peers of `own`, one of `peers`.
    pub fn new(own: u32, peers: Vec<Peer>) -> Self {
        debug_assert!((own as usize) < peers.len(), "this member is one of the group");
        Self { own, ready: BitSet::new(peers.len() as u32), peers }
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.peers.len() as u32
    }

    #[inline]
    pub fn ranks(&self) -> Range<u32> {
        0..self.len()
    }

    #[inline]
    pub fn get(&self, rank: u32) -> Option<&Peer> {
        self.peers.get(rank as usize)
    }

    pub fn iter(&self) -> core::slice::Iter<'_, Peer> {
        self.peers.iter()
    }

    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Peer> {
        self.peers.iter_mut()
    }

    /// Returns all other members that have not failed.
    pub fn live(&self, membership: &Membership) -> impl Iterator<Item = &Peer> {
        self.ranks().filter(|rank| membership.is_live_peer(*rank)).map(|rank| &self[rank])
    }

    /// Returns the ranks with something to send.
    #[inline]
    pub fn ready(&self) -> &BitSet {
        &self.ready
    }

    #[inline]
    pub fn set_ready(&mut self, rank: u32) {
        self.ready.set(rank);
    }

    #[inline]
    pub fn clear_ready(&mut self, rank: u32) {
        self.ready.clear(rank);
    }

    /// Marks all other members as ready, so that each is notified of a failure.
    pub fn set_all_ready(&mut self) {
        for rank in (0..self.len()).filter(|rank| *rank != self.own) {
            self.ready.set(rank);
        }
    }

    /// Marks the members as ready to which a completed block may be due. Output clears the others.
    pub fn set_ready_with_work(&mut self) {
        for (rank, peer) in (0..).zip(&self.peers) {
            if peer.transfers.awaits_block() {
                self.ready.set(rank);
            }
        }
    }

    /// Queues a state frame for a member.
    #[inline]
    pub fn queue_state(&mut self, rank: u32) {
        if rank != self.own && !self[rank].has_failed {
            self[rank].control.queue_state();
            self.ready.set(rank);
        }
    }

    pub fn queue_state_to_all(&mut self) {
        self.ranks().for_each(|rank| self.queue_state(rank));
    }

    /// Queues a state frame with tokens for an object. The frame is omitted if the object is
    /// complete by then, so that an object of one block costs no frame for tokens.
    pub fn queue_tokens(&mut self, rank: u32, object: u32) {
        if rank != self.own && !self[rank].has_failed {
            self[rank].control.queue_tokens(object);
            self.ready.set(rank);
        }
    }

    /// Restarts the failure timeouts, drops all transfers by the schedule and requests, and reports
    /// all held blocks from `stable` on.
    pub fn abandon_schedule(&mut self, now: Mono, stable: u32) {
        for peer in &mut self.peers {
            // This member may lead now, and may not have received anything from the peer yet.
            peer.last_received = now;
            peer.transfers.drop_schedule();
            peer.requested.clear();
            let from = (!peer.has_failed).then_some(HaveWord::first_of(stable));
            peer.control.restart_haves(from);
        }
    }

    /// Panics if a peer contradicts itself or the membership.
    pub fn check_invariants(&self, membership: &Membership, is_shared: bool) {
        assert!(self[self.own].session.is_idle(), "no frame goes to this member");
        for rank in self.ranks().filter(|rank| *rank != self.own) {
            self[rank].check_invariants(membership.failures().len(), is_shared);
            let has_failed = self[rank].has_failed || !membership.has_failed(rank);
            assert!(has_failed, "a failed member stays failed");
            let has_schedule = self[rank].transfers.scheduled() > 0;
            assert!(!has_schedule || !membership.has_failures(), "a failure ends the schedule");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::BlockId;
    use crate::session::LinkSession;
    use crate::{Config, GroupId, Link};
    use onepipe_base::Incarnation;

    #[test]
    fn only_live_peers_are_served() {
        let config = Config::new(GroupId(1), Vec::new(), 1, Incarnation(1));
        let peer = |_| Peer::new(LinkSession::new(Link::Reliable, &config));
        let mut peers = Peers::new(1, (0..4).map(peer).collect());
        peers[2].close();
        peers.queue_state_to_all();
        assert_eq!(peers.ready().words(), [0b1001], "neither this member nor a failed one");
        peers.clear_ready(0);
        peers.clear_ready(3);
        peers[3].transfers.on_request(BlockId { object: 0, block: 0 });
        peers.set_ready_with_work();
        assert_eq!(peers.ready().words(), [0b1000], "a block is due to the member that requests");
        peers.abandon_schedule(Mono::from_ns(9), 5);
        assert_eq!(peers[3].last_received, Mono::from_ns(9));
        peers.check_invariants(&Membership::new(1, 4), false);
    }
}
