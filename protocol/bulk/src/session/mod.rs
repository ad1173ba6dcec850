//! Session over one link: numbers frames, acknowledges received ones and detects lost ones.
//!
//! Every transmission has its own PSN (as in QUIC), so an acknowledgement is unambiguous. A lost
//! frame is not repeated: its content is sent again in its present state.

mod congestion;
mod received;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Mono, Psn};
use onepipe_wire::Opcode;

use crate::object::{BlockId, HaveWord};
use crate::{Config, Link};
use congestion::CongestionController;
pub(crate) use received::ReceivedFrames;

/// Maximum number of frames in flight: the range of an acknowledgement.
const IN_FLIGHT_MAX: usize = received::ACK_REACH as usize;
const _: () = assert!(IN_FLIGHT_MAX.is_multiple_of(8), "an eighth is reserved for control frames");
/// Capacity reserved for frames in flight on first use. Enough for most links, and not allocated
/// for members that are never sent anything.
const IN_FLIGHT_INITIAL: usize = 128;
const _: () = assert!(IN_FLIGHT_INITIAL <= IN_FLIGHT_MAX);
/// Minimum number of probes before a peer counts as failed. With a frame loss of one third, all of
/// them are lost once in 100,000 times.
const PROBES_MIN: u64 = 16;
/// Reordering threshold of lossy links, in frames (RFC 9002, section 6.1.1).
const REORDER_FRAMES: u32 = 3;
/// Frames per acknowledgement on lossy links, whose congestion control depends on it, and on
/// reliable links.
const ACK_FRAMES: [u32; 2] = [8, 32];

/// Piece of a block, as it is sent to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Piece {
    pub block: BlockId,
    /// Index of the piece in the block.
    pub piece: u32,
    /// Ordinal of the block, as in [`onepipe_wire::BulkPieceHeader`].
    pub ordinal: u32,
}

/// Content of a frame that must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// A piece of a block.
    Piece(Piece),
    /// Offer: a block is available but there is no token to send it.
    Offer { object: u32 },
    /// Progress and tokens.
    State,
    /// List of failures from this index on.
    Failures { first: u32 },
    /// Held blocks from this word on.
    Have(HaveWord),
    /// Request for a block.
    Want(BlockId),
}

impl Item {
    /// Returns the opcode of a frame with this content.
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Piece(_) | Self::Offer { .. } => Opcode::BulkPiece,
            Self::State => Opcode::BulkState,
            Self::Failures { .. } => Opcode::BulkFailures,
            Self::Have(_) => Opcode::BulkHave,
            Self::Want(_) => Opcode::BulkWant,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SentFrame {
    /// `None` once acknowledged or lost.
    item: Option<Item>,
    bytes: u32,
    at: Mono,
}

/// Session over one link, in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkSession {
    link: Link,
    next: Psn,
    /// Frames sent, oldest first. The oldest one is neither acknowledged nor lost.
    in_flight: VecDeque<SentFrame>,
    outstanding_bytes: u64,
    congestion: CongestionController,
    probe_min_ns: u64,
    probe_max_ns: u64,
    ack_delay_ns: u64,
    /// When the next probe is sent if nothing is acknowledged.
    probe_at: Option<Mono>,
    /// Number of probes since the last acknowledgement.
    probes: u32,
    /// Start of the present period without acknowledgements.
    unacked_since: Option<Mono>,
    /// First frame that counted as lost because of a timeout.
    first_timed_out: Option<Psn>,
    pub received: ReceivedFrames,
}

impl LinkSession {
    pub fn new(link: Link, config: &Config) -> Self {
        Self {
            link,
            next: Psn::FIRST,
            in_flight: VecDeque::new(),
            outstanding_bytes: 0,
            congestion: CongestionController::new(config.frame_len_max),
            probe_min_ns: config.probe_min_ns,
            probe_max_ns: config.dead_after_ns / PROBES_MIN,
            ack_delay_ns: config.ack_delay_ns,
            probe_at: None,
            probes: 0,
            unacked_since: None,
            first_timed_out: None,
            received: ReceivedFrames::default(),
        }
    }

