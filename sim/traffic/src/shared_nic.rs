//! Two machines that share a network card.

use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};

use crate::Stack;

/// A host's machine and a guest, for example its TCP, behind one network card. The card takes their
/// frames in turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedNic<M, G = Stack> {
    /// The machine that is measured.
    pub machine: M,
    /// The machine that shares its card.
    pub guest: G,
    /// Whether the guest is next.
    is_guest_turn: bool,
}

/// A machine that shares a network card with another one.
pub trait Guest: Machine {
    /// Whether a received frame is for the guest.
    fn takes(&self, frame: &[u8]) -> bool;
}

impl Guest for Stack {
    fn takes(&self, frame: &[u8]) -> bool {
        Self::is_segment(frame)
    }
}

/// An event of either machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Either<E, F> {
    /// Of the machine that is measured.
    Machine(E),
    /// Of the guest.
    Guest(F),
}

impl<M: Machine, G: Guest> SharedNic<M, G> {
    /// Connects the two.
    pub fn new(machine: M, guest: G) -> Self {
        Self { machine, guest, is_guest_turn: false }
    }
}

impl<M: Machine, G: Guest> Machine for SharedNic<M, G> {
    type Event = Either<M::Event, G::Event>;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self.guest.takes(frame) {
            true => self.guest.handle_frame(now, port, frame),
            false => self.machine.handle_frame(now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
        if is_due(self.machine.poll_timeout()) {
            self.machine.handle_timeout(now);
        }
        if is_due(self.guest.poll_timeout()) {
            self.guest.handle_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        for _ in 0..2 {
            self.is_guest_turn = !self.is_guest_turn;
            let polled = match self.is_guest_turn {
                true => self.guest.poll_transmit(now, slot),
                false => self.machine.poll_transmit(now, slot),
            };
            if polled.is_some() {
                return polled;
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let event = self.machine.poll_event().map(Either::Machine);
        event.or_else(|| self.guest.poll_event().map(Either::Guest))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.machine.poll_timeout(), self.guest.poll_timeout())
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{ProcessId, Timestamp};
    use onepipe_wire::{Header, Opcode, seal};

    use super::*;
    use crate::TcpConfig;

    /// Always has a frame to send, and counts the frames received.
    struct Saturating(u32);

    impl Machine for Saturating {
        type Event = ();

        fn handle_frame(&mut self, _now: Now, _port: Port, _frame: &mut [u8]) -> Verdict {
            self.0 += 1;
            Verdict::Consumed
        }

        fn handle_timeout(&mut self, _now: Now) {}

        fn poll_transmit(&mut self, _now: Now, slot: &mut [u8]) -> Option<Transmit> {
            let (one, other) = (ProcessId(0), ProcessId(1));
            let header = Header::new(Opcode::Foreign, one, other, onepipe_base::Incarnation(1));
            Some(Transmit { port: Port(1), bytes: seal(slot, header, 20) })
        }

        fn poll_event(&mut self) -> Option<()> {
            None
        }

        fn poll_timeout(&self) -> Option<Mono> {
            None
        }
    }

    #[test]
    fn machines_alternate_and_receive_their_own_frames() {
        let now = Now { mono: Mono::from_ns(1), sync: Timestamp::from_ns(1 << 50) };
        let end = |host| {
            let stack = Stack::new(TcpConfig::new(ProcessId(host), Port(1)));
            SharedNic::new(Saturating(0), stack.expect("the defaults are in range"))
        };
        let (mut from, mut to) = (end(0), end(1));
        from.guest.open(now, ProcessId(1), Some(1_448 * 5));
        let mut slot = [0; 1_472];
        for _ in 0..10 {
            let transmit = from.poll_transmit(now, &mut slot).expect("both have enough");
            to.handle_frame(now, Port(1), &mut slot[..transmit.bytes]);
        }
        assert_eq!((to.machine.0, to.guest.stats().data_received), (5, 5));
        assert_eq!(to.guest.stats().refused, 0);
        assert!(from.poll_transmit(now, &mut slot).is_some(), "one alone has all turns");
    }
}
