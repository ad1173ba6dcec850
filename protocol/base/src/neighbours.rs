//! Who is at the other end of each link, and whether it hears us.

use alloc::vec::Vec;

use crate::{Address, Incarnation, Life, Port};

/// What a hop-only frame has shown about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// The life that was known there, or the first one.
    Same,
    /// Another life than was known: that one is dead, its registers with it.
    NewLife(Life),
    /// An earlier life than the one known, or what it said before it knew that the link was lost:
    /// the frame is stale. It is not to be heard.
    Stale,
    /// The other end does not hear this one any more.
    Deaf,
}

/// The other end of each link of a node (design: failure.md, "Who is on a link?").
///
/// A link that was lost comes up again only when both ends know: who has lost it waits until the
/// other end says that it hears nothing either; that end waits until it is heard again. Else one
/// stale echo would bring the link up at one end, that end's silence down at the other, and so on
/// round and round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbours {
    ends: Vec<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct End {
    life: Option<Life>,
    hears_us: bool,
    way: Way,
    /// How often it was lost again soon after it had come up: each time it needs more to come up.
    flaps: u8,
    /// Frames in a row that say the same of whether both ends know of a loss.
    run: u32,
    /// What those say.
    is_settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    Up,
    /// This end has lost it, and the other end may not know.
    Lost,
    /// The other end has lost it, and may not know that this end knows.
    Deaf,
}

const NOBODY: End =
    End { life: None, hears_us: false, way: Way::Up, flaps: 0, run: 0, is_settled: true };

/// After so many stale frames in a row a link comes up nevertheless: frames that told of its loss
/// were themselves lost. More than a round trip of beacons, where there is no failure. If it was
/// less, news of the loss and news of the link go round after each other, and bring it down and up
/// again; then so many are twice as many each time, and a link comes up after so many fresh frames
/// in a row that what goes round becomes shorter, and ends.
const STALE_MAX: u32 = 64;
/// How often the latter number doubles at most, and the former.
const FLAPS_MAX: u8 = 10;
const STALE_DOUBLED_MAX: u8 = 4;
/// A link that has been up for so many times [`STALE_MAX`] frames does not flap.
const QUIET_STALES: u32 = 16;

impl Neighbours {
    /// Nobody yet on links `0..count`.
    pub fn new(count: u16) -> Self {
        Self { ends: alloc::vec![NOBODY; usize::from(count)] }
    }

    /// A frame that crosses one link only has arrived on `port` from `life`, whose sender hears
    /// `echo` at this end. `own` is this end's life.
    pub fn hear(&mut self, port: Port, life: Life, echo: Option<Life>, own: Life) -> Heard {
        let Some(end) = self.ends.get_mut(port.index()) else { return Heard::Stale };
        let hears_us = echo == Some(own);
        match end.life {
            Some(known) if known == life => end.hear(hears_us),
            Some(known)
                if known.address == life.address && life.incarnation < known.incarnation =>
            {
                Heard::Stale
            }
            known => {
                *end = End { life: Some(life), hears_us, ..NOBODY };
                known.map_or(Heard::Same, Heard::NewLife)
            }
        }
    }

    /// As [`Neighbours::hear`] for a frame that bears the life of its sender and no echo.
    #[inline]
    pub fn hear_life(&mut self, port: Port, life: Life) -> Heard {
        let Some(end) = self.ends.get_mut(port.index()) else { return Heard::Stale };
        match end.life {
            Some(known) if known == life => match end.way {
                Way::Up => Heard::Same,
                Way::Lost | Way::Deaf => Heard::Stale,
            },
            Some(known)
                if known.address == life.address && life.incarnation < known.incarnation =>
            {
                Heard::Stale
            }
            known => {
                *end = End { life: Some(life), ..NOBODY };
                known.map_or(Heard::Same, Heard::NewLife)
            }
        }
    }

