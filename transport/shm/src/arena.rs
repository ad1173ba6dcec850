//! The free slots of this process's arena, and each receiver's share of them.

/// The free slots of this process's arena, as a stack: the last released slot is still in the
/// cache, and a slot without memory is used only when no other is free.
#[derive(Debug)]
pub(crate) struct Arena {
    free: Vec<u32>,
    slots: u32,
    /// Slots below this have memory.
    reserved: u32,
    /// Whether memory for more was refused.
    is_capped: bool,
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
    /// Makes an arena of `slots` slots, of which `reserved` have memory. Those are free except
    /// those that `is_taken`.
    pub(crate) fn new(slots: u32, reserved: u32, is_taken: impl Fn(u32) -> bool) -> Self {
        let mut free = Vec::with_capacity(slots as usize);
        free.extend((0..reserved).rev().filter(|slot| !is_taken(*slot)));
        Self { free, slots, reserved, is_capped: false }
    }

    /// Returns the number of slots that have memory: the first ones.
    #[inline]
    pub(crate) fn reserved(&self) -> u32 {
        self.reserved
    }

    /// Whether a slot that has no memory yet is the next one to use.
    #[inline]
    pub(crate) fn needs_memory(&self) -> bool {
        self.free.is_empty() && self.reserved < self.slots && !self.is_capped
    }

    /// Adds the slots below `end`, which have memory now.
    pub(crate) fn grow(&mut self, end: u32) {
        debug_assert!(end <= self.slots, "more memory than slots");
        self.free.extend((self.reserved..end).rev());
        self.reserved = end;
    }

    /// Sets whether memory for more slots was refused: then those that have memory are all.
    #[inline]
    pub(crate) fn set_capped(&mut self, is_capped: bool) {
        self.is_capped = is_capped;
    }

    /// Returns the number of slots that are free, or may get memory.
    #[inline]
    pub(crate) fn usable(&self) -> usize {
        let growth = if self.is_capped { 0 } else { self.slots - self.reserved };
        self.free.len() + growth as usize
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
        debug_assert!(self.free.len() < self.slots as usize, "released more slots than were taken");
        self.free.push(slot);
    }

    /// Returns the number of free slots that have memory.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the utilisation of the share of a receiver with `in_flight` frames and a ring of
    /// `entries`.
    ///
    /// A share is limited by the ring and by the usable slots: a receiver that has stopped holds at
    /// most half of the arena, another that stops after it half of the rest, and the last slot is
    /// never sent, so that there is always one to go on with (dynamic thresholds: Choudhury and
    /// Hahne, IEEE/ACM ToN 1998).
    #[inline]
    pub(crate) fn fill(&self, in_flight: usize, entries: usize) -> Fill {
        let share = entries.min(self.usable().saturating_sub(1));
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
        let mut arena = Arena::new(4, 4, |slot| slot == 1);
        assert_eq!((arena.top(), arena.free()), (Some(0), 3));
        arena.take();
        assert_eq!(arena.top(), Some(2));
        arena.release(0);
        assert_eq!(arena.top(), Some(0));
    }

    #[test]
    fn stopped_receivers_leave_slots_for_others() {
        let mut arena = Arena::new(64, 64, |_| false);
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
        let arena = Arena::new(64, 64, |_| false);
        let fills = [8, 9, 13, 16].map(|in_flight| arena.fill(in_flight, 16));
        assert_eq!(fills, [Fill::Low, Fill::Half, Fill::Tight, Fill::Full]);
    }

    #[test]
    fn slots_without_memory_count_until_it_is_refused() {
        let mut arena = Arena::new(64, 16, |_| false);
        assert_eq!((arena.top(), arena.fill(16, 64)), (Some(0), Fill::Low));
        (0..16).for_each(|_| arena.take());
        assert_eq!((arena.top(), arena.needs_memory()), (None, true));
        assert_eq!(arena.fill(16, 64), Fill::Low);
        arena.set_capped(true);
        assert_eq!((arena.needs_memory(), arena.fill(0, 64)), (false, Fill::Full));
        arena.set_capped(false);
        arena.grow(32);
        assert_eq!((arena.top(), arena.reserved(), arena.free()), (Some(16), 32, 16));
    }
}
