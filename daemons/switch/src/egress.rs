//! Queues before links of a given rate, as a slower switch than this machine's loopback has them.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use onepipe_base::{Mono, Now, Port};
use onepipe_wire::{Opcode, mark_congestion, parse_header};

use crate::config::LinkRate;

/// What a datagram takes on an Ethernet beside the frame that it bears, in bytes: IPv4 and UDP 28,
/// Ethernet 18, preamble 8, gap 12.
const FRAME_OVERHEAD_BYTES: usize = 66;
/// Buffers of frames that have left, kept for those to come.
const SPARE_MAX: usize = 4096;

/// How long the queues before the links were, as found by each frame that came to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Frames that came to a queue.
    pub frames: u64,
    /// Frames for which there was no room.
    pub dropped: u64,
    /// Frames that were marked, because the queue was longer than the threshold.
    pub marked: u64,
    /// Bytes before a frame: half, 90 and 99 of 100 and 999 of 1,000 found no more, and the most.
    pub bytes: [u64; 5],
    /// Bytes that wait at present, in the longest queue.
    pub present_bytes: u64,
}

/// The queues of all ports.
#[derive(Debug)]
pub(crate) struct Egress {
    rate: LinkRate,
    lines: Vec<Line>,
    /// Frames in all queues.
    waiting: usize,
    spare: Vec<Vec<u8>>,
    depths: Histogram<u64>,
    dropped: u64,
    marked: u64,
}

/// One port.
#[derive(Debug)]
struct Line {
    frames: VecDeque<Leaving>,
    bytes: usize,
    /// When the last frame of the queue has left.
    free_at: Mono,
}

/// A frame, and when its first byte leaves and its last one has left.
#[derive(Debug)]
struct Leaving {
    begins: Mono,
    at: Mono,
    frame: Vec<u8>,
}

impl Egress {
    pub(crate) fn new(rate: LinkRate, ports: usize) -> Self {
        let line = || Line { frames: VecDeque::new(), bytes: 0, free_at: Mono::from_ns(0) };
        let most = rate.queue_bytes_max.max(2) as u64;
        Self {
            rate,
            lines: std::iter::repeat_with(line).take(ports).collect(),
            waiting: 0,
            spare: Vec::new(),
            depths: Histogram::new_with_max(most, 3).expect("more than two bytes, three digits"),
            dropped: 0,
            marked: 0,
        }
    }

    /// A frame comes to the queue of `port`, or is lost there.
    pub(crate) fn put(&mut self, port: Port, now: Now, frame: &mut [u8]) {
        let Some(line) = self.lines.get_mut(port.index()) else { return };
        let is_beacon =
            |frame: &[u8]| parse_header(frame).is_ok_and(|(_, code)| code == Opcode::Beacon);
        if let Some(last) = line.frames.back_mut()
            && last.begins > now.mono
            && last.frame.len() == frame.len()
            && is_beacon(frame)
            && is_beacon(&last.frame)
        {
            // It says all that the one before it says. Without this beacons fill a slow link: each
            // input's news makes one.
            last.frame.copy_from_slice(frame);
            return;
        }
        let bytes = frame.len() + FRAME_OVERHEAD_BYTES;
        // What is longer than the queue was refused, so nothing is cut off here.
        self.depths.saturating_record(line.bytes as u64);
        if line.bytes + bytes > self.rate.queue_bytes_max {
            self.dropped += 1;
            return;
        }
        if self.rate.mark_bytes.is_some_and(|threshold| line.bytes > threshold) {
            self.marked += 1;
            mark_congestion(frame);
        }
        let begins = line.free_at.max(now.mono);
        let at = begins.after_ns((bytes as u64 * 8_000_000_000).div_ceil(self.rate.bits_per_s));
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(frame);
        line.frames.push_back(Leaving { begins, at, frame: kept });
        line.bytes += bytes;
        line.free_at = at;
        self.waiting += 1;
    }

