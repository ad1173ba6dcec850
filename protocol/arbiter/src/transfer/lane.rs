//! The objects on their way out to one receiver.

use alloc::vec::Vec;

use onepipe_base::Mono;
use onepipe_wire::{PieceAck, PieceAckState, PieceAckWords};

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
        Some(self.sending.remove(place).outgoing.into_bytes())
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
    pub fn hear(&mut self, now: Mono, report: &PieceAck, words: PieceAckWords<'_>) {
        let ahead = |of: u32| report.serial.wrapping_sub(of) as i32;
        if ahead(self.serial) >= 0 {
            // None of that number was sent.
            return;
        }
        let is_partial = report.state == PieceAckState::Partial;
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

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId};
    use onepipe_wire::TransferPacket;

    use super::*;

    /// With an object of 40 pieces, all of which have left.
    fn sent() -> Lane {
        let mut lane = Lane::EMPTY;
        let bytes = alloc::vec![7; 40 * 10];
        lane.push(Outgoing::new((ProcessId(1), 0), 0, bytes, 10).expect("few"));
        while send(&mut lane).is_some() {}
        lane
    }

    /// Sends a piece: which.
    fn send(lane: &mut Lane) -> Option<u32> {
        let serial = lane.serial;
        let outgoing = lane.due()?;
        let (index, _) = outgoing.write(&mut [0; 64], serial)?;
        outgoing.on_sent(index, serial);
        lane.serial = serial + 1;
        Some(index)
    }

    /// It is told that all pieces before `cumulative` have come, of packets up to `serial`.
    fn hear(lane: &mut Lane, serial: u32, cumulative: u32) {
        let (state, incarnation) = (PieceAckState::Partial, Incarnation(1));
        let report = PieceAck { object: 0, state, serial, cumulative, incarnation };
        let mut room = [0; 64];
        let bytes = report.write(&mut room, core::iter::empty()).expect("room");
        let Ok(TransferPacket::PieceAck(report, words)) = TransferPacket::parse(&room[..bytes])
        else {
            panic!("just written")
        };
        lane.hear(Mono::from_ns(0), &report, words);
        lane.lose();
    }

    #[test]
    fn what_later_pieces_have_overtaken_is_sent_again_and_no_report_of_none_is_believed() {
        let mut lane = sent();
        hear(&mut lane, 40, 0);
        hear(&mut lane, u32::MAX, 0);
        assert_eq!(send(&mut lane), None, "packet 40 was never sent");
        hear(&mut lane, 39, 20);
        let again = core::iter::from_fn(|| send(&mut lane));
        assert!(again.eq(20..23), "those 17 and more before the last");
        hear(&mut lane, 38, 0);
        assert_eq!(send(&mut lane), None, "an older report");
    }

    #[test]
    fn who_hears_nothing_asks_ever_more_seldom() {
        let (mut lane, mut asked) = (sent(), [0; 4]);
        let mut count = 0;
        for ms in 0..31 {
            if lane.on_silence(Mono::from_ns(ms * 1_000_000), false) {
                asked[count] = ms;
                count += 1;
            }
        }
        assert_eq!(asked[..count], [2, 6, 14, 30]);
    }
}
