//! Checks in parts: each part has some of the processes, so that parts run on several threads.

use onepipe_base::ProcessId;
use onepipe_wire::Service;

use super::{Checker, Counts};
use crate::incarnation::IncarnationState;
use crate::observation::Delivered;
use crate::sender::Arrival;
use crate::violation::{Rule, ViolationKind, Violations};

/// A delivery that was checked at its receiver, and is yet to be checked against what its sender
/// submitted.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    process: ProcessId,
    /// Incarnation of the receiver.
    to_incarnation: u32,
    delivered: Delivered,
    at_ns: u64,
}

impl Checker {
    /// Moves the processes into parts, as many processes as given into each. Until
    /// [`Checker::unite`] only the parts are called, each with what happens at its processes. A
    /// part checks best-effort scatterings only, and has no controllers.
    pub fn divide(&mut self, lens: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let parts = self.processes.divide(lens).into_iter();
        let part = |processes| Self {
            processes,
            is_part: true,
            given_up: self.given_up.clone(),
            first_contacts: self.first_contacts.clone(),
            contacted: self.contacted.clone(),
            counts: Counts::default(),
            violations: Violations::default(),
            failed: Vec::new(),
            ..*self
        };
        parts.map(part).collect()
    }

    /// Takes back a part, after the parts of all processes with lower ids. When all are back, the
    /// failures that were reported to the processes of parts are checked.
    pub fn unite(&mut self, part: Self) {
        self.processes.append(part.processes);
        let Counts { submitted, delivered, lost, unknown, reliable, failures, inexact, torn } =
            part.counts;
        self.counts.submitted += submitted;
        self.counts.delivered += delivered;
        self.counts.lost += lost;
        self.counts.unknown += unknown;
        self.counts.reliable += reliable;
        self.counts.failures += failures;
        self.counts.inexact += inexact;
        self.counts.torn += torn;
        self.violations.merge(&part.violations);
        self.failed.extend(part.failed);
    }

    /// Checks the failures that were reported to processes of parts, once all parts are back.
    pub fn check_failed(&mut self) {
        for (at_ns, process, failed) in std::mem::take(&mut self.failed) {
            self.at_ns(at_ns);
            self.failed(process, failed);
        }
    }

    /// Checks a delivery at its receiver. [`Checker::resolved`] completes the check, perhaps in the
    /// part of the sender.
    pub fn received(&mut self, process: ProcessId, delivered: Delivered) -> Received {
        let Delivered { service, stamp, from, index, tag, .. } = delivered;
        let (at_ns, log) = (self.now_ns, &mut self.violations);
        self.counts.delivered += 1;
        self.counts.reliable += u64::from(service == Service::Reliable);
        let incarnation = tag.map_or(0, |tag| tag.incarnation);
        let to = &mut self.processes[process.index()];
        let to_incarnation = to.incarnations.len() as u32 - 1;
        let key = (stamp, from.0, incarnation, index);
        let to = to.current_mut();
        to.receiver.on_delivered((process, service), key, at_ns, log);
        if incarnation > 0 && service == Service::Reliable {
            to.first_contact_ns.entry((from.0, incarnation)).or_insert(at_ns);
        }
        Received { process, to_incarnation, delivered, at_ns }
    }

    /// Checks a delivery against what its sender submitted. Returns `submitted_at` of its
    /// scattering if the scattering is still open.
    pub fn resolved(&mut self, received: Received) -> Option<u64> {
        let Received { process, to_incarnation, delivered, at_ns } = received;
        let Delivered { service, stamp, from, index, tag, digest } = delivered;
        let log = &mut self.violations;
        let incarnation = tag.map_or(0, |tag| tag.incarnation) as usize;
        let from_incarnation = self.processes.get_mut(from.index());
        let from_incarnation =
            from_incarnation.and_then(|from| from.incarnations.get_mut(incarnation));
        let (Some(tag), Some(from_incarnation)) = (tag, from_incarnation) else {
            log.add(Rule::I4, at_ns, ViolationKind::Invented { process, from, tag, index });
            return None;
        };
        let is_fifo = self.checks_submission_order;
        let arrival =
            Arrival { process, to_incarnation, tag, index, stamp, digest, is_fifo, at_ns };
        let IncarnationState { senders, stamps, .. } = from_incarnation;
        senders[service as usize].on_delivered(from, arrival, stamps, log)
    }
}
