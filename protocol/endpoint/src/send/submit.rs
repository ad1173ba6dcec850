//! Submission: a scattering enters the send buffer, or is refused.

use onepipe_base::{Incarnation, Mono, ProcessId, ScatteringId};
use onepipe_wire::Service;

use super::Sender;
use super::connection::Connection;
use crate::{Config, MESSAGE_CHARGE_BYTES, Message, SendError};

impl Sender {
    /// Accepts or refuses a scattering as a whole. `last_failed` returns, for a
    /// destination that is used for the first time, its last failed incarnation, and when its
    /// failure was reported.
    #[inline]
    pub fn submit(
        &mut self,
        config: &Config,
        messages: &[Message<'_>],
        last_failed: impl Fn(ProcessId) -> Option<(Incarnation, Mono)>,
    ) -> Result<ScatteringId, SendError> {
        if let [message] = messages
            && let Some(id) = self.submit_single(config, message, false)
        {
            return Ok(id);
        }
        self.submit_any(config, messages, false, last_failed)
    }

    /// Accepts or refuses a message without an order.
    #[inline]
    pub fn submit_unordered(
        &mut self,
        config: &Config,
        message: Message<'_>,
    ) -> Result<ScatteringId, SendError> {
        debug_assert_eq!(self.service, Service::BestEffort, "a commit is a position in an order");
        match self.submit_single(config, &message, true) {
            Some(id) => Ok(id),
            None => self.submit_any(config, &[message], true, |_| None),
        }
    }

    /// Fast path: accepts a message to a known destination if it fits. [`Sender::submit_any`]
    /// handles all other cases.
    #[inline]
    fn submit_single(
        &mut self,
        config: &Config,
        message: &Message<'_>,
        is_unordered: bool,
    ) -> Option<ScatteringId> {
        let len = message.payload.len();
        let need = len + MESSAGE_CHARGE_BYTES as usize;
        if len > config.message_len_max as usize || need > self.buffer.free() {
            return None;
        }
        // Known destinations are below `processes_max`.
        let to = self.peers.index_of(message.to)?;
        self.buffer.push_message(to as u32, message.payload, false);
        Some(self.buffer.push(1, is_unordered))
    }

    fn submit_any(
        &mut self,
        config: &Config,
        messages: &[Message<'_>],
        is_unordered: bool,
        last_failed: impl Fn(ProcessId) -> Option<(Incarnation, Mono)>,
    ) -> Result<ScatteringId, SendError> {
        let need = config.check_scattering(messages)?;
        self.buffer.check(need)?;
        let mut before: Option<&[u8]> = None;
        for message in messages {
            let connections = self.peers.len() + 1;
            let to =
                self.peers.index_or_insert(message.to, || match message.to == config.process {
                    true => {
                        Connection::loopback(message.to, config, self.service, self.local_window)
                    }
                    false => {
                        let connection =
                            Connection::new(message.to, config, self.service, connections);
                        match last_failed(message.to) {
                            Some((incarnation, since)) => {
                                connection.with_failed(incarnation, since)
                            }
                            None => connection,
                        }
                    }
                });
            let repeats = before.is_some_and(|before| core::ptr::eq(before, message.payload));
            self.buffer.push_message(to as u32, message.payload, repeats);
            before = Some(message.payload);
        }
        Ok(self.buffer.push(messages.len() as u32, is_unordered))
    }
}
