//! The addresses of the other processes of an overlay.

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

/// An address advertisement to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingAd {
    pub(crate) to: ProcessId,
    /// Destination address for a direct advertisement; `None` sends it by the tree.
    pub(crate) at: Option<SocketAddr>,
    pub(crate) wants_reply: bool,
}

/// The state of one peer.
#[derive(Clone, Debug)]
struct Peer {
    /// Latest known incarnation.
    incarnation: Option<Incarnation>,
    /// Unconfirmed address: advertised by the peer, or a source address of its frames.
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
    peers: Vec<Peer>,
}

impl PeerTable {
    /// Starts without any known address.
    pub(crate) fn new(own: ProcessId, processes_max: u32) -> Self {
        Self { own, peers: vec![Peer::UNKNOWN; processes_max as usize] }
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
        let peer = self.peers.get_mut(to.index())?;
        if peer.next_query <= now {
            Self::send_query(peer, now, to, on_query);
        }
        peer.direct
    }

    #[cold]
    fn send_query(peer: &mut Peer, now: Mono, to: ProcessId, mut on_query: impl FnMut(PendingAd)) {
        if peer.unanswered >= RETRIES_MAX {
            (peer.direct, peer.candidate) = (None, None);
        }
        if let Some(at) = peer.direct.or(peer.candidate) {
            on_query(PendingAd { to, at: Some(at), wants_reply: true });
        }
        if peer.direct.is_none() {
            on_query(PendingAd { to, at: None, wants_reply: true });
        }
        peer.schedule_query(now);
    }

    /// Returns the confirmed address of `process`.
    pub(crate) fn direct(&self, process: ProcessId) -> Option<SocketAddr> {
        self.peers.get(process.index())?.direct
    }

    /// Returns the number of confirmed routes.
    pub(crate) fn direct_count(&self) -> usize {
        self.peers.iter().filter(|peer| peer.direct.is_some()).count()
    }

    /// Handles an address advertisement; `seen` is its source address if it came directly. Returns
    /// the reply to send.
    pub(crate) fn on_address_ad(
        &mut self,
        now: Mono,
        (from, incarnation): (ProcessId, Incarnation),
        address_ad: AddressAd,
        seen: Option<SocketAddr>,
    ) -> Option<PendingAd> {
        if from == self.own {
            return None;
        }
        let peer = self.peers.get_mut(from.index())?;
        if peer.incarnation.is_some_and(|last| last > incarnation) {
            return None;
        }
        if peer.incarnation.replace(incarnation).is_some_and(|last| last < incarnation) {
            *peer = Peer { incarnation: Some(incarnation), ..Peer::UNKNOWN };
        }
        // By the tree: the advertisement names an address that is yet unconfirmed. A query is
        // answered by the tree; a reply is followed by a query to the address itself.
        let Some(seen) = seen else {
            let is_address =
                address_ad.address.port() != 0 && !address_ad.address.ip().is_unspecified();
            if is_address && peer.direct.is_none() {
                peer.candidate = Some(address_ad.address);
            }
            let at = if address_ad.wants_reply { None } else { peer.candidate };
            return (address_ad.wants_reply || at.is_some()).then_some(PendingAd {
                to: from,
                at,
                wants_reply: !address_ad.wants_reply,
            });
        };
        // Directly: the address works in this direction. A reply shows that it works in both.
        peer.candidate = Some(seen);
        if address_ad.wants_reply {
            return Some(PendingAd { to: from, at: Some(seen), wants_reply: false });
        }
        peer.direct = Some(seen);
        peer.unanswered = 0;
        peer.next_query = now.after_ns(REFRESH_NS);
        None
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
        let advertised = AddressAd { wants_reply, address: address(udp_port) };
        let ad = peers.on_address_ad(at(ms), incarnation(number), advertised, seen.map(address))?;
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
        let advertised = AddressAd { wants_reply: true, address: address(7) };
        assert_eq!(
            peers.on_address_ad(at(0), (ProcessId(4), Incarnation(1)), advertised, None),
            None
        );
        assert_eq!(peers.route(at(0), ProcessId(9), |_| panic!("asked")), None);
    }
}
