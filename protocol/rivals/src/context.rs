//! Interface of the order methods to the connections and to the application.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bytes::Bytes;
use onepipe_base::{Mono, ProcessId, Psn};

use crate::connection::{Connection, ReadResult};
use crate::entry::Entry;
use crate::{Config, Delivery, To};

/// Connections to all nodes, and pending deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OrderContext {
    pub own: ProcessId,
    pub members: u32,
    window_bytes: usize,
    entries_max: usize,
    pending_max: usize,
    connections: Vec<Connection>,
    /// Nodes that may have frames to send, without duplicates.
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

    /// Returns whether the queue of any node is full.
    pub(crate) fn is_full(&self) -> bool {
        self.connections.iter().any(|connection| connection.len() >= self.pending_max)
    }

    /// Returns the number of entries in flight to the node with the most.
    pub(crate) fn in_flight(&self) -> usize {
        self.connections.iter().map(Connection::in_flight).max().unwrap_or_default()
    }

    /// Returns whether all connections are idle and acknowledged.
    pub(crate) fn is_drained(&self) -> bool {
        self.connections.iter().all(|connection| connection.len() == 0)
    }

    pub(crate) fn send(&mut self, to: ProcessId, entry: Entry) {
        debug_assert_ne!(to, self.own, "no entry goes to this process");
        self.connections[to.index()].push(entry);
        self.mark_ready(to.0);
    }

    /// Calls `visit` for each destination member, this one last. The first one differs from member
    /// to member, to avoid incast.
    pub(crate) fn for_each(&mut self, to: To, mut visit: impl FnMut(&mut Self, ProcessId)) {
        match to {
            To::One(to) => visit(self, to),
            To::All => {
                let (first, members) = ((self.own.0 + 1) % self.members, self.members);
                (0..members).for_each(|step| visit(self, ProcessId((first + step) % members)));
            }
            // The method handles groups itself.
            To::Groups(_) => {}
        }
    }

    /// Records that the oldest unprocessed entry from `from` has been processed.
    pub(crate) fn complete_one(&mut self, from: ProcessId) {
        debug_assert_ne!(from, self.own, "no entry comes from this process");
        let connection = &mut self.connections[from.index()];
        connection.complete_one();
        // Acknowledge early after a quarter of a window of minimal entries.
        if connection.unacked() as usize * 64 > self.window_bytes / 4 {
            self.mark_ready(from.0);
        }
    }

    pub(crate) fn deliver(&mut self, entry: Entry) {
        let Entry { origin, number, payload, .. } = entry;
        self.deliveries.push_back(Delivery { from: origin, number, payload });
    }

    /// Writes the next frame. Returns its destination, first PSN and length.
    pub(crate) fn write(
        &mut self,
        now: Mono,
        buffer: &mut [u8],
    ) -> Option<(ProcessId, Psn, usize)> {
        let (window_bytes, entries_max) = (self.window_bytes, self.entries_max);
        loop {
            let to = self.ready.pop_front()?;
            debug_assert!(self.is_ready[to as usize], "a node that is ready is marked");
            self.is_ready[to as usize] = false;
            let connection = &mut self.connections[to as usize];
            if connection.wants_transmit(window_bytes) || connection.has_pending_ack() {
                let (psn, bytes) = connection.write(now, window_bytes, entries_max, buffer);
                if connection.wants_transmit(self.window_bytes) {
                    self.mark_ready(to);
                }
                return Some((ProcessId(to), psn, bytes));
            }
        }
    }

    /// Reads a frame from `from`. Appends new entries to `entries`.
    pub(crate) fn read(
        &mut self,
        now: Mono,
        from: ProcessId,
        psn: Psn,
        bytes: Bytes,
        entries: &mut Vec<Entry>,
    ) -> Option<ReadResult> {
        let connection = self.connections.get_mut(from.index())?;
        let result = connection.read(now, psn, bytes, |entry| entries.push(entry))?;
        if result.has_space || connection.wants_transmit(self.window_bytes) {
            self.mark_ready(from.0);
        }
        Some(result)
    }

    /// Sends pending acknowledgements and retransmits on timeouts. Returns the number of
    /// connections that retransmit, and whether another tick is needed.
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

    /// Panics if the connections, or the list of nodes with frames to send, contradict themselves.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.is_ready.len(), self.connections.len(), "a mark for each node");
        let marked = self.is_ready.iter().filter(|is_ready| **is_ready).count();
        assert_eq!(self.ready.len(), marked, "a node is ready once");
        assert!(self.ready.iter().all(|to| self.is_ready[*to as usize]), "and marked then");
        assert!(self.own.index() < self.connections.len(), "this process is one of the nodes");
        assert_eq!(self.connections[self.own.index()].len(), 0, "no entry goes to this process");
        self.connections.iter().for_each(Connection::check_invariants);
    }

    fn mark_ready(&mut self, to: u32) {
        if !core::mem::replace(&mut self.is_ready[to as usize], true) {
            self.ready.push_back(to);
        }
    }
}
