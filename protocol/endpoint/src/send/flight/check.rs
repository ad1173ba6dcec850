//! Invariants of the packets in flight.

use super::Flight;

impl Flight {
    /// Checks that charges, message records and the retransmission buffer agree with the packets.
    pub fn check_invariants(&self) {
        let first_message = self.messages.first_seq();
        let end = self.messages.next_seq();
        let is_front_resolved = self.packets.front().is_some_and(|packet| packet.is_resolved);
        assert!(!is_front_resolved, "resolved packets leave the front");
        assert!(!self.given_up.is_before(self.base), "the packets before the base are resolved");
        assert!(!self.next_psn().is_before(self.given_up), "only sent packets are given up");
        let (mut charge, mut next_message) = (0, first_message);
        for distance in 0..self.packets.len() {
            let packet = self.packet(distance);
            charge += if packet.is_resolved { 0 } else { u64::from(packet.charge) };
            assert!(packet.messages > 0, "a packet carries messages");
            assert!(packet.first >= first_message, "the record of a message in flight stays");
            assert!(packet.first + u64::from(packet.messages) <= end, "messages are recorded");
            assert!(packet.first + 1 >= next_message, "packets carry ascending messages");
            next_message = packet.first + u64::from(packet.messages);
        }
        assert_eq!(self.charge, charge, "the charge is that of the unresolved packets");
        assert!(!self.packets.is_empty() || self.messages.len() <= 1, "records without a packet");
        assert!(self.open.is_none_or(|open| open + 1 == end), "the last message is fragmented");
        self.check_retransmit_buffer();
    }

    /// Checks the acknowledgements that each message waits for.
    fn check_retransmit_buffer(&self) {
        let Some(buffer) = &self.buffer else { return };
        let (packets, messages) = (&buffer.packets, &buffer.messages);
        assert_eq!(packets.first_seq(), self.packets.first_seq(), "one record for each packet");
        assert_eq!(packets.next_seq(), self.packets.next_seq(), "one record for each packet");
        assert_eq!(messages.first_seq(), self.messages.first_seq(), "one record for each message");
        assert_eq!(messages.next_seq(), self.messages.next_seq(), "one record for each message");
        if let Some(range) = &buffer.range {
            assert!(!self.next_psn().is_before(range.until), "only sent packets are retransmitted");
            assert!(!range.until.is_before(range.gap) || range.overdue.as_ns() > 0, "a gap ends");
        }
        // Packets of one message are neighbours, so one pass counts them.
        let mut counted: Option<(u64, u32)> = None;
        for distance in 0..self.packets.len() {
            let packet = self.packet(distance);
            for number in packet.first..packet.first + u64::from(packet.messages) {
                let unresolved = u32::from(!packet.is_resolved);
                counted = match counted {
                    Some((known, count)) if known == number => Some((number, count + unresolved)),
                    known => {
                        self.check_missing(known);
                        Some((number, unresolved))
                    }
                };
            }
        }
        self.check_missing(counted);
    }

    fn check_missing(&self, counted: Option<(u64, u32)>) {
        let Some((number, unresolved)) = counted else { return };
        let Some((_, unacked)) = self.message(number) else { return };
        if unacked.is_awaited() {
            let missing = unresolved + u32::from(self.open == Some(number));
            assert_eq!(unacked.missing, missing, "a message waits for its unresolved packets");
        } else if !unacked.is_given_up() {
            assert_eq!(unresolved, 0, "an acknowledged message has no packet in flight");
        }
    }
}
