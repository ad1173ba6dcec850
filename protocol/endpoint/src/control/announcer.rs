//! Telling the controllers of this process's links.

use onepipe_base::{Backoff, Controllers, Mono, ProcessId, Psn, Registers};
use onepipe_wire::{Announce, Opcode};

use super::ControlFrame;
use super::links::LinkMonitor;
use super::round_robin::RoundRobin;

/// Says what the links are, in parts, to each controller (design: failure.md, "Where is the
/// controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Announcer {
    backoff: Backoff,
    round: RoundRobin,
    generation: u32,
    /// The place of the next part's first link.
    first: u16,
    /// How many links were live_links when it was last looked at.
    live_links: u32,
    /// It has changed, and nothing was said of it yet.
    has_update: bool,
}

impl Announcer {
    pub fn new(controllers: Controllers, backoff: Backoff) -> Self {
        let round = RoundRobin::new(controllers);
        Self { backoff, round, generation: 0, first: 0, live_links: 0, has_update: false }
    }

    /// Whether there is something to say now.
    #[inline]
    pub fn wants_transmit(&self, registers: &Registers, links: &LinkMonitor) -> bool {
        let has_changed = self.live_links != registers.live() || links.has_changed();
        self.has_update || has_changed || self.round.current().is_some()
    }

    /// When it is to be said again.
    pub fn deadline(&self) -> Option<Mono> {
        self.backoff.due()
    }

    /// Writes the next part for the next controller.
    pub fn write(
        &mut self,
        now: Mono,
        registers: &Registers,
        links: &mut LinkMonitor,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        if links.take_changed() | (self.live_links != registers.live()) {
            self.live_links = registers.live();
            self.generation = self.generation.wrapping_add(1);
            self.backoff.on_change(now);
            self.has_update = true;
        }
        if self.backoff.take(now) {
            self.has_update = false;
            self.first = 0;
            self.round.start();
        }
        let to = self.round.current()?;
        self.write_part(to, registers, links, payload).or_else(|| {
            debug_assert!(false, "a frame holds a link");
            self.round.stop();
            None
        })
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
        let part = Announce { generation: self.generation, first, total };
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
