//! The ports of controllers.

use alloc::vec::Vec;

use onepipe_base::{Address, Instance, Mono, Port};

/// The ports at which a controller has announced itself by Hello frames. They take no part in the
/// barriers (`docs/design/failure.md`, "Where is the controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControllerPorts {
    ports: Vec<ControllerPort>,
    max: usize,
    timeout_ns: u64,
}

/// Factor of a controller's timeout over the link timeout. A controller that has much to read or to
/// evaluate sends nothing meanwhile. No barrier waits for its link, but without one it knows
/// nothing about any node.
const TIMEOUT_FACTOR: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ControllerPort {
    port: Port,
    instance: Instance,
    last_seen: Mono,
    /// Its last Hello is to be answered.
    is_unanswered: bool,
}

/// The effect of a Hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// The port was registered already.
    Duplicate,
    /// The port is newly registered, or by a new instance.
    New,
    /// The Hello is of an earlier incarnation, or all ports are in use.
    Refused,
}

impl ControllerPorts {
    /// Creates an empty table of at most `max` ports. An entry expires after [`TIMEOUT_FACTOR`]
    /// link timeouts without a Hello, and not before an idle link does; never if both timeouts are
    /// 0.
    pub(crate) fn new(max: usize, link_timeout_ns: u64, idle_timeout_ns: u64) -> Self {
        let timeout_ns = link_timeout_ns.saturating_mul(TIMEOUT_FACTOR).max(idle_timeout_ns);
        Self { ports: Vec::with_capacity(max), max, timeout_ns }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(self.ports.len() <= self.max, "more ports than controllers");
        for (index, entry) in self.ports.iter().enumerate() {
            assert!(matches!(entry.instance.address, Address::Process(_)));
            assert!(self.ports[..index].iter().all(|other| other.port != entry.port));
        }
    }

    /// Registers `instance` at `port`.
    pub(crate) fn register(&mut self, now: Mono, port: Port, instance: Instance) -> Registration {
        let Some(entry) = self.ports.iter_mut().find(|entry| entry.port == port) else {
            if self.ports.len() == self.max {
                return Registration::Refused;
            }
            self.ports.push(ControllerPort {
                port,
                instance,
                last_seen: now,
                is_unanswered: false,
            });
            return Registration::New;
        };
        let is_stale = entry.instance.address == instance.address
            && instance.incarnation < entry.instance.incarnation;
        if is_stale {
            return Registration::Refused;
        }
        let is_same = entry.instance == instance;
        (entry.instance, entry.last_seen) = (instance, now);
        if is_same { Registration::Duplicate } else { Registration::New }
    }

    //= spec/failure.md#R46
    /// Requests an answer to the Hello of the controller at `port`.
    pub(crate) fn request_answer(&mut self, port: Port) {
        if let Some(entry) = self.ports.iter_mut().find(|entry| entry.port == port) {
            entry.is_unanswered = true;
        }
    }

    /// Takes the port of a controller that is to be answered.
    pub(crate) fn take_unanswered(&mut self) -> Option<Port> {
        let entry = self.ports.iter_mut().find(|entry| entry.is_unanswered)?;
        entry.is_unanswered = false;
        Some(entry.port)
    }

    /// Returns the controller at `port`.
    pub(crate) fn instance(&self, port: Port) -> Option<Instance> {
        self.ports.iter().find(|entry| entry.port == port).map(|entry| entry.instance)
    }

    /// Handles a stall of the driver that ended at `now`: Hello frames are yet to be read, so no
    /// port has timed out.
    pub(crate) fn postpone(&mut self, now: Mono) {
        for entry in &mut self.ports {
            entry.last_seen = entry.last_seen.max(now);
        }
    }

    /// Removes and returns a port that has timed out.
    pub(crate) fn pop_expired(&mut self, now: Mono) -> Option<Port> {
        let index = self.ports.iter().position(|entry| self.is_expired(entry, now))?;
        Some(self.ports.remove(index).port)
    }

    /// Removes `port`. Returns whether it was registered.
    pub(crate) fn remove(&mut self, port: Port) -> bool {
        let before = self.ports.len();
        self.ports.retain(|entry| entry.port != port);
        self.ports.len() < before
    }

    /// Returns when the next port may time out.
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
        let mut ports = ControllerPorts::new(1, 100, 100);
        assert_eq!(ports.due(), None);
        assert_eq!(ports.register(at(0), Port(1), instance(2)), Registration::New);
        assert_eq!(ports.register(at(5), Port(1), instance(2)), Registration::Duplicate);
        assert_eq!(ports.register(at(6), Port(1), instance(1)), Registration::Refused);
        assert_eq!(
            ports.register(at(6), Port(2), instance(9)),
            Registration::Refused,
            "no free entry"
        );
        assert_eq!(ports.register(at(7), Port(1), instance(3)), Registration::New);
        assert_eq!((ports.instance(Port(1)), ports.due()), (Some(instance(3)), Some(at(808))));
        assert_eq!(ports.pop_expired(at(807)), None);
        assert_eq!((ports.pop_expired(at(808)), ports.iter().len()), (Some(Port(1)), 0));
        ports.register(at(900), Port(2), instance(3));
        assert_eq!(ports.take_unanswered(), None);
        ports.request_answer(Port(2));
        assert_eq!((ports.take_unanswered(), ports.take_unanswered()), (Some(Port(2)), None));
        assert!(ports.remove(Port(2)) && !ports.remove(Port(2)));
    }
}
