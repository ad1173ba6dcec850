//! The wave that is passing through this switch.

use alloc::vec::Vec;

use onepipe_base::{Mono, Port};
use onepipe_wire::{FloodAck, FloodId, FloodKind};

use crate::port_set::PortSet;

/// Propagation of information with feedback (Segall 1983; design: failure.md, "How does the news
/// get around?"): the latest wave, over which links it has still to be answered, and who waits for
/// the answer.
///
/// A link that dies before it has answered keeps the wave open: what lies behind it may not have
/// heard the news. If it comes back with the same life it is asked again; if not, the controllers,
/// to whom the death is announced, give a later wave.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FloodState {
    repeat_ns: u64,
    current: Option<Current>,
    payload: Vec<u8>,
    /// Links that have not answered.
    pending: PortSet,
    /// Links on which the wave is to be sent now.
    unsent: PortSet,
    /// Links on which it is to be answered now.
    acks: PortSet,
    repeat_at: Option<Mono>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Current {
    id: FloodId,
    kind: FloodKind,
    parent: Port,
    /// Somebody has gone for good who has not answered: this switch never will, either.
    is_broken: bool,
    /// All have answered. Who comes later is waited for by nobody but this switch.
    is_acked: bool,
}

/// What became of a wave that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The first of its kind: it is passed on.
    New,
    /// It is here already.
    Duplicate,
    /// A later one is here.
    Superseded,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// The wave itself.
    Flood(Port),
    /// An answer.
    FloodAck(Port, FloodAck),
}

impl FloodState {
    /// No wave yet. A wave's payload is at most `bytes_max`.
    pub(crate) fn new(ports: u16, bytes_max: usize, repeat_ns: u64) -> Self {
        let none = || PortSet::new(ports);
        Self {
            repeat_ns,
            current: None,
            payload: Vec::with_capacity(bytes_max),
            pending: none(),
            unsent: none(),
            acks: none(),
            repeat_at: None,
        }
    }

    /// A wave has come in at `from`; `others` are the links to pass it on.
    pub(crate) fn on_flood(
        &mut self,
        now: Mono,
        from: Port,
        (id, kind): (FloodId, FloodKind),
        payload: &[u8],
        others: impl Iterator<Item = Port>,
    ) -> Arrived {
        match self.current {
            Some(current) if id < current.id => Arrived::Superseded,
            Some(current) if id == current.id => {
                // Who sends the wave has it, and is not waited for; nor does it wait for what lies
                // behind this switch, unless it is the parent.
                if from != current.parent {
                    self.pending.remove(from);
                    self.unsent.remove(from);
                    self.acks.insert(from);
                    self.ack_parent();
                } else if current.is_acked {
                    self.acks.insert(from);
                }
                Arrived::Duplicate
            }
            _ => {
                let parent = from;
                let (is_broken, is_acked) = (false, false);
                self.current = Some(Current { id, kind, parent, is_broken, is_acked });
                self.payload.clear();
                self.payload.extend_from_slice(payload);
                for set in [&mut self.pending, &mut self.unsent, &mut self.acks] {
                    set.clear();
                }
                for port in others.filter(|port| *port != from) {
                    self.pending.insert(port);
                    self.unsent.insert(port);
                }
                self.repeat_at = Some(now.after_ns(self.repeat_ns));
                self.ack_parent();
                Arrived::New
            }
        }
    }

    /// All behind `from` have done what `peer_at` says. Answers whether that was waited for.
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

    /// `port` has come to life: it may not have heard the latest notice, or not have answered.
    pub(crate) fn on_joined(&mut self, now: Mono, port: Port) {
        let Some(current) = self.current else { return };
        if port != current.parent && current.kind == FloodKind::Notice {
            self.pending.insert(port);
        }
        if self.pending.contains(port) {
            self.unsent.insert(port);
            self.repeat_at.get_or_insert(now.after_ns(self.repeat_ns));
        }
    }

    /// Who was at `port` will not come back.
    pub(crate) fn on_gone(&mut self, port: Port) {
        if let Some(current) = &mut self.current {
            current.is_broken |= self.pending.contains(port) && !current.is_acked;
        }
        self.pending.remove(port);
        self.unsent.remove(port);
        self.acks.remove(port);
    }

