//! Submission of the load.

use onepipe_endpoint::{Message, SendError, Service};
use onepipe_sim_check::{Submitted, Tag, digest};
use onepipe_sim_engine::Instant;
use onepipe_sim_network::{At, Destination, Pace};

use super::{RETRY_PS, Watch};
use crate::Process;
use crate::payload;

impl Watch {
    /// Submits a scattering of a process and feeds the checker.
    pub(crate) fn submit(
        &mut self,
        instant: Instant,
        process: &mut Process,
        service: Service,
        messages: &[Destination],
    ) -> Result<Tag, SendError> {
        let id = process.endpoint.config().process;
        let life = self.checker.life(id);
        let next = self.seats[id.index()].submitted[service as usize];
        let tag = Tag { life, scattering: next };
        while self.payloads.len() < messages.len() {
            self.payloads.push(Vec::new());
        }
        for (index, message) in (0u16..).zip(messages) {
            let payload = &mut self.payloads[usize::from(index)];
            payload::write(payload, tag, index, message.bytes);
        }
        let endpoint = &mut process.endpoint;
        let mut scatter = |list: &[Message<'_>]| match service {
            Service::BestEffort => endpoint.scatter(list),
            Service::Reliable => endpoint.scatter_reliably(list),
        };
        let filled = messages.iter().zip(&self.payloads);
        let submitted = match messages {
            // Avoids the allocation of a slice for a single message.
            [one] => scatter(&[Message { to: one.to, payload: &self.payloads[0] }]),
            _ => {
                let list: Vec<Message<'_>> =
                    filled.map(|(message, payload)| Message { to: message.to, payload }).collect();
                scatter(&list)
            }
        }?;
        assert_eq!(submitted.0, next, "scatterings are numbered in submission order");
        self.seats[id.index()].submitted[service as usize] += 1;
        self.expected.clear();
        let filled = messages.iter().zip(&self.payloads);
        self.expected.extend(filled.map(|(message, payload)| (message.to, digest(payload))));
        let submitted_at = instant.as_ps();
        let submitted = Submitted { service, tag, messages: &self.expected, submitted_at };
        self.checker.at_ns(instant.as_ns());
        self.checker.submitted(id, submitted);
        self.note(instant, || {
            let to: Vec<u32> = messages.iter().map(|message| message.to.0).collect();
            format!("process {} submits {service:?} {tag:?} to {to:?}", id.0)
        });
        self.seats[id.index()].outstanding += messages.len() as u32;
        Ok(tag)
    }

    /// Appends a line to the log if text is wanted.
    #[inline]
    pub(crate) fn note(&mut self, at: Instant, text: impl FnOnce() -> String) {
        let lines_max = self.plan.network.trace_lines_max;
        if lines_max > 0 {
            if self.story.len() == lines_max {
                self.story.pop_front();
            }
            self.story.push_back((at, text()));
        }
    }

    /// Submits as many scatterings as the closed loop allows.
    pub(super) fn refill(&mut self, at: &mut At<'_>, process: &mut Process) {
        let Some(load) = self.plan.load else { return };
        let Pace::ClosedLoop { messages_max } = load.pace else { return };
        let id = process.endpoint.config().process.index();
        while self.is_loading
            && self.seats[id].outstanding < messages_max
            && !self.seats[id].is_retrying
        {
            if !self.submit_next(at, process) {
                return;
            }
        }
    }

    /// Submits the next scattering of the load. Returns whether it was accepted.
    pub(super) fn submit_next(&mut self, at: &mut At<'_>, process: &mut Process) -> bool {
        let id = process.endpoint.config().process.index();
        let mut scattering = std::mem::take(&mut self.scattering);
        if let Some(scatterings) = &mut self.seats[id].scatterings {
            scatterings.next(&mut scattering);
        }
        let service = match self.plan.reliable_percent {
            0 => Service::BestEffort,
            percent => match self.seats[id].services.happens(percent * 10_000) {
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
    pub(super) fn pause_loop(&mut self, at: &mut At<'_>, id: usize) {
        let is_closed_loop =
            self.plan.load.is_some_and(|load| matches!(load.pace, Pace::ClosedLoop { .. }));
        if is_closed_loop && !std::mem::replace(&mut self.seats[id].is_retrying, true) {
            let port = self.port(id);
            at.alarm(RETRY_PS, u32::from(port.0));
        }
    }
}
