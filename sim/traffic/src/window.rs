//! The congestion window.

use crate::{CongestionControl, TcpConfig};

/// Unit of the marked fraction (as in Linux).
const WHOLE: u64 = 1 << 10;
/// Weight of a window's marked fraction: a sixteenth (RFC 8257, section 3.3: g = 1/16).
const GAIN_SHIFT: u32 = 4;
/// Minimum window, in segments (RFC 5681: 1 after a timeout, else 2).
const SEGMENTS_MIN: u64 = 2;

/// Slow start, additive increase and multiplicative decrease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    congestion_control: CongestionControl,
    segment_len: u64,
    bytes_max: u64,
    bytes: u64,
    /// Slow start threshold.
    threshold: u64,
    /// Bytes acknowledged since the window last grew by a segment.
    credit: u64,
    /// The window shrinks at most once for packets before this one.
    shrinks_from: u64,
    /// Smoothed fraction of marked packets, in units of [`WHOLE`].
    share: u64,
    /// Packets acknowledged in the current observation window, those of them marked, and the first
    /// packet of the next one.
    acked: u64,
    marked: u64,
    ends_at: u64,
}

/// The information in an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckUpdate {
    /// Newly acknowledged packets, and their bytes.
    pub packets: u64,
    pub bytes: u64,
    /// Newly reported marks.
    pub marked: u64,
    /// The last packet newly found to be lost.
    pub lost: Option<u64>,
    /// The highest packet acknowledged, and the one sent next.
    pub highest: u64,
    pub next: u64,
    /// Whether the window has limited the sender.
    pub was_full: bool,
}

impl Window {
    pub fn new(config: &TcpConfig) -> Self {
        let segment_len = config.segment_len.into();
        Self {
            congestion_control: config.congestion_control,
            segment_len,
            bytes_max: config.window_bytes_max,
            bytes: (u64::from(config.initial_segments) * segment_len).min(config.window_bytes_max),
            threshold: u64::MAX,
            credit: 0,
            shrinks_from: 0,
            // As after a window of marked packets: conservative at the start (RFC 8257).
            share: WHOLE,
            acked: 0,
            marked: 0,
            ends_at: 0,
        }
    }

    /// Returns the window, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adjusts the window to an acknowledgement.
    pub fn on_ack(&mut self, update: &AckUpdate) {
        self.count(update);
        let is_new = |packet: u64| packet >= self.shrinks_from;
        let (by_loss, by_mark) =
            (update.lost.is_some_and(is_new), update.marked > 0 && is_new(update.highest));
        match (by_loss, by_mark, self.congestion_control) {
            (true, ..) => self.shrink(self.bytes / 2, update.next),
            (false, true, CongestionControl::RenoEcn) => self.shrink(self.bytes / 2, update.next),
            (false, true, CongestionControl::Dctcp) => {
                let less = self.bytes * self.share / (2 * WHOLE);
                self.shrink(self.bytes - less, update.next);
            }
            _ if update.was_full => self.grow(update.bytes),
            _ => {}
        }
    }

    /// Shrinks the window to one segment after a retransmission timeout.
    pub fn on_timeout(&mut self, next: u64) {
        self.shrink(self.bytes / 2, next);
        self.bytes = self.segment_len;
    }

    fn count(&mut self, update: &AckUpdate) {
        self.acked += update.packets;
        self.marked += update.marked;
        if update.highest < self.ends_at {
            return;
        }
        let share = (self.marked * WHOLE).checked_div(self.acked).unwrap_or(0).min(WHOLE);
        self.share = self.share - (self.share >> GAIN_SHIFT) + (share >> GAIN_SHIFT);
        (self.acked, self.marked, self.ends_at) = (0, 0, update.next);
    }

    fn shrink(&mut self, bytes: u64, next: u64) {
        self.bytes = bytes.max(SEGMENTS_MIN * self.segment_len);
        self.threshold = self.bytes;
        self.credit = 0;
        self.shrinks_from = next;
    }

    fn grow(&mut self, bytes: u64) {
        if self.bytes < self.threshold {
            self.bytes += bytes;
        } else {
            self.credit += bytes;
            if self.credit >= self.bytes {
                self.credit -= self.bytes;
                self.bytes += self.segment_len;
            }
        }
        self.bytes = self.bytes.min(self.bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Port, ProcessId};

    use super::*;

    const SEGMENT: u64 = 1_000;

    fn window(congestion_control: CongestionControl) -> Window {
        let config = TcpConfig::new(ProcessId(0), Port(1));
        Window::new(&TcpConfig { congestion_control, segment_len: SEGMENT as u32, ..config })
    }

    /// Acknowledges one window, with this number of marked packets.
    fn round(window: &mut Window, first: u64, marked: u64, lost: bool) -> u64 {
        let packets = window.bytes() / SEGMENT;
        let next = first + packets;
        for packet in first..next {
            window.on_ack(&AckUpdate {
                packets: 1,
                bytes: SEGMENT,
                marked: u64::from(packet - first < marked),
                lost: (lost && packet == first + 3).then_some(first),
                highest: packet,
                next: packet + packets,
                was_full: true,
            });
        }
        next
    }

    #[test]
    fn window_follows_slow_start_and_aimd() {
        let mut window = window(CongestionControl::Reno);
        let mut next = round(&mut window, 0, 0, false);
        assert_eq!(window.bytes(), 20 * SEGMENT);
        next = round(&mut window, next, 20, false);
        assert_eq!(window.bytes(), 40 * SEGMENT, "marks say nothing to it");
        next = round(&mut window, next, 0, true);
        let halved = window.bytes();
        assert!((20 * SEGMENT..=24 * SEGMENT).contains(&halved), "{halved}");
        next = round(&mut window, next, 0, false);
        assert!((halved..=halved + SEGMENT).contains(&window.bytes()), "{}", window.bytes());
        window.on_timeout(next);
        assert_eq!(window.bytes(), SEGMENT);
    }

    #[test]
    fn marks_shrink_the_window_by_algorithm() {
        let halves = |congestion_control, marked: fn(u64) -> u64| {
            let mut window = window(congestion_control);
            let mut next = 0;
            for _ in 0..4 {
                next = round(&mut window, next, 0, false);
            }
            // The fraction is averaged over sixteen windows and more: let the start fade out.
            for _ in 0..60 {
                window.bytes = 100 * SEGMENT;
                next = round(&mut window, next, marked(100), false);
            }
            window.bytes = 100 * SEGMENT;
            round(&mut window, next, marked(100), false);
            window.bytes() / SEGMENT
        };
        assert!((50..=52).contains(&halves(CongestionControl::RenoEcn, |_| 1)));
        assert!((50..=52).contains(&halves(CongestionControl::Dctcp, |all| all)));
        let few = halves(CongestionControl::Dctcp, |all| all / 10);
        assert!((93..=96).contains(&few), "{few}");
        assert!(halves(CongestionControl::Reno, |all| all) > 99);
    }
}
