//! The addresses of the other processes of an overlay.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use onepipe_base::{Incarnation, Mono, ProcessId};
use onepipe_wire::AddressAd;

/// Delay of the first repetition of a query, in ns, doubled on each repetition: a round trip across
/// a continent.
const RETRY_NS: u64 = 10_000_000;
/// Maximum number of queries without a reply, in all 1.3 s: then the direct route is given up.
const RETRIES_MAX: u32 = 7;
/// Interval of queries that check a direct route in use, in ns.
const REFRESH_NS: u64 = 1_000_000_000;

/// A direct advertisement without the nonce that only the real peer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unproved;

/// An address advertisement to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingAd {
    pub(crate) to: ProcessId,
    /// Destination address for a direct advertisement; `None` sends it by the tree.
    pub(crate) at: Option<SocketAddr>,
    pub(crate) wants_reply: bool,
    /// By the tree: what the peer has to return. 0 directly, where others could read it.
    pub(crate) nonce: u64,
    /// Directly: what the peer has sent by the tree.
    pub(crate) proof: u64,
}

/// The state of one peer.
#[derive(Clone, Debug)]
struct Peer {
    /// Latest incarnation that is proved: received by the tree, or with the right nonce.
    incarnation: Option<Incarnation>,
    /// The nonce that the peer has sent by the tree; 0: none yet.
    nonce: u64,
    /// The address from which the peer last sent the right nonce.
    source: Option<SocketAddr>,
    /// Unconfirmed address: advertised by the peer by the tree, or its proved source.
    candidate: Option<SocketAddr>,
    /// Confirmed address: a reply has come from it.
    direct: Option<SocketAddr>,
    /// Number of queries since the last direct reply.
    unanswered: u32,
    /// When the next query is due.
    next_query: Mono,
}

impl Peer {
    const UNKNOWN: Self = Self {
        incarnation: None,
        nonce: 0,
        source: None,
        candidate: None,
        direct: None,
        unanswered: 0,
        next_query: Mono::from_ns(0),
    };

    /// Schedules the next query after one was sent now.
    fn schedule_query(&mut self, now: Mono) {
        self.next_query = now.after_ns(RETRY_NS << self.unanswered.min(RETRIES_MAX - 1));
        self.unanswered = self.unanswered.saturating_add(1);
    }
}

/// The state of all peers, by process id. Sends nothing by itself but returns the advertisements to
/// send (docs/design/overlay.md, "How do processes find each other?").
#[derive(Clone, Debug)]
pub(crate) struct PeerTable {
    own: ProcessId,
    /// The secret of this start: SipHash with random keys.
    secret: RandomState,
    peers: Vec<Peer>,
}

impl PeerTable {
    /// Starts without any known address.
    pub(crate) fn new(own: ProcessId, processes_max: u32) -> Self {
        let peers = vec![Peer::UNKNOWN; processes_max as usize];
        Self { own, secret: RandomState::new(), peers }
    }

    /// Returns the direct route for a frame to `to`, if confirmed, and passes due queries to
    /// `on_query`: by the tree, and directly where an address is known.
    #[inline]
    pub(crate) fn route(
        &mut self,
        now: Mono,
        to: ProcessId,
        on_query: impl FnMut(PendingAd),
    ) -> Option<SocketAddr> {
        if self.peers.get(to.index())?.next_query <= now {
            self.send_query(now, to, on_query);
        }
        self.peers[to.index()].direct
    }

    #[cold]
    fn send_query(&mut self, now: Mono, to: ProcessId, mut on_query: impl FnMut(PendingAd)) {
        let peer = &mut self.peers[to.index()];
        if peer.unanswered >= RETRIES_MAX {
            (peer.direct, peer.candidate) = (None, None);
        }
        let (direct, candidate) = (peer.direct, peer.candidate);
        peer.schedule_query(now);
        if let Some(at) = direct.or(candidate) {
            on_query(self.ad(to, Some(at), true));
        }
        if direct.is_none() {
            on_query(self.ad(to, None, true));
        }
    }

    //= spec/ordering.md#R80
    /// Returns an advertisement. A nonce never leaves by the direct path, and the proof goes to an
    /// address that the peer itself has advertised by the tree or has proved.
    fn ad(&self, to: ProcessId, at: Option<SocketAddr>, wants_reply: bool) -> PendingAd {
        let (nonce, proof) = match at {
            None => (self.nonce(to), 0),
            Some(_) => (0, self.peers[to.index()].nonce),
        };
        PendingAd { to, at, wants_reply, nonce, proof }
    }

    /// Returns the nonce for `peer`, which nobody else can compute. Not 0.
    fn nonce(&self, peer: ProcessId) -> u64 {
        self.secret.hash_one(peer.0).max(1)
    }

    /// Returns the confirmed address of `process`.
    pub(crate) fn direct(&self, process: ProcessId) -> Option<SocketAddr> {
        self.peers.get(process.index())?.direct
    }

