//! Output queues of links with a given rate: emulates a slower switch than the machine's loopback.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use onepipe_base::{Mono, Now, Port};
use onepipe_wire::{Opcode, mark_congestion, parse_header};

use crate::config::LinkRate;

/// Overhead of a frame in an Ethernet datagram, in bytes: IPv4 and UDP 28, Ethernet 18, preamble 8,
/// gap 12.
const FRAME_OVERHEAD_BYTES: usize = 66;
/// Free buffers kept for reuse.
const FREE_BUFFERS_MAX: usize = 4096;

/// Queue lengths, as found by each arriving frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Frames that arrived at a queue.
    pub frames: u64,
    /// Frames dropped because a queue was full.
    pub dropped: u64,
    /// Frames marked because a queue was longer than the threshold.
    pub marked: u64,
    /// Queue length in bytes as found by a frame: the 50, 90, 99 and 99.9 % quantiles, and the
    /// maximum.
    pub bytes: [u64; 5],
    /// Present length of the longest queue, in bytes.
    pub present_bytes: u64,
}

/// The queues of all ports.
#[derive(Debug)]
pub(crate) struct Egress {
    rate: LinkRate,
    queues: Vec<OutputQueue>,
    /// Frames in all queues.
    waiting: usize,
    free_buffers: Vec<Vec<u8>>,
    depths: Histogram<u64>,
    dropped: u64,
    marked: u64,
}

/// The queue of one port.
#[derive(Debug)]
struct OutputQueue {
    frames: VecDeque<QueuedFrame>,
    bytes: usize,
    /// When the last frame of the queue has left.
    free_at: Mono,
}

/// A frame, and when its first byte and its last byte leave.
#[derive(Debug)]
struct QueuedFrame {
    begins: Mono,
    at: Mono,
    frame: Vec<u8>,
}

impl Egress {
    pub(crate) fn new(rate: LinkRate, ports: usize) -> Self {
        let queue = || OutputQueue { frames: VecDeque::new(), bytes: 0, free_at: Mono::from_ns(0) };
        let most = rate.queue_bytes_max.max(2) as u64;
        Self {
            rate,
            queues: std::iter::repeat_with(queue).take(ports).collect(),
            waiting: 0,
            free_buffers: Vec::new(),
            depths: Histogram::new_with_max(most, 3).expect("a valid histogram range"),
            dropped: 0,
            marked: 0,
        }
    }

    /// Queues a frame for `port`, or drops it.
    pub(crate) fn enqueue(&mut self, port: Port, now: Now, frame: &mut [u8]) {
        let Some(queue) = self.queues.get_mut(port.index()) else { return };
        let is_beacon =
            |frame: &[u8]| parse_header(frame).is_ok_and(|(_, code)| code == Opcode::Beacon);
        if let Some(last) = queue.frames.back_mut()
            && last.begins > now.mono
            && last.frame.len() == frame.len()
            && is_beacon(frame)
            && is_beacon(&last.frame)
        {
            // The frame replaces the queued beacon, which is older. Otherwise beacons would fill a
            // slow link: each rise of an input makes one.
            last.frame.copy_from_slice(frame);
            return;
        }
        let bytes = frame.len() + FRAME_OVERHEAD_BYTES;
        // Nothing is cut off here: the queue limit bounds the value.
        self.depths.saturating_record(queue.bytes as u64);
        if queue.bytes + bytes > self.rate.queue_bytes_max {
            self.dropped += 1;
            return;
        }
        if self.rate.mark_bytes.is_some_and(|threshold| queue.bytes > threshold) {
            self.marked += 1;
            mark_congestion(frame);
        }
        let begins = queue.free_at.max(now.mono);
        let at = begins.after_ns((bytes as u64 * 8_000_000_000).div_ceil(self.rate.bits_per_s));
        let mut buffer = self.free_buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        queue.frames.push_back(QueuedFrame { begins, at, frame: buffer });
        queue.bytes += bytes;
        queue.free_at = at;
        self.waiting += 1;
    }

