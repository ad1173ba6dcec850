//! The send window of 64 packets, and their destinations.

use alloc::vec::Vec;

use onepipe_base::Mono;

/// Packets that are acknowledged individually.
pub(crate) const WINDOW: usize = 64;
/// Maximum number of destinations in one packet.
pub(crate) const DESTINATIONS_MAX: usize = 64;

/// The destinations in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DestinationSet {
    /// Entries at or after `count` are undefined.
    count: u8,
    destinations: [u16; DESTINATIONS_MAX],
}

impl DestinationSet {
    pub const NONE: Self = Self { count: 0, destinations: [0; DESTINATIONS_MAX] };

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Asserts that each destination is in the set once.
    pub fn check_invariants(&self) {
        assert!(usize::from(self.count) <= DESTINATIONS_MAX, "the set is bounded");
        for (at, dst) in self.as_slice().iter().enumerate() {
            assert!(!self.as_slice()[..at].contains(dst), "destination {dst} is in the set once");
        }
    }

    /// Returns the number of free entries.
    pub fn free(&self) -> usize {
        DESTINATIONS_MAX - usize::from(self.count)
    }

    /// Adds a destination unless it is present. The set must have space.
    pub fn push(&mut self, dst: u16) {
        if !self.as_slice().contains(&dst) {
            debug_assert!(self.free() > 0, "the caller counts the free entries");
            self.destinations[usize::from(self.count)] = dst;
            self.count += 1;
        }
    }

    pub fn as_slice(&self) -> &[u16] {
        &self.destinations[..usize::from(self.count)]
    }

    /// Copies another set, without its undefined entries.
    fn set(&mut self, other: &Self) {
        self.count = other.count;
        self.destinations[..usize::from(other.count)].copy_from_slice(other.as_slice());
    }
}

//= spec/arbiter.md#R23
/// Sent packets that are not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendWindow {
    next: u32,
    /// Send time and destinations of the tracked packets, by number modulo the window.
    sent_at: Vec<Mono>,
    destinations: Vec<DestinationSet>,
    /// One bit for each tracked packet that is neither acknowledged nor declared lost.
    open: u64,
    /// One bit for each tracked packet that is not acknowledged, lost or not.
    unacked: u64,
}

impl SendWindow {
    pub fn new() -> Self {
        Self {
            next: 1,
            sent_at: alloc::vec![Mono::from_ns(0); WINDOW],
            destinations: alloc::vec![DestinationSet::NONE; WINDOW],
            open: 0,
            unacked: 0,
        }
    }

    pub fn reset(&mut self) {
        (self.next, self.open, self.unacked) = (1, 0, 0);
    }

    /// Asserts that only packets of this session are tracked, in the order in which they were sent.
    pub fn check_invariants(&self) {
        assert_eq!(self.open & !self.unacked, 0, "a packet that is acknowledged is not open");
        let first = self.next as usize % WINDOW;
        let mut rest = self.unacked.rotate_right(first as u32);
        let mut last_sent = None;
        while rest != 0 {
            let at = rest.trailing_zeros();
            rest &= rest - 1;
            // The window of a new session is not full, and its first packet has number 1.
            let back = WINDOW as u32 - at;
            assert!(self.next > WINDOW as u32 || back < self.next, "a packet that was sent");
            let index = (first + at as usize) % WINDOW;
            assert!(last_sent <= Some(self.sent_at[index]), "packets are sent in order");
            last_sent = Some(self.sent_at[index]);
            self.destinations[index].check_invariants();
        }
    }

    /// Returns the sequence number of the next packet.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Records the next packet, and tracks it if its loss matters. Returns the destinations of the
    /// packet that leaves the window unacknowledged.
    pub fn send(
        &mut self,
        now: Mono,
        destinations: &DestinationSet,
        is_noted: bool,
    ) -> Option<DestinationSet> {
        let index = self.next as usize % WINDOW;
        self.next = self.next.wrapping_add(1);
        let lost = (self.open >> index & 1 == 1).then(|| self.destinations[index]);
        (self.open, self.unacked) = (self.open & !(1 << index), self.unacked & !(1 << index));
        if is_noted {
            (self.open, self.unacked) = (self.open | 1 << index, self.unacked | 1 << index);
            self.sent_at[index] = now;
            self.destinations[index].set(destinations);
        }
        lost
    }

    /// Handles an acknowledgement: the highest number received and the bits below. Returns the
    /// largest round trip of the newly acknowledged packets, ns.
    pub fn on_ack(&mut self, now: Mono, received: u32, bits: u64) -> Option<u64> {
        let last = self.next.wrapping_sub(1);
        let (mut rest, mut round_trip_ns) = (self.unacked, None);
        while rest != 0 {
            let index = rest.trailing_zeros();
            rest &= rest - 1;
            // The last packet whose number has this remainder.
            let sequence = last.wrapping_sub(last.wrapping_sub(index) % WINDOW as u32);
            if bits.unbounded_shr(received.wrapping_sub(sequence)) & 1 == 1 {
                (self.open, self.unacked) =
                    (self.open & !(1 << index), self.unacked & !(1 << index));
                round_trip_ns = round_trip_ns.max(Some(now.since_ns(self.sent_at[index as usize])));
            }
        }
        round_trip_ns
    }

