//! What the machines of a node send.

use std::collections::{BTreeMap, VecDeque};

use onepipe::{EmbeddedPipe, Message, ProcessId, ScatteringId, SendError};
use onepipe_log::{Scattering, ScatteringKind};

/// Outcomes of reliable scatterings that are remembered. A node has a few in flight, and is not
/// notified of those that were delivered.
const RELIABLE_MAX: usize = 64;

/// Which machine sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Client,
    Replica,
    Start,
    State,
}

/// Sends scatterings in order, and remembers whose the reliable ones are.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<(Source, Scattering)>,
    reliable: BTreeMap<ScatteringId, (Source, ScatteringKind)>,
}

impl Outbox {
    pub fn push(&mut self, source: Source, scattering: Scattering) {
        self.waiting.push_back((source, scattering));
    }

    /// Sends a message by best effort.
    pub fn push_message(&mut self, source: Source, to: ProcessId, payload: Vec<u8>) {
        let kind = ScatteringKind::BestEffort;
        self.push(source, Scattering { kind, receivers: vec![to], payload });
    }

    /// Returns whether something waits for space in the send buffer.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends what the send buffer takes. Returns whether something was sent. `on_refused` is called
    /// for a scattering that can never be sent.
    pub fn send(
        &mut self,
        pipe: &mut EmbeddedPipe,
        mut on_refused: impl FnMut(Source, ScatteringKind, SendError),
    ) -> bool {
        let mut has_sent = false;
        while let Some((source, scattering)) = self.waiting.front() {
            let Scattering { kind, receivers, payload } = scattering;
            let messages: Vec<Message<'_>> =
                receivers.iter().map(|to| Message { to: *to, payload }).collect();
            let sent = match kind.is_reliable() {
                true => pipe.scatter_reliably(&messages),
                false => pipe.scatter(&messages),
            };
            match sent {
                Err(SendError::BufferFull { .. }) => return has_sent,
                Err(error) => on_refused(*source, *kind, error),
                Ok(id) if kind.is_reliable() => {
                    self.reliable.insert(id, (*source, *kind));
                    if self.reliable.len() > RELIABLE_MAX {
                        self.reliable.pop_first();
                    }
                }
                Ok(_) => {}
            }
            has_sent = true;
            self.waiting.pop_front();
        }
        has_sent
    }

    /// Returns whose a reliable scattering is that has failed, the first time.
    pub fn on_failed(&mut self, id: ScatteringId) -> Option<(Source, ScatteringKind)> {
        self.reliable.remove(&id)
    }
}
