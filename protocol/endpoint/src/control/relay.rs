//! Relays frames by way of the controllers to peers that cannot be reached directly.

use alloc::vec::Vec;

use onepipe_base::{Controllers, Mono, ProcessId, Psn};
use onepipe_wire::{Frame, Opcode};

use super::ControlFrame;
use super::round_robin::RoundRobin;
use crate::config::RELAY_OVERHEAD_BYTES;

/// Limit on relayed peers. More are unreachable only if most of the fabric has failed; then the
/// peer that was found unreachable longest ago is dropped.
const RELAYED_PEERS_MAX: usize = 1_024;

/// How long a peer stays listed after it was last found unreachable, in announcement intervals: by
/// then the controllers know every change of its links.
const PERIOD_INTERVALS: u64 = 10;

/// Limit on the doublings of the interval at which frames to a peer are relayed that does not
/// answer them.
const DOUBLINGS_MAX: u32 = 4;

/// Relayed peers, and the frame that is being relayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Relay {
    round: RoundRobin,
    frame: Vec<u8>,
    /// In the order of their IDs.
    peers: Vec<Peer>,
    bytes_max: usize,
    interval_ns: u64,
}

/// A peer that does not respond to frames sent directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Peer {
    process: ProcessId,
    /// When the peer is forgotten, unless it is found unreachable again.
    until: Mono,
    /// When the next frame to it may be relayed.
    next_at: Mono,
    /// Number of relayed frames since the peer's last one.
    unanswered: u32,
    /// Whether it waits for the answer to a relayed frame, which may be relayed at once.
    awaits_answer: bool,
}

impl Relay {
    /// Relays frames up to `frame_len_max`, one in each interval.
    pub fn new(controllers: Controllers, frame_len_max: usize, interval_ns: u64) -> Self {
        Self {
            round: RoundRobin::new(controllers),
            frame: Vec::new(),
            peers: Vec::new(),
            bytes_max: frame_len_max.saturating_sub(RELAY_OVERHEAD_BYTES),
            interval_ns,
        }
    }

    //= spec/failure.md#R72
    /// Takes a frame to `peer`, to be relayed by `active`, or by every controller if none is known.
    /// Returns false if the previous frame was not sent, or this one is too long.
    pub fn encapsulate(
        &mut self,
        now: Mono,
        peer: ProcessId,
        inner: &[u8],
        active: Option<ProcessId>,
    ) -> bool {
        if self.round.current().is_some() || inner.len() > self.bytes_max {
            return false;
        }
        let share_ns = self.share_ns();
        if let Ok(position) = self.find(peer) {
            let peer = &mut self.peers[position];
            if !core::mem::take(&mut peer.awaits_answer) {
                peer.next_at = now.after_ns(share_ns << peer.unanswered.min(DOUBLINGS_MAX));
                peer.unanswered = peer.unanswered.saturating_add(1);
            }
        }
        self.frame.clear();
        self.frame.extend_from_slice(inner);
        match active {
            Some(active) => self.round.start_with(active),
            None => self.round.start(),
        }
        true
    }

    pub fn wants_transmit(&self) -> bool {
        self.round.current().is_some()
    }

    /// Writes the frame for the next controller.
    pub fn write(&mut self, payload: &mut [u8]) -> Option<ControlFrame> {
        let to = self.round.current()?;
        let len = self.frame.len();
        payload.get_mut(..len)?.copy_from_slice(&self.frame);
        self.round.advance();
        Some(ControlFrame::to(to, Opcode::Relay, Psn::FIRST, len))
    }

    /// Relays frames to `peer` from now on, for a while.
    pub fn on_unreachable(&mut self, now: Mono, peer: ProcessId) {
        let until = now.after_ns(PERIOD_INTERVALS.saturating_mul(self.interval_ns));
        if let Ok(position) = self.find(peer) {
            self.peers[position].until = until;
            return;
        }
        self.peers.retain(|listed| now < listed.until);
        if self.peers.len() == RELAYED_PEERS_MAX {
            let oldest = (0..self.peers.len()).min_by_key(|at| self.peers[*at].until);
            self.peers.remove(oldest.expect("the list is full"));
        }
        // The first frames take turns, too.
        let next_at = now.after_ns(self.share_ns());
        let listed = Peer { process: peer, until, next_at, unanswered: 0, awaits_answer: false };
        if let Err(position) = self.find(peer) {
            self.peers.insert(position, listed);
        }
    }

