//! Which of the last 64 packets have come, and what those said that have not.

use alloc::vec::Vec;

use onepipe_base::Mono;

/// Packets that are acknowledged one by one.
pub(crate) const WINDOW: usize = 64;
/// Destinations that one packet speaks of at most.
pub(crate) const TOLD_MAX: usize = 64;

/// What has come of the other end's packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Heard {
    /// The highest number, 0 if none has come.
    pub highest: u32,
    /// Bit `i`: that number less `i` has come, or there was none.
    pub bits: u64,
}

impl Heard {
    /// Nothing yet: the first number is 1.
    pub const NONE: Self = Self { highest: 0, bits: u64::MAX };

    /// Whether one has come that was sent after this one.
    pub fn is_overtaken(&self, sequence: u32) -> bool {
        (sequence.wrapping_sub(self.highest) as i32) < 0
    }

    /// Takes note of a packet. Answers whether it is the first time that it comes, as far as is
    /// known.
    pub fn note(&mut self, sequence: u32) -> bool {
        let ahead = sequence.wrapping_sub(self.highest) as i32;
        if ahead > 0 {
            self.bits = self.bits.unbounded_shl(ahead.unsigned_abs()) | 1;
            self.highest = sequence;
            return true;
        }
        let bit = 1u64.unbounded_shl(ahead.unsigned_abs());
        let is_first = bit != 0 && self.bits & bit == 0;
        self.bits |= bit;
        is_first
    }
}

/// The destinations that a packet speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Told {
    count: u8,
    destinations: [u16; TOLD_MAX],
}

impl Told {
    pub const NONE: Self = Self { count: 0, destinations: [0; TOLD_MAX] };

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many more it has room for.
    pub fn room(&self) -> usize {
        TOLD_MAX - usize::from(self.count)
    }

    /// Adds one, which must have room, unless it is there.
    pub fn push(&mut self, dst: u16) {
        if !self.all().contains(&dst) {
            self.destinations[usize::from(self.count)] = dst;
            self.count += 1;
        }
    }

    pub fn all(&self) -> &[u16] {
        &self.destinations[..usize::from(self.count)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    sequence: u32,
    at: Mono,
    told: Told,
}

/// What was sent and is not known to have come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unheard {
    next: u32,
    sent: Vec<Sent>,
    /// A bit for each place of `sent` that is in use.
    open: u64,
}

impl Unheard {
    pub fn new() -> Self {
        let none = Sent { sequence: 0, at: Mono::from_ns(0), told: Told::NONE };
        Self { next: 1, sent: alloc::vec![none; WINDOW], open: 0 }
    }

    pub fn reset(&mut self) {
        (self.next, self.open) = (1, 0);
        self.sent.iter_mut().for_each(|sent| sent.sequence = 0);
    }

    /// The number of the next packet.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The packet of this number leaves, and is taken note of if it matters whether it comes.
    /// Answers what was told in the one that is too long ago now to be acknowledged.
    pub fn send(&mut self, now: Mono, told: Told, is_noted: bool) -> Told {
        let (sequence, place) = (self.next, self.next as usize % WINDOW);
        self.next = self.next.wrapping_add(1);
        let lost = if self.open >> place & 1 == 1 { self.sent[place].told } else { Told::NONE };
        self.open &= !(1 << place);
        if is_noted {
            self.open |= 1 << place;
            self.sent[place] = Sent { sequence, at: now, told };
        }
        lost
    }

    /// The other end says what it has heard.
    pub fn settle(&mut self, heard: u32, bits: u64) {
        let mut open = self.open;
        while open != 0 {
            let place = open.trailing_zeros();
            open &= open - 1;
            let back = heard.wrapping_sub(self.sent[place as usize].sequence);
            if bits.unbounded_shr(back) & 1 == 1 {
                self.open &= !(1 << place);
            }
        }
    }

    /// How long it took until the other end said for the first time that it has heard the packet of
    /// this number, if it was noted; in ns.
    pub fn round_trip(&mut self, now: Mono, heard: u32) -> Option<u64> {
        let sent = &mut self.sent[heard as usize % WINDOW];
        if heard == 0 || sent.sequence != heard {
            return None;
        }
        sent.sequence = 0;
        Some(now.since_ns(sent.at))
    }

    /// What was told before `before` and has not been heard.
    pub fn lose(&mut self, before: Mono) -> Option<Told> {
        let place = self.oldest().filter(|place| self.sent[*place].at <= before)?;
        self.open &= !(1 << place);
        Some(self.sent[place].told)
    }

    /// When the oldest was sent that is not known to have come.
    pub fn since(&self) -> Option<Mono> {
        self.oldest().map(|place| self.sent[place].at)
    }

    fn oldest(&self) -> Option<usize> {
        if self.open == 0 {
            return None;
        }
        // The place behind the last one written is the oldest.
        let turn = self.next % WINDOW as u32;
        let place = self.open.rotate_right(turn).trailing_zeros() + turn;
        Some(place as usize % WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(dst: u16) -> Told {
        let mut told = Told::NONE;
        told.push(dst);
        told
    }

    #[test]
    fn a_packet_counts_once_and_not_when_it_is_too_old() {
        let mut heard = Heard::NONE;
        assert!(heard.note(100) && !heard.note(100) && heard.note(97) && !heard.note(97));
        assert_eq!((heard.highest, heard.bits), (100, 0b1001));
        assert!(heard.note(163) && heard.bits == 1 << 63 | 1 && !heard.note(100));
        assert!(!heard.note(99), "before the window");
        assert!(heard.note(u32::MAX.wrapping_add(300)), "far ahead");
        assert_eq!(heard.bits, 1);
    }

    #[test]
    fn what_was_heard_is_not_lost_and_the_oldest_is_lost_first() {
        let mut unheard = Unheard::new();
        for dst in 1..=5u16 {
            assert!(unheard.send(Mono::from_ns(u64::from(dst)), told(dst), true).is_empty());
        }
        assert_eq!(unheard.since(), Some(Mono::from_ns(1)));
        unheard.settle(4, 0b1011);
        let mut lose = |before| unheard.lose(Mono::from_ns(before)).map(|told| told.all()[0]);
        assert_eq!(
            [lose(1), lose(2), lose(4), lose(5), lose(9)],
            [None, Some(2), None, Some(5), None]
        );
    }

    #[test]
    fn a_round_trip_is_that_of_a_packet_of_this_life_and_counts_once() {
        let (mut unheard, at) = (Unheard::new(), Mono::from_ns);
        assert_eq!(unheard.round_trip(at(5), 0), None);
        for dst in 1..=3 {
            unheard.send(at(10), told(dst), dst != 2);
        }
        unheard.settle(3, 0b111);
        let trips = [3, 3, 2, 1].map(|heard| unheard.round_trip(at(25), heard));
        assert_eq!(trips, [Some(15), None, None, Some(15)]);
        unheard.send(at(30), told(1), true);
        unheard.reset();
        assert_eq!(unheard.round_trip(at(40), 4), None);
    }

    #[test]
    fn who_acknowledges_nothing_loses_what_leaves_the_window() {
        let mut unheard = Unheard::new();
        for dst in 1..=64u16 {
            assert!(unheard.send(Mono::from_ns(0), told(dst), true).is_empty());
        }
        assert_eq!(unheard.send(Mono::from_ns(0), told(65), true).all(), [1]);
        assert_eq!(unheard.send(Mono::from_ns(0), Told::NONE, false).all(), [2]);
        assert_eq!(unheard.lose(Mono::from_ns(0)).expect("open").all(), [3]);
    }
}
