//! Who is at the other end of each link, and whether it hears us.

use alloc::vec::Vec;

use crate::{Address, Incarnation, Instance, Port};

/// What a hop-only frame has shown about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerUpdate {
    /// The life that was known there, or the first one.
    Same,
    /// Another life than was known: that one is dead, its registers with it.
    NewInstance(Instance),
    /// An earlier life than the one known, or what it said before it knew that the link was lost:
    /// the frame is stale. It is not to be heard.
    Stale,
    /// The other end does not hear this one any more.
    OneWay,
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
    instance: Option<Instance>,
    is_two_way: bool,
    state: LinkState,
    /// How often it was lost again soon after it had come up: each time it needs more to come up.
    flaps: u8,
    /// Frames in a row that say the same of whether both ends know of a loss.
    run: u32,
    /// What those say.
    is_agreed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LinkState {
    Up,
    /// This end has lost it, and the other end may not know.
    LostHere,
    /// The other end has lost it, and may not know that this end knows.
    LostThere,
}

const UNKNOWN: End = End {
    instance: None,
    is_two_way: false,
    state: LinkState::Up,
    flaps: 0,
    run: 0,
    is_agreed: true,
};

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
const STABLE_RUNS: u32 = 16;

impl Neighbours {
    /// Nobody yet on links `0..count`.
    pub fn new(count: u16) -> Self {
        Self { ends: alloc::vec![UNKNOWN; usize::from(count)] }
    }

    /// A frame that crosses one link only has arrived on `port` from `instance`, whose sender hears
    /// `peer` at this end. `own` is this end's life.
    pub fn on_hello(
        &mut self,
        port: Port,
        instance: Instance,
        peer: Option<Instance>,
        own: Instance,
    ) -> PeerUpdate {
        let Some(end) = self.ends.get_mut(port.index()) else { return PeerUpdate::Stale };
        let is_two_way = peer == Some(own);
        match end.instance {
            Some(known) if known == instance => end.on_hello(is_two_way),
            Some(known)
                if known.address == instance.address
                    && instance.incarnation < known.incarnation =>
            {
                PeerUpdate::Stale
            }
            known => {
                *end = End { instance: Some(instance), is_two_way, ..UNKNOWN };
                known.map_or(PeerUpdate::Same, PeerUpdate::NewInstance)
            }
        }
    }

    /// As [`Neighbours::on_hello`] for a frame that bears the life of its sender and no echo.
    #[inline]
    pub fn on_instance(&mut self, port: Port, instance: Instance) -> PeerUpdate {
        let Some(end) = self.ends.get_mut(port.index()) else { return PeerUpdate::Stale };
        match end.instance {
            Some(known) if known == instance => match end.state {
                LinkState::Up => PeerUpdate::Same,
                LinkState::LostHere | LinkState::LostThere => PeerUpdate::Stale,
            },
            Some(known)
                if known.address == instance.address
                    && instance.incarnation < known.incarnation =>
            {
                PeerUpdate::Stale
            }
            known => {
                *end = End { instance: Some(instance), ..UNKNOWN };
                known.map_or(PeerUpdate::Same, PeerUpdate::NewInstance)
            }
        }
    }

    /// Whether it is known who is at the other end, and nobody has lost the link: what arrives
    /// there may be heard.
    #[inline]
    pub fn is_up(&self, port: Port) -> bool {
        self.ends
            .get(port.index())
            .is_some_and(|end| end.instance.is_some() && end.state == LinkState::Up)
    }

    /// Whether `instance` is known to be at the other end, and nobody has lost the link.
    #[inline]
    pub fn is_up_with(&self, port: Port, instance: Instance) -> bool {
        let end = self.ends.get(port.index());
        end.is_some_and(|end| end.instance == Some(instance) && end.state == LinkState::Up)
    }

    /// Who is at the other end, as far as it has said.
    pub fn instance(&self, port: Port) -> Option<Instance> {
        self.ends.get(port.index())?.instance
    }

    /// Whether the other end has echoed this one's life: it knows whose promises it hears.
    #[inline]
    pub fn is_two_way(&self, port: Port) -> bool {
        self.ends.get(port.index()).is_some_and(|end| end.is_two_way)
    }

    /// Nothing is heard on `port` any more: from now on this end says so. Who was there stays
    /// known, so that it is recognised when it is heard again.
    pub fn mark_lost(&mut self, port: Port) {
        if let Some(end) = self.ends.get_mut(port.index()) {
            if end.is_two_way {
                (end.state, end.run) = (LinkState::LostHere, 0);
            }
            end.is_two_way = false;
        }
    }

    /// Somebody else may be at `port` from now on.
    pub fn forget(&mut self, port: Port) {
        if let Some(end) = self.ends.get_mut(port.index()) {
            *end = UNKNOWN;
        }
    }
}

impl End {
    /// A frame of the life that is known here, which says whether it hears this end.
    fn on_hello(&mut self, is_two_way: bool) -> PeerUpdate {
        // Whether both ends know of the loss is seen by what the other end says: that it hears
        // nothing, to the one who has lost the link; that it hears again, to the other.
        let is_agreed = match self.state {
            LinkState::Up => true,
            LinkState::LostHere => !is_two_way,
            LinkState::LostThere => is_two_way,
        };
        let is_same = core::mem::replace(&mut self.is_agreed, is_agreed) == is_agreed;
        self.run = if is_same { self.run.saturating_add(1) } else { 1 };
        if self.state == LinkState::Up {
            if self.run >= STABLE_RUNS * self.stale_max() {
                self.flaps = 0;
            }
        } else if self.run < if is_agreed { self.agreed_min() } else { self.stale_max() } {
            return PeerUpdate::Stale;
        }
        let was_two_way = core::mem::replace(&mut self.is_two_way, is_two_way);
        if self.state != LinkState::Up {
            (self.state, self.run) = (LinkState::Up, 0);
        }
        if was_two_way && !is_two_way {
            (self.state, self.run) = (LinkState::LostThere, 0);
            self.flaps = FLAPS_MAX.min(self.flaps + 1);
            return PeerUpdate::OneWay;
        }
        PeerUpdate::Same
    }