    /// Whether no frame waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Hands out the frames that have left by now, those of one port in their order.
    pub(crate) fn leave(&mut self, now: Now, mut send: impl FnMut(Port, &[u8])) {
        if self.waiting == 0 {
            return;
        }
        for (port, line) in self.lines.iter_mut().enumerate() {
            while let Some(leaving) = line.frames.pop_front_if(|leaving| leaving.at <= now.mono) {
                send(Port(port as u16), &leaving.frame);
                line.bytes -= leaving.frame.len() + FRAME_OVERHEAD_BYTES;
                self.waiting -= 1;
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(leaving.frame);
                }
            }
        }
    }

    /// When the next frame leaves.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.lines.iter().filter_map(|line| line.frames.front()).map(|leaving| leaving.at).min()
    }

    pub(crate) fn report(&self) -> QueueReport {
        let bytes = [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| self.depths.value_at_quantile(q));
        QueueReport {
            frames: self.depths.len(),
            dropped: self.dropped,
            marked: self.marked,
            bytes,
            present_bytes: self.lines.iter().map(|line| line.bytes as u64).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Address, Incarnation, Instance, Promises, SwitchId, Timestamp};
    use onepipe_wire::{HEADER_LEN, Header, seal};

    use super::*;

    fn at(ns: u64) -> Now {
        Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) }
    }

    fn egress(queue_bytes_max: usize) -> Egress {
        // A frame of 934 bytes takes 8 us.
        let rate = LinkRate { bits_per_s: 1_000_000_000, queue_bytes_max, mark_bytes: None };
        Egress::new(rate, 2)
    }

    fn left(egress: &mut Egress, ns: u64) -> Vec<(u16, u8)> {
        let mut left = Vec::new();
        egress.leave(at(ns), |port, frame| left.push((port.0, frame[0])));
        left
    }

    #[test]
    fn frames_leave_one_after_the_other_at_the_rate_of_their_link() {
        let mut egress = egress(1 << 20);
        for number in 0..3 {
            egress.put(Port(0), at(1_000), &mut [number; 934]);
        }
        egress.put(Port(1), at(1_000), &mut [9; 934]);
        assert_eq!(left(&mut egress, 8_999), []);
        assert_eq!(egress.due(), Some(Mono::from_ns(9_000)));
        assert_eq!(left(&mut egress, 9_000), [(0, 0), (1, 9)]);
        assert_eq!(left(&mut egress, 24_999), [(0, 1)]);
        assert_eq!(left(&mut egress, 25_000), [(0, 2)]);
        assert!(egress.is_empty() && egress.due().is_none());
        // The link was idle since.
        egress.put(Port(0), at(50_000), &mut [7; 934]);
        assert_eq!(egress.due(), Some(Mono::from_ns(58_000)));
        let report = egress.report();
        assert_eq!((report.frames, report.dropped, report.bytes[4]), (5, 0, 2_000));
        assert_eq!((report.bytes[0], report.present_bytes), (0, 1_000));
    }

    #[test]
    fn a_beacon_that_waits_behind_another_takes_its_place() {
        let mut egress = egress(1 << 20);
        let beacon = |ns: u64| {
            let mut frame = [0; HEADER_LEN];
            let instance =
                Instance { address: Address::Switch(SwitchId(0)), incarnation: Incarnation(1) };
            let promises = Promises::both(Timestamp::from_ns(ns));
            let header = Header::hop_only(Opcode::Beacon, instance, None, promises);
            seal(&mut frame, header, 0);
            frame
        };
        let mut told = Vec::new();
        for ns in [10, 20, 30] {
            egress.put(Port(0), at(0), &mut beacon(ns));
        }
        egress.put(Port(0), at(0), &mut [7; 934]);
        egress.put(Port(0), at(0), &mut beacon(40));
        egress.leave(at(1_000_000), |_, frame| told.push(frame.to_vec()));
        let data = [7; 934].to_vec();
        let expected = [beacon(10).to_vec(), beacon(30).to_vec(), data, beacon(40).to_vec()];
        assert_eq!(told, expected, "the first had begun to leave");
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let mut egress = egress(2_500);
        for number in 0..4 {
            egress.put(Port(1), at(0), &mut [number; 934]);
        }
        assert_eq!(left(&mut egress, 1_000_000), [(1, 0), (1, 1)]);
        assert_eq!((egress.report().frames, egress.report().dropped), (4, 2));
    }
}
