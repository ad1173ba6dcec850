//! The schedule of batches, and the detection of overload.

use crate::Timeslot;

/// Number of batches of delay from which the allocator has to catch up (or half of the lead).
const CATCH_UP_BATCHES: u64 = 4;
/// Maximum number of batches in flight.
const IN_FLIGHT_MAX: u64 = 8;

/// Decides when batches are started: one lead before they begin, a few at a time, skipping those
/// that would miss their deadline. Signals an overload when the allocator does not keep up. All
/// times are timeslots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BatchScheduler {
    lead: u64,
    batch_slots: u64,
    /// First timeslot of the next batch.
    next: Timeslot,
    /// Batches started and not granted.
    in_flight: u64,
    in_flight_max: u64,
    /// When the last batch was granted.
    granted: Timeslot,
    /// Time to the last grant from the previous grant, or from the due time if that was later.
    took: u64,
    /// Batches take too long, and this was not signalled.
    is_slow: bool,
    /// Batches in flight at the last overload signal; their delays are ignored.
    ignored: u64,
}

/// A batch to be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScheduledBatch {
    /// Its first timeslot.
    pub start: Timeslot,
    /// Timeslots skipped before it.
    pub skipped: u64,
    /// Batches take longer than they last: signal an overload before this batch. See
    /// [`crate::DemandTable::on_overload`].
    pub is_overloaded: bool,
}

impl BatchScheduler {
    /// Creates a schedule of batches of `batch_slots` (at least 1) timeslots, each due `lead`
    /// timeslots before it begins. The first one begins at 0.
    ///
    /// Batches in flight cover at most half of the lead, because a core that is preempted makes all
    /// of them late. There are always more of them than `workers`, so that no worker runs idle.
    pub fn new(lead: u64, batch_slots: u32, workers: u32) -> Self {
        let batch_slots = u64::from(batch_slots.max(1));
        let least = u64::from(workers.max(1)) + 1;
        Self {
            lead,
            batch_slots,
            next: Timeslot(0),
            in_flight: 0,
            in_flight_max: (lead / 2 / batch_slots).min(IN_FLIGHT_MAX).max(least),
            granted: Timeslot(0),
            took: 0,
            is_slow: false,
            ignored: 0,
        }
    }

    /// Asserts that no more batches than allowed are in flight.
    pub(crate) fn check_invariants(&self) {
        assert!(self.batch_slots > 0, "a batch has a timeslot");
        assert!(self.in_flight <= self.in_flight_max, "the batches in flight are bounded");
        assert!(self.ignored <= self.in_flight, "only batches in flight are ignored");
    }

    /// Moves the next batch to `start`, unless it is later already.
    pub fn begin(&mut self, start: Timeslot) {
        self.next = self.next.max(start);
    }

    /// Returns the first timeslot of the next batch, if it is not skipped.
    pub fn next(&self) -> Timeslot {
        self.next
    }

    /// Returns the timeslot in which the next batch is due; `None` while the maximum number is in
    /// flight.
    pub fn due(&self) -> Option<Timeslot> {
        let due = Timeslot(self.next.0.saturating_sub(self.lead));
        Some(due).filter(|_| self.in_flight < self.in_flight_max)
    }

    //= spec/arbiter.md#R14
    /// Returns the next batch if it is due at `now`.
    pub fn poll_batch(&mut self, now: Timeslot) -> Option<ScheduledBatch> {
        self.due().filter(|due| *due <= now)?;
        let late = (now.0 + self.lead).saturating_sub(self.next.0);
        // Grants that are late by half of the lead mostly miss their timeslots.
        let limit = (self.lead / 2).max(self.batch_slots);
        let skipped = if late > limit { late } else { 0 };
        let start = Timeslot(self.next.0 + skipped);
        debug_assert!(start.0 + limit >= now.0 + self.lead, "the batch meets its deadline");
        let is_overloaded = self.ignored == 0 && (self.is_slow || late > self.batch_slots);
        if is_overloaded {
            self.ignored = self.in_flight;
            self.is_slow = false;
        }
        self.next = Timeslot(start.0 + self.batch_slots);
        self.in_flight += 1;
        Some(ScheduledBatch { start, skipped, is_overloaded })
    }

