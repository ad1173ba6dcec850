//! The host of an arbiter.

use onepipe_arbiter::Arbiter;
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_sim_traffic::Guest;
use onepipe_wire::{Opcode, parse_header};

/// An arbiter behind the network card of its host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArbiterHost {
    /// The arbiter.
    pub arbiter: Arbiter,
    /// The port of the network card.
    pub card: Port,
}

impl Guest for ArbiterHost {
    fn takes(&self, frame: &[u8]) -> bool {
        parse_header(frame).is_ok_and(|(_, opcode)| {
            matches!(opcode, Opcode::Fcp | Opcode::Watchdog | Opcode::Drops)
        })
    }
}

impl Machine for ArbiterHost {
    type Event = ();

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.arbiter.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.arbiter.handle_timeout(now);
        if cfg!(debug_assertions) {
            self.arbiter.check_invariants();
        }
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.arbiter.poll_transmit(now, slot)?;
        Some(Transmit { port: self.card, ..transmit })
    }

    fn poll_event(&mut self) -> Option<()> {
        // Observers read the state of the arbiter itself.
        while self.arbiter.poll_event().is_some() {}
        None
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.arbiter.poll_timeout()
    }
}
