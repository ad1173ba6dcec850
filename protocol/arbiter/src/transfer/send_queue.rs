//! Outgoing objects to one receiver.

use alloc::vec::Vec;

use onepipe_base::Mono;
use onepipe_wire::{PieceAck, PieceAckState, PieceAckWords};

use super::outgoing::Outgoing;
use super::remote_sender::OBJECTS_PER_PAIR_MAX;

/// The initial and the maximum retransmission timeout of an object, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rto {
    pub initial_ns: u64,
    pub max_ns: u64,
}

/// An object and its retransmission timer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    outgoing: Outgoing,
    retransmit_at: Mono,
    rto_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SendQueue {
    rto: Rto,
    /// In the order of their numbers.
    sending: Vec<Entry>,
    /// Number of objects ever sent.
    pub number: u32,
    /// Number of pieces ever sent, of all objects. A later piece of any object so reveals the loss
    /// of an earlier one.
    pub serial: u32,
    /// The highest serial number received by the peer.
    highest_acked: u32,
    /// Earliest retransmission timer, if everything was sent.
    retransmit_at: Option<Mono>,
}

impl SendQueue {
    pub const fn new(rto: Rto) -> Self {
        Self {
            rto,
            sending: Vec::new(),
            number: 0,
            serial: 0,
            highest_acked: u32::MAX,
            retransmit_at: None,
        }
    }

    /// Asserts that the objects are in the order of their numbers, and those in flight bounded.
    pub fn check_invariants(&self) {
        assert!(self.sending.len() <= OBJECTS_PER_PAIR_MAX as usize, "objects are bounded");
        let mut after = 0;
        for sending in self.sending.iter().rev() {
            sending.outgoing.check_invariants();
            let back = self.number.wrapping_sub(sending.outgoing.object);
            assert!(back > after, "objects are in order, and before the next number");
            assert!(sending.rto_ns <= self.rto.max_ns, "the backoff is bounded");
            after = back;
        }
        assert!(after <= OBJECTS_PER_PAIR_MAX, "the receiver's window covers the oldest object");
        let unacked = self.serial.wrapping_sub(self.highest_acked) as i32;
        assert!(unacked > 0, "only pieces that were sent are acknowledged");
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.sending.len()
    }

    pub fn is_empty(&self) -> bool {
        self.sending.is_empty()
    }

    /// Whether the receiver's window has space for one more object.
    pub fn has_space(&self) -> bool {
        let first = self.sending.first().map(|sending| sending.outgoing.object);
        first.is_none_or(|first| self.number.wrapping_sub(first) < OBJECTS_PER_PAIR_MAX)
    }

    /// Adds an object, which has the next number.
    pub fn push(&mut self, outgoing: Outgoing) {
        self.number = self.number.wrapping_add(1);
        let retransmit_at = Mono::from_ns(0);
        self.sending.push(Entry { outgoing, retransmit_at, rto_ns: self.rto.initial_ns });
        self.retransmit_at = None;
    }

    fn index_of(&self, object: u32) -> Option<usize> {
        self.sending.iter().position(|sending| sending.outgoing.object == object)
    }

    /// Removes an object and returns its contents.
    pub fn remove(&mut self, object: u32) -> Option<Vec<u8>> {
        let index = self.index_of(object)?;
        Some(self.sending.remove(index).outgoing.into_bytes())
    }

    /// Returns the first object with a piece to send.
    pub fn due(&mut self) -> Option<&mut Outgoing> {
        let mut outgoing = self.sending.iter_mut().map(|sending| &mut sending.outgoing);
        outgoing.find(|outgoing| outgoing.is_due())
    }

    /// Restarts all objects, as the receiver was restarted.
    pub fn restart(&mut self) {
        let serial = self.serial;
        self.highest_acked = serial.wrapping_sub(1);
        self.sending.iter_mut().for_each(|sending| sending.outgoing.restart(serial));
    }

    /// Handles a report of received pieces.
    pub fn on_report(&mut self, now: Mono, report: &PieceAck, words: PieceAckWords<'_>) {
        let ahead = |of: u32| report.serial.wrapping_sub(of) as i32;
        if ahead(self.serial) >= 0 {
            // No such serial number was sent.
            return;
        }
        let is_partial = report.state == PieceAckState::Partial;
        if let Some(index) = self.index_of(report.object).filter(|_| is_partial) {
            let sending = &mut self.sending[index];
            if sending.outgoing.on_report(report, words, self.serial) {
                sending.rto_ns = self.rto.initial_ns;
                sending.retransmit_at = now.after_ns(sending.rto_ns);
                self.retransmit_at = self.retransmit_at.map(|at| at.min(sending.retransmit_at));
            }
        }
        if ahead(self.highest_acked) > 0 {
            self.highest_acked = report.serial;
        }
    }