    /// Notes a relayed frame of `peer`, which the own answer follows if it `wants_answer`.
    pub fn on_relayed(&mut self, now: Mono, peer: ProcessId, wants_answer: bool) {
        self.on_unreachable(now, peer);
        let next_at = now.after_ns(self.share_ns());
        if let Ok(position) = self.find(peer) {
            let peer = &mut self.peers[position];
            (peer.unanswered, peer.next_at) = (0, peer.next_at.min(next_at));
            peer.awaits_answer |= wants_answer;
        }
    }

    /// Returns the interval at which frames to each relayed peer are relayed, so that all together
    /// take one in each interval.
    fn share_ns(&self) -> u64 {
        self.interval_ns.saturating_mul(self.peers.len() as u64)
    }

    /// Stops relaying to `peer` after a direct frame from it.
    #[inline]
    pub fn on_direct(&mut self, peer: ProcessId) {
        if !self.peers.is_empty()
            && let Ok(position) = self.find(peer)
        {
            self.peers.remove(position);
        }
    }

    /// Returns whether a frame to `peer` is to be relayed now. Others go directly.
    #[inline]
    pub fn is_relayed(&self, now: Mono, peer: ProcessId) -> bool {
        !self.peers.is_empty()
            && self.find(peer).is_ok_and(|position| {
                let peer = &self.peers[position];
                now < peer.until && (peer.awaits_answer || peer.next_at <= now)
            })
    }

    /// Checks the list of peers, and the frame that is relayed.
    pub fn check_invariants(&self) {
        self.round.check_invariants();
        let ascends = |pair: &[Peer]| pair[0].process < pair[1].process;
        assert!(self.peers.windows(2).all(ascends), "peers are found by a binary search");
        assert!(self.peers.len() <= RELAYED_PEERS_MAX, "relayed peers are bounded");
        assert!(self.frame.len() <= self.bytes_max, "a relayed frame fits a frame");
        assert!(!self.wants_transmit() || !self.frame.is_empty(), "a round relays a frame");
    }

    fn find(&self, peer: ProcessId) -> Result<usize, usize> {
        self.peers.binary_search_by_key(&peer, |listed| listed.process)
    }
}

/// Whether the receiver of a relayed frame answers it. An acknowledgement needs no answer.
pub(super) fn wants_answer(opcode: Opcode) -> bool {
    use Opcode::{Recall, ReliableConnect, ReliableData, ReliableFragment, ReliableProbe};
    matches!(opcode, ReliableData | ReliableFragment | ReliableProbe | ReliableConnect | Recall)
}

