//! The congestion window: how much may be in flight.

use crate::{CongestionControl, TcpConfig};

/// The share of marked packets is kept in parts of this (as Linux does).
const WHOLE: u64 = 1 << 10;
/// Each window's share counts a sixteenth (RFC 8257, section 3.3: g = 1/16).
const GAIN_SHIFT: u32 = 4;
/// The window is never less than so many segments (RFC 5681: loss window 1, else 2).
const SEGMENTS_MIN: u64 = 2;

/// Slow start, additive increase, multiplicative decrease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    congestion_control: CongestionControl,
    segment_len: u64,
    bytes_max: u64,
    bytes: u64,
    /// Below this it doubles a round trip.
    threshold: u64,
    /// Acknowledged since it last grew by a segment.
    credit: u64,
    /// It shrinks once for all that was sent before this packet.
    shrinks_from: u64,
    /// The share of marked packets, of [`WHOLE`].
    share: u64,
    /// Packets acknowledged of the window being looked at, how many of them were marked, and with
    /// which packet the next begins.
    acked: u64,
    marked: u64,
    ends_at: u64,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckUpdate {
    /// Packets that are acknowledged for the first time, and their bytes.
    pub packets: u64,
    pub bytes: u64,
    /// Packets that bore a mark.
    pub marked: u64,
    /// The first packet that was found to be lost.
    pub lost: Option<u64>,
    /// The highest packet acknowledged, and the one sent next.
    pub highest: u64,
    pub next: u64,
    /// Whether the window has held the sender back.
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
            // As after a window of marks only: who knows nothing is careful (RFC 8257).
            share: WHOLE,
            acked: 0,
            marked: 0,
            ends_at: 0,
        }
    }

    /// How much may be in flight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes an acknowledgement into account.
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

    /// Nothing was heard for too long.
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

    /// A window's worth of news, of which so many packets are marked.
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
            // What slow start has learnt is forgotten: shares count over sixteen windows and more.
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