    //= spec/ordering.md#R80
    /// Returns whether `process` has proved that it sends from `from`.
    #[inline]
    pub(crate) fn is_source(&self, process: ProcessId, from: Option<SocketAddr>) -> bool {
        from.is_some() && self.peers.get(process.index()).is_some_and(|peer| peer.source == from)
    }

    /// Returns the number of confirmed routes.
    pub(crate) fn direct_count(&self) -> usize {
        self.peers.iter().filter(|peer| peer.direct.is_some()).count()
    }

    /// Handles an address advertisement; `seen` is its source address if it came directly. Returns
    /// the reply to send.
    ///
    /// # Errors
    /// [`Unproved`]: it came directly without the nonce that this process has sent to the peer by
    /// the tree.
    pub(crate) fn on_address_ad(
        &mut self,
        now: Mono,
        (from, incarnation): (ProcessId, Incarnation),
        address_ad: AddressAd,
        seen: Option<SocketAddr>,
    ) -> Result<Option<PendingAd>, Unproved> {
        if from == self.own {
            return Ok(None);
        }
        //= spec/ordering.md#R80
        let is_proved = seen.is_none() || address_ad.proof == self.nonce(from);
        let Some(peer) = self.peers.get_mut(from.index()) else { return Ok(None) };
        if !is_proved {
            return Err(Unproved);
        }
        if peer.incarnation.is_some_and(|last| last > incarnation) {
            return Ok(None);
        }
        if peer.incarnation.replace(incarnation).is_some_and(|last| last < incarnation) {
            *peer = Peer { incarnation: Some(incarnation), ..Peer::UNKNOWN };
        }
        // By the tree: the advertisement names an address that is yet unconfirmed. A query is
        // answered by the tree; a reply is followed by a query to the address itself.
        let Some(seen) = seen else {
            peer.nonce = address_ad.nonce;
            let is_address =
                address_ad.address.port() != 0 && !address_ad.address.ip().is_unspecified();
            if is_address && peer.direct.is_none() {
                peer.candidate = Some(address_ad.address);
            }
            let at = if address_ad.wants_reply { None } else { peer.candidate };
            let has_reply = address_ad.wants_reply || at.is_some();
            return Ok(has_reply.then(|| self.ad(from, at, !address_ad.wants_reply)));
        };
        // Directly: the address works in this direction. A reply shows that it works in both.
        (peer.source, peer.candidate) = (Some(seen), Some(seen));
        if address_ad.wants_reply {
            return Ok(Some(self.ad(from, Some(seen), false)));
        }
        peer.direct = Some(seen);
        peer.unanswered = 0;
        peer.next_query = now.after_ns(REFRESH_NS);
        Ok(None)
    }

    /// Removes an address that refused a datagram.
    pub(crate) fn on_refused(&mut self, address: SocketAddr) {
        for peer in &mut self.peers {
            peer.candidate.take_if(|candidate| *candidate == address);
            peer.direct.take_if(|direct| *direct == address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn address(udp_port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], udp_port))
    }

    fn at(ms: u64) -> Mono {
        Mono::from_ns(ms * MS)
    }

    fn incarnation(number: u32) -> (ProcessId, Incarnation) {
        (ProcessId(1), Incarnation(number))
    }

    /// Routes a frame for process 1 at `ms`: returns its route and the queries sent.
    fn route_of(peers: &mut PeerTable, ms: u64) -> (Option<u16>, Vec<(Option<u16>, bool)>) {
        let mut queries = Vec::new();
        let route = peers.route(at(ms), ProcessId(1), |ad| {
            queries.push((ad.at.map(|at| at.port()), ad.wants_reply));
        });
        (route.map(|route| route.port()), queries)
    }

    fn advertised(
        peers: &mut PeerTable,
        ms: u64,
        (number, wants_reply): (u32, bool),
        udp_port: u16,
        seen: Option<u16>,
    ) -> Option<(Option<u16>, bool)> {
        let proof = if seen.is_some() { peers.nonce(ProcessId(1)) } else { 0 };
        let advertised = AddressAd { wants_reply, address: address(udp_port), nonce: 9, proof };
        let ad = peers.on_address_ad(at(ms), incarnation(number), advertised, seen.map(address));
        let ad = ad.expect("the proof is right")?;
        let sent = if ad.at.is_some() { (0, 9) } else { (peers.nonce(ProcessId(1)), 0) };
        assert_eq!((ad.nonce, ad.proof), sent, "no nonce leaves by the direct path");
        Some((ad.at.map(|at| at.port()), ad.wants_reply))
    }

    /// Queries by the tree, learns an address, queries it, and gets a reply from another one.
    fn with_direct_route() -> PeerTable {
        let mut peers = PeerTable::new(ProcessId(0), 4);
        assert_eq!(route_of(&mut peers, 0), (None, vec![(None, true)]));
        assert_eq!(advertised(&mut peers, 1, (1, false), 70, None), Some((Some(70), true)));
        assert_eq!(route_of(&mut peers, 2), (None, vec![]), "the address is unconfirmed");
        assert_eq!(advertised(&mut peers, 3, (1, false), 70, Some(71)), None);
        assert_eq!(route_of(&mut peers, 4), (Some(71), vec![]));
        peers
    }

