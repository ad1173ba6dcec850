//! A model of an egress queue, independent of the simulated network.

use std::collections::VecDeque;

use onepipe_sim_engine::Instant;
use onepipe_sim_network::LinkConfig;
use onepipe_wire::{Opcode, parse_header};

/// The queue before a link, computed only from the arrival times and lengths of frames and the rate
/// of the link.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    /// The frames in the queue.
    frames: VecDeque<Waiting>,
    /// Transmission time of the slot frames among them, ps.
    scheduled_ps: u64,
    peak: QueuePeak,
}

/// A frame in a queue.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When the frame has left.
    end: Instant,
    /// Transmission time, ps.
    ps: u64,
    is_scheduled: bool,
}

/// Maximum backlog of a queue, with the frame in transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueuePeak {
    /// Number of frames.
    pub frames: usize,
    /// Bytes, with link overhead.
    pub bytes: u64,
    /// Bytes of slot frames.
    pub scheduled_bytes: u64,
}

impl QueuePeak {
    /// Returns the maximum of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            frames: self.frames.max(other.frames),
            bytes: self.bytes.max(other.bytes),
            scheduled_bytes: self.scheduled_bytes.max(other.scheduled_bytes),
        }
    }
}

/// Whether a frame is sent in a granted timeslot.
pub(crate) fn is_in_slot(frame: &[u8]) -> bool {
    parse_header(frame).is_ok_and(|(_, opcode)| opcode == Opcode::Slot)
}

impl Egress {
    /// Adds a frame.
    pub fn on_frame(&mut self, now: Instant, link: &LinkConfig, frame: &[u8]) {
        while let Some(departed) = self.frames.front().filter(|one| one.end <= now) {
            self.scheduled_ps -= if departed.is_scheduled { departed.ps } else { 0 };
            self.frames.pop_front();
        }
        let begin = self.frames.back().map_or(now, |last| last.end);
        let bits = link.rate_bits_per_s;
        let byte_ps = (8_000_000_000_000 + bits / 2) / bits;
        let ps = (frame.len() as u64 + link.overhead_bytes) * byte_ps;
        let is_scheduled = is_in_slot(frame);
        let end = begin.after(ps);
        self.frames.push_back(Waiting { end, ps, is_scheduled });
        self.scheduled_ps += if is_scheduled { ps } else { 0 };
        // The first frame may have left in part.
        let departed_ps = self
            .frames
            .front()
            .filter(|one| one.is_scheduled)
            .map_or(0, |first| first.ps.saturating_sub(first.end.since(now)));
        self.peak = self.peak.max(QueuePeak {
            frames: self.frames.len(),
            bytes: end.since(now) / byte_ps,
            scheduled_bytes: (self.scheduled_ps - departed_ps) / byte_ps,
        });
    }

    /// Returns the maximum backlog.
    pub fn peak(&self) -> QueuePeak {
        self.peak
    }

    /// Resets the maximum.
    pub fn begin(&mut self) {
        self.peak = QueuePeak::default();
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId};
    use onepipe_wire::{Header, SHORT_HEADER_LEN, seal};

    use super::*;

    /// Returns a frame of 1,000 bytes, which takes 80 ns.
    fn frame(opcode: Opcode) -> [u8; 1_000] {
        let mut frame = [0; 1_000];
        let header = Header::new(opcode, ProcessId(0), ProcessId(1), Incarnation(1));
        seal(&mut frame, header, 1_000 - SHORT_HEADER_LEN);
        frame
    }

    #[test]
    fn overlapping_frames_queue_together() {
        let link = LinkConfig { overhead_bytes: 0, ..LinkConfig::default() };
        let (slot, other) = (frame(Opcode::Slot), frame(Opcode::Fcp));
        let mut egress = Egress::default();
        let mut on_frame = |ns: u64, frame: &[u8]| {
            egress.on_frame(Instant::from_ps(ns * 1_000), &link, frame);
            let QueuePeak { frames, bytes, scheduled_bytes } = egress.peak();
            (frames, bytes, scheduled_bytes)
        };
        for ns in [0, 80, 160, 400] {
            assert_eq!(on_frame(ns, &slot), (1, 1_000, 1_000));
        }
        // The frame before is half gone.
        assert_eq!(on_frame(440, &other), (2, 1_500, 1_000));
        assert_eq!(on_frame(460, &slot), (3, 2_250, 1_250));
        assert_eq!(on_frame(480, &other), (3, 3_000, 1_250), "the first has left");
        egress.begin();
        egress.on_frame(Instant::from_ps(9_000_000), &link, &other);
        let alone = QueuePeak { frames: 1, bytes: 1_000, scheduled_bytes: 0 };
        assert_eq!(egress.peak(), alone);
    }
}
