//! The restart of a switch that was declared dead while it was running (`docs/design/failure.md`,
//! "What if a receiver cannot be reached, and has not failed?").

use onepipe_base::{Address, Incarnation, Instance, Port, Verdict};
use onepipe_wire::{FloodView, Header};

use crate::stats::count_drop;
use crate::{Config, Switch, SwitchEvent};

impl Switch {
    /// Handles a frame at `port` of an instance that was declared dead. The frame is ignored; a
    /// switch that sends beacons is sent a death notice.
    #[cold]
    pub(super) fn on_declared_dead(&mut self, port: Port, speaker: Option<Instance>) -> Verdict {
        if let (Some(control), Some(instance)) = (&mut self.control, speaker) {
            control.on_declared_dead(port, instance);
        }
        count_drop(&mut self.stats.dropped_stale)
    }

    /// Handles a death notice of a neighbour, which is no flood: it names the instance that a
    /// controller has declared dead.
    pub(super) fn on_death_notice(&mut self, header: &Header, view: FloodView<'_>) -> Verdict {
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
