//! When batches are ordered, and what is done when they are late.

use crate::Timeslot;

/// Who is late by so many batches, or by half of the lead, is behind.
const BEHIND: u64 = 4;
/// Batches that are ordered and not yet given out, at most.
const FLIGHT_MAX: u64 = 8;

/// When batches are ordered: a lead before they begin, few of them at a time, and none whose time
/// is over; and when less of what is wanted is to go to who gives them out, as they do not keep
/// pace. All times are timeslots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    lead: u64,
    batch_slots: u64,
    /// Where the next batch begins.
    next: Timeslot,
    /// Batches that were ordered and not yet given out.
    flight: u64,
    flight_max: u64,
    /// When a batch was given out last.
    given: Timeslot,
    /// How long that had taken since the one before was, or since it was due.
    took: u64,
    /// Batches take too long, and nothing was said of it.
    is_slow: bool,
    /// Batches under way that were ordered before less was: nothing new is to be learned of them.
    unheeded: u64,
}

/// A batch to be given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ordered {
    /// Its first timeslot.
    pub start: Timeslot,
    /// Timeslots before it that are given to nobody: they would have been given too late.
    pub skipped: u64,
    /// It takes longer to give out batches than they last: less is to be given out, before this
    /// one. See [`crate::Ledger::on_late`].
    pub is_late: bool,
}

impl Pace {
    /// Batches of `batch_slots` (1 at least) timeslots, each due `lead` timeslots before it begins.
    /// The first one begins at 0.
    ///
    /// Those that are ordered and not yet given out may last half of the lead, as of more all are
    /// late when a core is away for so long; but they are more than `workers`, so that each has one
    /// and there is one to go on with.
    pub fn new(lead: u64, batch_slots: u32, workers: u32) -> Self {
        let batch_slots = u64::from(batch_slots.max(1));
        let least = u64::from(workers.max(1)) + 1;
        Self {
            lead,
            batch_slots,
            next: Timeslot(0),
            flight: 0,
            flight_max: (lead / 2 / batch_slots).min(FLIGHT_MAX).max(least),
            given: Timeslot(0),
            took: 0,
            is_slow: false,
            unheeded: 0,
        }
    }

    /// The next batch does not begin before `start`.
    pub fn begin(&mut self, start: Timeslot) {
        self.next = self.next.max(start);
    }

    /// Where the next batch begins, if it is not skipped.
    pub fn next(&self) -> Timeslot {
        self.next
    }

    /// The timeslot in which the next batch is to be ordered; `None` while as many are under way as
    /// may be.
    pub fn due(&self) -> Option<Timeslot> {
        let due = Timeslot(self.next.0.saturating_sub(self.lead));
        Some(due).filter(|_| self.flight < self.flight_max)
    }

    /// The next batch, if it is due at `now`.
    pub fn order(&mut self, now: Timeslot) -> Option<Ordered> {
        self.due().filter(|due| *due <= now)?;
        let late = (now.0 + self.lead).saturating_sub(self.next.0);
        // What is given out when half of the lead is over mostly comes too late.
        let most = (self.lead / 2).max(self.batch_slots);
        let skipped = if late > most { late } else { 0 };
        let start = Timeslot(self.next.0 + skipped);
        let is_late = self.unheeded == 0 && (self.is_slow || late > self.batch_slots);
        if is_late {
            self.unheeded = self.flight;
            self.is_slow = false;
        }
        self.next = Timeslot(start.0 + self.batch_slots);
        self.flight += 1;
        Some(Ordered { start, skipped, is_late })
    }

