//! The restart of a switch that was declared dead while it was running (`docs/design/failure.md`,
//! "What if a receiver cannot be reached, and has not failed?").

use onepipe_base::{Address, Incarnation, Instance, Port, Timestamp, Transmit, Verdict};
use onepipe_wire::{Flood, FloodId, FloodView, HEADER_LEN, Header, Opcode, seal_with_hops};

use crate::clock::no_promise;
use crate::stats::count_drop;
use crate::{Config, Switch, SwitchEvent};

impl Switch {
    /// Handles a frame at `port` of an instance that was declared dead. The frame is ignored; a
    /// switch that sends beacons is sent a death notice.
    #[cold]
    pub(crate) fn on_declared_dead(&mut self, port: Port, speaker: Option<Instance>) -> Verdict {
        if let (Some(control), Some(instance)) = (&mut self.control, speaker)
            && matches!(instance.address, Address::Switch(_))
        {
            control.death_notice = Some((port, instance));
        }
        count_drop(&mut self.stats.dropped_stale)
    }

    /// Writes a death notice about `instance` to the peer at `port`.
    pub(crate) fn write_death_notice(
        &mut self,
        reference: Timestamp,
        port: Port,
        instance: Instance,
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let promises = no_promise(reference);
        let header =
            Header::hop_only(Opcode::Flood, self.config.instance(), self.peer_at(port), promises);
        let buf = slot.get_mut(HEADER_LEN..)?;
        let flood = Flood { id: FloodId::HOP_ONLY };
        let (_, bytes) = flood.write_freeze(buf, core::iter::once(instance))?;
        self.stats.floods_sent += 1;
        Some(Transmit { port, bytes: seal_with_hops(slot, header, bytes, 0) })
    }

    /// Handles a death notice of a neighbour, which is no flood: it names the instance that a
    /// controller has declared dead.
    pub(crate) fn on_death_notice(&mut self, header: &Header, view: FloodView<'_>) -> Verdict {
        let is_switch = |instance: &Instance| matches!(instance.address, Address::Switch(_));
        if !header.sender().as_ref().is_some_and(is_switch) {
            return count_drop(&mut self.stats.dropped_misplaced);
        }
        self.stats.floods_received += 1;
        if view.dead().any(|instance| instance == self.config.instance()) {
            self.restart();
        }
        Verdict::Consumed
    }

    //= spec/failure.md#R42
    /// Starts the next incarnation. Only the configuration, learned routes, the clock, counters and
    /// pending events survive, as if the switch had crashed and come back at once.
    fn restart(&mut self) {
        let incarnation = Incarnation(self.config.incarnation.0.saturating_add(1));
        let config = Config { incarnation, ..self.config.clone() };
        let Ok(next) = Self::new(config) else { return };
        let previous = core::mem::replace(self, next);
        (self.clock, self.events, self.stats) = (previous.clock, previous.events, previous.stats);
        debug_assert!(self.config.incarnation >= previous.config.incarnation);
        debug_assert!(self.aggregator.has_no_input(), "a restarted switch knows no promise");
        self.stats.restarts += 1;
        self.notify(SwitchEvent::Restarted);
    }
}
