//! Telling the controllers of this process's links.

use onepipe_base::{Backoff, Controllers, Mono, ProcessId, Psn, Registers};
use onepipe_wire::{Announce, Opcode};

use super::ControlFrame;
use super::links::OwnLinks;
use super::round::Round;

/// Says what the links are, in parts, to each controller (design: failure.md, "Where is the
/// controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Announcer {
    pace: Backoff,
    round: Round,
    generation: u32,
    /// The place of the next part's first link.
    first: u16,
    /// How many links were live when it was last looked at.
    live: u32,
    /// It has changed, and nothing was said of it yet.
    is_news: bool,
}

impl Announcer {
    pub fn new(controllers: Controllers, pace: Backoff) -> Self {
        let round = Round::new(controllers);
        Self { pace, round, generation: 0, first: 0, live: 0, is_news: false }
    }

    /// Whether there is something to say now.
    #[inline]
    pub fn wants_transmit(&self, registers: &Registers, links: &OwnLinks) -> bool {
        let has_changed = self.live != registers.live() || links.has_changed();
        self.is_news || has_changed || self.round.turn().is_some()
    }

    /// When it is to be said again.
    pub fn deadline(&self) -> Option<Mono> {
        self.pace.due()
    }

    /// Writes the next part for the next controller.
    pub fn write(
        &mut self,
        now: Mono,
        registers: &Registers,
        links: &mut OwnLinks,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        if links.take_changed() | (self.live != registers.live()) {
            self.live = registers.live();
            self.generation = self.generation.wrapping_add(1);
            self.pace.on_change(now);
            self.is_news = true;
        }
        if self.pace.take(now) {
            self.is_news = false;
            self.first = 0;
            self.round.start();
        }
        let to = self.round.turn()?;
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
        links: &OwnLinks,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        let all = || links.announced(registers).take(usize::from(u16::MAX));
        let (first, total) = (self.first, all().count() as u16);
        let part = Announce { generation: self.generation, first, total };
        let (count, bytes) = part.write(payload, all().skip(usize::from(first)))?;
        if first + count >= total {
            self.first = 0;
            self.round.pass();
        } else if count == 0 {
            return None;
        } else {
            self.first = first + count;
        }
        Some(ControlFrame::to(to, Opcode::Announce, Psn::FIRST, bytes))
    }
}