    /// Removes the oldest packet sent at or before `before`, as lost, and returns its destinations.
    pub fn take_expired(&mut self, before: Mono) -> Option<DestinationSet> {
        let index = self.oldest().filter(|index| self.sent_at[*index] <= before)?;
        self.open &= !(1 << index);
        Some(self.destinations[index])
    }

    /// Returns the send time of the oldest packet that is neither acknowledged nor lost.
    pub fn oldest_sent_at(&self) -> Option<Mono> {
        self.oldest().map(|index| self.sent_at[index])
    }

    fn oldest(&self) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        // The entry behind the last one written is the oldest.
        let next_index = self.next % WINDOW as u32;
        let index = self.open.rotate_right(next_index).trailing_zeros() + next_index;
        debug_assert!(self.open >> (index as usize % WINDOW) & 1 == 1, "the packet is open");
        Some(index as usize % WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(dst: u16) -> DestinationSet {
        let mut destinations = DestinationSet::NONE;
        destinations.push(dst);
        destinations
    }

    #[test]
    fn unacked_packets_expire_oldest_first() {
        let (mut unacked, sent_at) = (SendWindow::new(), Mono::from_ns);
        for dst in 1..=5u16 {
            assert_eq!(unacked.send(sent_at(u64::from(dst)), &destinations(dst), true), None);
        }
        assert_eq!(unacked.oldest_sent_at(), Some(sent_at(1)));
        assert_eq!(unacked.on_ack(sent_at(9), 4, 0b1011), Some(8));
        let mut take_expired = |before| {
            unacked.take_expired(sent_at(before)).map(|destinations| destinations.as_slice()[0])
        };
        assert_eq!(
            [take_expired(1), take_expired(2), take_expired(4), take_expired(5), take_expired(9)],
            [None, Some(2), None, Some(5), None]
        );
    }

    #[test]
    fn round_trip_is_sampled_once_per_packet() {
        let (mut unacked, sent_at) = (SendWindow::new(), Mono::from_ns);
        assert_eq!(unacked.on_ack(sent_at(5), 0, u64::MAX), None);
        for dst in 1..=3 {
            unacked.send(sent_at(10 * u64::from(dst)), &destinations(dst), dst != 2);
        }
        let answers = [(3, 0b1), (3, 0b11), (3, 0b111), (3, 0b111)];
        let trips = answers.map(|(received, bits)| unacked.on_ack(sent_at(45), received, bits));
        assert_eq!(trips, [Some(15), None, Some(35), None], "the second one is not tracked");
        unacked.send(sent_at(50), &destinations(1), true);
        unacked.reset();
        assert_eq!(unacked.on_ack(sent_at(60), 4, u64::MAX), None);
        for number in 1..=99u16 {
            unacked.send(sent_at(60 + u64::from(number)), &destinations(number), number % 9 == 0);
        }
        assert_eq!(unacked.on_ack(sent_at(170), 99, 0b10), None, "the last but one");
        assert_eq!(unacked.on_ack(sent_at(170), 99, 1 << 45 | 1), Some(56), "54 and 99");
    }

    #[test]
    fn late_ack_of_an_expired_packet_is_sampled() {
        let (mut unacked, sent_at) = (SendWindow::new(), Mono::from_ns);
        unacked.send(sent_at(10), &destinations(7), true);
        assert_eq!(unacked.take_expired(sent_at(20)).expect("expired").as_slice(), [7]);
        unacked.send(sent_at(20), &destinations(7), true);
        assert_eq!(unacked.on_ack(sent_at(25), 2, 0b11), Some(15));
        assert_eq!((unacked.oldest_sent_at(), unacked.on_ack(sent_at(30), 2, 0b11)), (None, None));
    }

    //= spec/arbiter.md#R23
    #[test]
    fn packets_that_leave_the_window_unacked_are_lost() {
        let mut unacked = SendWindow::new();
        for dst in 1..=64u16 {
            assert_eq!(unacked.send(Mono::from_ns(0), &destinations(dst), true), None);
        }
        let lost = |destinations: Option<DestinationSet>| {
            destinations.map(|destinations| destinations.as_slice().to_vec())
        };
        assert_eq!(
            lost(unacked.send(Mono::from_ns(0), &destinations(65), true)),
            Some(alloc::vec![1])
        );
        assert_eq!(
            lost(unacked.send(Mono::from_ns(0), &DestinationSet::NONE, false)),
            Some(alloc::vec![2])
        );
        assert_eq!(unacked.take_expired(Mono::from_ns(0)).expect("open").as_slice(), [3]);
    }
}
