//! The flood in progress at this switch.

use alloc::vec::Vec;

use onepipe_base::{Mono, Port};
use onepipe_wire::{FloodAck, FloodId, FloodKind};

use crate::port_set::PortSet;

/// Propagation of information with feedback (Segall 1983; `docs/design/failure.md`, "How are
/// updates flooded?"): the latest flood, the links that have not acknowledged it, and the parent
/// that waits for the acknowledgement.
///
/// A link that dies unacknowledged keeps the flood open: nodes behind it may not have received it.
/// If the link comes back with the same instance the flood is sent again. Otherwise the
/// controllers, to which the death is announced, start a later flood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FloodState {
    retransmit_ns: u64,
    current: Option<Current>,
    payload: Vec<u8>,
    /// Links that have not acknowledged.
    pending: PortSet,
    /// Links on which the flood is to be sent now.
    unsent: PortSet,
    /// Links on which it is to be acknowledged now.
    acks: PortSet,
    retransmit_at: Option<Mono>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Current {
    id: FloodId,
    kind: FloodKind,
    parent: Port,
    progress: Progress,
}

/// What the parent of a flood may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// Links have yet to acknowledge.
    Open,
    /// An instance is gone that has not acknowledged: this switch never will, either.
    Broken,
    /// All links have acknowledged. Only this switch waits for links that come up later.
    Acked,
}

/// The effect of a flood that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The flood is new and is passed on.
    New,
    /// The flood is known already.
    Duplicate,
    /// A later one is known, or its epoch jumps.
    Superseded,
}

/// The next transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// The flood itself.
    Flood(Port),
    /// An acknowledgement.
    FloodAck(Port, FloodAck),
}

impl FloodState {
    /// Creates a state without a flood. The payload of a flood has at most `bytes_max` bytes.
    pub(crate) fn new(ports: u16, bytes_max: usize, retransmit_ns: u64) -> Self {
        let none = || PortSet::new(ports);
        Self {
            retransmit_ns,
            current: None,
            payload: Vec::with_capacity(bytes_max),
            pending: none(),
            unsent: none(),
            acks: none(),
            retransmit_at: None,
        }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        [&self.pending, &self.unsent, &self.acks].into_iter().for_each(PortSet::check_invariants);
        let Some(current) = self.current else {
            assert!(self.pending.is_empty() && self.unsent.is_empty() && self.acks.is_empty());
            assert!(
                self.payload.is_empty() && self.retransmit_at.is_none(),
                "sent without a flood"
            );
            return;
        };
        assert!(self.unsent.iter().all(|port| self.pending.contains(port)), "sent, not awaited");
        assert!(!self.pending.contains(current.parent), "the parent acknowledges nothing");
        let is_open = current.progress == Progress::Open;
        assert!(!is_open || !self.pending.is_empty(), "an acknowledgement is withheld");
        assert!(current.progress == Progress::Acked || !self.acks.contains(current.parent));
    }

    //= spec/failure.md#R27
    /// Handles a flood received at `from`; `others` are the links to pass it on.
    pub(crate) fn on_flood(
        &mut self,
        now: Mono,
        from: Port,
        id: FloodId,
        kind: FloodKind,
        payload: &[u8],
        others: impl Iterator<Item = Port>,
    ) -> Arrived {
        match self.current {
            Some(current) if id < current.id => Arrived::Superseded,
            Some(current) if id.jumps_from(current.id.epoch) => Arrived::Superseded,
            Some(current) if id == current.id => {
                // A neighbour that sends the flood has it and need not acknowledge; nor does it
                // wait for the nodes behind this switch, unless it is the parent.
                if from != current.parent {
                    self.pending.remove(from);
                    self.unsent.remove(from);
                    self.acks.insert(from);
                    self.ack_parent();
                } else if current.progress == Progress::Acked {
                    self.acks.insert(from);
                }
                Arrived::Duplicate
            }
            _ => {
                debug_assert!(self.current.is_none_or(|known| known.id < id), "flood ids rise");
                self.current = Some(Current { id, kind, parent: from, progress: Progress::Open });
                self.payload.clear();
                self.payload.extend_from_slice(payload);
                for set in [&mut self.pending, &mut self.unsent, &mut self.acks] {
                    set.clear();
                }
                for port in others.filter(|port| *port != from) {
                    self.pending.insert(port);
                    self.unsent.insert(port);
                }
                self.retransmit_at = Some(now.after_ns(self.retransmit_ns));
                self.ack_parent();
                Arrived::New
            }
        }
    }

