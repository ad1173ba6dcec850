//! The schedule of announcements to the controllers.

use onepipe_base::{Address, Backoff, Controllers, Mono, ProcessId};

/// Rounds of announcements: in each round every controller gets all links, in as many parts as
/// needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Announcer {
    backoff: Backoff,
    /// Minimum time between two rounds; changes within this time are announced together.
    gap_ns: u64,
    generation: u32,
    has_changed: bool,
    /// When the last round started.
    began: Option<Mono>,
    round: Option<Round>,
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Round {
    /// Index of the controller whose turn it is.
    controller: u32,
    /// The first link of the next part.
    first: u16,
}

/// One part to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) to: ProcessId,
    pub(crate) generation: u32,
    pub(crate) first: u16,
    /// Number of the round; successive rounds may take different paths.
    pub(crate) round: u32,
}

impl Announcer {
    /// Creates the announcer of the switch at `address`; intervals in ns as in
    /// [`Backoff::with_jitter`] and [`Backoff::resting`].
    pub(crate) fn new(address: Address, step_ns: u64, slow_ns: u64, rest_ns: u64) -> Self {
        Self {
            backoff: Backoff::with_jitter(step_ns, slow_ns, address).resting(rest_ns),
            gap_ns: step_ns,
            generation: 0,
            // The presence of this node has to be announced as well.
            has_changed: true,
            began: None,
            round: None,
            rounds: 0,
        }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self, controllers: Controllers) {
        let Some(round) = self.round else { return };
        assert!(self.began.is_some() && self.rounds > 0, "a round has not begun");
        assert!(round.controller < controllers.count, "a round outlives its last controller");
    }

    /// Notes that a link has changed.
    pub(crate) fn on_change(&mut self) {
        self.has_changed = true;
    }

    //= spec/failure.md#R45
    /// Ends the rest of the announcements: the controllers have something to do.
    pub(crate) fn wake(&mut self, now: Mono) {
        self.backoff.wake(now);
    }

    /// Returns when the next round is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.backoff.due()
    }

    //= spec/failure.md#R20
    /// Returns the part to be sent now, if any.
    pub(crate) fn part(&mut self, now: Mono, controllers: Controllers) -> Option<Part> {
        if core::mem::take(&mut self.has_changed) {
            self.generation = self.generation.wrapping_add(1);
            // The remainder of the round in progress would not match its first parts.
            self.round = None;
            let earliest = self.began.map_or(now, |began| began.after_ns(self.gap_ns));
            self.backoff.on_change(earliest.max(now));
        }
        if self.round.is_none() && self.backoff.take(now) {
            self.began = Some(now);
            self.rounds = self.rounds.wrapping_add(1);
            self.round = Some(Round { controller: 0, first: 0 });
        }
        let Round { controller, first } = self.round?;
        debug_assert!(controller < controllers.count, "a part for another process");
        let to = ProcessId(controllers.first.0 + controller);
        Some(Part { to, generation: self.generation, first, round: self.rounds })
    }

    /// Notes that a part was sent with `count` of `total` links; 0 if there was no path to its
    /// controller.
    pub(crate) fn on_sent(&mut self, count: u16, total: u16, controllers: Controllers) {
        let Some(round) = &mut self.round else { return };
        round.first = round.first.saturating_add(count);
        if count == 0 || round.first >= total {
            *round = Round { controller: round.controller + 1, first: 0 };
        }
        if round.controller >= controllers.count {
            self.round = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SWITCH: Address = Address::Switch(onepipe_base::SwitchId(3));
    const TWO: Controllers = Controllers { first: ProcessId(60), count: 2 };

    /// Sends everything due, three links per part of five; controller 61 is unreachable.
    fn drain(announcer: &mut Announcer, ns: u64) -> Vec<(u32, u32, u16)> {
        let mut sent = Vec::new();
        while let Some(part) = announcer.part(Mono::from_ns(ns), TWO) {
            sent.push((part.to.0, part.generation, part.first));
            let count = if part.to == ProcessId(61) { 0 } else { 3.min(5 - part.first) };
            announcer.on_sent(count, 5, TWO);
        }
        sent
    }

    #[test]
    fn announces_periodically_and_at_once_after_changes() {
        let mut announcer = Announcer::new(SWITCH, 10, 1_000, 0);
        let round = |generation| [(60, generation, 0), (60, generation, 3), (61, generation, 0)];
        assert_eq!(drain(&mut announcer, 100), round(1));
        let again = announcer.due().expect("announcements are periodic").as_ns();
        assert!((105..=110).contains(&again));
        assert_eq!(drain(&mut announcer, again - 1), []);
        assert_eq!(drain(&mut announcer, again), round(1));
        announcer.on_change();
        announcer.on_change();
        assert_eq!(drain(&mut announcer, again + 5), [], "not so soon after the last");
        assert_eq!(announcer.due(), Some(Mono::from_ns(again + 10)));
        assert_eq!(drain(&mut announcer, again + 10), round(2));
        announcer.on_change();
        assert_eq!(drain(&mut announcer, 500), round(3), "at once");
    }

    #[test]
    fn change_during_a_round_restarts_it() {
        let mut announcer = Announcer::new(SWITCH, 10, 1_000, 0);
        let part = announcer.part(Mono::from_ns(100), TWO).expect("a part is due");
        assert_eq!((part.generation, part.first), (1, 0));
        announcer.on_sent(3, 5, TWO);
        announcer.on_change();
        assert_eq!(announcer.part(Mono::from_ns(105), TWO), None);
        let part = announcer.part(Mono::from_ns(110), TWO).expect("the next round");
        assert_eq!((part.generation, part.first), (2, 0));
    }
}
