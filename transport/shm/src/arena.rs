//! The free slots of this process's arena, and each receiver's share of them.

/// The free slots of this process's arena, as a stack: the last released slot is still in the
/// cache.
#[derive(Debug)]
pub(crate) struct Arena {
    free: Vec<u32>,
    slots: usize,
}

/// Utilisation of a receiver's share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    /// Below half.
    Low,
    /// Above half: frames are marked with congestion.
    Half,
    /// Above three quarters: no burst begins while the receiver is merely slow.
    Tight,
    /// All of it: the frame is parked, or dropped if the receiver has stopped.
    Full,
}

impl Arena {
    /// Makes an arena of `slots` slots, all free except those that `is_taken`.
    pub(crate) fn new(slots: u32, is_taken: impl Fn(u32) -> bool) -> Self {
        let mut free = Vec::with_capacity(slots as usize);
        free.extend((0..slots).rev().filter(|slot| !is_taken(*slot)));
        Self { free, slots: slots as usize }
    }

    /// Returns the slot to use next.
    #[inline]
    pub(crate) fn top(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// Takes the slot that `top` returned.
    #[inline]
    pub(crate) fn take(&mut self) {
        self.free.pop();
    }

    /// Returns a slot to the free list.
    #[inline]
    pub(crate) fn release(&mut self, slot: u32) {
        debug_assert!(self.free.len() < self.slots, "released more slots than were taken");
        self.free.push(slot);
    }

    /// Returns the number of free slots.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the utilisation of the share of a receiver with `in_flight` frames and a ring of
    /// `entries`.
    ///
    /// A share is limited by the ring and by the free slots: a receiver that has stopped holds at
    /// most half of the arena, another that stops after it half of the rest, and the last slot is
    /// never sent, so that there is always one to go on with (dynamic thresholds: Choudhury and
    /// Hahne, IEEE/ACM ToN 1998).
    #[inline]
    pub(crate) fn fill(&self, in_flight: usize, entries: usize) -> Fill {
        let share = entries.min(self.free.len().saturating_sub(1));
        match in_flight {
            _ if in_flight >= share => Fill::Full,
            _ if in_flight * 4 > share * 3 => Fill::Tight,
            _ if in_flight * 2 > share => Fill::Half,
            _ => Fill::Low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_released_slot_is_reused_first() {
        let mut arena = Arena::new(4, |slot| slot == 1);
        assert_eq!((arena.top(), arena.free()), (Some(0), 3));
        arena.take();
        assert_eq!(arena.top(), Some(2));
        arena.release(0);
        assert_eq!(arena.top(), Some(0));
    }

    #[test]
    fn stopped_receivers_leave_slots_for_others() {
        let mut arena = Arena::new(64, |_| false);
        let mut in_flight = [0; 3];
        for stopped in &mut in_flight {
            while arena.fill(*stopped, 64) < Fill::Full {
                arena.take();
                *stopped += 1;
            }
        }
        assert_eq!(in_flight, [32, 16, 8]);
        assert_eq!(arena.free(), 8);
    }

    #[test]
    fn ring_bounds_a_share_too() {
        let arena = Arena::new(64, |_| false);
        let fills = [8, 9, 13, 16].map(|in_flight| arena.fill(in_flight, 16));
        assert_eq!(fills, [Fill::Low, Fill::Half, Fill::Tight, Fill::Full]);
    }
}
