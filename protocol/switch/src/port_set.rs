//! A set of ports as a bit table.

use alloc::vec::Vec;

use onepipe_base::Port;

/// A subset of the ports `0..count`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PortSet {
    words: Vec<u64>,
    /// No word below this index has a bit set.
    low: usize,
}

impl PortSet {
    pub(crate) fn new(count: u16) -> Self {
        let words = alloc::vec![0; usize::from(count).div_ceil(64)];
        Self { low: words.len(), words }
    }

    #[inline]
    pub(crate) fn insert(&mut self, port: Port) {
        let word = port.index() / 64;
        self.words[word] |= 1 << (port.0 % 64);
        self.low = self.low.min(word);
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(self.low <= self.words.len());
        assert!(self.words[..self.low].iter().all(|word| *word == 0), "a port below the first");
    }

    pub(crate) fn remove(&mut self, port: Port) {
        self.words[port.index() / 64] &= !(1 << (port.0 % 64));
    }

    #[inline]
    pub(crate) fn contains(&self, port: Port) -> bool {
        self.words[port.index() / 64] & (1 << (port.0 % 64)) != 0
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
        self.low = self.words.len();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Removes and returns the lowest port.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Port> {
        while let Some(word) = self.words.get_mut(self.low) {
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                debug_assert!(self.low <= usize::from(u16::MAX) / 64, "ports have 16 bits");
                return Some(Port((self.low * 64) as u16 + bit as u16));
            }
            self.low += 1;
        }
        None
    }

    /// Removes the ports for which `keep` returns false. Visits the ports in ascending order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(Port) -> bool) {
        for (index, word) in self.words.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                if !keep(Port((index * 64) as u16 + bit as u16)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// Adds all ports of `some` that are not in `others`.
    pub(crate) fn add_difference(&mut self, some: &Self, others: &Self) {
        let pairs = some.words.iter().zip(&others.words);
        for (word, (some, others)) in self.words.iter_mut().zip(pairs) {
            *word |= some & !others;
        }
        self.low = 0;
    }

    /// Returns all ports in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Port> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            core::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(Port((index * 64) as u16 + bit as u16))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    fn ports() -> impl Strategy<Value = BTreeSet<u16>> {
        prop::collection::btree_set(0u16..200, 0..50)
    }

    proptest! {
        #[test]
        fn behaves_as_a_set(steps in prop::collection::vec((0u16..200, 0u8..8), 0..200)) {
            let (mut set, mut model) = (PortSet::new(200), BTreeSet::new());
            for (port, step) in steps {
                match step {
                    0 => { set.remove(Port(port)); model.remove(&Port(port)); }
                    1 => prop_assert_eq!(set.pop(), model.pop_first()),
                    3 => {
                        set.retain(|member| member.0 % 3 != port % 3);
                        model.retain(|member| member.0 % 3 != port % 3);
                    }
                    2 if port == 0 => { set.clear(); model.clear(); }
                    _ => { set.insert(Port(port)); model.insert(Port(port)); }
                }
                prop_assert!(set.iter().eq(model.iter().copied()));
                prop_assert_eq!(set.contains(Port(port)), model.contains(&Port(port)));
                prop_assert_eq!(set.is_empty(), model.is_empty());
            }
        }

        #[test]
        fn differences_are_added(some in ports(), others in ports()) {
            let set = |ports: &BTreeSet<u16>| {
                let mut set = PortSet::new(200);
                ports.iter().for_each(|port| set.insert(Port(*port)));
                set
            };
            let mut sum = PortSet::new(200);
            sum.add_difference(&set(&some), &set(&others));
            let mut rest: BTreeSet<_> = some.difference(&others).map(|port| Port(*port)).collect();
            while let Some(port) = sum.pop() {
                prop_assert_eq!(Some(port), rest.pop_first());
            }
            prop_assert!(rest.is_empty());
        }
    }
}
