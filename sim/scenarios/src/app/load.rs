//! Submission of the load.

use std::borrow::BorrowMut;

use onepipe_endpoint::{Message, SendError, Service};
use onepipe_sim_check::{Submitted, Tag, digest};
use onepipe_sim_engine::Instant;
use onepipe_sim_network::{NodeContext, OutgoingMessage, SendPattern};

use super::{FabricApp, RETRY_PS};
use crate::Process;
use crate::control_plane::ControlPlane;
use crate::payload;

impl<C: BorrowMut<ControlPlane>> FabricApp<C> {
    /// Submits a scattering of a process and feeds the checker.
    pub(crate) fn submit(
        &mut self,
        instant: Instant,
        process: &mut Process,
        service: Service,
        messages: &[OutgoingMessage],
    ) -> Result<Tag, SendError> {
        let id = process.endpoint.config().process;
        let incarnation = self.checker.incarnation(id);
        let next = self.states[id.index()].submitted[service as usize];
        let tag = Tag { incarnation, scattering: next };
        while self.payloads.len() < messages.len() {
            self.payloads.push(Vec::new());
        }
        // Of each message, the position of its payload.
        let repeats = self.plan.repeats_payloads;
        let position_of = |index: usize| if repeats { 0 } else { index };
        for (index, message) in (0u16..).zip(messages) {
            let payload = &mut self.payloads[usize::from(index)];
            payload::write(payload, tag, index, message.bytes);
            if repeats {
                break;
            }
        }
        let endpoint = &mut process.endpoint;
        let mut scatter = |list: &[Message<'_>]| match service {
            Service::BestEffort => endpoint.scatter(list),
            Service::Reliable => endpoint.scatter_reliably(list),
        };
        let payloads = &self.payloads;
        let filled = messages.iter().enumerate();
        let filled = filled.map(|(index, message)| (message, &payloads[position_of(index)]));
        let submitted = match messages {
            // Avoids the allocation of a slice for a single message.
            [one] => scatter(&[Message { to: one.to, payload: &self.payloads[0] }]),
            _ => {
                let list: Vec<Message<'_>> = filled
                    .clone()
                    .map(|(message, payload)| Message { to: message.to, payload })
                    .collect();
                scatter(&list)
            }
        }?;
        assert_eq!(submitted.0, next, "scatterings are numbered in submission order");
        self.states[id.index()].submitted[service as usize] += 1;
        self.expected.clear();
        self.expected.extend(filled.map(|(message, payload)| (message.to, digest(payload))));
        let submitted_at = instant.as_ps();
        let submitted = Submitted { service, tag, messages: &self.expected, submitted_at };
        self.checker.at_ns(instant.as_ns());
        self.checker.submitted(id, submitted);
        self.log_line(instant, || {
            let to: Vec<u32> = messages.iter().map(|message| message.to.0).collect();
            format!("process {} submits {service:?} {tag:?} to {to:?}", id.0)
        });
        self.states[id.index()].outstanding += messages.len() as u32;
        Ok(tag)
    }

    /// Appends a line to the log if text is wanted.
    #[inline]
    pub(crate) fn log_line(&mut self, at: Instant, text: impl FnOnce() -> String) {
        let lines_max = self.plan.network.trace_lines_max;
        if lines_max > 0 {
            if self.log.len() == lines_max {
                self.log.pop_front();
            }
            self.log.push_back((at, text()));
        }
    }

    /// Submits as many scatterings as the closed loop allows.
    pub(super) fn refill(&mut self, at: &mut NodeContext<'_>, process: &mut Process) {
        let Some(load) = self.plan.load else { return };
        let SendPattern::ClosedLoop { messages_max } = load.pattern else { return };
        let id = process.endpoint.config().process.index();
        while self.is_loading
            && self.states[id].outstanding < messages_max
            && !self.states[id].is_retrying
        {
            if !self.submit_next(at, process) {
                return;
            }
        }
    }

    /// Submits the next scattering of the load. Returns whether it was accepted.
    pub(super) fn submit_next(&mut self, at: &mut NodeContext<'_>, process: &mut Process) -> bool {
        let id = process.endpoint.config().process.index();
        let mut scattering = std::mem::take(&mut self.scattering);
        if let Some(generator) = &mut self.states[id].generator {
            generator.next(&mut scattering);
        }
        let service = match self.plan.reliable_percent {
            0 => Service::BestEffort,
            percent => match self.states[id].services.happens(percent * 10_000) {
                true => Service::Reliable,
                false => Service::BestEffort,
            },
        };
        let result = self.submit(at.instant, process, service, &scattering);
        self.scattering = scattering;
        // The expected error is a full buffer. Any other one shows in the report as missing
        // traffic.
        if result.is_err() {
            self.pause_loop(at, id);
        }
        result.is_ok()
    }

    /// Pauses a closed loop until a later alarm. An open loop submits again anyway.
    pub(super) fn pause_loop(&mut self, at: &mut NodeContext<'_>, id: usize) {
        let is_closed_loop = self
            .plan
            .load
            .is_some_and(|load| matches!(load.pattern, SendPattern::ClosedLoop { .. }));
        if is_closed_loop && !std::mem::replace(&mut self.states[id].is_retrying, true) {
            let port = self.port(id);
            at.alarm(RETRY_PS, u32::from(port.0));
        }
    }
}
