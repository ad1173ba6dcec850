//! Floods received from the controllers, and their acknowledgements.

use onepipe_base::{Port, ProcessId, Psn};
use onepipe_wire::{FloodAck, FloodId, FloodKind, Opcode};

use super::ControlFrame;

/// Where a flood came from, and its acknowledgement goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FloodOrigin {
    /// A flood over this link, acknowledged by a FloodAck.
    Link(Port),
    /// A Notice of this controller, acknowledged by Completed.
    Controller(ProcessId),
}

/// A notice that is not acknowledged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenNotice {
    id: FloodId,
    link: Option<Port>,
    controller: Option<ProcessId>,
    /// Whether the endpoint has handled every failure of the notice.
    is_handled: bool,
}

/// Floods received, floods acknowledged, and acknowledgements to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Floods {
    /// Highest epoch seen.
    epoch: u32,
    /// The last notice that was acknowledged.
    last_acked: Option<FloodId>,
    open: Option<OpenNotice>,
    /// Acknowledgements to send, by kind and origin. A later one replaces an earlier one, as the
    /// flood itself does.
    pending_acks: [Option<(FloodOrigin, FloodAck)>; 6],
}

impl Floods {
    pub const fn new() -> Self {
        Self { epoch: 0, last_acked: None, open: None, pending_acks: [None; 6] }
    }

    /// Returns the highest epoch seen.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    //= spec/ordering.md#R69
    /// Updates the epoch. Returns false if the flood is from an earlier epoch, whose controller is
    /// no longer active, or from one that jumps.
    pub fn accepts(&mut self, id: FloodId) -> bool {
        if id.jumps_from(self.epoch) {
            return false;
        }
        let is_current = id.epoch >= self.epoch;
        self.epoch = self.epoch.max(id.epoch);
        is_current
    }

    /// Handles a notice; `is_new` if it reports a new failure.
    pub fn on_notice(&mut self, id: FloodId, origin: FloodOrigin, is_new: bool) {
        if !is_new && self.last_acked >= Some(id) {
            return self.queue_ack(origin, id, FloodKind::Notice);
        }
        match &mut self.open {
            Some(open) if id <= open.id => {
                open.is_handled &= !is_new;
                if id == open.id {
                    open.add(origin);
                }
            }
            open => {
                let new = OpenNotice { id, link: None, controller: None, is_handled: false };
                open.insert(new).add(origin);
            }
        }
    }

    /// Queues the acknowledgement of a flood that is handled.
    pub fn queue_ack(&mut self, origin: FloodOrigin, id: FloodId, kind: FloodKind) {
        let index = match kind {
            FloodKind::Notice => 0,
            FloodKind::Resume => 2,
            FloodKind::Freeze => 4,
        };
        let is_second = usize::from(matches!(origin, FloodOrigin::Controller(_)));
        self.pending_acks[index + is_second] = Some((origin, FloodAck { id, kind }));
    }

    /// Checks that an open notice was not acknowledged, and that acknowledgements lie in the slots
    /// of their kinds and origins.
    pub fn check_invariants(&self) {
        if let Some(open) = &self.open {
            assert!(open.id.epoch <= self.epoch, "the epoch is the highest seen");
            assert!(open.link.is_some() || open.controller.is_some(), "a notice has an origin");
        }
        for (slot, pending) in self.pending_acks.iter().enumerate() {
            let Some((origin, ack)) = pending else { continue };
            let is_of_link = matches!(origin, FloodOrigin::Link(_));
            assert_eq!(is_of_link, slot.is_multiple_of(2), "a slot has an origin");
            assert!(ack.id.epoch <= self.epoch, "a flood of a later epoch raises the epoch");
        }
    }

    /// Returns whether a notice waits to be handled by the endpoint.
    pub fn is_open(&self) -> bool {
        self.open.is_some_and(|open| !open.is_handled)
    }

    /// Records that every reported failure is handled.
    pub fn on_handled(&mut self) {
        if let Some(open) = &mut self.open {
            open.is_handled = true;
        }
    }

    /// Acknowledges the notice that is handled.
    pub fn ack_handled(&mut self) {
        let Some(open) = self.open.take_if(|open| open.is_handled) else { return };
        self.last_acked = self.last_acked.max(Some(open.id));
        if let Some(port) = open.link {
            self.queue_ack(FloodOrigin::Link(port), open.id, FloodKind::Notice);
        }
        if let Some(process) = open.controller {
            self.queue_ack(FloodOrigin::Controller(process), open.id, FloodKind::Notice);
        }
    }

    pub fn wants_transmit(&self) -> bool {
        self.pending_acks.iter().any(Option::is_some)
    }

