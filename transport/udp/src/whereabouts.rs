//! Where the other processes of an overlay are, as far as that is known.

use std::net::SocketAddr;

use onepipe_base::{Incarnation, Mono, ProcessId};
use onepipe_wire::AddressAd;

/// The first repetition of a question follows after this, in ns, the next ones after twice as long
/// each: a round trip across a continent.
const RETRY_NS: u64 = 10_000_000;
/// A question that stays unanswered this many times, in all 1.3 s, closes a way …
const RETRIES_MAX: u32 = 7;
/// … and this is how often a way is tried that is in use, and open, in ns.
const REFRESH_NS: u64 = 1_000_000_000;

/// A `AddressAd` that is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Say {
    pub(crate) to: ProcessId,
    /// Directly, at this address; else by way of the tree.
    pub(crate) at: Option<SocketAddr>,
    pub(crate) asks: bool,
}

/// What is known of one process.
#[derive(Clone, Debug)]
struct Peer {
    /// The latest life that was heard of.
    life: Option<Incarnation>,
    /// Where it may be: it says so, or was seen there.
    told: Option<SocketAddr>,
    /// Where it is: an answer has come from there.
    open: Option<SocketAddr>,
    /// Questions since the last direct answer, and when the next one is due.
    unanswered: u32,
    ask_at: Mono,
}

impl Peer {
    const UNKNOWN: Self =
        Self { life: None, told: None, open: None, unanswered: 0, ask_at: Mono::from_ns(0) };

    /// When to ask again, having asked now.
    fn put_off(&mut self, now: Mono) {
        self.ask_at = now.after_ns(RETRY_NS << self.unanswered.min(RETRIES_MAX - 1));
        self.unanswered = self.unanswered.saturating_add(1);
    }
}

/// All processes, by id. Sends nothing by itself: it says what is to be said (design:
/// docs/design/overlay.md, "How do processes find each other?").
#[derive(Clone, Debug)]
pub(crate) struct Whereabouts {
    own: ProcessId,
    peers: Vec<Peer>,
}

impl Whereabouts {
    /// Nobody is known.
    pub(crate) fn new(own: ProcessId, processes_max: u32) -> Self {
        Self { own, peers: vec![Peer::UNKNOWN; processes_max as usize] }
    }

    /// Where a frame for `to` can go directly, if that is known, and what is to be asked now
    /// because there is such a frame: by the tree, and directly where an address is known.
    #[inline]
    pub(crate) fn way(
        &mut self,
        now: Mono,
        to: ProcessId,
        ask: impl FnMut(Say),
    ) -> Option<SocketAddr> {
        let peer = self.peers.get_mut(to.index())?;
        if peer.ask_at <= now {
            Self::ask(peer, now, to, ask);
        }
        peer.open
    }

    #[cold]
    fn ask(peer: &mut Peer, now: Mono, to: ProcessId, mut ask: impl FnMut(Say)) {
        if peer.unanswered >= RETRIES_MAX {
            (peer.open, peer.told) = (None, None);
        }
        if let Some(at) = peer.open.or(peer.told) {
            ask(Say { to, at: Some(at), asks: true });
        }
        if peer.open.is_none() {
            ask(Say { to, at: None, asks: true });
        }
        peer.put_off(now);
    }

    /// Where `process` is, if a way is open.
    pub(crate) fn open(&self, process: ProcessId) -> Option<SocketAddr> {
        self.peers.get(process.index())?.open
    }

    /// How many ways are open.
    pub(crate) fn open_count(&self) -> usize {
        self.peers.iter().filter(|peer| peer.open.is_some()).count()
    }

    /// A process says where it is; `seen` where this came from, if directly. Answers what is to be
    /// said to that.
    pub(crate) fn on_here(
        &mut self,
        now: Mono,
        (from, life): (ProcessId, Incarnation),
        here: AddressAd,
        seen: Option<SocketAddr>,
    ) -> Option<Say> {
        if from == self.own {
            return None;
        }
        let peer = self.peers.get_mut(from.index())?;
        if peer.life.is_some_and(|known| known > life) {
            return None;
        }
        if peer.life.replace(life).is_some_and(|known| known < life) {
            *peer = Peer { life: Some(life), ..Peer::UNKNOWN };
        }
        let Some(seen) = seen else {
            let is_address = here.address.port() != 0 && !here.address.ip().is_unspecified();
            if is_address && peer.open.is_none() {
                peer.told = Some(here.address);
            }
            let at = if here.asks { None } else { peer.told };
            return (here.asks || at.is_some()).then_some(Say { to: from, at, asks: !here.asks });
        };
        peer.told = Some(seen);
        if here.asks {
            return Some(Say { to: from, at: Some(seen), asks: false });
        }
        peer.open = Some(seen);
        peer.unanswered = 0;
        peer.ask_at = now.after_ns(REFRESH_NS);
        None
    }

