//! Announces this process's links to the controllers.

use onepipe_base::{Backoff, Controllers, Mono, ProcessId, Psn, Registers};
use onepipe_wire::{
    ANNOUNCE_HEADER_LEN, Announce, DECISION_TIP_LEN, DecisionTip, LINK_LEN, Opcode,
};

use super::ControlFrame;
use super::links::LinkMonitor;
use super::round_robin::RoundRobin;

/// Announces the links, in parts, to each controller (docs/design/failure.md, "Where is the
/// controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Announcer {
    backoff: Backoff,
    round: RoundRobin,
    generation: u32,
    /// Index of the first link in the next part.
    first: u16,
    /// Number of live links when they were last compared.
    live_links: u32,
    /// The links have changed since the last announcement.
    has_update: bool,
    /// The end of the controllers' log, as far as this process knows.
    tip: Option<DecisionTip>,
}

impl Announcer {
    pub fn new(controllers: Controllers, backoff: Backoff) -> Self {
        let round = RoundRobin::new(controllers);
        Self {
            backoff,
            round,
            generation: 0,
            first: 0,
            live_links: 0,
            has_update: false,
            tip: None,
        }
    }

    /// Returns whether an announcement is due now.
    #[inline]
    pub fn wants_transmit(&self, registers: &Registers, links: &LinkMonitor) -> bool {
        let has_changed = self.live_links != registers.live_count() || links.has_changed();
        self.has_update || has_changed || self.round.current().is_some()
    }

    //= spec/failure.md#R45
    /// Ends the rest of the announcements: this process waits for the controllers, or they have
    /// something to do.
    pub fn wake(&mut self, now: Mono) {
        self.backoff.wake(now);
    }

    //= spec/failure.md#R60
    /// Remembers the end of the controllers' log, unless a later one is known.
    pub fn on_tip(&mut self, tip: DecisionTip) {
        if self.tip.is_none_or(|known| known.is_before(tip)) {
            self.tip = Some(tip);
        }
    }

    /// Returns when the announcement is to be repeated.
    pub fn deadline(&self) -> Option<Mono> {
        self.backoff.due()
    }

    //= spec/failure.md#R20
    /// Writes the next part for the next controller.
    pub fn write(
        &mut self,
        now: Mono,
        registers: &Registers,
        links: &mut LinkMonitor,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        if links.take_changed() | (self.live_links != registers.live_count()) {
            self.live_links = registers.live_count();
            self.generation = self.generation.wrapping_add(1);
            self.backoff.on_change(now);
            self.has_update = true;
        }
        if links.has_frozen() {
            self.backoff.wake(now);
        }
        if self.backoff.take(now) {
            self.has_update = false;
            self.first = 0;
            self.round.start();
        }
        let to = self.round.current()?;
        self.write_part(to, registers, links, payload).or_else(|| {
            debug_assert!(false, "a frame is too short for one link");
            self.round.stop();
            None
        })
    }

    /// Checks that only a round of announcements is in parts.
    pub fn check_invariants(&self) {
        self.round.check_invariants();
        let is_whole = self.first == 0 || self.round.current().is_some();
        assert!(is_whole, "a round ends with its last part");
    }

    fn write_part(
        &mut self,
        to: ProcessId,
        registers: &Registers,
        links: &LinkMonitor,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        let all = || links.announced(registers).take(usize::from(u16::MAX));
        let (first, total) = (self.first, all().count() as u16);
        // The links come first where a frame is too short for both.
        let len_min = ANNOUNCE_HEADER_LEN + LINK_LEN + DECISION_TIP_LEN;
        let tip = self.tip.filter(|_| payload.len() >= len_min);
        let part = Announce { generation: self.generation, first, total, tip };
        let (count, payload_len) = part.write(payload, all().skip(usize::from(first)))?;
        if first + count >= total {
            self.first = 0;
            self.round.advance();
        } else if count == 0 {
            return None;
        } else {
            self.first = first + count;
        }
        Some(ControlFrame::to(to, Opcode::Announce, Psn::FIRST, payload_len))
    }
}