    /// The batch that begins at `start` is given out. They come in the order in which they were
    /// ordered.
    pub fn on_given(&mut self, now: Timeslot, start: Timeslot) {
        let due = Timeslot(start.0.saturating_sub(self.lead));
        let took = now.0.saturating_sub(due.max(self.given).0);
        // One may have waited for a core that was away; two have not.
        let both_took = took.min(self.took);
        (self.given, self.took) = (now, took);
        self.flight = self.flight.saturating_sub(1);
        if self.unheeded > 0 {
            self.unheeded -= 1;
            return;
        }
        let behind = (self.lead / 2).min(BEHIND * self.batch_slots);
        let is_behind = now.0.saturating_sub(due.0) > behind;
        // To catch up takes more than to keep pace.
        let most = if is_behind { self.batch_slots / 4 * 3 } else { self.batch_slots };
        self.is_slow |= both_took > most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: u64 = 200;
    const SLOTS: u64 = 64;

    fn pace(lead: u64) -> Pace {
        let mut pace = Pace::new(lead, SLOTS as u32, 1);
        pace.begin(Timeslot(lead));
        pace
    }

    fn order(pace: &mut Pace, now: u64) -> Ordered {
        pace.order(Timeslot(now)).expect("it is due")
    }

    /// Each batch is given out so many timeslots after it was due or the one before was given out.
    /// Answers how often less was ordered, and how much was skipped.
    fn drive(lead: u64, took: impl Fn(u64) -> u64, batches: u64) -> (u64, u64) {
        let (mut pace, mut under_way) = (pace(lead), alloc::collections::VecDeque::new());
        let (mut free, mut late, mut skipped) = (0, 0, 0);
        for now in 0..batches * SLOTS {
            while under_way.front().is_some_and(|(_, done)| *done <= now) {
                let (start, _) = under_way.pop_front().expect("it is there");
                pace.on_given(Timeslot(now), start);
            }
            while let Some(ordered) = pace.order(Timeslot(now)) {
                free = free.max(now) + took(now / SLOTS);
                under_way.push_back((ordered.start, free));
                late += u64::from(ordered.is_late);
                skipped += ordered.skipped;
            }
        }
        (late, skipped)
    }

    #[test]
    fn batches_are_ordered_a_lead_before_they_begin() {
        let mut pace = pace(LEAD);
        for batch in 0..9 {
            let due = batch * SLOTS;
            assert_eq!(pace.due(), Some(Timeslot(due)));
            assert_eq!(due.checked_sub(1).and_then(|before| pace.order(Timeslot(before))), None);
            let start = Timeslot(due + LEAD);
            assert_eq!(order(&mut pace, due), Ordered { start, skipped: 0, is_late: false });
            pace.on_given(Timeslot(due + 40), start);
        }
    }

    #[test]
    fn no_more_are_under_way_than_half_of_the_lead_has() {
        let cases =
            [(200, 1, 2), (520, 1, 4), (52, 1, 2), (10_000, 1, 8), (52, 3, 4), (10_000, 9, 10)];
        for (lead, workers, most) in cases {
            let mut pace = Pace::new(lead, SLOTS as u32, workers);
            pace.begin(Timeslot(lead));
            let ordered = (0..).map_while(|now| pace.due().map(|_| pace.order(Timeslot(now))));
            assert_eq!(ordered.flatten().count(), most, "a lead of {lead}");
            pace.on_given(Timeslot(9_999), Timeslot(lead));
            assert!(pace.due().is_some(), "there is room again");
        }
    }

    #[test]
    fn what_would_come_when_half_of_the_lead_is_over_is_skipped() {
        let mut pace = pace(LEAD);
        let ordered = order(&mut pace, LEAD / 2);
        assert_eq!((ordered.start, ordered.skipped), (Timeslot(LEAD), 0), "late by half of it");
        pace.on_given(Timeslot(LEAD / 2), ordered.start);
        let now = SLOTS + LEAD / 2 + 1;
        let ordered = order(&mut pace, now);
        assert_eq!(ordered.start, Timeslot(now + LEAD), "as if nothing had been before");
        assert_eq!(ordered.skipped, LEAD / 2 + 1);
        // A lead that is shorter than a batch forgives one.
        let mut pace = self::pace(20);
        assert_eq!(order(&mut pace, SLOTS).skipped, 0);
        assert_eq!(order(&mut pace, 2 * SLOTS + 1).skipped, SLOTS + 1);
    }

    #[test]
    fn less_is_ordered_only_by_who_does_not_keep_pace() {
        assert_eq!(drive(LEAD, |_| 60, 1_000), (0, 0));
        // Each eighth batch comes a batch later, and the others make up for it.
        let (late, _) = drive(LEAD, |batch| if batch % 8 == 0 { 110 } else { 40 }, 1_000);
        assert_eq!(late, 0);
        let (late, skipped) = drive(LEAD, |_| 70, 1_000);
        assert!(late > 50 && skipped > 0, "{late}, {skipped}");
    }

    #[test]
    fn who_is_behind_is_to_catch_up() {
        // Each takes but two timeslots less than it lasts, as one took long.
        let (late, _) = drive(LEAD, |batch| if batch == 3 { 110 } else { 62 }, 12);
        assert!(late > 0, "half of the lead is over each time");
        assert_eq!(drive(LEAD, |batch| if batch == 3 { 110 } else { 40 }, 12).0, 0);
        // However long the lead is, four batches are far behind, and three are not.
        let late = |long| drive(10_000, |batch| if batch == 3 { long } else { 62 }, 12).0;
        assert!(late(5 * SLOTS) > 0);
        assert_eq!(late(3 * SLOTS), 0);
    }

    #[test]
    fn less_is_ordered_once_until_that_can_be_seen() {
        let lead = 10_000;
        let mut pace = pace(lead);
        let starts = [0, 64, 128].map(|now| order(&mut pace, now).start);
        let late = order(&mut pace, 3 * SLOTS + 65);
        assert!(late.is_late, "by more than a batch");
        pace.on_given(Timeslot(300), starts[0]);
        pace.on_given(Timeslot(500), starts[1]);
        assert!(!order(&mut pace, 500).is_late, "what is slow was ordered before");
        pace.on_given(Timeslot(600), starts[2]);
        pace.on_given(Timeslot(700), late.start);
        assert!(order(&mut pace, 700).is_late, "and this was not");
    }
}
