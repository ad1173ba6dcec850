//! Ends the retransmission of packets whose receiver has failed or does not respond.

use onepipe_base::Psn;
use onepipe_wire::AckView;

use super::super::retransmit_buffer::UnackedMessage;
use super::Flight;

impl Flight {
    /// Drops all packets, because their receiver has failed. Calls `on_drop` once for each message
    /// that was neither acknowledged nor given up.
    pub fn abandon(&mut self, on_drop: impl FnMut(UnackedMessage)) {
        self.awaited_messages().copied().for_each(on_drop);
        let Some(buffer) = &mut self.buffer else { return };
        buffer.range = None;
        for distance in 0..self.packets.len() {
            self.packet_mut(distance).is_resolved = true;
        }
        self.charge = 0;
        self.open = None;
        self.pop_resolved();
    }

    /// Gives up every message that is not acknowledged: none is retransmitted any more. Calls
    /// `on_drop` once for each. The packets stay, as in [`Flight::give_up`]: if the receiver
    /// responds again, a probe resolves them.
    pub fn give_up_unacked(&mut self, mut on_drop: impl FnMut(UnackedMessage)) {
        let Some(buffer) = &mut self.buffer else { return };
        for number in self.messages.first_seq()..self.messages.next_seq() {
            let unacked = buffer.messages.get_mut(number);
            if unacked.is_awaited() {
                on_drop(*unacked);
                unacked.give_up();
                self.messages.get_mut(number).is_failed = true;
            }
        }
        buffer.range = None;
        self.given_up = self.next_psn();
    }

    /// Returns the end of the packets that were given up and are not resolved. `None` without any.
    pub fn given_up_until(&self) -> Option<Psn> {
        self.base.is_before(self.given_up).then_some(self.given_up)
    }

    //= spec/ordering.md#R88
    /// Returns whether the receiver has packets behind one that it lacks, or has rejected, although
    /// the outcome of that one is known here. It must learn the new base.
    pub fn is_receiver_behind(&self, view: &AckView<'_>) -> bool {
        view.ack.cumulative.is_before(self.base) && view.words().len() > 0
    }

    /// Returns the numbers of the scatterings whose messages are not acknowledged.
    pub fn awaited(&self) -> impl Iterator<Item = u64> + '_ {
        self.awaited_messages().map(|unacked| unacked.scattering)
    }

    /// Returns the messages that are neither acknowledged nor given up.
    pub fn awaited_messages(&self) -> impl Iterator<Item = &UnackedMessage> + '_ {
        let buffer = self.buffer.iter();
        buffer.flat_map(|buffer| {
            let numbers = self.messages.first_seq()..self.messages.next_seq();
            let unacked = numbers.map(|number| buffer.messages.get(number));
            unacked.filter(|unacked| unacked.is_awaited())
        })
    }
}