    /// Marks pieces as lost that later ones, of any object, have overtaken.
    pub fn detect_losses(&mut self) {
        for sending in &mut self.sending {
            sending.outgoing.detect_losses(self.highest_acked);
        }
    }

    //= spec/arbiter.md#R35
    /// Retransmits parts of objects whose timer has expired. `waits`: pieces are still queued at
    /// the endpoint, so the timers do not run. Returns whether there is something to send.
    pub fn on_retransmit_timeout(&mut self, now: Mono, waits: bool) -> bool {
        if waits {
            self.retransmit_at = None;
            return false;
        }
        match self.retransmit_at {
            None => {
                for sending in &mut self.sending {
                    sending.retransmit_at = now.after_ns(sending.rto_ns);
                }
            }
            Some(at) if at > now => return false,
            Some(_) => {}
        }
        let mut is_any = false;
        for sending in self.sending.iter_mut().filter(|sending| sending.retransmit_at <= now) {
            is_any = true;
            sending.outgoing.on_retransmit_timeout();
            sending.rto_ns = (2 * sending.rto_ns).min(self.rto.max_ns);
            sending.retransmit_at = now.after_ns(sending.rto_ns);
        }
        self.retransmit_at = self.sending.iter().map(|sending| sending.retransmit_at).min();
        is_any
    }

    /// Returns the time of the next retransmission.
    pub fn retransmit_due(&self) -> Option<Mono> {
        self.retransmit_at
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId};
    use onepipe_wire::TransferPacket;

    use super::*;

    /// Returns a queue with an object of 40 pieces, all of which were sent.
    fn sent() -> SendQueue {
        let rto = Rto { initial_ns: 2_000_000, max_ns: 256_000_000 };
        let mut send_queue = SendQueue::new(rto);
        let bytes = alloc::vec![7; 40 * 10];
        send_queue.push(Outgoing::new(ProcessId(1), 0, 0, bytes, 10).expect("few"));
        while send(&mut send_queue).is_some() {}
        send_queue
    }

    /// Sends a piece and returns its index.
    fn send(send_queue: &mut SendQueue) -> Option<u32> {
        let serial = send_queue.serial;
        let outgoing = send_queue.due()?;
        let (index, _) = outgoing.write(&mut [0; 64], serial)?;
        outgoing.on_sent(index, serial);
        send_queue.serial = serial + 1;
        Some(index)
    }

    /// Reports all pieces before `cumulative` as received, of serial numbers up to `serial`.
    fn on_report(send_queue: &mut SendQueue, serial: u32, cumulative: u32) {
        let (state, incarnation) = (PieceAckState::Partial, Incarnation(1));
        let report = PieceAck { object: 0, state, serial, cumulative, incarnation };
        let mut buffer = [0; 64];
        let bytes = report.write(&mut buffer, core::iter::empty()).expect("room");
        let Ok(TransferPacket::PieceAck(report, words)) = TransferPacket::parse(&buffer[..bytes])
        else {
            panic!("just written")
        };
        send_queue.on_report(Mono::from_ns(0), &report, words);
        send_queue.detect_losses();
    }

    //= spec/arbiter.md#R35
    #[test]
    fn retransmits_overtaken_pieces_and_ignores_bad_reports() {
        let mut send_queue = sent();
        on_report(&mut send_queue, 40, 0);
        on_report(&mut send_queue, u32::MAX, 0);
        assert_eq!(send(&mut send_queue), None, "packet 40 was never sent");
        on_report(&mut send_queue, 39, 20);
        let retransmit = core::iter::from_fn(|| send(&mut send_queue));
        assert!(retransmit.eq(20..23), "those 17 and more before the last");
        on_report(&mut send_queue, 38, 0);
        assert_eq!(send(&mut send_queue), None, "an older report");
    }

    //= spec/arbiter.md#R35
    #[test]
    fn retransmission_timeout_doubles() {
        let (mut send_queue, mut probed) = (sent(), [0; 4]);
        let mut probe_count = 0;
        for ms in 0..31 {
            if send_queue.on_retransmit_timeout(Mono::from_ns(ms * 1_000_000), false) {
                probed[probe_count] = ms;
                probe_count += 1;
            }
        }
        assert_eq!(probed[..probe_count], [2, 6, 14, 30]);
    }
}
