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
        self.last = self.last.wrapping_add(1).max(1);
        self.links.push(Frozen { number: self.last, port, life, commit });
        true
    }

    /// The death `number` is resolved: what it held is held no longer. Answers its link, if there
    /// is such a one.
    pub fn resolve(&mut self, registers: &mut Registers, number: u32) -> Option<Frozen> {
        let at = self.links.iter().position(|frozen| frozen.number == number)?;
        let resolved = self.links.remove(at);
        let same = self.links.iter().filter(|frozen| frozen.port == resolved.port);
        registers.hold(resolved.port, same.map(|frozen| frozen.commit).min());
        Some(resolved)
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
    use crate::{Mono, Promises};

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
            assert!(frozen.freeze(&mut registers, Port(0), None));
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
}
