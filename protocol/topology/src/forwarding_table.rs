//! A learned forwarding table.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Port, ProcessId};

use crate::{NextHop, PortRange};

/// Marks an unknown process; so port 65,535 is never learned.
const UNKNOWN: u16 = u16::MAX;

/// Process id → lower port, as an array of fixed size: what a software switch learns from its
/// neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForwardingTable {
    entries: Vec<Entry>,
    has_upper: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    port: u16,
    incarnation: Incarnation,
}

impl Entry {
    const NONE: Self = Self { port: UNKNOWN, incarnation: Incarnation(0) };
}

impl ForwardingTable {
    /// Returns an empty table for process ids below `processes_max`. With `has_upper`, the next hop
    /// to an unknown process is up.
    pub fn new(processes_max: u32, has_upper: bool) -> Self {
        Self { entries: alloc::vec![Entry::NONE; processes_max as usize], has_upper }
    }

    /// Records that this `incarnation` of `process` is now behind `port`. Returns false, and
    /// changes nothing, if the id or the port is out of range.
    #[inline]
    pub fn learn(&mut self, process: ProcessId, incarnation: Incarnation, port: Port) -> bool {
        match self.entries.get_mut(process.index()) {
            Some(entry) if port.0 != UNKNOWN => {
                *entry = Entry { port: port.0, incarnation };
                debug_assert!(port.0 != UNKNOWN, "a learned port is known");
                true
            }
            _ => false,
        }
    }

    /// Returns whether the id of `process` is in range.
    pub fn contains(&self, process: ProcessId) -> bool {
        process.index() < self.entries.len()
    }

    /// Returns the port of a later incarnation of `process`, if there is one.
    #[inline]
    pub fn later(&self, process: ProcessId, incarnation: Incarnation) -> Option<Port> {
        let entry = self.entries.get(process.index())?;
        (entry.incarnation > incarnation).then_some(Port(entry.port))
    }

    /// Removes `process` if it is behind `port`. Returns whether it was.
    pub fn forget(&mut self, process: ProcessId, port: Port) -> bool {
        let entry = self.entries.get_mut(process.index());
        let entry = entry.filter(|entry| port.0 != UNKNOWN && entry.port == port.0);
        entry.map(|entry| *entry = Entry::NONE).is_some()
    }

    /// Removes every process behind `port`. Takes time proportional to the table size.
    pub fn forget_port(&mut self, port: Port) {
        for entry in &mut self.entries {
            if entry.port == port.0 {
                *entry = Entry::NONE;
            }
        }
        debug_assert!(port.0 == UNKNOWN || self.entries.iter().all(|entry| entry.port != port.0));
    }

    #[inline]
    pub(crate) fn next(&self, dst: ProcessId) -> Option<NextHop> {
        match self.entries.get(dst.index())?.port {
            UNKNOWN => self.has_upper.then_some(NextHop::Up),
            port => Some(NextHop::Down(PortRange::one(Port(port)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Incarnation = Incarnation(1);

    #[test]
    fn process_is_found_at_last_port() {
        let mut forwarding_table = ForwardingTable::new(4, false);
        assert_eq!(forwarding_table.next(ProcessId(2)), None);
        assert!(
            forwarding_table.learn(ProcessId(2), FIRST, Port(7))
                && forwarding_table.learn(ProcessId(2), FIRST, Port(1))
        );
        assert_eq!(
            forwarding_table.next(ProcessId(2)),
            Some(NextHop::Down(PortRange::one(Port(1))))
        );

        assert!(
            !forwarding_table.forget(ProcessId(2), Port(7)),
            "a late goodbye from where it no longer sits"
        );
        assert!(forwarding_table.forget(ProcessId(2), Port(1)));
        assert_eq!(forwarding_table.next(ProcessId(2)), None);
    }

    #[test]
    fn later_incarnation_is_found_until_it_is_forgotten() {
        let mut forwarding_table = ForwardingTable::new(4, false);
        let (process, second) = (ProcessId(2), Incarnation(2));
        assert_eq!(forwarding_table.later(process, FIRST), None);
        forwarding_table.learn(process, second, Port(1));
        assert_eq!(forwarding_table.later(process, FIRST), Some(Port(1)));
        assert_eq!(forwarding_table.later(process, second), None);
        assert_eq!(forwarding_table.later(ProcessId(4), FIRST), None);
        forwarding_table.forget(process, Port(1));
        assert_eq!(forwarding_table.later(process, FIRST), None);
    }

    #[test]
    fn ids_and_ports_out_of_range_change_nothing() {
        let mut forwarding_table = ForwardingTable::new(4, true);
        let before = forwarding_table.clone();
        assert!(
            !forwarding_table.learn(ProcessId(4), FIRST, Port(0))
                && !forwarding_table.learn(ProcessId(0), FIRST, Port(u16::MAX))
        );
        assert!(!forwarding_table.forget(ProcessId(0), Port(u16::MAX)));
        assert_eq!(forwarding_table, before);
        assert_eq!(
            (forwarding_table.next(ProcessId(3)), forwarding_table.next(ProcessId(4))),
            (Some(NextHop::Up), None)
        );
    }

    #[test]
    fn forget_port_removes_its_processes() {
        let mut forwarding_table = ForwardingTable::new(4, false);
        for (process, port) in [(0, 1), (1, 2), (2, 1)] {
            forwarding_table.learn(ProcessId(process), FIRST, Port(port));
        }
        forwarding_table.forget_port(Port(1));
        let found: [bool; 4] =
            core::array::from_fn(|id| forwarding_table.next(ProcessId(id as u32)).is_some());
        assert_eq!(found, [false, true, false, false]);
    }
}
