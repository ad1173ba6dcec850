//! Messages of registered memory, which the application does not get, and escaped ones.

use onepipe_base::{Mono, ProcessId, ScatteringId};
use onepipe_endpoint::{Message, ReceiveMode, SendError, SendFailed};
use onepipe_wire::{MarkedMessage, Service};

use super::{Node, NodeEvent, Step};
use crate::memory::MemoryService;
use crate::pipe_endpoint::BufferedMessage;

/// What a message is for.
enum Purpose {
    Application(BufferedMessage),
    /// The message was marked, and is released.
    Node,
}

impl Node {
    /// The machines of registered memory.
    pub(crate) fn memory(&self) -> &MemoryService {
        &self.memory
    }

    /// The machines of registered memory, to take completions.
    pub(crate) fn memory_results(&mut self) -> &mut MemoryService {
        &mut self.memory
    }

    /// The machines of registered memory, for a command. What they send leaves with the next turn.
    pub(crate) fn memory_mut(&mut self) -> &mut MemoryService {
        self.wants_poll = true;
        &mut self.memory
    }

    /// Submits a scattering some of whose payloads begin with the mark.
    #[cold]
    pub(super) fn scatter_escaped(
        &mut self,
        service: Service,
        messages: &[Message<'_>],
    ) -> Result<ScatteringId, SendError> {
        let escape = |message: &Message<'_>| {
            let payload = message.payload;
            if !MarkedMessage::is_marked(payload) {
                return payload.to_vec();
            }
            let mut escaped = Vec::new();
            MarkedMessage::Escaped(payload).write(|part| escaped.extend_from_slice(part));
            escaped
        };
        let payloads: Vec<Vec<u8>> = messages.iter().map(escape).collect();
        let messages = messages.iter().zip(&payloads);
        let messages: Vec<Message<'_>> =
            messages.map(|(message, payload)| Message { to: message.to, payload }).collect();
        self.pipe_endpoint.scatter(service, &messages)
    }

    /// Returns whether a message bears the mark.
    #[inline]
    pub(super) fn is_marked(&self, buffered: &BufferedMessage) -> bool {
        MarkedMessage::is_marked(self.pipe_endpoint.payload(buffered))
    }

    /// Handles a delivered message.
    #[inline]
    pub(super) fn on_delivered(&mut self, buffered: BufferedMessage) -> Step {
        match self.is_marked(&buffered) {
            false => Step::Event(NodeEvent::Delivered(buffered)),
            true => self.on_marked(buffered),
        }
    }

    /// Handles a delivered message that bears the mark.
    #[cold]
    pub(super) fn on_marked(&mut self, buffered: BufferedMessage) -> Step {
        match self.take_marked(buffered, true) {
            Purpose::Application(escaped) => Step::Event(NodeEvent::Delivered(escaped)),
            Purpose::Node => Step::Handled,
        }
    }

    /// Handles a message that is handed back, because this process leaves. A request that was not
    /// delivered is not executed.
    #[cold]
    pub(super) fn on_undelivered(&mut self, buffered: BufferedMessage) -> Step {
        let purpose = match self.is_marked(&buffered) {
            true => self.take_marked(buffered, false),
            false => Purpose::Application(buffered),
        };
        match purpose {
            Purpose::Application(buffered) => {
                self.undelivered += 1;
                Step::Event(NodeEvent::Undelivered(buffered))
            }
            Purpose::Node => Step::Handled,
        }
    }

    /// Handles a marked message, if it `is_delivered`, and releases it, unless it is an escaped one
    /// of the application.
    #[cold]
    fn take_marked(&mut self, buffered: BufferedMessage, is_delivered: bool) -> Purpose {
        let now = self.mono();
        let payload = self.pipe_endpoint.payload(&buffered);
        match MarkedMessage::parse(payload) {
            Ok(Some(MarkedMessage::Escaped(_))) => {
                return Purpose::Application(buffered.escaped());
            }
            Ok(Some(MarkedMessage::Memory(body))) if is_delivered => {
                let of = buffered.received(body);
                self.memory.on_message(now, (of.service, of.timestamp, of.from), body);
            }
            Ok(_) => {}
            Err(_) => self.memory.on_malformed(),
        }
        self.pipe_endpoint.release(buffered);
        Purpose::Node
    }

    /// Handles the failure of a message of registered memory. Returns whether it was one.
    pub(super) fn on_memory_send_failed(&mut self, failed: &SendFailed) -> bool {
        self.memory.on_send_failed(self.mono(), failed.service, failed.scattering)
    }

    /// Handles that everything that can be delivered was: reads below the commit barrier are due.
    #[inline]
    pub(super) fn on_memory_drained(&mut self) {
        if self.memory.is_used() || !self.memory_departed.is_empty() {
            self.advance_memory();
        }
    }

    fn advance_memory(&mut self) {
        let barrier = self.endpoint().barrier();
        let mut delivered = self.endpoint().commit_barrier();
        if self.endpoint().config().receive_mode == ReceiveMode::Merged {
            // A reliable message is delivered below both barriers.
            delivered = delivered.min(barrier);
        }
        if let Some(delivered) = delivered {
            self.memory.on_barrier(delivered);
        }
        let awaited = self.memory.awaited();
        self.endpoint_mut().await_commit(awaited);
        while let Some((process, bound)) =
            self.memory_departed.pop_front_if(|(_, bound)| *bound <= barrier)
        {
            if let Some(at) = bound.or(barrier) {
                self.memory.on_process_ended(process, at);
            }
            if let Some(at) = self.memory_restarted.iter().position(|other| *other == process) {
                self.memory_restarted.swap_remove(at);
                self.memory.on_process_started(process);
            }
        }
    }

    /// Notes that a process has joined, perhaps again.
    #[cold]
    pub(crate) fn on_peer_joined(&mut self, process: ProcessId) {
        match self.memory_departed.iter().any(|(departed, _)| *departed == process) {
            true => self.memory_restarted.push(process),
            false => self.memory.on_process_started(process),
        }
    }

    /// Submits what the machines of registered memory have to send.
    #[inline]
    pub(super) fn send_memory(&mut self) {
        if self.memory.has_output() {
            let now = self.mono();
            self.memory.send(now, &mut self.pipe_endpoint);
        }
    }

    /// The time of the last call that passed one.
    fn mono(&self) -> Mono {
        self.now.map_or(Mono::from_ns(0), |now| now.mono)
    }
}
