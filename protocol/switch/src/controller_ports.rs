//! Where controllers sit.

use alloc::vec::Vec;

use onepipe_base::{Instance, Mono, Port};

/// The ports behind which a controller says that it sits. They take no part in the barriers
/// (design: failure.md, "Where is the controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControllerPorts {
    ports: Vec<ControllerPort>,
    max: usize,
    timeout_ns: u64,
}

/// A controller that has much to read or to think says nothing meanwhile. Nobody's barrier waits
/// for its link, but it knows nothing about anybody without one.
const TIMEOUT_FACTOR: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ControllerPort {
    port: Port,
    instance: Instance,
    last_seen: Mono,
}

/// What a greeting has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Nothing: it sat there already.
    Duplicate,
    /// Somebody sits there who did not.
    New,
    /// It comes from an earlier life than the one that sits there, or there is no room.
    Refused,
}

impl ControllerPorts {
    /// Room for `max` seats on links with this timeout, in ns; 0: none. Each is free after
    /// [`TIMEOUT_FACTOR`] times as long without a greeting.
    pub(crate) fn new(max: usize, link_timeout_ns: u64) -> Self {
        let timeout_ns = link_timeout_ns.saturating_mul(TIMEOUT_FACTOR);
        Self { ports: Vec::with_capacity(max), max, timeout_ns }
    }

    /// `instance` says that it sits at `port`.
    pub(crate) fn register(&mut self, now: Mono, port: Port, instance: Instance) -> Registration {
        let Some(entry) = self.ports.iter_mut().find(|entry| entry.port == port) else {
            if self.ports.len() == self.max {
                return Registration::Refused;
            }
            self.ports.push(ControllerPort { port, instance, last_seen: now });
            return Registration::New;
        };
        let is_stale = entry.instance.address == instance.address
            && instance.incarnation < entry.instance.incarnation;
        if is_stale {
            return Registration::Refused;
        }
        let is_same = entry.instance == instance;
        *entry = ControllerPort { port, instance, last_seen: now };
        if is_same { Registration::Duplicate } else { Registration::New }
    }

    /// Who sits at `port`.
    pub(crate) fn instance(&self, port: Port) -> Option<Instance> {
        self.ports.iter().find(|entry| entry.port == port).map(|entry| entry.instance)
    }

    /// A seat that has been silent for too long, which is free from now on.
    pub(crate) fn pop_expired(&mut self, now: Mono) -> Option<Port> {
        let at = self.ports.iter().position(|entry| self.is_expired(entry, now))?;
        Some(self.ports.remove(at).port)
    }

    /// Frees `port`. Answers whether somebody sat there.
    pub(crate) fn remove(&mut self, port: Port) -> bool {
        let before = self.ports.len();
        self.ports.retain(|entry| entry.port != port);
        self.ports.len() < before
    }

    /// When the next seat may be silent for too long.
    pub(crate) fn due(&self) -> Option<Mono> {
        let last_seen = self.ports.iter().map(|entry| entry.last_seen).min()?;
        (self.timeout_ns > 0).then(|| last_seen.after_ns(self.timeout_ns.saturating_add(1)))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (Port, Instance)> + '_ {
        self.ports.iter().map(|entry| (entry.port, entry.instance))
    }

    fn is_expired(&self, entry: &ControllerPort, now: Mono) -> bool {
        self.timeout_ns > 0 && now.since_ns(entry.last_seen) > self.timeout_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::{Address, Incarnation, ProcessId};

    #[test]
    fn newest_incarnation_holds_the_port_until_it_times_out() {
        let instance = |incarnation| Instance {
            address: Address::Process(ProcessId(60)),
            incarnation: Incarnation(incarnation),
        };
        let at = Mono::from_ns;
        let mut ports = ControllerPorts::new(1, 100);
        assert_eq!(ports.due(), None);
        assert_eq!(ports.register(at(0), Port(1), instance(2)), Registration::New);
        assert_eq!(ports.register(at(5), Port(1), instance(2)), Registration::Duplicate);
        assert_eq!(ports.register(at(6), Port(1), instance(1)), Registration::Refused);
        assert_eq!(ports.register(at(6), Port(2), instance(9)), Registration::Refused, "no room");
        assert_eq!(ports.register(at(7), Port(1), instance(3)), Registration::New);
        assert_eq!((ports.instance(Port(1)), ports.due()), (Some(instance(3)), Some(at(808))));
        assert_eq!(ports.pop_expired(at(807)), None);
        assert_eq!((ports.pop_expired(at(808)), ports.iter().len()), (Some(Port(1)), 0));
        ports.register(at(900), Port(2), instance(3));
        assert!(ports.remove(Port(2)) && !ports.remove(Port(2)));
    }
}