    /// The kernel says that nobody listens at `address`.
    pub(crate) fn on_refused(&mut self, address: SocketAddr) {
        for peer in &mut self.peers {
            peer.told.take_if(|told| *told == address);
            peer.open.take_if(|open| *open == address);
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

    fn life(number: u32) -> (ProcessId, Incarnation) {
        (ProcessId(1), Incarnation(number))
    }

    /// A frame for process 1 at `ms`: its way, and what is asked.
    fn frame(known: &mut Whereabouts, ms: u64) -> (Option<u16>, Vec<(Option<u16>, bool)>) {
        let mut said = Vec::new();
        let way = known.way(at(ms), ProcessId(1), |say| {
            said.push((say.at.map(|at| at.port()), say.asks));
        });
        (way.map(|way| way.port()), said)
    }

    fn here(
        known: &mut Whereabouts,
        ms: u64,
        (number, asks): (u32, bool),
        udp_port: u16,
        seen: Option<u16>,
    ) -> Option<(Option<u16>, bool)> {
        let here = AddressAd { asks, address: address(udp_port) };
        let say = known.on_here(at(ms), life(number), here, seen.map(address))?;
        Some((say.at.map(|at| at.port()), say.asks))
    }

    /// Asked by the tree, told an address, asked there, answered from another one.
    fn opened() -> Whereabouts {
        let mut known = Whereabouts::new(ProcessId(0), 4);
        assert_eq!(frame(&mut known, 0), (None, vec![(None, true)]));
        assert_eq!(here(&mut known, 1, (1, false), 70, None), Some((Some(70), true)));
        assert_eq!(frame(&mut known, 2), (None, vec![]), "nobody has answered from there");
        assert_eq!(here(&mut known, 3, (1, false), 70, Some(71)), None);
        assert_eq!(frame(&mut known, 4), (Some(71), vec![]));
        known
    }

    #[test]
    fn a_way_is_open_when_an_answer_has_come_by_it() {
        let mut known = opened();
        assert_eq!((known.open_count(), known.open(ProcessId(1))), (1, Some(address(71))));
        // Another way through the tree does not close it.
        assert_eq!(here(&mut known, 5, (1, true), 72, None), Some((None, false)));
        assert_eq!(frame(&mut known, 6), (Some(71), vec![]));
    }

    #[test]
    fn who_asks_is_answered_the_way_it_came() {
        let mut known = Whereabouts::new(ProcessId(0), 4);
        assert_eq!(here(&mut known, 1, (1, true), 70, None), Some((None, false)));
        assert_eq!(here(&mut known, 1, (1, true), 70, Some(71)), Some((Some(71), false)));
        assert_eq!(known.open_count(), 0);
        assert_eq!(frame(&mut known, 2), (None, vec![(Some(71), true), (None, true)]));
        assert_eq!(here(&mut known, 3, (1, false), 0, None), Some((Some(71), true)));
    }

    #[test]
    fn questions_become_rarer_and_one_too_many_closes_the_way() {
        let mut known = opened();
        assert_eq!(frame(&mut known, 1_002).1, []);
        let mut asked = Vec::new();
        for ms in 1_003..5_000 {
            let (way, said) = frame(&mut known, ms);
            if !said.is_empty() {
                asked.push((ms - 1_003, way.is_some(), said.len()));
            }
        }
        let open = [0, 10, 30, 70, 150, 310, 630].map(|ms| (ms, true, 1));
        assert_eq!(asked[..7], open);
        assert_eq!(asked[7..9], [(1_270, false, 1), (1_910, false, 1)]);
        assert_eq!(here(&mut known, 6_000, (1, false), 70, Some(71)), None);
        assert_eq!(frame(&mut known, 6_001), (Some(71), vec![]));
    }

    #[test]
    fn a_later_life_is_elsewhere_and_an_earlier_one_nowhere() {
        let mut known = opened();
        assert_eq!(here(&mut known, 10, (2, true), 80, None), Some((None, false)));
        assert_eq!(frame(&mut known, 11), (None, vec![(Some(80), true), (None, true)]));
        assert_eq!(here(&mut known, 12, (1, false), 70, Some(71)), None);
        assert_eq!(known.open_count(), 0);
    }

    #[test]
    fn where_nobody_listens_is_forgotten() {
        let mut known = opened();
        known.on_refused(address(70));
        assert_eq!(frame(&mut known, 10).0, Some(71));
        known.on_refused(address(71));
        assert_eq!(frame(&mut known, 1_003), (None, vec![(None, true)]));
    }

    #[test]
    fn strangers_and_oneself_are_nobody() {
        let mut known = Whereabouts::new(ProcessId(1), 4);
        assert_eq!(here(&mut known, 0, (1, true), 70, Some(70)), None);
        let here = AddressAd { asks: true, address: address(7) };
        assert_eq!(known.on_here(at(0), (ProcessId(4), Incarnation(1)), here, None), None);
        assert_eq!(known.way(at(0), ProcessId(9), |_| panic!("asked")), None);
    }
}
