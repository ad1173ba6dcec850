//! The receiving end of a flow.

use std::collections::BTreeMap;

use onepipe_base::Mono;

use crate::segment::{Ack, Data};

/// Receive state of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Receiver {
    /// The highest packet received, and a bitmap of the 64 packets up to it.
    highest: Option<u64>,
    acked: u64,
    marked: u32,
    /// The first missing part, and the bytes of those before it.
    next: u64,
    pub bytes: u64,
    /// Parts received out of order, with their lengths.
    early: BTreeMap<u64, u32>,
    /// Number of packets received since the last acknowledgement.
    unacked: u32,
    /// Whether the last packet was marked.
    was_marked: bool,
    /// Deadline of the next acknowledgement, if packets are unacknowledged.
    pub due: Option<Mono>,
    /// An acknowledgement is queued.
    pub is_waiting: bool,
}

impl Receiver {
    /// Handles a packet. Returns whether to acknowledge it at once: every second one, and whatever
    /// the sender should learn without delay.
    pub fn on_data(&mut self, now: Mono, data: &Data, is_marked: bool, delay_ns: u64) -> bool {
        let is_next = self.note(data.packet);
        self.marked = self.marked.wrapping_add(is_marked.into());
        let changes = is_marked != self.was_marked;
        self.was_marked = is_marked;
        if data.part >= self.next {
            self.early.insert(data.part, data.bytes);
        }
        while let Some(bytes) = self.early.remove(&self.next) {
            self.next += 1;
            self.bytes += u64::from(bytes);
        }
        self.unacked += 1;
        self.due.get_or_insert(now.after_ns(delay_ns));
        self.unacked >= 2 || !is_next || changes || data.is_last || !self.early.is_empty()
    }

    /// Records a packet. Returns whether it is the next one in order.
    fn note(&mut self, packet: u64) -> bool {
        let Some(highest) = self.highest else {
            (self.highest, self.acked) = (Some(packet), 1);
            return packet == 0;
        };
        if packet > highest {
            let ahead = packet - highest;
            self.acked = self.acked.checked_shl(ahead.min(64) as u32).unwrap_or(0) | 1;
            self.highest = Some(packet);
            return ahead == 1;
        }
        if let Some(bit) = 1u64.checked_shl((highest - packet).min(64) as u32) {
            self.acked |= bit;
        }
        false
    }

    /// Returns an acknowledgement of everything received.
    pub fn ack(&mut self, flow: u32) -> Option<Ack> {
        let highest = self.highest?;
        (self.unacked, self.due) = (0, None);
        Some(Ack { flow, highest, acked: self.acked, next: self.next, marked: self.marked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(packet: u64, part: u64) -> Data {
        Data { flow: 0, packet, part, bytes: 100, is_last: false }
    }

    #[test]
    fn each_byte_counts_once_and_in_order() {
        let mut receiver = Receiver::default();
        let now = Mono::from_ns(0);
        assert!(!receiver.on_data(now, &data(0, 0), false, 10), "the first one waits");
        assert_eq!(receiver.due, Some(Mono::from_ns(10)));
        assert!(receiver.on_data(now, &data(2, 2), false, 10), "a gap is acknowledged at once");
        assert_eq!(receiver.bytes, 100);
        let ack = receiver.ack(7).expect("packets were received");
        assert_eq!(ack, Ack { flow: 7, highest: 2, acked: 0b101, next: 1, marked: 0 });
        receiver.on_data(now, &data(3, 1), true, 10);
        receiver.on_data(now, &data(4, 2), true, 10);
        assert_eq!(receiver.bytes, 300, "the second copy of part 2 counts nothing");
        let ack = receiver.ack(7).expect("packets were received");
        assert_eq!(ack, Ack { flow: 7, highest: 4, acked: 0b10111, next: 3, marked: 2 });
        assert_eq!(receiver.due, None);
        assert!(receiver.on_data(now, &data(5, 0), false, 10), "no longer marked");
        receiver.ack(7);
        assert!(!receiver.on_data(now, &data(6, 3), false, 10), "in order, nothing buffered");
    }
}