    /// Whether it is known who is at the other end, and nobody has lost the link: what arrives
    /// there may be heard.
    #[inline]
    pub fn is_up(&self, port: Port) -> bool {
        self.ends.get(port.index()).is_some_and(|end| end.life.is_some() && end.way == Way::Up)
    }

    /// Whether `life` is known to be at the other end, and nobody has lost the link.
    #[inline]
    pub fn is_heard(&self, port: Port, life: Life) -> bool {
        let end = self.ends.get(port.index());
        end.is_some_and(|end| end.life == Some(life) && end.way == Way::Up)
    }

    /// Who is at the other end, as far as it has said.
    pub fn life(&self, port: Port) -> Option<Life> {
        self.ends.get(port.index())?.life
    }

    /// Whether the other end has echoed this one's life: it knows whose promises it hears.
    #[inline]
    pub fn hears_us(&self, port: Port) -> bool {
        self.ends.get(port.index()).is_some_and(|end| end.hears_us)
    }

    /// Nothing is heard on `port` any more: from now on this end says so. Who was there stays
    /// known, so that it is recognised when it is heard again.
    pub fn lose(&mut self, port: Port) {
        if let Some(end) = self.ends.get_mut(port.index()) {
            if end.hears_us {
                (end.way, end.run) = (Way::Lost, 0);
            }
            end.hears_us = false;
        }
    }

    /// Somebody else may be at `port` from now on.
    pub fn forget(&mut self, port: Port) {
        if let Some(end) = self.ends.get_mut(port.index()) {
            *end = NOBODY;
        }
    }
}

impl End {
    /// A frame of the life that is known here, which says whether it hears this end.
    fn hear(&mut self, hears_us: bool) -> Heard {
        // Whether both ends know of the loss is seen by what the other end says: that it hears
        // nothing, to the one who has lost the link; that it hears again, to the other.
        let is_settled = match self.way {
            Way::Up => true,
            Way::Lost => !hears_us,
            Way::Deaf => hears_us,
        };
        let is_same = core::mem::replace(&mut self.is_settled, is_settled) == is_settled;
        self.run = if is_same { self.run.saturating_add(1) } else { 1 };
        if self.way == Way::Up {
            if self.run >= QUIET_STALES * self.stale_max() {
                self.flaps = 0;
            }
        } else if self.run < if is_settled { self.settled_min() } else { self.stale_max() } {
            return Heard::Stale;
        }
        let was_heard = core::mem::replace(&mut self.hears_us, hears_us);
        if self.way != Way::Up {
            (self.way, self.run) = (Way::Up, 0);
        }
        if was_heard && !hears_us {
            (self.way, self.run) = (Way::Deaf, 0);
            self.flaps = FLAPS_MAX.min(self.flaps + 1);
            return Heard::Deaf;
        }
        Heard::Same
    }

    /// How many fresh frames in a row bring it up.
    fn settled_min(&self) -> u32 {
        1 << self.flaps.saturating_sub(1)
    }

    /// How many stale ones.
    fn stale_max(&self) -> u32 {
        STALE_MAX << self.flaps.saturating_sub(1).min(STALE_DOUBLED_MAX)
    }
}

/// A life in the fields of a frame: address bits and incarnation; nobody is
/// [`Address::NOBODY_BITS`] and 0.
impl Life {
    /// The two words that stand for `life`, or for nobody.
    pub fn to_words(life: Option<Self>) -> (u32, u32) {
        life.map_or((Address::NOBODY_BITS, 0), |life| (life.address.to_bits(), life.incarnation.0))
    }