    //= spec/bulk.md#R20
    /// Returns whether a control frame may be sent.
    pub fn has_slot(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    //= spec/bulk.md#R23
    /// Returns whether a frame with a piece may be sent.
    pub fn can_send(&self, bytes: usize) -> bool {
        let fits = match self.link {
            Link::Reliable => true,
            Link::Lossy => self.outstanding_bytes + bytes as u64 <= self.congestion.window(),
        };
        // Keep some slots for control frames.
        fits && self.in_flight.len() < IN_FLIGHT_MAX - IN_FLIGHT_MAX / 8
    }

    /// Returns whether the window is full after a frame of `bytes` bytes: then the frame must
    /// request an acknowledgement.
    pub fn needs_ack(&self, bytes: usize) -> bool {
        let outstanding = self.outstanding_bytes + 2 * bytes as u64;
        self.link == Link::Lossy && outstanding > self.congestion.window()
    }

    /// Returns the PSN of the next frame.
    pub fn next(&self) -> Psn {
        self.next
    }

    //= spec/bulk.md#R20
    pub fn on_sent(&mut self, now: Mono, item: Item, bytes: usize) {
        debug_assert!(self.has_slot(), "an acknowledgement must reach the oldest frame in flight");
        debug_assert!(bytes > 0, "an acknowledgement of no bytes would not count as progress");
        if self.in_flight.capacity() == 0 {
            self.in_flight.reserve(IN_FLIGHT_INITIAL);
        }
        self.in_flight.push_back(SentFrame { item: Some(item), bytes: bytes as u32, at: now });
        self.next = self.next.plus(1);
        self.outstanding_bytes += bytes as u64;
        self.unacked_since.get_or_insert(now);
        if self.probe_at.is_none() {
            self.probe_at = Some(self.probe_deadline(now));
        }
    }

    /// Returns when frames sent now are probed if they are not acknowledged.
    fn probe_deadline(&self, now: Mono) -> Mono {
        let timeout_ns = self.congestion.probe_timeout_ns(self.ack_delay_ns).max(self.probe_min_ns);
        let backed_off_ns = (timeout_ns << self.probes.min(16)).min(self.probe_max_ns);
        now.after_ns(backed_off_ns.max(timeout_ns))
    }

    /// Records a received frame, and schedules its acknowledgement.
    pub fn on_frame(&mut self, now: Mono, psn: Psn, is_marked: bool, is_ack_requested: bool) {
        let (every, delay) = match self.link {
            _ if is_ack_requested => (1, 0),
            Link::Lossy => (ACK_FRAMES[0], self.ack_delay_ns),
            // Acknowledgements matter little here, except as replies to probes.
            Link::Reliable => (ACK_FRAMES[1], self.ack_delay_ns * 4),
        };
        self.received.on_frame(psn, is_marked, every, now.after_ns(delay));
    }

    /// Handles an acknowledgement of frames up to `largest`, with the receiver's count of marked
    /// frames. Adds the content of lost frames to `lost`.
    pub fn on_ack(
        &mut self,
        now: Mono,
        largest: Psn,
        marked: u32,
        words: impl Iterator<Item = u64> + Clone,
        lost: &mut Vec<Item>,
    ) {
        let was_spurious = self.is_spurious_loss(largest, words.clone());
        let count = self.in_flight.len() as u32;
        let first = self.next.0.wrapping_sub(count);
        if largest.0.wrapping_sub(first) >= count {
            // Stale acknowledgement, or of frames that were never sent.
            if was_spurious {
                self.congestion.undo_collapse();
            }
            return;
        }
        let was_full = 2 * self.outstanding_bytes > self.congestion.window();
        let (mut acked_bytes, mut acked_frames) = (0, 0_u32);
        for (psn, word) in (0..).map(|at| largest.0.wrapping_sub(64 * at)).zip(words) {
            for bit in 0..64u32 {
                let index = psn.wrapping_sub(bit).wrapping_sub(first);
                if word >> bit & 1 == 0 || index >= count {
                    continue;
                }
                let sent = &mut self.in_flight[index as usize];
                if sent.item.take().is_some() {
                    acked_bytes += u64::from(sent.bytes);
                    acked_frames += 1;
                    if psn.wrapping_sub(bit) == largest.0 {
                        self.congestion.on_rtt(now.since_ns(sent.at));
                    }
                }
            }
        }
        debug_assert!(acked_bytes <= self.outstanding_bytes, "each frame is acknowledged once");
        self.outstanding_bytes -= acked_bytes;
        if acked_bytes > 0 && was_full {
            self.congestion.on_acked(acked_bytes);
        }
        self.congestion.on_marked(acked_frames, marked, largest, self.next);
        let losses = self.detect_losses(largest, first, lost);
        if was_spurious && losses == 0 {
            self.congestion.undo_collapse();
        }
        self.trim();
        debug_assert!(self.in_flight.len() <= count as usize, "none is sent meanwhile");
        if acked_bytes + losses > 0 {
            self.probes = 0;
            self.unacked_since = self.in_flight.front().map(|_| now);
            self.probe_at = self.unacked_since.map(|_| self.probe_deadline(now));
        }
    }

    //= spec/bulk.md#R23
    /// Returns whether the frame that counted as lost because of a timeout has arrived after all:
    /// nothing was lost, the peer was slow (compare Eifel, RFC 3522; here the PSN identifies the
    /// transmission). The delay is no RTT sample: earlier acknowledgements of the frame may have
    /// been lost, and under heavy loss such samples would make probes so rare that a live peer
    /// counts as failed.
    fn is_spurious_loss(&mut self, largest: Psn, mut words: impl Iterator<Item = u64>) -> bool {
        let Some(psn) = self.first_timed_out else { return false };
        let back = largest.0.wrapping_sub(psn.0);
        if largest.is_before(psn) {
            return false;
        }
        let word = words.nth(back as usize / 64).unwrap_or(0);
        let was_received = word >> (back % 64) & 1 == 1;
        if was_received || back >= REORDER_FRAMES {
            self.first_timed_out = None;
        }
        was_received
    }

    //= spec/bulk.md#R22
    /// Declares frames lost that were sent well before `largest` and are not acknowledged.
    fn detect_losses(&mut self, largest: Psn, first: u32, lost: &mut Vec<Item>) -> u64 {
        let reorder = match self.link {
            Link::Reliable => 1,
            Link::Lossy => REORDER_FRAMES,
        };
        let until = (largest.0.wrapping_sub(first) + 1).saturating_sub(reorder);
        let mut losses = 0;
        for (psn, sent) in (first..).zip(self.in_flight.iter_mut().take(until as usize)) {
            if let Some(item) = sent.item.take() {
                debug_assert!(u64::from(sent.bytes) <= self.outstanding_bytes);
                self.outstanding_bytes -= u64::from(sent.bytes);
                self.congestion.on_loss(Psn(psn), self.next);
                losses += 1;
                lost.push(item);
            }
        }
        losses
    }

    fn trim(&mut self) {
        while self.in_flight.front().is_some_and(|sent| sent.item.is_none()) {
            self.in_flight.pop_front();
        }
    }

    /// Returns the next deadline, unless an acknowledgement is due immediately.
    pub fn due_at(&self) -> Option<Mono> {
        let ack_at = self.received.ack_at().filter(|at| *at > Mono::from_ns(0));
        Mono::earlier(self.probe_at, ack_at)
    }

    /// Returns the deadline of the next probe.
    pub fn probe_at(&self) -> Option<Mono> {
        self.probe_at
    }

    /// Returns whether the peer has acknowledged nothing for `ns`.
    pub fn is_timed_out(&self, now: Mono, ns: u64) -> bool {
        self.unacked_since.is_some_and(|since| now.since_ns(since) >= ns)
    }

    //= spec/bulk.md#R22
    /// Handles a timeout. Returns whether a probe must be sent. On a lossy link, the oldest frame
    /// in flight counts as lost.
    pub fn on_timeout(&mut self, now: Mono, lost: &mut Vec<Item>) -> bool {
        if self.probe_at.is_none_or(|at| at > now) {
            return false;
        }
        self.probes += 1;
        self.probe_at = Some(self.probe_deadline(now));
        if self.link == Link::Lossy {
            let first = Psn(self.next.0.wrapping_sub(self.in_flight.len() as u32));
            if let Some(sent) = self.in_flight.front_mut()
                && let Some(item) = sent.item.take()
            {
                self.outstanding_bytes -= u64::from(sent.bytes);
                self.first_timed_out.get_or_insert(first);
                lost.push(item);
            }
            self.trim();
            if self.probes == 2 {
                self.congestion.collapse();
            }
        }
        true
    }

    /// Returns whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Drops all frames in flight, as the peer has failed or left.
    pub fn close(&mut self) {
        self.in_flight.clear();
        self.outstanding_bytes = 0;
        (self.probe_at, self.unacked_since, self.first_timed_out) = (None, None, None);
        self.received = ReceivedFrames::default();
    }

    /// Panics if the counts of frames in flight, or their deadlines, contradict each other. Takes
    /// time linear in the frames in flight.
    pub fn check_invariants(&self) {
        let outstanding = self.in_flight.iter().filter(|sent| sent.item.is_some());
        let bytes: u64 = outstanding.map(|sent| u64::from(sent.bytes)).sum();
        assert_eq!(self.outstanding_bytes, bytes, "in flight is the sum of outstanding frames");
        let is_trimmed = self.in_flight.front().is_none_or(|sent| sent.item.is_some());
        assert!(is_trimmed, "the oldest frame in flight is outstanding");
        assert!(self.in_flight.len() <= IN_FLIGHT_MAX, "an acknowledgement reaches all frames");
        let is_timed = self.probe_at.is_some() && self.unacked_since.is_some();
        assert!(is_timed || self.is_idle(), "frames in flight are probed");
        let is_lossy = self.link == Link::Lossy;
        assert!(is_lossy || self.first_timed_out.is_none(), "a reliable link loses by gaps only");
        assert!(self.probe_min_ns > 0, "a probe lets time pass");
        self.congestion.check_invariants();
        self.received.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupId, Member};
    use alloc::vec;
    use onepipe_base::{Incarnation, Port, ProcessId};

    const LEN: usize = 1_000;

    const FRAMES: u32 = 160;

    /// Creates a lossy session whose window of `FRAMES` frames was sent at `at`.
    fn full_window(at: Mono) -> LinkSession {
        let member = Member { process: ProcessId(0), port: Port(0), link: Link::Lossy };
        let config = Config {
            frame_len_max: LEN,
            ..Config::new(GroupId(1), vec![member], 0, Incarnation(1))
        };
        let mut session = LinkSession::new(Link::Lossy, &config);
        let mut lost = Vec::new();
        loop {
            while session.can_send(LEN) {
                session.on_sent(at, Item::State, LEN);
            }
            if session.in_flight.len() == FRAMES as usize {
                return session;
            }
            let last = Psn(session.next().0.wrapping_sub(1));
            session.on_ack(at, last, 0, [u64::MAX; 2].into_iter(), &mut lost);
            assert!(lost.is_empty());
        }
    }

    #[test]
    fn frame_after_which_no_other_fits_requests_an_ack() {
        let config = Config {
            frame_len_max: LEN,
            ..Config::new(
                GroupId(1),
                vec![Member { process: ProcessId(0), port: Port(0), link: Link::Lossy }],
                0,
                Incarnation(1),
            )
        };
        let mut session = LinkSession::new(Link::Lossy, &config);
        session.on_sent(Mono::from_ns(0), Item::State, LEN);
        // The frame itself, and another one of its length.
        let half = (session.congestion.window() as usize - LEN) / 2;
        assert!(!session.needs_ack(half) && session.needs_ack(half + 1));
        let session = LinkSession::new(Link::Reliable, &config);
        assert!(!session.needs_ack(half + 1), "a connection acknowledges by itself");
    }

    /// Lets two probes time out. Returns the first frame in flight and the time of the last probe.
    fn starve(session: &mut LinkSession) -> (Psn, Mono) {
        let first = Psn(session.next().0.wrapping_sub(session.in_flight.len() as u32));
        let (mut lost, mut now) = (Vec::new(), Mono::from_ns(0));
        for _ in 0..2 {
            now = session.probe_at().expect("some are in flight");
            assert!(session.on_timeout(now, &mut lost));
        }
        assert_eq!((session.congestion.window(), lost.len()), (2 * LEN as u64, 2));
        (first, now)
    }

    //= spec/bulk.md#R23
    #[test]
    fn spurious_loss_restores_window() {
        let (start, mut lost) = (Mono::from_ns(1_000), Vec::new());
        // Two frames count as lost and have left the frames in flight.
        for back in [0, 1, 2, 63, 64, FRAMES - 1] {
            let mut session = full_window(start);
            let (first, now) = starve(&mut session);
            let largest = Psn(first.0.wrapping_add(back));
            session.on_ack(now, largest, 0, [u64::MAX; 3].into_iter(), &mut lost);
            assert!(session.congestion.window() >= u64::from(FRAMES) * LEN as u64, "{back}");
            assert!(lost.is_empty());
        }
    }

    //= spec/bulk.md#R22
    //= spec/bulk.md#R23
    #[test]
    fn genuine_loss_does_not_restore_window() {
        let start = Mono::from_ns(1_000);
        // Of the frames up to one sent 64 later, the first one or the 24th is missing.
        for (words, losses) in [([u64::MAX, !1], 0), ([!(1 << 40), u64::MAX], 1)] {
            let (mut session, mut lost) = (full_window(start), Vec::new());
            let (first, now) = starve(&mut session);
            let largest = Psn(first.0.wrapping_add(64));
            session.on_ack(now, largest, 0, words.into_iter(), &mut lost);
            assert!(
                session.congestion.window() < 80 * LEN as u64,
                "{}",
                session.congestion.window()
            );
            assert_eq!(lost.len(), losses);
        }
    }
}