    /// Records that the batch at `start` was granted. Batches are granted in order.
    pub fn on_batch_granted(&mut self, now: Timeslot, start: Timeslot) {
        let due = Timeslot(start.0.saturating_sub(self.lead));
        let took = now.0.saturating_sub(due.max(self.granted).0);
        // One slow batch may be due to preemption, two in a row are not.
        let both_took = took.min(self.took);
        (self.granted, self.took) = (now, took);
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.ignored > 0 {
            self.ignored -= 1;
            return;
        }
        let threshold = (self.lead / 2).min(CATCH_UP_BATCHES * self.batch_slots);
        let is_catching_up = now.0.saturating_sub(due.0) > threshold;
        // Catching up requires batches to be faster than real time.
        let limit = if is_catching_up { self.batch_slots / 4 * 3 } else { self.batch_slots };
        self.is_slow |= both_took > limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: u64 = 200;
    const SLOTS: u64 = 64;

    fn scheduler(lead: u64) -> BatchScheduler {
        let mut scheduler = BatchScheduler::new(lead, SLOTS as u32, 1);
        scheduler.begin(Timeslot(lead));
        scheduler
    }

    fn poll_batch(scheduler: &mut BatchScheduler, now: u64) -> ScheduledBatch {
        scheduler.poll_batch(Timeslot(now)).expect("a batch is due")
    }

    /// Grants each batch `took` timeslots after it was due or the one before was granted. Returns
    /// the number of overload signals and of skipped timeslots.
    fn drive(lead: u64, took: impl Fn(u64) -> u64, batches: u64) -> (u64, u64) {
        let (mut scheduler, mut started) = (scheduler(lead), alloc::collections::VecDeque::new());
        let (mut free, mut late, mut skipped) = (0, 0, 0);
        for now in 0..batches * SLOTS {
            while started.front().is_some_and(|(_, done)| *done <= now) {
                let (start, _) = started.pop_front().expect("not empty");
                scheduler.on_batch_granted(Timeslot(now), start);
            }
            while let Some(ordered) = scheduler.poll_batch(Timeslot(now)) {
                free = free.max(now) + took(now / SLOTS);
                started.push_back((ordered.start, free));
                late += u64::from(ordered.is_overloaded);
                skipped += ordered.skipped;
            }
        }
        (late, skipped)
    }

    //= spec/arbiter.md#R14
    #[test]
    fn batches_are_due_one_lead_before_they_begin() {
        let mut scheduler = scheduler(LEAD);
        for batch in 0..9 {
            let due = batch * SLOTS;
            assert_eq!(scheduler.due(), Some(Timeslot(due)));
            assert_eq!(
                due.checked_sub(1).and_then(|before| scheduler.poll_batch(Timeslot(before))),
                None
            );
            let start = Timeslot(due + LEAD);
            assert_eq!(
                poll_batch(&mut scheduler, due),
                ScheduledBatch { start, skipped: 0, is_overloaded: false }
            );
            scheduler.on_batch_granted(Timeslot(due + 40), start);
        }
    }

    #[test]
    fn batches_in_flight_fit_half_of_the_lead() {
        let cases =
            [(200, 1, 2), (520, 1, 4), (52, 1, 2), (10_000, 1, 8), (52, 3, 4), (10_000, 9, 10)];
        for (lead, workers, limit) in cases {
            let mut scheduler = BatchScheduler::new(lead, SLOTS as u32, workers);
            scheduler.begin(Timeslot(lead));
            let ordered =
                (0..).map_while(|now| scheduler.due().map(|_| scheduler.poll_batch(Timeslot(now))));
            assert_eq!(ordered.flatten().count(), limit, "a lead of {lead}");
            scheduler.on_batch_granted(Timeslot(9_999), Timeslot(lead));
            assert!(scheduler.due().is_some(), "another batch may start");
        }
    }

    //= spec/arbiter.md#R14
    #[test]
    fn skips_batches_late_by_half_of_the_lead() {
        let mut scheduler = scheduler(LEAD);
        let ordered = poll_batch(&mut scheduler, LEAD / 2);
        assert_eq!(
            (ordered.start, ordered.skipped),
            (Timeslot(LEAD), 0),
            "late by half of the lead"
        );
        scheduler.on_batch_granted(Timeslot(LEAD / 2), ordered.start);
        let now = SLOTS + LEAD / 2 + 1;
        let ordered = poll_batch(&mut scheduler, now);
        assert_eq!(ordered.start, Timeslot(now + LEAD), "the schedule restarts");
        assert_eq!(ordered.skipped, LEAD / 2 + 1);
        // With a lead shorter than a batch, a delay of one batch is tolerated.
        let mut scheduler = self::scheduler(20);
        assert_eq!(poll_batch(&mut scheduler, SLOTS).skipped, 0);
        assert_eq!(poll_batch(&mut scheduler, 2 * SLOTS + 1).skipped, SLOTS + 1);
    }

    #[test]
    fn overload_is_signalled_only_when_batches_are_slow() {
        assert_eq!(drive(LEAD, |_| 60, 1_000), (0, 0));
        // Every eighth batch is late by a batch, and the others make up for it.
        let (late, _) = drive(LEAD, |batch| if batch % 8 == 0 { 110 } else { 40 }, 1_000);
        assert_eq!(late, 0);
        let (late, skipped) = drive(LEAD, |_| 70, 1_000);
        assert!(late > 50 && skipped > 0, "{late}, {skipped}");
    }

    #[test]
    fn overload_is_signalled_while_catching_up() {
        // After one slow batch the others are faster than real time by only two timeslots.
        let (late, _) = drive(LEAD, |batch| if batch == 3 { 110 } else { 62 }, 12);
        assert!(late > 0, "half of the lead has passed each time");
        assert_eq!(drive(LEAD, |batch| if batch == 3 { 110 } else { 40 }, 12).0, 0);
        // With a long lead, four batches of delay are too many, and three are not.
        let late = |long| drive(10_000, |batch| if batch == 3 { long } else { 62 }, 12).0;
        assert!(late(5 * SLOTS) > 0);
        assert_eq!(late(3 * SLOTS), 0);
    }

    #[test]
    fn overload_is_signalled_once_per_batches_in_flight() {
        let lead = 10_000;
        let mut scheduler = scheduler(lead);
        let starts = [0, 64, 128].map(|now| poll_batch(&mut scheduler, now).start);
        let late = poll_batch(&mut scheduler, 3 * SLOTS + 65);
        assert!(late.is_overloaded, "late by more than a batch");
        scheduler.on_batch_granted(Timeslot(300), starts[0]);
        scheduler.on_batch_granted(Timeslot(500), starts[1]);
        assert!(!poll_batch(&mut scheduler, 500).is_overloaded, "the slow batches were in flight");
        scheduler.on_batch_granted(Timeslot(600), starts[2]);
        scheduler.on_batch_granted(Timeslot(700), late.start);
        assert!(poll_batch(&mut scheduler, 700).is_overloaded, "this one was started later");
    }
}
