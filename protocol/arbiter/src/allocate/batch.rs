//! Up to 64 timeslots that are given out together.

use alloc::vec::Vec;

use super::capacity::Capacity;
use crate::demand::Flow;
use crate::timeslot::Timeslot;

/// Timeslots that a pair was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Who may send.
    pub src: u16,
    /// To whom.
    pub dst: u16,
    /// In which timeslots: bit 0 is the first of the batch.
    pub slots: u64,
}

/// Consecutive timeslots, and who was given which.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    start: Timeslot,
    /// A bit for each timeslot of the batch.
    all: u64,
    /// In which timeslots each endpoint has nothing to send yet, and nothing to receive.
    idle_sources: Vec<u64>,
    idle_destinations: Vec<u64>,
    capacity: Option<Capacity>,
    grants: Vec<Grant>,
    given: u32,
}

impl Batch {
    pub(super) fn new(nodes: u32, slots: u32) -> Self {
        let idle = || alloc::vec![0; nodes as usize];
        Self {
            start: Timeslot(0),
            all: u64::MAX >> (64 - slots),
            idle_sources: idle(),
            idle_destinations: idle(),
            capacity: None,
            grants: Vec::with_capacity((nodes * slots) as usize),
            given: 0,
        }
    }

    pub(super) fn limit(&mut self, capacity: Capacity) {
        self.capacity = Some(capacity);
    }

    /// Nothing is given yet.
    pub(super) fn begin(&mut self, start: Timeslot) {
        self.start = start;
        self.idle_sources.fill(self.all);
        self.idle_destinations.fill(self.all);
        if let Some(capacity) = &mut self.capacity {
            capacity.begin(self.all);
        }
        self.grants.clear();
        self.given = 0;
    }

    /// Visits each of `flows`, in order, and gives it up to `share` timeslots. Those that no
    /// timeslot of this batch is left for go `onward`, which is final: what is taken stays taken.
    /// Who wants more goes to `again`; who has got all is asked by `refill` what it wants now.
    #[inline]
    pub(super) fn visit(
        &mut self,
        flows: &[Flow],
        share: u32,
        mut refill: impl FnMut(Flow) -> u32,
        again: &mut Vec<Flow>,
        onward: &mut Vec<Flow>,
    ) {
        for flow in flows {
            let (src, dst) = (flow.src(), flow.dst());
            let from = &mut self.idle_sources[usize::from(src)];
            let to = &mut self.idle_destinations[usize::from(dst)];
            let mut free = *from & *to;
            if let Some(capacity) = &self.capacity {
                free &= capacity.free(src, dst);
            }
            if free == 0 {
                onward.push(flow.aged());
                continue;
            }
            let (slots, count) = lowest(free, flow.backlog().min(share));
            *from ^= slots;
            *to ^= slots;
            if let Some(capacity) = &mut self.capacity {
                capacity.take(src, dst, slots);
            }
            self.grants.push(Grant { src, dst, slots });
            self.given += count;
            let flow = flow.served(count);
            if flow.backlog() > 0 {
                again.push(flow);
                continue;
            }
            let more = refill(flow);
            if more > 0 {
                again.push(Flow::new(src, dst, more));
            }
        }
    }

    /// Its first timeslot.
    pub fn start(&self) -> Timeslot {
        self.start
    }

    /// Its length in timeslots.
    pub fn slots(&self) -> u32 {
        self.all.count_ones()
    }

    /// What was given, each timeslot of a pair once; a pair may be here several times.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// How many packets may be sent in all.
    pub fn given(&self) -> u32 {
        self.given
    }
}

/// The lowest `count` ones of `word`, or all that there are; and how many these are.
#[inline]
fn lowest(word: u64, count: u32) -> (u64, u32) {
    let (mut rest, mut taken) = (word, 0);
    // One by one: counting them all would take longer without an instruction for it, which not
    // every processor has.
    while taken < count && rest != 0 {
        rest &= rest - 1;
        taken += 1;
    }
    (word ^ rest, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_timeslots_are_taken_first() {
        assert_eq!(lowest(0b1011_0100, 2), (0b1_0100, 2));
        assert_eq!(lowest(0b1011_0100, 5), (0b1011_0100, 4));
        assert_eq!(lowest(u64::MAX, 64), (u64::MAX, 64));
        assert_eq!(lowest(u64::MAX, 63), (u64::MAX >> 1, 63));
        assert_eq!(lowest(1 << 63, 0), (0, 0));
    }
}