    /// How many fresh frames in a row bring it up.
    fn agreed_min(&self) -> u32 {
        1 << self.flaps.saturating_sub(1)
    }

    /// How many stale ones.
    fn stale_max(&self) -> u32 {
        STALE_MAX << self.flaps.saturating_sub(1).min(STALE_DOUBLED_MAX)
    }
}

/// A life in the fields of a frame: address bits and incarnation; nobody is
/// [`Address::NONE_BITS`] and 0.
impl Instance {
    /// The two words that stand for `instance`, or for nobody.
    pub fn to_words(instance: Option<Self>) -> (u32, u32) {
        instance.map_or((Address::NONE_BITS, 0), |instance| {
            (instance.address.to_bits(), instance.incarnation.0)
        })
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

    fn instance(incarnation: u32) -> Instance {
        Instance { address: Address::Switch(SwitchId(7)), incarnation: Incarnation(incarnation) }
    }

    #[test]
    fn a_new_life_is_told_from_the_old_one_and_a_stale_frame_from_both() {
        let own = Instance { address: Address::Process(ProcessId(1)), incarnation: Incarnation(4) };
        let mut neighbours = Neighbours::new(1);
        let port = Port(0);
        assert_eq!(neighbours.on_hello(port, instance(3), None, own), PeerUpdate::Same);
        assert!(!neighbours.is_two_way(port));
        assert_eq!(neighbours.on_hello(port, instance(3), Some(own), own), PeerUpdate::Same);
        assert!(neighbours.is_two_way(port));
        assert_eq!(neighbours.on_hello(port, instance(2), Some(own), own), PeerUpdate::Stale);
        assert_eq!(
            neighbours.on_hello(port, instance(5), None, own),
            PeerUpdate::NewInstance(instance(3))
        );
        assert!(!neighbours.is_two_way(port));
        assert_eq!(neighbours.instance(port), Some(instance(5)));
        neighbours.on_hello(port, instance(5), Some(own), own);
        assert_eq!(neighbours.on_hello(port, instance(5), None, own), PeerUpdate::OneWay);
        assert_eq!(
            neighbours.on_hello(port, instance(5), None, own),
            PeerUpdate::Stale,
            "said once"
        );
        let former = Instance { incarnation: Incarnation(3), ..own };
        assert_eq!(neighbours.on_hello(port, instance(5), Some(former), own), PeerUpdate::Stale);
        assert!(!neighbours.is_two_way(port) && !neighbours.is_up(port));
        assert_eq!(neighbours.on_instance(port, instance(5)), PeerUpdate::Stale);
        assert_eq!(neighbours.on_hello(port, instance(5), Some(own), own), PeerUpdate::Same);
        assert_eq!(neighbours.on_instance(port, instance(5)), PeerUpdate::Same);
        assert_eq!(neighbours.on_instance(port, instance(4)), PeerUpdate::Stale);
        assert_eq!(neighbours.on_instance(port, instance(6)), PeerUpdate::NewInstance(instance(5)));
        assert_eq!(
            neighbours.on_hello(Port(1), instance(1), None, own),
            PeerUpdate::Stale,
            "no such link"
        );
    }

    /// Two ends that beacon at the same instants, each frame `delay` instants under in_flight, and one
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
            let instances =
                [instance(1), Instance { address: Address::Switch(SwitchId(8)), ..instance(4) }];
            let mut ends = [Neighbours::new(1), Neighbours::new(1)];
            let mut is_live = [true; 2];
            let mut downs = [0; 2];
            let mut in_flight: Vec<(usize, usize, Option<Instance>)> = Vec::new();
            for instant in 0..20_000 {
                if instant == alarm {
                    ends[0].mark_lost(Port(0));
                    (is_live[0], downs[0]) = (false, downs[0] + 1);
                }
                for from in [0, 1] {
                    let peer = is_live[from].then(|| ends[from].instance(Port(0))).flatten();
                    in_flight.push((instant + delay, 1 - from, peer));
                }
                while let Some(at) = in_flight.iter().position(|(due, ..)| *due <= instant) {
                    let (_, to, peer) = in_flight.remove(at);
                    match ends[to].on_hello(Port(0), instances[1 - to], peer, instances[to]) {
                        PeerUpdate::Same => is_live[to] = true,
                        PeerUpdate::OneWay => (is_live[to], downs[to]) = (false, downs[to] + 1),
                        PeerUpdate::Stale => {}
                        PeerUpdate::NewInstance(_) => unreachable!("one life each"),
                    }
                }
            }
            assert_eq!(is_live, [true; 2], "delay {delay}");
            assert!(downs.iter().all(|downs| (1..=downs_max).contains(downs)), "{delay} {downs:?}");
            assert!(ends[0].is_two_way(Port(0)) && ends[1].is_two_way(Port(0)));
        }
    }

    #[test]
    fn lives_survive_the_wire() {
        for instance in [None, Some(instance(0)), Some(instance(u32::MAX))] {
            assert_eq!(Instance::from_words(Instance::to_words(instance)), instance);
        }
    }
}
