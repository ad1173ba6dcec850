//! Handles frames from the controllers.

use onepipe_base::{Mono, Port, Registers, Timestamp};
use onepipe_wire::{
    DecisionTip, Failure, FloodId, FloodKind, FloodView, Frame, Opcode, RecoveryView,
};

use super::flood::FloodOrigin;
use super::{ControlPlane, relay};

/// Effect of a frame of the control plane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handled<'a> {
    /// Dropped and counted.
    Rejected,
    Accepted,
    /// Frozen links were resolved or live ones declared dead: the barriers may have risen.
    LinksChanged,
    /// A frame relayed by a controller: handle it as if it came from its source, except for its
    /// promises. Responses are relayed for a while, too.
    Relayed(Frame<'a>),
}

impl ControlPlane {
    /// Handles a frame of the control plane. `clock` is near the fabric's time.
    pub fn on_frame<'a>(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        clock: Timestamp,
        port: Port,
        frame: &Frame<'a>,
    ) -> Handled<'a> {
        let header = frame.header;
        if matches!(frame.opcode, Opcode::Flood | Opcode::Hello) {
            if !self.links.accepts_floods(header.sender()) {
                return self.reject_foreign();
            }
            if frame.opcode == Opcode::Hello {
                return Handled::Accepted;
            }
            let handled =
                self.on_flood(registers, now, clock, FloodOrigin::Link(port), frame.payload);
            let from = header.src();
            let is_direct = self.controllers.is_some_and(|all| all.contains(from));
            if !matches!(handled, Handled::Rejected) {
                self.announcer.wake(now);
                if is_direct {
                    self.active_controller = Some((from, now));
                }
            }
            return handled;
        }
        let from = header.src();
        if !self.controllers.is_some_and(|all| all.contains(from)) {
            return self.reject_foreign();
        }
        let handled = match frame.opcode {
            Opcode::Notice => {
                self.on_flood(registers, now, clock, FloodOrigin::Controller(from), frame.payload)
            }
            Opcode::Ping => {
                self.pending_pong = Some(from);
                Handled::Accepted
            }
            // An AnnounceAck to a previous incarnation does not register this one.
            Opcode::AnnounceAck if header.psn().0 == self.own.incarnation.0 => {
                self.is_registered = true;
                self.on_acked_tip(frame.payload);
                Handled::Accepted
            }
            Opcode::AnnounceAck => {
                self.stats.announce_acks_stale += 1;
                Handled::Rejected
            }
            Opcode::UndeliverableAck => {
                self.undeliverable.on_undeliverable_ack(header.psn());
                self.on_acked_tip(frame.payload);
                self.ack_unless_pending();
                Handled::Accepted
            }
            Opcode::Relayed => {
                match relay::decapsulate(self.process, self.processes_max, frame.payload) {
                    Some(inner) => {
                        let wants_answer = relay::wants_answer(inner.opcode);
                        self.relay.on_relayed(now, inner.header.src(), wants_answer);
                        Handled::Relayed(inner)
                    }
                    None => self.reject_malformed(),
                }
            }
            Opcode::Recovery => match RecoveryView::parse(frame.payload) {
                Ok(view) => {
                    self.recovery.on_part(now, clock, &view);
                    Handled::Accepted
                }
                Err(_) => self.reject_malformed(),
            },
            // Frames that only controllers handle, and FloodAcks: a process forwards no flood, so
            // it expects no acknowledgement.
            _ => self.reject_malformed(),
        };
        if !matches!(handled, Handled::Rejected) {
            self.active_controller = Some((from, now));
            // An acknowledged announcement is no reason to repeat it.
            if frame.opcode != Opcode::AnnounceAck {
                self.announcer.wake(now);
            }
        }
        handled
    }

    fn on_flood<'a>(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        clock: Timestamp,
        origin: FloodOrigin,
        payload: &[u8],
    ) -> Handled<'a> {
        if self.controllers.is_none() {
            return self.reject_foreign();
        }
        let Ok(view) = FloodView::parse(payload) else { return self.reject_malformed() };
        if !self.floods.accepts(view.id) {
            self.stats.floods_stale += 1;
            return Handled::Rejected;
        }
        if let Some(tip) = view.tip {
            self.announcer.on_tip(tip);
        }
        match view.kind {
            FloodKind::Notice => {
                self.on_notice(now, view.id, origin, view.failures(clock));
                Handled::Accepted
            }
            FloodKind::Resume => {
                let mut links = 0;
                for resolved in view.resolved() {
                    links += u64::from(self.links.resolve(registers, resolved));
                }
                self.stats.links_resolved += links;
                self.floods.queue_ack(origin, view.id, FloodKind::Resume);
                if links > 0 { Handled::LinksChanged } else { Handled::Accepted }
            }
            FloodKind::Freeze => {
                let mut links = 0;
                for instance in view.dead() {
                    links += u64::from(self.links.declare_dead(registers, instance));
                }
                self.stats.links_declared_dead += links;
                self.floods.queue_ack(origin, view.id, FloodKind::Freeze);
                if links > 0 { Handled::LinksChanged } else { Handled::Accepted }
            }
        }
    }

    fn on_notice(
        &mut self,
        now: Mono,
        id: FloodId,
        origin: FloodOrigin,
        failures: impl Iterator<Item = Failure>,
    ) {
        let mut is_new = false;
        for failure in failures {
            if failure.covers(self.process, self.own.incarnation) {
                self.excluded.get_or_insert(failure.at);
            }
            if self.failures.insert(now, failure) {
                is_new = true;
                self.stats.failures_reported += 1;
            }
        }
        self.floods.on_notice(id, origin, is_new);
        self.ack_unless_pending();
    }

    //= spec/failure.md#R60
    /// Remembers the end of the log in an acknowledgement, if it has one: it has none while the
    /// controller compares its log.
    fn on_acked_tip(&mut self, payload: &[u8]) {
        if let Ok(tip) = DecisionTip::parse(payload) {
            self.announcer.on_tip(tip);
        }
    }

    #[cold]
    fn reject_foreign<'a>(&mut self) -> Handled<'a> {
        self.stats.frames_foreign += 1;
        Handled::Rejected
    }

    #[cold]
    fn reject_malformed<'a>(&mut self) -> Handled<'a> {
        self.stats.frames_malformed += 1;
        Handled::Rejected
    }
}
