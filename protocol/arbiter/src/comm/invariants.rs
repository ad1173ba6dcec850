//! What holds between any two calls.

use onepipe_base::ProcessId;

use super::{Comm, DEMANDS_MAX, Demand, PeerState};

impl Comm {
    /// Asserts what no input can break. For drivers of debug builds, tests and fuzzers.
    ///
    /// # Panics
    /// When an invariant is broken.
    pub fn check_invariants(&self) {
        (0..self.config.nodes as u16).for_each(|src| self.check_peer(src));
        self.ready.check_invariants();
        self.held.check_invariants();
        self.probes.check_invariants();
        self.timers.check_invariants();
        let is_sorted = self.timers.iter().map(|(_, due)| due).is_sorted();
        assert!(is_sorted, "timers are in the order of their deadlines");
        self.check_demands();
    }

    /// Asserts that the state of an endpoint, its session and its timers agree.
    fn check_peer(&self, src: u16) {
        let peer = &self.peers[usize::from(src)];
        peer.session.check_invariants();
        peer.grants.check_invariants(self.config.nodes);
        let is_sent = peer.session.unacked.oldest_sent_at().is_some();
        match peer.state {
            PeerState::Closed => assert!(!peer.session.is_open(), "{src} has no session"),
            PeerState::Resetting | PeerState::InStep => {
                assert!(peer.session.is_open(), "{src} has a session");
                let is_armed = self.timers.contains(src);
                assert!(!is_sent || is_armed, "what {src} has to acknowledge has a timer");
            }
            PeerState::Unreachable => assert!(self.probes.contains(src), "{src} is probed"),
        }
        if peer.state == PeerState::InStep {
            assert!(peer.session.is_confirmed(), "{src} has confirmed the reset");
        } else {
            assert_eq!(peer.pending, 0, "{src} requests nothing without a session");
        }
        if matches!(peer.state, PeerState::Closed | PeerState::Unreachable) {
            assert!(peer.grants.is_empty(), "{src} gets no grants without a session");
            assert!(peer.resend.is_empty(), "{src} gets no totals without a session");
        }
        let is_unreachable_dst = |dst: &u16| u32::from(*dst) >= self.config.nodes;
        assert!(!peer.resend.iter().any(is_unreachable_dst), "totals are of endpoints");
    }

    /// Asserts what a frame of `src` cannot break, if that is an endpoint.
    pub(crate) fn check_sender(&self, src: ProcessId) {
        if src.0 < self.config.nodes {
            self.check_peer(src.0 as u16);
        }
    }

    /// Asserts that demand is of endpoints, and behind the reset of its source.
    fn check_demands(&self) {
        let nodes = self.config.nodes;
        assert!(self.demands.len() <= nodes as usize + DEMANDS_MAX, "the demands are bounded");
        for (at, demand) in self.demands.iter().enumerate() {
            match *demand {
                Demand::Want { src, dst, slots } => {
                    assert!(src < nodes && dst < nodes && src != dst, "a pair of endpoints");
                    assert!((1..=self.config.demand_slots_max).contains(&slots), "a capped demand");
                }
                Demand::Forget(src) => {
                    assert!(src < nodes, "an endpoint");
                    let is_of = |before: &Demand| match *before {
                        Demand::Forget(of) | Demand::Want { src: of, .. } => of == src,
                    };
                    let before = self.demands.iter().take(at).find(|before| is_of(before));
                    assert_eq!(before, None, "a reset drops all demand of {src} before it");
                }
            }
        }
    }

    /// Asserts that what each endpoint waits for is what its pairs wait for. Holds if every grant
    /// was requested, so for an arbiter as a whole.
    pub(crate) fn check_totals(&self) {
        let nodes = self.config.nodes as usize;
        for (peer, totals) in self.peers.iter().zip(self.totals.chunks_exact(nodes)) {
            let pending: u32 = totals.iter().map(|totals| totals.pending()).sum();
            assert_eq!(peer.pending, pending, "an endpoint waits for what its pairs wait for");
        }
    }
}
