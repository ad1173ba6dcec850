//! Relays frames by way of the controllers to peers that cannot be reached directly.

use alloc::vec::Vec;

use onepipe_base::{Controllers, Mono, ProcessId, Psn};
use onepipe_wire::{Frame, Opcode};

use super::ControlFrame;
use super::round_robin::RoundRobin;
use crate::config::RELAY_OVERHEAD_BYTES;

/// Limit on relayed peers. More are unreachable only if most of the fabric has failed; then the
/// peer whose direct path is due to be tried first is dropped.
const RELAYED_PEERS_MAX: usize = 64;

/// Relayed peers, and the frame that is being relayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Relay {
    round: RoundRobin,
    frame: Vec<u8>,
    /// Process, and until when it is relayed.
    peers: Vec<(ProcessId, Mono)>,
    bytes_max: usize,
    period_ns: u64,
}

impl Relay {
    /// Relays frames up to `frame_len_max`; a peer is tried directly again after `period_ns`.
    pub fn new(controllers: Controllers, frame_len_max: usize, period_ns: u64) -> Self {
        Self {
            round: RoundRobin::new(controllers),
            frame: Vec::new(),
            peers: Vec::new(),
            bytes_max: frame_len_max.saturating_sub(RELAY_OVERHEAD_BYTES),
            period_ns,
        }
    }

    /// Takes a frame to be relayed by `active`, or by every controller if none is known. Returns
    /// false if the previous frame was not sent, or this one is too long.
    pub fn encapsulate(&mut self, inner: &[u8], active: Option<ProcessId>) -> bool {
        if self.round.current().is_some() || inner.len() > self.bytes_max {
            return false;
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

    /// Relays frames to `peer` from now on, for a while. An existing period is not extended, so the
    /// direct path is tried from time to time.
    pub fn on_unreachable(&mut self, now: Mono, peer: ProcessId) {
        self.peers.retain(|(_, until)| now < *until);
        if let Err(position) = self.find(peer) {
            self.peers.insert(position, (peer, now.after_ns(self.period_ns)));
        }
        if self.peers.len() > RELAYED_PEERS_MAX {
            let others = (0..self.peers.len()).filter(|position| self.peers[*position].0 != peer);
            let first = others.min_by_key(|position| self.peers[*position].1);
            self.peers.remove(first.expect("more than one peer is relayed"));
        }
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

    /// Returns whether `peer` is relayed now.
    #[inline]
    pub fn is_relayed(&self, now: Mono, peer: ProcessId) -> bool {
        !self.peers.is_empty() && self.find(peer).is_ok_and(|position| now < self.peers[position].1)
    }

    fn find(&self, peer: ProcessId) -> Result<usize, usize> {
        self.peers.binary_search_by_key(&peer, |(process, _)| *process)
    }
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

    const PERIOD_NS: u64 = 100;

    fn relay() -> Relay {
        Relay::new(Controllers { first: ProcessId(60), count: 2 }, 256, PERIOD_NS)
    }

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    #[test]
    fn relays_to_every_controller_or_the_active_one() {
        let mut relay = relay();
        let mut payload = [0; 204];
        let mut sent = |relay: &mut Relay| {
            let next = || relay.write(&mut payload).map(|frame| (frame.to.0, frame.payload_len));
            core::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert!(relay.encapsulate(&[7; 204], None));
        assert!(!relay.encapsulate(&[8; 9], None), "one frame at a time");
        assert_eq!(sent(&mut relay), [(60, 204), (61, 204)]);
        assert!(relay.encapsulate(&[8; 9], Some(ProcessId(61))));
        assert_eq!(sent(&mut relay), [(61, 9)]);
        assert!(!relay.encapsulate(&[7; 205], None), "too long");
        assert!(!relay.wants_transmit());
        assert_eq!(payload[..10], [8, 8, 8, 8, 8, 8, 8, 8, 8, 7]);
    }

    #[test]
    fn relay_ends_after_its_period_or_a_direct_frame() {
        let (mut relay, peer) = (relay(), ProcessId(3));
        relay.on_unreachable(at(0), peer);
        relay.on_unreachable(at(50), peer);
        assert!(relay.is_relayed(at(99), peer) && !relay.is_relayed(at(99), ProcessId(4)));
        assert!(!relay.is_relayed(at(100), peer), "an existing period is not extended");
        relay.on_unreachable(at(100), peer);
        assert!(relay.is_relayed(at(150), peer));
        relay.on_direct(ProcessId(4));
        relay.on_direct(peer);
        assert!(!relay.is_relayed(at(150), peer));
    }

    #[test]
    fn relayed_peers_are_bounded() {
        let mut relay = relay();
        for peer in (0..=RELAYED_PEERS_MAX as u32).rev() {
            relay.on_unreachable(at(u64::from(1_000 - peer) / 900), ProcessId(peer));
        }
        assert_eq!(relay.peers.len(), RELAYED_PEERS_MAX);
        let relayed =
            (0..=RELAYED_PEERS_MAX as u32).filter(|peer| relay.is_relayed(at(1), ProcessId(*peer)));
        assert_eq!(relayed.count(), RELAYED_PEERS_MAX);
        assert!(relay.is_relayed(at(1), ProcessId(0)), "the latest peer is relayed");
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
