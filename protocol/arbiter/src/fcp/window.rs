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
    /// What stands behind so many is of another packet.
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

    /// Becomes the same as another, of which no more is copied than there is.
    fn set(&mut self, other: &Self) {
        self.count = other.count;
        self.destinations[..usize::from(other.count)].copy_from_slice(other.all());
    }
}

/// What was sent and is not known to have come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Unheard {
    next: u32,
    /// When each of the last packets left, and what it spoke of; those that were taken note of.
    at: Vec<Mono>,
    told: Vec<Told>,
    /// A bit for each place of those that are neither known to have come nor given up.
    open: u64,
    /// And of those that are not known to have come.
    unanswered: u64,
}

impl Unheard {
    pub fn new() -> Self {
        Self {
            next: 1,
            at: alloc::vec![Mono::from_ns(0); WINDOW],
            told: alloc::vec![Told::NONE; WINDOW],
            open: 0,
            unanswered: 0,
        }
    }

    pub fn reset(&mut self) {
        (self.next, self.open, self.unanswered) = (1, 0, 0);
    }

    /// The number of the next packet.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The packet of this number leaves, and is taken note of if it matters whether it comes.
    /// Answers what was told in the one that is too long ago now to be acknowledged.
    pub fn send(&mut self, now: Mono, told: &Told, is_noted: bool) -> Option<Told> {
        let place = self.next as usize % WINDOW;
        self.next = self.next.wrapping_add(1);
        let lost = (self.open >> place & 1 == 1).then(|| self.told[place]);
        (self.open, self.unanswered) = (self.open & !(1 << place), self.unanswered & !(1 << place));
        if is_noted {
            (self.open, self.unanswered) = (self.open | 1 << place, self.unanswered | 1 << place);
            self.at[place] = now;
            self.told[place].set(told);
        }
        lost
    }

    /// The other end says what it has heard. Answers how long it took to say so of what it says for
    /// the first time, of the oldest, in ns.
    pub fn settle(&mut self, now: Mono, heard: u32, bits: u64) -> Option<u64> {
        let last = self.next.wrapping_sub(1);
        let (mut rest, mut round_trip_ns) = (self.unanswered, None);
        while rest != 0 {
            let place = rest.trailing_zeros();
            rest &= rest - 1;
            // Its number is the last of those whose place it is.
            let sequence = last.wrapping_sub(last.wrapping_sub(place) % WINDOW as u32);
            if bits.unbounded_shr(heard.wrapping_sub(sequence)) & 1 == 1 {
                (self.open, self.unanswered) =
                    (self.open & !(1 << place), self.unanswered & !(1 << place));
                round_trip_ns = round_trip_ns.max(Some(now.since_ns(self.at[place as usize])));
            }
        }
        round_trip_ns
    }

    /// What was told before `before` and has not been heard.
    pub fn lose(&mut self, before: Mono) -> Option<Told> {
        let place = self.oldest().filter(|place| self.at[*place] <= before)?;
        self.open &= !(1 << place);
        Some(self.told[place])
    }

    /// When the oldest was sent that is not known to have come.
    pub fn since(&self) -> Option<Mono> {
        self.oldest().map(|place| self.at[place])
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
        let (mut unheard, at) = (Unheard::new(), Mono::from_ns);
        for dst in 1..=5u16 {
            assert_eq!(unheard.send(at(u64::from(dst)), &told(dst), true), None);
        }
        assert_eq!(unheard.since(), Some(at(1)));
        assert_eq!(unheard.settle(at(9), 4, 0b1011), Some(8));
        let mut lose = |before| unheard.lose(at(before)).map(|told| told.all()[0]);
        assert_eq!(
            [lose(1), lose(2), lose(4), lose(5), lose(9)],
            [None, Some(2), None, Some(5), None]
        );
    }

    #[test]
    fn a_round_trip_is_that_of_a_packet_of_this_life_and_counts_once() {
        let (mut unheard, at) = (Unheard::new(), Mono::from_ns);
        assert_eq!(unheard.settle(at(5), 0, u64::MAX), None);
        for dst in 1..=3 {
            unheard.send(at(10 * u64::from(dst)), &told(dst), dst != 2);
        }
        let answers = [(3, 0b1), (3, 0b11), (3, 0b111), (3, 0b111)];
        let trips = answers.map(|(heard, bits)| unheard.settle(at(45), heard, bits));
        assert_eq!(trips, [Some(15), None, Some(35), None], "nobody waits for the second");
        unheard.send(at(50), &told(1), true);
        unheard.reset();
        assert_eq!(unheard.settle(at(60), 4, u64::MAX), None);
        for number in 1..=99u16 {
            unheard.send(at(60 + u64::from(number)), &told(number), number % 9 == 0);
        }
        assert_eq!(unheard.settle(at(170), 99, 0b10), None, "the last but one");
        assert_eq!(unheard.settle(at(170), 99, 1 << 45 | 1), Some(56), "54 and 99");
    }

    #[test]
    fn what_came_after_it_was_given_up_has_taken_long_and_says_so() {
        let (mut unheard, at) = (Unheard::new(), Mono::from_ns);
        unheard.send(at(10), &told(7), true);
        assert_eq!(unheard.lose(at(20)).expect("it is late").all(), [7]);
        unheard.send(at(20), &told(7), true);
        assert_eq!(unheard.settle(at(25), 2, 0b11), Some(15));
        assert_eq!((unheard.since(), unheard.settle(at(30), 2, 0b11)), (None, None));
    }

    #[test]
    fn who_acknowledges_nothing_loses_what_leaves_the_window() {
        let mut unheard = Unheard::new();
        for dst in 1..=64u16 {
            assert_eq!(unheard.send(Mono::from_ns(0), &told(dst), true), None);
        }
        let lost = |told: Option<Told>| told.map(|told| told.all().to_vec());
        assert_eq!(lost(unheard.send(Mono::from_ns(0), &told(65), true)), Some(alloc::vec![1]));
        assert_eq!(lost(unheard.send(Mono::from_ns(0), &Told::NONE, false)), Some(alloc::vec![2]));
        assert_eq!(unheard.lose(Mono::from_ns(0)).expect("open").all(), [3]);
    }
}
