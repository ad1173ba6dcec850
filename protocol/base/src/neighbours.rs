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
    /// An earlier life than the one known: the frame is stale.
    Stale,
    /// The other end does not hear this one any more.
    Deaf,
}

/// The other end of each link of a node (design: failure.md, "Who is on a link?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbours {
    ends: Vec<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct End {
    life: Option<Life>,
    hears_us: bool,
}

const NOBODY: End = End { life: None, hears_us: false };

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
            Some(known) if known == life => {
                let was_heard = core::mem::replace(&mut end.hears_us, hears_us);
                if was_heard && !hears_us { Heard::Deaf } else { Heard::Same }
            }
            Some(known)
                if known.address == life.address && life.incarnation < known.incarnation =>
            {
                Heard::Stale
            }
            Some(known) => {
                *end = End { life: Some(life), hears_us };
                Heard::NewLife(known)
            }
            None => {
                *end = End { life: Some(life), hears_us };
                Heard::Same
            }
        }
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

/// A life in the fields of a frame: address bits and incarnation; nobody is
/// [`Address::NOBODY_BITS`] and 0.
impl Life {
    /// The two words that stand for `life`, or for nobody.
    pub fn to_words(life: Option<Self>) -> (u32, u32) {
        life.map_or((Address::NOBODY_BITS, 0), |life| (life.address.to_bits(), life.incarnation.0))
    }

    /// Back from the two words.
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
        assert_eq!(neighbours.hear(port, life(5), None, own), Heard::Same, "said once");
        let former = Life { incarnation: Incarnation(3), ..own };
        assert_eq!(neighbours.hear(port, life(5), Some(former), own), Heard::Same);
        assert!(!neighbours.hears_us(port));
        assert_eq!(neighbours.hear(Port(1), life(1), None, own), Heard::Stale, "no such link");
    }

    #[test]
    fn lives_survive_the_wire() {
        for life in [None, Some(life(0)), Some(life(u32::MAX))] {
            assert_eq!(Life::from_words(Life::to_words(life)), life);
        }
    }
}
