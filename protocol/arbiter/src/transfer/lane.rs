//! The objects on their way out to one receiver.

use alloc::vec::Vec;

use onepipe_base::Mono;
use onepipe_wire::{Pieces, PiecesState, PiecesWords};

use super::outgoing::Outgoing;
use super::sender::OPEN_MAX;

/// Nothing was heard of an object for so long since its pieces left: the first is sent again. In
/// ns; twice as much each time, up to the second.
const SILENCE_FIRST_NS: u64 = 2_000_000;
const SILENCE_LAST_NS: u64 = 256_000_000;

/// One of them, and when it is thought forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sending {
    outgoing: Outgoing,
    silent_at: Mono,
    wait_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    /// In the order of their numbers.
    sending: Vec<Sending>,
    /// Objects ever sent on it.
    pub number: u32,
    /// Packets ever sent on it, of all objects: so each one tells of the loss of those before it,
    /// be they of another object. And the highest that has come.
    pub serial: u32,
    heard: u32,
    /// It is among those that may have a piece to send.
    pub is_ready: bool,
    /// All has left; the first of its objects is thought forgotten then, or later.
    silent_at: Option<Mono>,
}

impl Lane {
    pub const EMPTY: Self = Self {
        sending: Vec::new(),
        number: 0,
        serial: 0,
        heard: u32::MAX,
        is_ready: false,
        silent_at: None,
    };

    pub fn is_empty(&self) -> bool {
        self.sending.is_empty()
    }

    /// Whether the receiver can tell one more from the others.
    pub fn has_room(&self) -> bool {
        let first = self.sending.first().map(|sending| sending.outgoing.object);
        first.is_none_or(|first| self.number.wrapping_sub(first) < OPEN_MAX)
    }

    /// Takes one more, which has the next number.
    pub fn push(&mut self, outgoing: Outgoing) {
        self.number = self.number.wrapping_add(1);
        let silent_at = Mono::from_ns(0);
        self.sending.push(Sending { outgoing, silent_at, wait_ns: SILENCE_FIRST_NS });
        self.silent_at = None;
    }

    fn place(&self, object: u32) -> Option<usize> {
        self.sending.iter().position(|sending| sending.outgoing.object == object)
    }

    /// Takes one off.
    pub fn remove(&mut self, object: u32) -> Option<Vec<u8>> {
        let place = self.place(object)?;
        Some(self.sending.remove(place).outgoing.into_octets())
    }

    /// The first object that has a piece to send.
    pub fn due(&mut self) -> Option<&mut Outgoing> {
        let mut outgoing = self.sending.iter_mut().map(|sending| &mut sending.outgoing);
        outgoing.find(|outgoing| outgoing.is_due())
    }

    /// The receiver has begun anew.
    pub fn restart(&mut self) {
        let serial = self.serial;
        self.heard = serial.wrapping_sub(1);
        self.sending.iter_mut().for_each(|sending| sending.outgoing.restart(serial));
    }

    /// The receiver says what has come, of an object and of all.
    pub fn hear(&mut self, now: Mono, report: &Pieces, words: PiecesWords<'_>) {
        let ahead = |of: u32| report.serial.wrapping_sub(of) as i32;
        if ahead(self.serial) >= 0 {
            // None of that number was sent.
            return;
        }
        let is_partial = report.state == PiecesState::Partial;
        if let Some(place) = self.place(report.object).filter(|_| is_partial) {
            let sending = &mut self.sending[place];
            if sending.outgoing.on_report(report, words, self.serial) {
                sending.wait_ns = SILENCE_FIRST_NS;
                sending.silent_at = now.after_ns(sending.wait_ns);
                self.silent_at = self.silent_at.map(|at| at.min(sending.silent_at));
            }
        }
        if ahead(self.heard) > 0 {
            self.heard = report.serial;
        }
    }

    /// What others have overtaken, of its object or of another, is sent again.
    pub fn lose(&mut self) {
        for sending in &mut self.sending {
            sending.outgoing.lose(self.heard);
        }
    }

    /// What was sent, and nothing was heard of for long, is sent again in part. `waits`: something
    /// lies with the arbiter yet, or is under way. Answers whether there is something to send.
    pub fn on_silence(&mut self, now: Mono, waits: bool) -> bool {
        if waits {
            self.silent_at = None;
            return false;
        }
        match self.silent_at {
            None => {
                for sending in &mut self.sending {
                    sending.silent_at = now.after_ns(sending.wait_ns);
                }
            }
            Some(at) if at > now => return false,
            Some(_) => {}
        }
        let mut is_any = false;
        for sending in self.sending.iter_mut().filter(|sending| sending.silent_at <= now) {
            is_any = true;
            sending.outgoing.on_silence();
            sending.wait_ns = (2 * sending.wait_ns).min(SILENCE_LAST_NS);
            sending.silent_at = now.after_ns(sending.wait_ns);
        }
        self.silent_at = self.sending.iter().map(|sending| sending.silent_at).min();
        is_any
    }

    /// When that is to be looked at next.
    pub fn silence_due(&self) -> Option<Mono> {
        self.silent_at
    }
}