    /// Back from the two words.
    #[inline]
    pub fn from_words((address, incarnation): (u32, u32)) -> Option<Self> {
        let address = Address::from_bits(address)?;
        Some(Self { address, incarnation: Incarnation(incarnation) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProcessId, SwitchId};

    fn life(incarnation: u32) -> Life {
        Life { address: Address::Switch(SwitchId(7)), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn a_new_life_is_told_from_the_old_one_and_a_stale_frame_from_both() {
        let own = Life { address: Address::Process(ProcessId(1)), incarnation: Incarnation(4) };
        let mut neighbours = Neighbours::new(1);
        let port = Port(0);
        assert_eq!(neighbours.hear(port, life(3), None, own), Heard::Same);
        assert!(!neighbours.hears_us(port));
        assert_eq!(neighbours.hear(port, life(3), Some(own), own), Heard::Same);
        assert!(neighbours.hears_us(port));
        assert_eq!(neighbours.hear(port, life(2), Some(own), own), Heard::Stale);
        assert_eq!(neighbours.hear(port, life(5), None, own), Heard::NewLife(life(3)));
        assert!(!neighbours.hears_us(port));
        assert_eq!(neighbours.life(port), Some(life(5)));
        neighbours.hear(port, life(5), Some(own), own);
        assert_eq!(neighbours.hear(port, life(5), None, own), Heard::Deaf);
        assert_eq!(neighbours.hear(port, life(5), None, own), Heard::Stale, "said once");
        let former = Life { incarnation: Incarnation(3), ..own };
        assert_eq!(neighbours.hear(port, life(5), Some(former), own), Heard::Stale);
        assert!(!neighbours.hears_us(port) && !neighbours.is_up(port));
        assert_eq!(neighbours.hear_life(port, life(5)), Heard::Stale);
        assert_eq!(neighbours.hear(port, life(5), Some(own), own), Heard::Same);
        assert_eq!(neighbours.hear_life(port, life(5)), Heard::Same);
        assert_eq!(neighbours.hear_life(port, life(4)), Heard::Stale);
        assert_eq!(neighbours.hear_life(port, life(6)), Heard::NewLife(life(5)));
        assert_eq!(neighbours.hear(Port(1), life(1), None, own), Heard::Stale, "no such link");
    }

    /// Two ends that beacon at the same instants, each frame `delay` instants under way, and one
    /// false alarm: the link goes down once at each end and comes back for good. A link that is
    /// slower than half of [`STALE_MAX`] comes up too early; that ends.
    #[test]
    fn a_lost_link_comes_back_whatever_the_delay() {
        for (delay, alarm, downs_max) in [
            (1, 20, 1),
            (2, 20, 1),
            (7, 40, 1),
            (20, 60, 1),
            (40, 100, 5),
            (100, 250, 8),
            (400, 900, 10),
        ] {
            let lives = [life(1), Life { address: Address::Switch(SwitchId(8)), ..life(4) }];
            let mut ends = [Neighbours::new(1), Neighbours::new(1)];
            let mut is_live = [true; 2];
            let mut downs = [0; 2];
            let mut way: Vec<(usize, usize, Option<Life>)> = Vec::new();
            for instant in 0..20_000 {
                if instant == alarm {
                    ends[0].lose(Port(0));
                    (is_live[0], downs[0]) = (false, downs[0] + 1);
                }
                for from in [0, 1] {
                    let echo = is_live[from].then(|| ends[from].life(Port(0))).flatten();
                    way.push((instant + delay, 1 - from, echo));
                }
                while let Some(at) = way.iter().position(|(due, ..)| *due <= instant) {
                    let (_, to, echo) = way.remove(at);
                    match ends[to].hear(Port(0), lives[1 - to], echo, lives[to]) {
                        Heard::Same => is_live[to] = true,
                        Heard::Deaf => (is_live[to], downs[to]) = (false, downs[to] + 1),
                        Heard::Stale => {}
                        Heard::NewLife(_) => unreachable!("one life each"),
                    }
                }
            }
            assert_eq!(is_live, [true; 2], "delay {delay}");
            assert!(downs.iter().all(|downs| (1..=downs_max).contains(downs)), "{delay} {downs:?}");
            assert!(ends[0].hears_us(Port(0)) && ends[1].hears_us(Port(0)));
        }
    }

    #[test]
    fn lives_survive_the_wire() {
        for life in [None, Some(life(0)), Some(life(u32::MAX))] {
            assert_eq!(Life::from_words(Life::to_words(life)), life);
        }
    }
}