    /// Writes the next acknowledgement.
    pub fn write(&mut self, own: ProcessId, payload: &mut [u8]) -> Option<ControlFrame> {
        let (origin, ack) = self.pending_acks.iter_mut().find_map(Option::take)?;
        let payload_len = ack.write(payload)?;
        Some(match origin {
            FloodOrigin::Link(port) => ControlFrame {
                hop_port: Some(port),
                ..ControlFrame::to(own, Opcode::FloodAck, Psn::FIRST, payload_len)
            },
            FloodOrigin::Controller(to) => {
                ControlFrame::to(to, Opcode::Completed, Psn::FIRST, payload_len)
            }
        })
    }
}

impl OpenNotice {
    fn add(&mut self, origin: FloodOrigin) {
        match origin {
            FloodOrigin::Link(port) => self.link = Some(port),
            FloodOrigin::Controller(process) => self.controller = Some(process),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LINK: FloodOrigin = FloodOrigin::Link(Port(0));

    fn id(epoch: u32, sequence: u32) -> FloodId {
        FloodId { epoch, sequence }
    }

    fn acks(floods: &mut Floods) -> Vec<(Opcode, u32)> {
        let mut payload = [0; 64];
        let mut all = Vec::new();
        while let Some(frame) = floods.write(ProcessId(1), &mut payload) {
            let ack = FloodAck::parse(&payload[..frame.payload_len]).expect("written above");
            all.push((frame.opcode, ack.id.sequence));
        }
        all
    }

    #[test]
    fn ack_waits_for_completion_and_repeats_at_once() {
        let mut floods = Floods::new();
        floods.on_notice(id(1, 3), LINK, true);
        floods.on_notice(id(1, 3), LINK, false);
        assert!(floods.is_open() && acks(&mut floods).is_empty());
        floods.ack_handled();
        assert!(acks(&mut floods).is_empty(), "the failure is not handled");
        floods.on_handled();
        assert!(!floods.is_open() && acks(&mut floods).is_empty(), "recalls are not recorded yet");
        floods.ack_handled();
        assert_eq!(acks(&mut floods), [(Opcode::FloodAck, 3)]);
        floods.on_notice(id(1, 3), FloodOrigin::Controller(ProcessId(9)), false);
        assert_eq!(acks(&mut floods), [(Opcode::Completed, 3)]);
        floods.on_notice(id(1, 2), LINK, false);
        assert_eq!(acks(&mut floods), [(Opcode::FloodAck, 2)], "an earlier notice is handled, too");
    }

    #[test]
    fn later_notice_replaces_an_earlier_one() {
        let mut floods = Floods::new();
        floods.on_notice(id(1, 3), LINK, true);
        floods.on_notice(id(2, 1), FloodOrigin::Controller(ProcessId(9)), true);
        floods.on_notice(id(1, 3), LINK, false);
        floods.on_handled();
        floods.ack_handled();
        assert_eq!(acks(&mut floods), [(Opcode::Completed, 1)]);
        assert!(floods.accepts(id(2, 0)) && !floods.accepts(id(1, 9)) && floods.accepts(id(3, 0)));
        assert_eq!(floods.epoch(), 3);
    }

    //= spec/ordering.md#R69
    #[test]
    fn epoch_that_jumps_is_not_believed() {
        let mut floods = Floods::new();
        assert!(floods.accepts(id(500_000, 0)), "the first epoch is arbitrary");
        assert!(!floods.accepts(id(u32::MAX, 0)) && !floods.accepts(id(600_000, 0)));
        assert!(floods.accepts(id(500_001, 0)), "a later failure is still resolved");
        assert!(floods.accepts(id(560_000, 0)));
        assert_eq!(floods.epoch(), 560_000);
    }

    #[test]
    fn new_failure_in_an_old_notice_reopens_it() {
        let mut floods = Floods::new();
        floods.on_notice(id(1, 3), LINK, true);
        floods.on_handled();
        floods.on_notice(id(1, 2), LINK, true);
        assert!(floods.is_open());
        floods.on_handled();
        floods.ack_handled();
        assert_eq!(acks(&mut floods), [(Opcode::FloodAck, 3)]);
        floods.on_notice(id(1, 2), LINK, true);
        assert!(floods.is_open() && acks(&mut floods).is_empty());
    }

    #[test]
    fn acks_are_retained_per_kind_and_origin() {
        let mut floods = Floods::new();
        let controller = FloodOrigin::Controller(ProcessId(9));
        floods.queue_ack(LINK, id(1, 1), FloodKind::Resume);
        floods.queue_ack(LINK, id(1, 2), FloodKind::Resume);
        floods.queue_ack(controller, id(1, 3), FloodKind::Resume);
        floods.queue_ack(LINK, id(1, 4), FloodKind::Notice);
        let (ack, completed) = (Opcode::FloodAck, Opcode::Completed);
        assert_eq!(acks(&mut floods), [(ack, 4), (ack, 2), (completed, 3)]);
        assert!(!floods.wants_transmit());
    }
}