    /// Whether all queues are empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Passes the frames that have left by now to `send`, in order for each port.
    pub(crate) fn dequeue_due(&mut self, now: Now, mut send: impl FnMut(Port, &[u8])) {
        if self.waiting == 0 {
            return;
        }
        for (port, queue) in self.queues.iter_mut().enumerate() {
            while let Some(queued) = queue.frames.pop_front_if(|queued| queued.at <= now.mono) {
                send(Port(port as u16), &queued.frame);
                queue.bytes -= queued.frame.len() + FRAME_OVERHEAD_BYTES;
                self.waiting -= 1;
                if self.free_buffers.len() < FREE_BUFFERS_MAX {
                    self.free_buffers.push(queued.frame);
                }
            }
        }
    }

    /// Returns when the next frame leaves.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.queues.iter().filter_map(|queue| queue.frames.front()).map(|queued| queued.at).min()
    }

    pub(crate) fn report(&self) -> QueueReport {
        let bytes = [0.5, 0.9, 0.99, 0.999, 1.0].map(|q| self.depths.value_at_quantile(q));
        QueueReport {
            frames: self.depths.len(),
            dropped: self.dropped,
            marked: self.marked,
            bytes,
            present_bytes: self.queues.iter().map(|queue| queue.bytes as u64).max().unwrap_or(0),
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

    fn dequeued(egress: &mut Egress, ns: u64) -> Vec<(u16, u8)> {
        let mut dequeued = Vec::new();
        egress.dequeue_due(at(ns), |port, frame| dequeued.push((port.0, frame[0])));
        dequeued
    }

    #[test]
    fn frames_leave_in_order_at_the_link_rate() {
        let mut egress = egress(1 << 20);
        for number in 0..3 {
            egress.enqueue(Port(0), at(1_000), &mut [number; 934]);
        }
        egress.enqueue(Port(1), at(1_000), &mut [9; 934]);
        assert_eq!(dequeued(&mut egress, 8_999), []);
        assert_eq!(egress.due(), Some(Mono::from_ns(9_000)));
        assert_eq!(dequeued(&mut egress, 9_000), [(0, 0), (1, 9)]);
        assert_eq!(dequeued(&mut egress, 24_999), [(0, 1)]);
        assert_eq!(dequeued(&mut egress, 25_000), [(0, 2)]);
        assert!(egress.is_empty() && egress.due().is_none());
        // The link was idle since.
        egress.enqueue(Port(0), at(50_000), &mut [7; 934]);
        assert_eq!(egress.due(), Some(Mono::from_ns(58_000)));
        let report = egress.report();
        assert_eq!((report.frames, report.dropped, report.bytes[4]), (5, 0, 2_000));
        assert_eq!((report.bytes[0], report.present_bytes), (0, 1_000));
    }

    #[test]
    fn queued_beacon_is_replaced_by_a_newer_one() {
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
        let mut sent = Vec::new();
        for ns in [10, 20, 30] {
            egress.enqueue(Port(0), at(0), &mut beacon(ns));
        }
        egress.enqueue(Port(0), at(0), &mut [7; 934]);
        egress.enqueue(Port(0), at(0), &mut beacon(40));
        egress.dequeue_due(at(1_000_000), |_, frame| sent.push(frame.to_vec()));
        let data = [7; 934].to_vec();
        let expected = [beacon(10).to_vec(), beacon(30).to_vec(), data, beacon(40).to_vec()];
        assert_eq!(sent, expected, "the first was being sent");
    }

    #[test]
    fn frames_beyond_the_queue_limit_are_dropped() {
        let mut egress = egress(2_500);
        for number in 0..4 {
            egress.enqueue(Port(1), at(0), &mut [number; 934]);
        }
        assert_eq!(dequeued(&mut egress, 1_000_000), [(1, 0), (1, 1)]);
        assert_eq!((egress.report().frames, egress.report().dropped), (4, 2));
    }
}
