//! A set of processes.

use onepipe_base::ProcessId;

/// A set of process ids below a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessSet {
    words: Box<[u64]>,
}

impl ProcessSet {
    pub(crate) fn empty(processes_max: u32) -> Self {
        Self { words: vec![0; (processes_max as usize).div_ceil(64)].into_boxed_slice() }
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds a process; ignores ids beyond the limit.
    #[inline]
    pub(crate) fn insert(&mut self, process: ProcessId) {
        if let Some(word) = self.words.get_mut(process.index() / 64) {
            *word |= 1 << (process.0 % 64);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, process: ProcessId) {
        if let Some(word) = self.words.get_mut(process.index() / 64) {
            *word &= !(1 << (process.0 % 64));
        }
    }

    pub(crate) fn contains(&self, process: ProcessId) -> bool {
        let word = self.words.get(process.index() / 64);
        word.is_some_and(|word| word >> (process.0 % 64) & 1 == 1)
    }

    /// The processes of the set in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| ProcessId(at as u32 * 64 + bit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_iterate_in_order_and_large_ids_are_ignored() {
        let mut peers = ProcessSet::empty(70);
        for process in [69, 3, 64, 0, 500] {
            peers.insert(ProcessId(process));
        }
        peers.remove(ProcessId(3));
        peers.remove(ProcessId(400));
        let processes: Vec<u32> = peers.iter().map(|process| process.0).collect();
        assert_eq!(processes, [0, 64, 69]);
        assert!(peers.contains(ProcessId(69)) && !peers.contains(ProcessId(500)));
    }
}