    #[test]
    fn route_is_direct_once_confirmed() {
        let mut peers = with_direct_route();
        assert_eq!((peers.direct_count(), peers.direct(ProcessId(1))), (1, Some(address(71))));
        // An advertisement by the tree does not reset the route.
        assert_eq!(advertised(&mut peers, 5, (1, true), 72, None), Some((None, false)));
        assert_eq!(route_of(&mut peers, 6), (Some(71), vec![]));
    }

    #[test]
    fn query_is_answered_by_the_route_it_came() {
        let mut peers = PeerTable::new(ProcessId(0), 4);
        assert_eq!(advertised(&mut peers, 1, (1, true), 70, None), Some((None, false)));
        assert_eq!(advertised(&mut peers, 1, (1, true), 70, Some(71)), Some((Some(71), false)));
        assert_eq!(peers.direct_count(), 0);
        assert_eq!(route_of(&mut peers, 2), (None, vec![(Some(71), true), (None, true)]));
        assert_eq!(advertised(&mut peers, 3, (1, false), 0, None), Some((Some(71), true)));
    }

    #[test]
    fn queries_back_off_and_expire_the_route() {
        let mut peers = with_direct_route();
        assert_eq!(route_of(&mut peers, 1_002).1, []);
        let mut queried = Vec::new();
        for ms in 1_003..5_000 {
            let (route, queries) = route_of(&mut peers, ms);
            if !queries.is_empty() {
                queried.push((ms - 1_003, route.is_some(), queries.len()));
            }
        }
        let direct = [0, 10, 30, 70, 150, 310, 630].map(|ms| (ms, true, 1));
        assert_eq!(queried[..7], direct);
        assert_eq!(queried[7..9], [(1_270, false, 1), (1_910, false, 1)]);
        assert_eq!(advertised(&mut peers, 6_000, (1, false), 70, Some(71)), None);
        assert_eq!(route_of(&mut peers, 6_001), (Some(71), vec![]));
    }

    #[test]
    fn new_incarnation_resets_and_old_one_is_ignored() {
        let mut peers = with_direct_route();
        assert_eq!(advertised(&mut peers, 10, (2, true), 80, None), Some((None, false)));
        assert_eq!(route_of(&mut peers, 11), (None, vec![(Some(80), true), (None, true)]));
        assert_eq!(advertised(&mut peers, 12, (1, false), 70, Some(71)), None);
        assert_eq!(peers.direct_count(), 0);
    }

    #[test]
    fn refused_address_is_removed() {
        let mut peers = with_direct_route();
        peers.on_refused(address(70));
        assert_eq!(route_of(&mut peers, 10).0, Some(71));
        peers.on_refused(address(71));
        assert_eq!(route_of(&mut peers, 1_003), (None, vec![(None, true)]));
    }

    #[test]
    fn unknown_ids_and_self_are_ignored() {
        let mut peers = PeerTable::new(ProcessId(1), 4);
        assert_eq!(advertised(&mut peers, 0, (1, true), 70, Some(70)), None);
        let advertised = AddressAd { wants_reply: true, address: address(7), nonce: 0, proof: 0 };
        assert_eq!(
            peers.on_address_ad(at(0), (ProcessId(4), Incarnation(1)), advertised, None),
            Ok(None)
        );
        assert_eq!(peers.route(at(0), ProcessId(9), |_| panic!("asked")), None);
    }

    /// One advertisement straight to a process once sent it another's messages, in clear.
    //= spec/ordering.md#R80
    #[test]
    fn address_without_the_right_nonce_is_not_believed() {
        let mut peers = with_direct_route();
        let right = peers.nonce(ProcessId(1));
        for (proof, number) in [(0, 1), (right ^ 1, 1), (peers.nonce(ProcessId(2)), u32::MAX)] {
            for wants_reply in [false, true] {
                let ad = AddressAd { wants_reply, address: address(66), nonce: 5, proof };
                let seen = Some(address(66));
                let result = peers.on_address_ad(at(5), incarnation(number), ad, seen);
                assert_eq!(result, Err(Unproved), "no reply reveals the nonce of the peer");
            }
        }
        assert_eq!(route_of(&mut peers, 6), (Some(71), vec![]));
        assert!(peers.is_source(ProcessId(1), Some(address(71))));
        for (process, from) in [(1, Some(address(66))), (2, Some(address(71))), (1, None)] {
            assert!(!peers.is_source(ProcessId(process), from));
        }
        // The incarnation 2^32 - 1 has muted nobody.
        assert_eq!(advertised(&mut peers, 7, (2, true), 80, None), Some((None, false)));
    }
}
