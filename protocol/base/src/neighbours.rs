//! Neighbour table: the instance at the other end of each link, and the state of the link.

use alloc::vec::Vec;

use crate::{Address, Incarnation, Instance, Port};

/// What a received hop-only frame says about its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerUpdate {
    /// The sender is the known instance, or the first one on this link.
    Same,
    /// The sender is another instance than the one known before. This variant names the previous
    /// instance, which is dead, and whose registers no longer count.
    NewInstance(Instance),
    /// The sender is an earlier incarnation of the known instance, or had not yet noticed the loss
    /// of the link when it sent the frame. The frame must be ignored.
    Stale,
    /// The other end has stopped receiving from this end.
    OneWay,
}

//= spec/failure.md#R38
/// The other end of each link of a node (docs/design/failure.md, "Who is on a link?").
///
/// A lost link comes up again only when both ends know of the loss, much as a routing adjacency
/// needs two-way reachability: the end that detected the loss waits until its peer no longer names
/// it; the peer waits until it is named again. Otherwise one stale frame would bring the link up at
/// one end, the resulting timeout would bring it down at the other, and so on for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbours {
    ends: Vec<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct End {
    instance: Option<Instance>,
    is_two_way: bool,
    state: LinkState,
    /// Losses in quick succession; each one raises the number of frames that bring the link up.
    flaps: u8,
    /// Consecutive frames with the same `is_agreed`.
    run: u32,
    /// Whether the last frame showed that both ends agree on the state of the link: such a frame is
    /// *fresh*, any other *stale*.
    is_agreed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LinkState {
    Up,
    /// This end has detected a loss; the other end may not know.
    LostHere,
    /// The other end has detected a loss, and may not know that this end has noticed.
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

//= spec/failure.md#R38
/// Consecutive stale frames after which a link comes up regardless, because the frames that
/// reported its loss were themselves lost. Must exceed the beacons of one round trip on an intact
/// link: otherwise reports of the loss and of the recovery chase each other and make the link flap.
/// To end such flapping on slower links, every flap doubles this number, and also the number of
/// consecutive fresh frames that bring a link up.
const STALE_MAX: u32 = 64;
/// Maximum number of doublings of the required fresh frames, and of the required stale frames.
const FLAPS_MAX: u8 = 10;
const STALE_DOUBLED_MAX: u8 = 4;
/// After this multiple of the required stale frames without a loss, the flap count is cleared.
const STABLE_RUNS: u32 = 16;

impl Neighbours {
    /// Returns a table for links `0..count`, with no instance known yet.
    pub fn new(count: u16) -> Self {
        Self { ends: alloc::vec![UNKNOWN; usize::from(count)] }
    }

    //= spec/failure.md#R11
    /// Handles a hop-only frame that arrived on `port` from `instance` and names `peer` as the
    /// instance that its sender receives from on this link. `own` is the instance of this end.
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

    /// As [`Neighbours::on_hello`], for a frame that names its sender only.
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

    /// Returns whether the instance at the other end is known and neither end has lost the link:
    /// frames that arrive on `port` may be processed.
    #[inline]
    pub fn is_up(&self, port: Port) -> bool {
        self.ends
            .get(port.index())
            .is_some_and(|end| end.instance.is_some() && end.state == LinkState::Up)
    }

    /// Returns whether `instance` is at the other end, and neither end has lost the link.
    #[inline]
    pub fn is_up_with(&self, port: Port, instance: Instance) -> bool {
        let end = self.ends.get(port.index());
        end.is_some_and(|end| end.instance == Some(instance) && end.state == LinkState::Up)
    }

    /// Returns the last known instance at the other end.
    pub fn instance(&self, port: Port) -> Option<Instance> {
        self.ends.get(port.index())?.instance
    }

    /// Returns whether the other end has named this end's instance: it receives from this end.
    #[inline]
    pub fn is_two_way(&self, port: Port) -> bool {
        self.ends.get(port.index()).is_some_and(|end| end.is_two_way)
    }

    /// Marks the link as lost, because nothing arrives on `port` any more. From now on this end
    /// advertises the loss. The instance stays known, so that it is recognised when it returns.
    pub fn mark_lost(&mut self, port: Port) {
        if let Some(end) = self.ends.get_mut(port.index()) {
            if end.is_two_way {
                (end.state, end.run) = (LinkState::LostHere, 0);
            }
            end.is_two_way = false;
        }
    }

    /// Forgets the instance at `port`: another node may be connected there from now on.
    pub fn forget(&mut self, port: Port) {
        if let Some(end) = self.ends.get_mut(port.index()) {
            *end = UNKNOWN;
        }
    }
}

impl End {
    /// Handles a frame of the known instance; `is_two_way` says whether it names this end.
    fn on_hello(&mut self, is_two_way: bool) -> PeerUpdate {
        // The frame shows that both ends know of the loss when the peer of the end that detected it
        // no longer names that end, or when that end names its peer again.
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

    /// Number of consecutive fresh frames that bring the link up.
    fn agreed_min(&self) -> u32 {
        1 << self.flaps.saturating_sub(1)
    }

    /// Number of consecutive stale frames that bring the link up.
    fn stale_max(&self) -> u32 {
        STALE_MAX << self.flaps.saturating_sub(1).min(STALE_DOUBLED_MAX)
    }
}

/// Wire encoding of an optional instance: address bits and incarnation;
/// ([`Address::NONE_BITS`], 0) is `None`.
impl Instance {
    /// Encodes an instance as (address, incarnation).
    pub fn to_words(instance: Option<Self>) -> (u32, u32) {
        instance.map_or((Address::NONE_BITS, 0), |instance| {
            (instance.address.to_bits(), instance.incarnation.0)
        })
    }

    /// Decodes the words of [`Instance::to_words`].
    #[inline]
    pub fn from_words(address: u32, incarnation: u32) -> Option<Self> {
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

    //= spec/failure.md#R11
    //= spec/failure.md#R12
    #[test]
    fn detects_new_instances_and_stale_frames() {
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
            "reported once"
        );
        let previous = Instance { incarnation: Incarnation(3), ..own };
        assert_eq!(neighbours.on_hello(port, instance(5), Some(previous), own), PeerUpdate::Stale);
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

    //= spec/failure.md#R38
    /// Two ends send beacons at the same instants, each of which takes `delay` instants, and one
    /// end reports a false loss: the link goes down once at each end and comes up permanently. A
    /// link slower than half of [`STALE_MAX`] comes up too early a few times, but stops flapping.
    #[test]
    fn lost_link_comes_back_for_any_delay() {
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
                        PeerUpdate::NewInstance(_) => unreachable!("one incarnation each"),
                    }
                }
            }
            assert_eq!(is_live, [true; 2], "delay {delay}");
            assert!(downs.iter().all(|downs| (1..=downs_max).contains(downs)), "{delay} {downs:?}");
            assert!(ends[0].is_two_way(Port(0)) && ends[1].is_two_way(Port(0)));
        }
    }

    #[test]
    fn instance_words_round_trip() {
        for instance in [None, Some(instance(0)), Some(instance(u32::MAX))] {
            assert_eq!(
                {
                    let (address, incarnation) = Instance::to_words(instance);
                    Instance::from_words(address, incarnation)
                },
                instance
            );
        }
    }
}
