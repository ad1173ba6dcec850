//! Where the rule of the order finds what it needs: the connections, and the way out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId, Psn};

use crate::connection::{Connection, ReadResult};
use crate::entry::Entry;
use crate::{Config, Delivery, To};

/// Connections to all nodes, and what is to be told to the application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OrderContext {
    pub own: ProcessId,
    pub members: u32,
    window_bytes: usize,
    entries_max: usize,
    pending_max: usize,
    connections: Vec<Connection>,
    /// Who may be sent something, each once.
    ready: VecDeque<u32>,
    is_ready: Vec<bool>,
    pub deliveries: VecDeque<Delivery>,
}

impl OrderContext {
    pub(crate) fn new(config: &Config) -> Self {
        let nodes = config.nodes() as usize;
        Self {
            own: config.process,
            members: config.members,
            window_bytes: config.window_bytes,
            entries_max: config.entries_per_frame_max,
            pending_max: config.pending_max,
            connections: alloc::vec![Connection::new(); nodes],
            ready: VecDeque::with_capacity(nodes),
            is_ready: alloc::vec![false; nodes],
            deliveries: VecDeque::new(),
        }
    }

    /// Whether as much waits for some node as may.
    pub(crate) fn is_full(&self) -> bool {
        self.connections.iter().any(|connection| connection.len() >= self.pending_max)
    }

    /// What has left for the node to which most has, and is not acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        self.connections.iter().map(Connection::in_flight).max().unwrap_or_default()
    }

    /// Whether nothing waits for any node, nor for its acknowledgement.
    pub(crate) fn is_drained(&self) -> bool {
        self.connections.iter().all(|connection| connection.len() == 0)
    }

    pub(crate) fn send(&mut self, to: ProcessId, entry: Entry) {
        self.connections[to.index()].push(entry);
        self.mark_ready(to.0);
    }

    /// Calls `to_each` for every member that a message is for, this one last. With whom it begins
    /// differs from member to member, or all would meet at the same receiver.
    pub(crate) fn for_each(&mut self, to: To, mut visit: impl FnMut(&mut Self, ProcessId)) {
        match to {
            To::One(to) => visit(self, to),
            To::All => {
                let (first, members) = ((self.own.0 + 1) % self.members, self.members);
                (0..members).for_each(|step| visit(self, ProcessId((first + step) % members)));
            }
            // Only where there are groups, which know their members.
            To::Groups(_) => {}
        }
    }

    /// What came from `from` first, and was not done with, now is.
    pub(crate) fn complete_one(&mut self, from: ProcessId) {
        let connection = &mut self.connections[from.index()];
        connection.complete_one();
        // A quarter of a window of the shortest entries: the sender need not wait for the tick.
        if connection.unacked() as usize * 64 > self.window_bytes / 4 {
            self.mark_ready(from.0);
        }
    }

    pub(crate) fn deliver(&mut self, entry: Entry) {
        let Entry { origin, number, payload, .. } = entry;
        self.deliveries.push_back(Delivery { from: origin, number, payload });
    }

    /// The next one to send something to, what it is, and how long.
    pub(crate) fn write(
        &mut self,
        now: Mono,
        buffer: &mut [u8],
    ) -> Option<(ProcessId, Psn, usize)> {
        let limits = (self.window_bytes, self.entries_max);
        loop {
            let to = self.ready.pop_front()?;
            self.is_ready[to as usize] = false;
            let connection = &mut self.connections[to as usize];
            if connection.wants_transmit(self.window_bytes) || connection.has_pending_ack() {
                let (psn, bytes) = connection.write(now, limits, buffer);
                if connection.wants_transmit(self.window_bytes) {
                    self.mark_ready(to);
                }
                return Some((ProcessId(to), psn, bytes));
            }
        }
    }

    /// Takes what came from `from`; `entries` gets what is new.
    pub(crate) fn read(
        &mut self,
        now: Mono,
        from: ProcessId,
        (psn, bytes): (Psn, Bytes),
        entries: &mut Vec<Entry>,
    ) -> Option<ReadResult> {
        let connection = self.connections.get_mut(from.index())?;
        let result = connection.read(now, psn, bytes, |entry| entries.push(entry))?;
        if result.has_space || connection.wants_transmit(self.window_bytes) {
            self.mark_ready(from.0);
        }
        Some(result)
    }

    /// Sends acknowledgements that are owed, and again what is late. Answers how many connections
    /// begin again, and whether anything is left to wait for.
    pub(crate) fn tick(&mut self, now: Mono, resend_ns: u64) -> (u64, bool) {
        let (mut resent, mut is_waiting) = (0, false);
        for to in 0..self.connections.len() {
            let connection = &mut self.connections[to];
            let is_late = connection.resend(now, resend_ns);
            resent += u64::from(is_late);
            is_waiting |= connection.is_waiting();
            if is_late || connection.has_pending_ack() {
                self.mark_ready(to as u32);
                is_waiting = true;
            }
        }
        (resent, is_waiting)
    }

    fn mark_ready(&mut self, to: u32) {
        if !core::mem::replace(&mut self.is_ready[to as usize], true) {
            self.ready.push_back(to);
        }
    }
}