/// Returns the frame that a controller has relayed to `own`. `None` if it is malformed, for another
/// process, or of a kind that is never relayed: about links or to controllers.
pub(super) fn decapsulate(own: ProcessId, processes_max: u32, payload: &[u8]) -> Option<Frame<'_>> {
    let frame = Frame::parse(payload).ok()?;
    let (src, dst) = (frame.header.src(), frame.header.dst());
    let is_for_us = dst == own && src != own && src.0 < processes_max;
    let is_of_process = !frame.opcode.is_hop_only() && !frame.opcode.is_control();
    (is_for_us && is_of_process).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Incarnation, Promises, Timestamp};
    use onepipe_wire::{Header, seal};

    const INTERVAL_NS: u64 = 100;
    const PEER: ProcessId = ProcessId(3);

    fn relay() -> Relay {
        Relay::new(Controllers { first: ProcessId(60), count: 2 }, 256, INTERVAL_NS)
    }

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    /// Offers a frame to `peer` in each nanosecond of `during`. Returns when frames were relayed.
    fn relayed_at(relay: &mut Relay, during: core::ops::Range<u64>, peer: ProcessId) -> Vec<u64> {
        let mut payload = [0; 200];
        let mut times = Vec::new();
        for ns in during {
            if relay.is_relayed(at(ns), peer) {
                assert!(relay.encapsulate(at(ns), peer, &[7; 9], Some(ProcessId(60))));
                relay.write(&mut payload);
                times.push(ns);
            }
        }
        times
    }

    #[test]
    fn relays_to_every_controller_or_the_active_one() {
        let mut relay = relay();
        let mut payload = [0; 200];
        let mut sent = |relay: &mut Relay| {
            let next = || relay.write(&mut payload).map(|frame| (frame.to.0, frame.payload_len));
            core::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert!(relay.encapsulate(at(0), PEER, &[7; 200], None));
        assert!(!relay.encapsulate(at(0), PEER, &[8; 9], None), "one frame at a time");
        assert_eq!(sent(&mut relay), [(60, 200), (61, 200)]);
        assert!(relay.encapsulate(at(0), PEER, &[8; 9], Some(ProcessId(61))));
        assert_eq!(sent(&mut relay), [(61, 9)]);
        assert!(!relay.encapsulate(at(0), PEER, &[7; 201], None), "too long");
        assert!(!relay.wants_transmit());
        assert_eq!(payload[..10], [8, 8, 8, 8, 8, 8, 8, 8, 8, 7]);
    }

    #[test]
    fn relay_ends_after_its_period_or_a_direct_frame() {
        let mut relay = relay();
        relay.on_unreachable(at(0), PEER);
        relay.on_unreachable(at(50), PEER);
        assert!(relay.is_relayed(at(1_049), PEER) && !relay.is_relayed(at(1_049), ProcessId(4)));
        assert!(!relay.is_relayed(at(1_050), PEER));
        relay.on_unreachable(at(1_100), PEER);
        assert!(relay.is_relayed(at(1_150), PEER));
        relay.on_direct(ProcessId(4));
        relay.on_direct(PEER);
        assert!(!relay.is_relayed(at(1_150), PEER));
    }

    //= spec/failure.md#R72
    /// While a switch paused, each sender relayed a frame to each process behind it in every
    /// timeout: 9 frames in a microsecond overloaded the controller, which could not connect the
    /// links again after the pause (Swarm::draw_calm(7000572)).
    #[test]
    fn peer_that_does_not_answer_is_relayed_to_ever_more_seldom() {
        let mut relay = relay();
        relay.on_unreachable(at(0), PEER);
        let mut times = Vec::new();
        for from in (0..6_000).step_by(500) {
            relay.on_unreachable(at(from), PEER);
            times.extend(relayed_at(&mut relay, from..from + 500, PEER));
        }
        assert_eq!(times, [0, 100, 300, 700, 1_500, 3_100, 4_700]);
        // A relayed frame of the peer ends this.
        relay.on_relayed(at(6_000), PEER, false);
        assert_eq!(relayed_at(&mut relay, 6_000..6_350, PEER), [6_100, 6_200]);
    }

    //= spec/failure.md#R72
    #[test]
    fn all_peers_together_take_one_frame_in_each_interval() {
        let mut relay = relay();
        let peers = (0..4).map(ProcessId);
        peers.clone().for_each(|peer| relay.on_unreachable(at(0), peer));
        let first = peers.map(|peer| relayed_at(&mut relay, 0..500, peer));
        let first: Vec<u64> = first.flatten().collect();
        assert_eq!(first, [0, 400, 100, 200, 300]);
    }

    #[test]
    fn each_relayed_frame_is_answered_at_once() {
        let mut relay = relay();
        (4..9).for_each(|peer| relay.on_unreachable(at(0), ProcessId(peer)));
        for ns in [0, 10, 20] {
            relay.on_relayed(at(ns), PEER, true);
            assert_eq!(relayed_at(&mut relay, ns..ns + 10, PEER), [ns]);
        }
    }

    #[test]
    fn relayed_peers_are_bounded() {
        let mut relay = relay();
        for peer in 0..=RELAYED_PEERS_MAX as u32 {
            relay.on_unreachable(at(u64::from(peer > 0)), ProcessId(peer));
        }
        assert_eq!(relay.peers.len(), RELAYED_PEERS_MAX);
        assert!(relay.find(ProcessId(0)).is_err(), "found unreachable longest ago");
        assert!(relay.find(ProcessId(RELAYED_PEERS_MAX as u32)).is_ok());
    }

    #[test]
    fn decapsulates_only_frames_for_this_process() {
        let taken = |opcode, src, dst, flip: Option<usize>| {
            let mut frame = [0; 80];
            let header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1));
            let now = Timestamp::from_ns(1 << 50);
            let frame_len = seal(&mut frame, header.stamped(now, Promises::both(now), Psn(9)), 8);
            if let Some(at) = flip {
                frame[at] ^= 1;
            }
            decapsulate(ProcessId(2), 64, &frame[..frame_len]).map(|frame| frame.header.psn().0)
        };
        assert_eq!(taken(Opcode::ReliableData, 1, 2, None), Some(9));
        assert_eq!(taken(Opcode::ReliableData, 1, 3, None), None, "for another process");
        assert_eq!(taken(Opcode::ReliableData, 2, 2, None), None, "from this process");
        assert_eq!(taken(Opcode::ReliableData, 64, 2, None), None, "from an unknown process");
        assert_eq!(taken(Opcode::Beacon, 1, 2, None), None);
        assert_eq!(taken(Opcode::Relayed, 1, 2, None), None);
        assert_eq!(taken(Opcode::ReliableData, 1, 2, Some(55)), None, "broken");
        assert!(decapsulate(ProcessId(2), 64, &[0; 20]).is_none());
    }
}