    /// When something is to be repeated.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.repeat_at
    }

    /// Repeats the wave where it was not answered.
    pub(crate) fn on_timeout(&mut self, now: Mono, is_live: impl Fn(Port) -> bool) {
        if self.repeat_at.is_none_or(|at| now < at) {
            return;
        }
        self.repeat_at = None;
        for port in self.pending.iter().filter(|port| is_live(*port)) {
            self.unsent.insert(port);
            self.repeat_at = Some(now.after_ns(self.repeat_ns));
        }
    }

    /// The next to be sent.
    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let Current { id, kind, .. } = self.current?;
        if let Some(port) = self.acks.pop() {
            return Some(Outgoing::FloodAck(port, FloodAck { id, kind }));
        }
        self.unsent.pop().map(Outgoing::Flood)
    }

    /// The payload of the latest wave.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn ack_parent(&mut self) {
        if let Some(current) = &mut self.current
            && !current.is_acked
            && !current.is_broken
            && self.pending.is_empty()
        {
            current.is_acked = true;
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

    fn peer_at(sequence: u32) -> FloodAck {
        FloodAck { id: id(sequence), kind: KIND }
    }

    fn all() -> impl Iterator<Item = Port> {
        (0..PORTS).map(Port)
    }

    fn pop(flood: &mut FloodState) -> Vec<(char, u16)> {
        let named = |unsent| match unsent {
            Outgoing::Flood(port) => ('w', port.0),
            Outgoing::FloodAck(port, _) => ('e', port.0),
        };
        core::iter::from_fn(|| flood.pop()).map(named).collect()
    }

    fn arrive(flood: &mut FloodState, ns: u64, from: u16, sequence: u32) -> Arrived {
        flood.on_flood(Mono::from_ns(ns), Port(from), (id(sequence), KIND), &[9], all())
    }

    fn flood() -> FloodState {
        FloodState::new(PORTS, 64, 100)
    }

    #[test]
    fn acks_parent_after_all_other_links_ack() {
        let mut flood = flood();
        assert!(!flood.on_flood_ack(Port(0), peer_at(1)), "no wave yet");
        assert_eq!(arrive(&mut flood, 0, 1, 1), Arrived::New);
        assert_eq!(pop(&mut flood), [('w', 0), ('w', 2), ('w', 3)]);
        assert_eq!(flood.payload(), [9]);
        assert!(
            flood.on_flood_ack(Port(0), peer_at(1)) && !flood.on_flood_ack(Port(0), peer_at(1))
        );
        assert!(
            !flood.on_flood_ack(Port(2), peer_at(2)) && !flood.on_flood_ack(Port(1), peer_at(1))
        );
        assert_eq!(arrive(&mut flood, 1, 1, 1), Arrived::Duplicate);
        assert_eq!(pop(&mut flood), [], "not yet");
        flood.on_timeout(Mono::from_ns(99), |_| true);
        assert_eq!(pop(&mut flood), []);
        flood.on_timeout(Mono::from_ns(100), |port| port != Port(3));
        assert_eq!(pop(&mut flood), [('w', 2)], "3 is dead at the moment");
        assert_eq!(flood.due(), Some(Mono::from_ns(200)));
        assert_eq!(arrive(&mut flood, 1, 2, 1), Arrived::Duplicate, "it has come another way");
        assert_eq!(pop(&mut flood), [('e', 2)]);
        assert!(flood.on_flood_ack(Port(3), peer_at(1)));
        assert_eq!(pop(&mut flood), [('e', 1)]);
        assert_eq!(arrive(&mut flood, 1, 1, 1), Arrived::Duplicate, "the answer was lost");
        assert_eq!(pop(&mut flood), [('e', 1)]);
        flood.on_timeout(Mono::from_ns(200), |_| true);
        assert_eq!((pop(&mut flood).len(), flood.due()), (0, None));
    }

    #[test]
    fn later_flood_supersedes() {
        let mut flood = flood();
        arrive(&mut flood, 0, 0, 5);
        assert_eq!(arrive(&mut flood, 0, 1, 4), Arrived::Superseded);
        assert_eq!(arrive(&mut flood, 0, 2, 6), Arrived::New);
        assert_eq!(pop(&mut flood), [('w', 0), ('w', 1), ('w', 3)]);
        assert!(!flood.on_flood_ack(Port(1), peer_at(5)));
    }

    #[test]
    fn joining_link_gets_the_latest_notice() {
        let mut flood = flood();
        flood.on_joined(Mono::from_ns(0), Port(3));
        flood.on_flood(Mono::from_ns(0), Port(0), (id(1), KIND), &[], [Port(1)].into_iter());
        assert_eq!(pop(&mut flood), [('w', 1)]);
        flood.on_joined(Mono::from_ns(0), Port(0));
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), [('w', 3)]);
        flood.on_flood_ack(Port(1), peer_at(1));
        assert_eq!(pop(&mut flood), [], "3 is waited for");
        flood.on_flood_ack(Port(3), peer_at(1));
        assert_eq!(pop(&mut flood), [('e', 0)]);
        flood.on_joined(Mono::from_ns(0), Port(2));
        assert_eq!(pop(&mut flood), [('w', 2)], "told, though nobody above waits for it");
        flood.on_timeout(Mono::from_ns(100), |_| true);
        assert_eq!(pop(&mut flood), [('w', 2)]);
        assert!(flood.on_flood_ack(Port(2), peer_at(1)));
        assert_eq!(pop(&mut flood), []);
        let resume = (id(2), FloodKind::Resume);
        flood.on_flood(Mono::from_ns(0), Port(0), resume, &[], [Port(1)].into_iter());
        assert_eq!(pop(&mut flood), [('w', 1)]);
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), []);
    }

    #[test]
    fn unacked_dead_link_keeps_the_flood_open() {
        let mut flood = flood();
        arrive(&mut flood, 0, 0, 1);
        pop(&mut flood);
        for port in [1, 2] {
            flood.on_flood_ack(Port(port), peer_at(1));
        }
        flood.on_timeout(Mono::from_ns(100), |_| false);
        assert_eq!((pop(&mut flood), flood.due()), (Vec::new(), None));
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), [('w', 3)], "back again");
        flood.on_gone(Port(1));
        flood.on_gone(Port(3));
        flood.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut flood), [('w', 3)], "somebody else");
        assert_eq!((flood.on_flood_ack(Port(3), peer_at(1)), pop(&mut flood)), (true, Vec::new()));
        arrive(&mut flood, 0, 0, 2);
        pop(&mut flood);
        for port in [1, 2, 3] {
            flood.on_flood_ack(Port(port), peer_at(2));
        }
        assert_eq!(pop(&mut flood), [('e', 0)]);
    }
}
