//! Dead links whose commit registers are held until a controller has resolved them.

use alloc::vec::Vec;

use crate::{Life, Port, Registers, Timestamp};

/// One dead link of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    /// The node's own number for this death, from 1: a port can be frozen more than once.
    pub number: u32,
    /// Where.
    pub port: Port,
    /// Who was there; `None` when it never said.
    pub life: Option<Life>,
    /// The last commit promised there.
    pub commit: Timestamp,
}

/// The frozen links of a node, in the order of their death. Empty but in a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrozenLinks {
    links: Vec<Frozen>,
    last: u32,
}

impl FrozenLinks {
    /// None yet.
    pub const fn new() -> Self {
        Self { links: Vec::new(), last: 0 }
    }

    /// Freezes `port` in `registers`, where `life` was. Answers whether it was live.
    pub fn freeze(&mut self, registers: &mut Registers, port: Port, life: Option<Life>) -> bool {
        let Some(commit) = registers.freeze(port) else { return false };
        self.note(port, life, commit);
        true
    }

    /// Notes that `port`, where `life` was, is frozen at `commit`. Answers the number of this
    /// death.
    ///
    /// A second death at the same place takes in the first: they are resolved together, and what is
    /// held is the lower of the two in any case. Of one address that is as right: the later life's
    /// scatterings lie above what the earlier one has promised. So a link that dies again and again
    /// takes no room.
    pub fn note(&mut self, port: Port, life: Option<Life>, mut commit: Timestamp) -> u32 {
        let address = |life: Option<Life>| life.map(|life| life.address);
        let is_former =
            |frozen: &Frozen| frozen.port == port && address(frozen.life) == address(life);
        if let Some(at) = self.links.iter().position(is_former) {
            commit = commit.min(self.links.remove(at).commit);
        }
        self.last = self.last.wrapping_add(1).max(1);
        self.links.push(Frozen { number: self.last, port, life, commit });
        self.last
    }

    /// The death `number` is resolved: what it held is held no longer. Answers its link, if there
    /// is such a one.
    pub fn resolve(&mut self, registers: &mut Registers, number: u32) -> Option<Frozen> {
        let (resolved, held) = self.take(number)?;
        registers.hold(resolved.port, held);
        Some(resolved)
    }

    /// Takes the death `number` out: its link, and what other deaths there still hold.
    pub fn take(&mut self, number: u32) -> Option<(Frozen, Option<Timestamp>)> {
        let at = self.links.iter().position(|frozen| frozen.number == number)?;
        let resolved = self.links.remove(at);
        let same = self.links.iter().filter(|frozen| frozen.port == resolved.port);
        Some((resolved, same.map(|frozen| frozen.commit).min()))
    }

    /// All of them, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frozen> {
        self.links.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Incarnation, Mono, ProcessId, Promises};

    #[test]
    fn two_deaths_on_one_port_are_resolved_in_either_order() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut registers = Registers::new(2);
            let mut frozen = FrozenLinks::new();
            let hear = |registers: &mut Registers, port, ns| {
                let promises = Promises::both(Timestamp::from_ns(ns));
                registers.hear(Mono::from_ns(ns), Port(port), promises);
            };
            hear(&mut registers, 0, 10);
            hear(&mut registers, 1, 900);
            assert!(frozen.freeze(&mut registers, Port(0), None));
            assert!(!frozen.freeze(&mut registers, Port(0), None), "dead already");
            hear(&mut registers, 0, 20);
            let life =
                Life { address: Address::Process(ProcessId(0)), incarnation: Incarnation(1) };
            assert!(frozen.freeze(&mut registers, Port(0), Some(life)));
            let commit = |registers: &Registers| registers.all().map(|all| all.commit.as_ns());
            assert_eq!(commit(&registers), Some(10));
            let held = frozen.resolve(&mut registers, first).map(|frozen| frozen.commit.as_ns());
            assert_eq!(held, Some(10 * u64::from(first)));
            assert_eq!(commit(&registers), Some(10 * u64::from(second)));
            assert!(frozen.resolve(&mut registers, first).is_none());
            frozen.resolve(&mut registers, second);
            assert!(frozen.is_empty());
            assert_eq!(commit(&registers), Some(900));
        }
    }

    #[test]
    fn a_link_that_dies_again_and_again_takes_no_room() {
        let (mut registers, mut frozen) = (Registers::new(2), FrozenLinks::new());
        registers.hear(Mono::from_ns(0), Port(0), Promises::both(Timestamp::from_ns(900)));
        for incarnation in 1..9 {
            let promises = Promises::both(Timestamp::from_ns(u64::from(incarnation) * 10));
            registers.hear(Mono::from_ns(0), Port(1), promises);
            let address = Address::Process(ProcessId(3));
            let life = Some(Life { address, incarnation: Incarnation(incarnation) });
            assert!(frozen.freeze(&mut registers, Port(1), life));
            let only: Vec<_> = frozen.iter().map(|dead| (dead.number, dead.life)).collect();
            assert_eq!(only, [(incarnation, life)]);
        }
        let commit = |registers: &Registers| registers.all().map(|all| all.commit.as_ns());
        assert_eq!(commit(&registers), Some(10));
        assert_eq!(frozen.resolve(&mut registers, 7), None, "taken in by the next");
        assert_eq!(frozen.resolve(&mut registers, 8).map(|dead| dead.commit.as_ns()), Some(10));
        assert_eq!(commit(&registers), Some(900));
    }
}