    /// Handles the acknowledgement of all nodes behind `from`. Returns whether it was outstanding.
    pub(crate) fn on_flood_ack(&mut self, from: Port, ack: FloodAck) -> bool {
        let is_current = self.current.is_some_and(|current| {
            (current.id, current.kind) == (ack.id, ack.kind) && self.pending.contains(from)
        });
        if is_current {
            self.pending.remove(from);
            self.unsent.remove(from);
            self.ack_parent();
        }
        is_current
    }

    /// Handles a link that has come up: its peer may not have received the latest notice, or not
    /// have acknowledged.
    pub(crate) fn on_joined(&mut self, now: Mono, port: Port) {
        let Some(current) = self.current else { return };
        if port != current.parent && current.kind == FloodKind::Notice {
            self.pending.insert(port);
        }
        if self.pending.contains(port) {
            self.unsent.insert(port);
            self.retransmit_at.get_or_insert(now.after_ns(self.retransmit_ns));
        }
    }

    //= spec/failure.md#R27
    /// Handles the permanent loss of the instance at `port`.
    pub(crate) fn on_gone(&mut self, port: Port) {
        if let Some(current) = &mut self.current
            && current.progress == Progress::Open
            && self.pending.contains(port)
        {
            current.progress = Progress::Broken;
        }
        self.pending.remove(port);
        self.unsent.remove(port);
        self.acks.remove(port);
    }

