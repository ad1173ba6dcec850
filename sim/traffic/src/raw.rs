//! Raw frames without a protocol.

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_wire::{Frame, Header, Opcode, SHORT_HEADER_LEN, seal};

/// The first bytes of the payload.
const MAGIC: [u8; 4] = *b"pln\x01";

/// Offered frames of one length, sent to their destinations in turn, and counters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawTraffic {
    host: ProcessId,
    card: Port,
    frame_len: usize,
    /// Number of waiting frames by destination.
    waiting: Vec<(ProcessId, u64)>,
    next_index: usize,
    sent: u64,
    received: u64,
}

impl RawTraffic {
    /// Creates a host without frames to send. Frames are at least as long as a header.
    pub fn new(host: ProcessId, card: Port, frame_len: usize) -> Self {
        let frame_len = frame_len.max(SHORT_HEADER_LEN + MAGIC.len());
        let waiting = Vec::new();
        Self { host, card, frame_len, waiting, next_index: 0, sent: 0, received: 0 }
    }

    /// Offers `frames` more frames to a destination.
    pub fn offer(&mut self, to: ProcessId, frames: u64) {
        match self.waiting.iter_mut().find(|(peer, _)| *peer == to) {
            Some((_, waiting)) => *waiting += frames,
            None => self.waiting.push((to, frames)),
        }
    }

    /// Returns the number of frames sent.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of frames received.
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of frames waiting.
    pub fn waiting(&self) -> u64 {
        self.waiting.iter().map(|(_, frames)| frames).sum()
    }

    /// Whether a frame is a raw frame.
    pub fn is_raw(frame: &[u8]) -> bool {
        Frame::parse(frame)
            .is_ok_and(|frame| frame.opcode == Opcode::Foreign && frame.payload.starts_with(&MAGIC))
    }

    /// Writes the next frame to a destination for which `has_space` holds. Returns the destination
    /// and the length.
    pub fn poll_to(
        &mut self,
        slot: &mut [u8],
        mut has_space: impl FnMut(ProcessId) -> bool,
    ) -> Option<(ProcessId, usize)> {
        let count = self.waiting.len();
        let mut indices = (0..count).map(|ahead| (self.next_index + ahead) % count);
        let index = indices.find(|index| {
            let (to, frames) = self.waiting[*index];
            frames > 0 && has_space(to)
        })?;
        self.next_index = index + 1;
        let (to, frames) = &mut self.waiting[index];
        *frames -= 1;
        self.sent += 1;
        slot[SHORT_HEADER_LEN..][..MAGIC.len()].copy_from_slice(&MAGIC);
        let header = Header::new(Opcode::Foreign, self.host, *to, Incarnation(1));
        let head = seal(slot, header, MAGIC.len());
        slot[head..self.frame_len].fill(0);
        Some((*to, self.frame_len))
    }
}

impl Machine for RawTraffic {
    type Event = ();

    fn handle_frame(&mut self, _now: Now, _port: Port, frame: &mut [u8]) -> Verdict {
        let is_ours = Frame::parse(frame).is_ok_and(|frame| {
            frame.payload.starts_with(&MAGIC) && frame.header.dst() == self.host
        });
        self.received += u64::from(is_ours);
        if is_ours { Verdict::Consumed } else { Verdict::Dropped }
    }

    fn handle_timeout(&mut self, _now: Now) {}

    fn poll_transmit(&mut self, _now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let (_, bytes) = self.poll_to(slot, |_| true)?;
        Some(Transmit { port: self.card, bytes })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::Timestamp;

    use super::*;

    #[test]
    fn destinations_alternate_and_full_ones_wait() {
        let now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
        let (one, two) = (ProcessId(1), ProcessId(2));
        let mut raw = RawTraffic::new(ProcessId(0), Port(1), 200);
        raw.offer(one, 2);
        raw.offer(two, 3);
        raw.offer(one, 1);
        let mut slot = [0; 200];
        let mut next = |raw: &mut RawTraffic, free: &[ProcessId]| {
            let polled = raw.poll_to(&mut slot, |to| free.contains(&to));
            polled.map(|(to, bytes)| {
                assert!(bytes == 200 && RawTraffic::is_raw(&slot));
                let mut other = RawTraffic::new(to, Port(1), 200);
                assert_eq!(other.handle_frame(now, Port(1), &mut slot), Verdict::Consumed);
                assert_eq!(other.received(), 1);
                to
            })
        };
        assert_eq!(next(&mut raw, &[one, two]), Some(one));
        assert_eq!(next(&mut raw, &[one, two]), Some(two));
        assert_eq!(next(&mut raw, &[two]), Some(two));
        assert_eq!(next(&mut raw, &[]), None);
        assert_eq!((raw.sent(), raw.waiting()), (3, 3));
        let rest: Vec<_> = std::iter::from_fn(|| next(&mut raw, &[one, two])).collect();
        assert_eq!(rest, [one, two, one]);
        assert_eq!(raw.waiting(), 0);
    }
}
