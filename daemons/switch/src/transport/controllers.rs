//! Controllers: at most one with each id, at whichever switch of the tree.

use onepipe_base::{Address, Cause, Incarnation, Instance, Now, Port, ProcessId};
use onepipe_wire::{Frame, Header, JoinAnswer, JoinRole, Opcode, RefuseReason};

use super::SwitchTransport;

/// Interval at which this switch looks whether its controllers are still received, in ns: a small
/// part of the time after which one counts as lost.
const CHECK_INTERVAL_NS: u64 = 20_000_000;

/// The id and the incarnation of a controller.
type Source = (ProcessId, Incarnation);

impl SwitchTransport {
    /// Returns whether this is the id of a controller.
    #[inline]
    pub(super) fn is_controller(&self, process: ProcessId) -> bool {
        let controllers = self.gate.admission.terms().controllers;
        controllers.is_some_and(|ids| ids.contains(process))
    }

    //= spec/ordering.md#R68
    /// Notes in the roster which controllers are received: switches state them to each other.
    pub(super) fn check_controllers(&mut self, now: Now) {
        let controllers = self.gate.admission.terms().controllers;
        if controllers.is_none() || now.mono < self.check_at {
            return;
        }
        let timeout_ns = self.gate.admission.controller_timeout_ns();
        // After a pause of this switch, what the controllers have sent meanwhile is yet to be read.
        let was_paused = now.mono.since_ns(self.check_at) > timeout_ns / 2;
        self.check_at = now.mono.after_ns(CHECK_INTERVAL_NS);
        for port in (0..self.ports.count()).map(Port) {
            let Some(unseen_ns) = self.ports.controller_unseen_ns(port, now.mono) else { continue };
            if unseen_ns < timeout_ns {
                self.roster.set_up(now, port, true);
            } else if !was_paused {
                self.roster.set_up(now, port, false);
                self.on_lost(port);
            }
        }
    }

    /// Returns the port and the incarnation of a live controller with this id behind another port
    /// than `port`.
    fn other_controller(&self, process: ProcessId, port: Port) -> Option<(Port, Incarnation)> {
        let known = self.ports.joined_at(process);
        known.filter(|(at, _)| *at != port && self.roster.is_reached(*at, process))
    }

    //= spec/ordering.md#R68
    /// Returns whether a frame from `port` must not reach the machine, because its source is a
    /// controller of which an earlier incarnation runs behind another port; or because it comes
    /// from a switch that does not state that controller any more, and would take the route back.
    #[inline]
    pub(super) fn is_of_second_controller(&self, port: Port, source: Source) -> bool {
        self.is_controller(source.0) && self.is_second(port, source)
    }

    #[cold]
    fn is_second(&self, port: Port, (process, incarnation): Source) -> bool {
        let applicant = self.ports.applicant(port);
        let is_switch = applicant.is_some_and(|known| known.role == JoinRole::Switch);
        self.other_controller(process, port).is_some_and(|(_, known)| {
            incarnation > known || (is_switch && !self.roster.is_reached(port, process))
        })
    }

    /// Handles a frame for which [`SwitchTransport::is_of_second_controller`] holds.
    pub(super) fn on_second_controller(&mut self, now: Now, port: Port, header: &Header) {
        let (process, incarnation) = (header.src(), header.incarnation());
        let other = self.other_controller(process, port);
        let is_later = other.is_some_and(|(_, known)| incarnation > known);
        // A switch repeats its announcement, so other frames need no answer.
        if is_later && matches!(header.opcode(), Ok(Opcode::Join | Opcode::Hello)) {
            self.end_controller(now, port, (process, incarnation));
        }
    }

    /// Handles a controller that has announced itself, or that a switch has announced, at `port`.
    /// A later incarnation behind another port ends: the two were admitted at different switches
    /// before the roster had reached both, or while the switches were cut off from each other.
    pub(super) fn on_controller(
        &mut self,
        now: Now,
        port: Port,
        (process, incarnation): Source,
    ) -> bool {
        if let Some((at, known)) = self.other_controller(process, port)
            && known > incarnation
        {
            self.end_controller(now, at, (process, known));
        }
        self.ports.on_controller(process, incarnation, port)
    }

    /// Ends the controller behind `port`. At this switch it loses its port, asks for admission
    /// again, and is refused; otherwise the switch at `port` is notified.
    fn end_controller(&mut self, now: Now, port: Port, (process, incarnation): Source) {
        let instance = Instance { address: Address::Process(process), incarnation };
        match (self.ports.applicant(port), self.ports.address(port)) {
            (Some(known), _) if known.instance == instance => {
                self.ports.reclaim(port, Cause::Superseded);
            }
            (Some(known), Some(address)) if known.role == JoinRole::Switch => {
                let terms = *self.gate.admission.terms();
                let refused = JoinAnswer::Refused { reason: RefuseReason::Taken, terms };
                self.answer(now, address, refused, Some(instance));
            }
            _ => {}
        }
    }

    /// Handles the answer of the switch above to the announcement of a controller.
    pub(super) fn on_announcement_answer(&mut self, now: Now, answer: AnnouncementAnswer) {
        let AnnouncementAnswer { controller: (process, incarnation), is_refusal } = answer;
        if is_refusal
            && self.is_controller(process)
            && let Some((port, known)) = self.ports.joined_at(process)
            && known == incarnation
        {
            self.end_controller(now, port, (process, incarnation));
        }
    }
}

/// The answer of a switch to the announcement of a controller by a switch below it.
pub(super) struct AnnouncementAnswer {
    controller: Source,
    is_refusal: bool,
}

impl AnnouncementAnswer {
    /// Returns the answer in `frame`. An answer to a request of this switch names this switch.
    pub(super) fn parse(frame: &[u8]) -> Option<Self> {
        let frame = Frame::parse(frame).ok()?;
        let Some(Instance { address: Address::Process(process), incarnation }) =
            frame.header.peer().filter(|_| frame.opcode == Opcode::JoinAnswer)
        else {
            return None;
        };
        let is_refusal = matches!(
            JoinAnswer::parse(frame.payload),
            Ok(JoinAnswer::Refused { reason: RefuseReason::Taken, .. })
        );
        Some(Self { controller: (process, incarnation), is_refusal })
    }
}
