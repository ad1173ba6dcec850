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
pub(crate) struct Waves {
    repeat_ns: u64,
    current: Option<Current>,
    payload: Vec<u8>,
    /// Links that have not answered.
    pending: PortSet,
    /// Links on which the wave is to be sent now.
    owed: PortSet,
    /// Links on which it is to be answered now.
    echoes: PortSet,
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
    is_done: bool,
}

/// What became of a wave that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// The first of its kind: it is passed on.
    New,
    /// It is here already.
    Again,
    /// A later one is here.
    Superseded,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// The wave itself.
    Flood(Port),
    /// An answer.
    FloodAck(Port, FloodAck),
}

impl Waves {
    /// No wave yet. A wave's payload is at most `bytes_max`.
    pub(crate) fn new(ports: u16, bytes_max: usize, repeat_ns: u64) -> Self {
        let none = || PortSet::new(ports);
        Self {
            repeat_ns,
            current: None,
            payload: Vec::with_capacity(bytes_max),
            pending: none(),
            owed: none(),
            echoes: none(),
            repeat_at: None,
        }
    }

    /// A wave has come in at `from`; `others` are the links to pass it on.
    pub(crate) fn on_wave(
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
                    self.owed.remove(from);
                    self.echoes.insert(from);
                    self.answer_parent();
                } else if current.is_done {
                    self.echoes.insert(from);
                }
                Arrived::Again
            }
            _ => {
                let parent = from;
                let (is_broken, is_done) = (false, false);
                self.current = Some(Current { id, kind, parent, is_broken, is_done });
                self.payload.clear();
                self.payload.extend_from_slice(payload);
                for set in [&mut self.pending, &mut self.owed, &mut self.echoes] {
                    set.clear();
                }
                for port in others.filter(|port| *port != from) {
                    self.pending.insert(port);
                    self.owed.insert(port);
                }
                self.repeat_at = Some(now.after_ns(self.repeat_ns));
                self.answer_parent();
                Arrived::New
            }
        }
    }

    /// All behind `from` have done what `echo` says. Answers whether that was waited for.
    pub(crate) fn on_echo(&mut self, from: Port, echo: FloodAck) -> bool {
        let is_current = self.current.is_some_and(|current| {
            (current.id, current.kind) == (echo.id, echo.kind) && self.pending.contains(from)
        });
        if is_current {
            self.pending.remove(from);
            self.owed.remove(from);
            self.answer_parent();
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
            self.owed.insert(port);
            self.repeat_at.get_or_insert(now.after_ns(self.repeat_ns));
        }
    }

    /// Who was at `port` will not come back.
    pub(crate) fn on_gone(&mut self, port: Port) {
        if let Some(current) = &mut self.current {
            current.is_broken |= self.pending.contains(port) && !current.is_done;
        }
        self.pending.remove(port);
        self.owed.remove(port);
        self.echoes.remove(port);
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
            self.owed.insert(port);
            self.repeat_at = Some(now.after_ns(self.repeat_ns));
        }
    }

    /// The next to be sent.
    pub(crate) fn pop(&mut self) -> Option<Owed> {
        let Current { id, kind, .. } = self.current?;
        if let Some(port) = self.echoes.pop() {
            return Some(Owed::FloodAck(port, FloodAck { id, kind }));
        }
        self.owed.pop().map(Owed::Flood)
    }

    /// The payload of the latest wave.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn answer_parent(&mut self) {
        if let Some(current) = &mut self.current
            && !current.is_done
            && !current.is_broken
            && self.pending.is_empty()
        {
            current.is_done = true;
            self.echoes.insert(current.parent);
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

    fn echo(sequence: u32) -> FloodAck {
        FloodAck { id: id(sequence), kind: KIND }
    }

    fn all() -> impl Iterator<Item = Port> {
        (0..PORTS).map(Port)
    }

    fn pop(waves: &mut Waves) -> Vec<(char, u16)> {
        let named = |owed| match owed {
            Owed::Flood(port) => ('w', port.0),
            Owed::FloodAck(port, _) => ('e', port.0),
        };
        core::iter::from_fn(|| waves.pop()).map(named).collect()
    }

    fn arrive(waves: &mut Waves, ns: u64, from: u16, sequence: u32) -> Arrived {
        waves.on_wave(Mono::from_ns(ns), Port(from), (id(sequence), KIND), &[9], all())
    }

    fn waves() -> Waves {
        Waves::new(PORTS, 64, 100)
    }

    #[test]
    fn it_is_answered_when_all_others_have_answered() {
        let mut waves = waves();
        assert!(!waves.on_echo(Port(0), echo(1)), "no wave yet");
        assert_eq!(arrive(&mut waves, 0, 1, 1), Arrived::New);
        assert_eq!(pop(&mut waves), [('w', 0), ('w', 2), ('w', 3)]);
        assert_eq!(waves.payload(), [9]);
        assert!(waves.on_echo(Port(0), echo(1)) && !waves.on_echo(Port(0), echo(1)));
        assert!(!waves.on_echo(Port(2), echo(2)) && !waves.on_echo(Port(1), echo(1)));
        assert_eq!(arrive(&mut waves, 1, 1, 1), Arrived::Again);
        assert_eq!(pop(&mut waves), [], "not yet");
        waves.on_timeout(Mono::from_ns(99), |_| true);
        assert_eq!(pop(&mut waves), []);
        waves.on_timeout(Mono::from_ns(100), |port| port != Port(3));
        assert_eq!(pop(&mut waves), [('w', 2)], "3 is dead at the moment");
        assert_eq!(waves.due(), Some(Mono::from_ns(200)));
        assert_eq!(arrive(&mut waves, 1, 2, 1), Arrived::Again, "it has come another way");
        assert_eq!(pop(&mut waves), [('e', 2)]);
        assert!(waves.on_echo(Port(3), echo(1)));
        assert_eq!(pop(&mut waves), [('e', 1)]);
        assert_eq!(arrive(&mut waves, 1, 1, 1), Arrived::Again, "the answer was lost");
        assert_eq!(pop(&mut waves), [('e', 1)]);
        waves.on_timeout(Mono::from_ns(200), |_| true);
        assert_eq!((pop(&mut waves).len(), waves.due()), (0, None));
    }

    #[test]
    fn a_later_wave_supersedes() {
        let mut waves = waves();
        arrive(&mut waves, 0, 0, 5);
        assert_eq!(arrive(&mut waves, 0, 1, 4), Arrived::Superseded);
        assert_eq!(arrive(&mut waves, 0, 2, 6), Arrived::New);
        assert_eq!(pop(&mut waves), [('w', 0), ('w', 1), ('w', 3)]);
        assert!(!waves.on_echo(Port(1), echo(5)));
    }

    #[test]
    fn who_comes_is_told_the_latest_notice() {
        let mut waves = waves();
        waves.on_joined(Mono::from_ns(0), Port(3));
        waves.on_wave(Mono::from_ns(0), Port(0), (id(1), KIND), &[], [Port(1)].into_iter());
        assert_eq!(pop(&mut waves), [('w', 1)]);
        waves.on_joined(Mono::from_ns(0), Port(0));
        waves.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut waves), [('w', 3)]);
        waves.on_echo(Port(1), echo(1));
        assert_eq!(pop(&mut waves), [], "3 is waited for");
        waves.on_echo(Port(3), echo(1));
        assert_eq!(pop(&mut waves), [('e', 0)]);
        waves.on_joined(Mono::from_ns(0), Port(2));
        assert_eq!(pop(&mut waves), [('w', 2)], "told, though nobody above waits for it");
        waves.on_timeout(Mono::from_ns(100), |_| true);
        assert_eq!(pop(&mut waves), [('w', 2)]);
        assert!(waves.on_echo(Port(2), echo(1)));
        assert_eq!(pop(&mut waves), []);
        let resume = (id(2), FloodKind::Resume);
        waves.on_wave(Mono::from_ns(0), Port(0), resume, &[], [Port(1)].into_iter());
        assert_eq!(pop(&mut waves), [('w', 1)]);
        waves.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut waves), []);
    }

    #[test]
    fn who_dies_unanswered_keeps_it_open() {
        let mut waves = waves();
        arrive(&mut waves, 0, 0, 1);
        pop(&mut waves);
        for port in [1, 2] {
            waves.on_echo(Port(port), echo(1));
        }
        waves.on_timeout(Mono::from_ns(100), |_| false);
        assert_eq!((pop(&mut waves), waves.due()), (Vec::new(), None));
        waves.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut waves), [('w', 3)], "back again");
        waves.on_gone(Port(1));
        waves.on_gone(Port(3));
        waves.on_joined(Mono::from_ns(0), Port(3));
        assert_eq!(pop(&mut waves), [('w', 3)], "somebody else");
        assert_eq!((waves.on_echo(Port(3), echo(1)), pop(&mut waves)), (true, Vec::new()));
        arrive(&mut waves, 0, 0, 2);
        pop(&mut waves);
        for port in [1, 2, 3] {
            waves.on_echo(Port(port), echo(2));
        }
        assert_eq!(pop(&mut waves), [('e', 0)]);
    }
}