    /// Returns when the next retransmission is due.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.retransmit_at
    }

    /// Schedules retransmissions on live links that have not acknowledged.
    pub(crate) fn on_timeout(&mut self, now: Mono, is_live: impl Fn(Port) -> bool) {
        if self.retransmit_at.is_none_or(|at| now < at) {
            return;
        }
        self.retransmit_at = None;
        for port in self.pending.iter().filter(|port| is_live(*port)) {
            self.unsent.insert(port);
            self.retransmit_at = Some(now.after_ns(self.retransmit_ns));
        }
    }

    /// Takes the next transmission.
    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let Current { id, kind, .. } = self.current?;
        if let Some(port) = self.acks.pop() {
            return Some(Outgoing::FloodAck(port, FloodAck { id, kind }));
        }
        self.unsent.pop().map(Outgoing::Flood)
    }

    /// Returns the payload of the latest flood.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    //= spec/failure.md#R27
    fn ack_parent(&mut self) {
        if let Some(current) = &mut self.current
            && current.progress == Progress::Open
            && self.pending.is_empty()
        {
            current.progress = Progress::Acked;
            self.acks.insert(current.parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: FloodKind = FloodKind::Notice;
    const PORTS: u16 = 4;

    fn id(sequence: u32) -> FloodId {
        FloodId { epoch: 1, sequence }
    }

    fn ack(sequence: u32) -> FloodAck {
        FloodAck { id: id(sequence), kind: KIND }
    }

    fn all() -> impl Iterator<Item = Port> {
        (0..PORTS).map(Port)
    }

    fn pop(flood: &mut FloodState) -> Vec<(char, u16)> {
        let named = |outgoing| match outgoing {
            Outgoing::Flood(port) => ('f', port.0),
            Outgoing::FloodAck(port, _) => ('a', port.0),
        };
        core::iter::from_fn(|| flood.pop()).map(named).collect()
    }

    fn arrive(flood: &mut FloodState, ns: u64, from: u16, sequence: u32) -> Arrived {
        flood.on_flood(Mono::from_ns(ns), Port(from), id(sequence), KIND, &[9], all())
    }

    //= spec/ordering.md#R69
    #[test]
    fn epoch_that_jumps_is_not_forwarded() {
        let mut flood = flood();
        arrive(&mut flood, 0, 0, 1);
        let later = |epoch| FloodId { epoch, sequence: 0 };
        let mut jump = |id| flood.on_flood(Mono::from_ns(0), Port(0), id, KIND, &[9], all());
        assert!(matches!(jump(later(u32::MAX)), Arrived::Superseded));
        assert!(matches!(jump(later(2)), Arrived::New));
    }

    fn flood() -> FloodState {
        FloodState::new(PORTS, 64, 100)
    }

    //= spec/failure.md#R27
    #[test]
    fn acks_parent_after_all_other_links_ack() {
        let mut flood = flood();
        assert!(!flood.on_flood_ack(Port(0), ack(1)), "no flood yet");
        assert_eq!(arrive(&mut flood, 0, 1, 1), Arrived::New);
        assert_eq!(pop(&mut flood), [('f', 0), ('f', 2), ('f', 3)]);
        assert_eq!(flood.payload(), [9]);
        assert!(flood.on_flood_ack(Port(0), ack(1)) && !flood.on_flood_ack(Port(0), ack(1)));
        assert!(!flood.on_flood_ack(Port(2), ack(2)) && !flood.on_flood_ack(Port(1), ack(1)));
        assert_eq!(arrive(&mut flood, 1, 1, 1), Arrived::Duplicate);
        assert_eq!(pop(&mut flood), [], "not yet");
        flood.on_timeout(Mono::from_ns(99), |_| true);
        assert_eq!(pop(&mut flood), []);
        flood.on_timeout(Mono::from_ns(100), |port| port != Port(3));
        assert_eq!(pop(&mut flood), [('f', 2)], "link 3 is down");
        assert_eq!(flood.due(), Some(Mono::from_ns(200)));
        assert_eq!(
            arrive(&mut flood, 1, 2, 1),
            Arrived::Duplicate,
            "the flood arrived on another link"
        );
        assert_eq!(pop(&mut flood), [('a', 2)]);
        assert!(flood.on_flood_ack(Port(3), ack(1)));
        assert_eq!(pop(&mut flood), [('a', 1)]);
        assert_eq!(arrive(&mut flood, 1, 1, 1), Arrived::Duplicate, "the acknowledgement was lost");
        assert_eq!(pop(&mut flood), [('a', 1)]);
        flood.on_timeout(Mono::from_ns(200), |_| true);
        assert_eq!((pop(&mut flood).len(), flood.due()), (0, None));
    }

    //= spec/failure.md#R27
    #[test]
    fn later_flood_supersedes() {
        let mut flood = flood();
        arrive(&mut flood, 0, 0, 5);
        assert_eq!(arrive(&mut flood, 0, 1, 4), Arrived::Superseded);
        assert_eq!(arrive(&mut flood, 0, 2, 6), Arrived::New);
        assert_eq!(pop(&mut flood), [('f', 0), ('f', 1), ('f', 3)]);
        assert!(!flood.on_flood_ack(Port(1), ack(5)));
    }

    #[test]
    fn joining_link_gets_the_latest_notice() {
        let mut flood = flood();
        flood.on_joined(Mono::from_ns(0), Port(3));
        flood.on_flood(Mono::from_ns(0), Port(0), id(1), KIND, &[], [Port(1)].into_iter());
        assert_eq!(pop(&mut flood), [('f', 1)]);
        flood.on_joined(Mono::from_ns(0), Port(0));
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), [('f', 3)]);
        flood.on_flood_ack(Port(1), ack(1));
        assert_eq!(pop(&mut flood), [], "link 3 has not acknowledged");
        flood.on_flood_ack(Port(3), ack(1));
        assert_eq!(pop(&mut flood), [('a', 0)]);
        flood.on_joined(Mono::from_ns(0), Port(2));
        assert_eq!(pop(&mut flood), [('f', 2)], "sent although the parent does not wait for it");
        flood.on_timeout(Mono::from_ns(100), |_| true);
        assert_eq!(pop(&mut flood), [('f', 2)]);
        assert!(flood.on_flood_ack(Port(2), ack(1)));
        assert_eq!(pop(&mut flood), []);
        let (now, resume) = (Mono::from_ns(0), FloodKind::Resume);
        flood.on_flood(now, Port(0), id(2), resume, &[], [Port(1)].into_iter());
        assert_eq!(pop(&mut flood), [('f', 1)]);
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), []);
    }

    //= spec/failure.md#R27
    #[test]
    fn unacked_dead_link_keeps_the_flood_open() {
        let mut flood = flood();
        arrive(&mut flood, 0, 0, 1);
        pop(&mut flood);
        for port in [1, 2] {
            flood.on_flood_ack(Port(port), ack(1));
        }
        flood.on_timeout(Mono::from_ns(100), |_| false);
        assert_eq!((pop(&mut flood), flood.due()), (Vec::new(), None));
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), [('f', 3)], "back again");
        flood.on_gone(Port(1));
        flood.on_gone(Port(3));
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), [('f', 3)], "another instance");
        assert_eq!((flood.on_flood_ack(Port(3), ack(1)), pop(&mut flood)), (true, Vec::new()));
        arrive(&mut flood, 0, 0, 2);
        pop(&mut flood);
        for port in [1, 2, 3] {
            flood.on_flood_ack(Port(port), ack(2));
        }
        assert_eq!(pop(&mut flood), [('a', 0)]);
    }
}
