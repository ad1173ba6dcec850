//! A learned forwarding table.

use alloc::vec::Vec;

use onepipe_base::{Port, ProcessId};

use crate::{NextHop, PortRange};

/// Marks an unknown process; so port 65,535 is never learned.
const UNKNOWN: u16 = u16::MAX;

/// Process id → lower port, as an array of fixed size: what a software switch learns from its
/// neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForwardingTable {
    ports: Vec<u16>,
    has_upper: bool,
}

impl ForwardingTable {
    /// Returns an empty table for process ids below `processes_max`. With `has_upper`, the next hop
    /// to an unknown process is up.
    pub fn new(processes_max: u32, has_upper: bool) -> Self {
        Self { ports: alloc::vec![UNKNOWN; processes_max as usize], has_upper }
    }

    /// Records that `process` is now behind `port`. Returns false, and changes nothing, if the id
    /// or the port is out of range.
    pub fn learn(&mut self, process: ProcessId, port: Port) -> bool {
        match self.ports.get_mut(process.index()) {
            Some(entry) if port.0 != UNKNOWN => {
                *entry = port.0;
                true
            }
            _ => false,
        }
    }

    /// Removes `process` if it is behind `port`. Returns whether it was.
    pub fn forget(&mut self, process: ProcessId, port: Port) -> bool {
        let is_behind = port.0 != UNKNOWN && self.ports.get(process.index()) == Some(&port.0);
        if is_behind {
            self.ports[process.index()] = UNKNOWN;
        }
        is_behind
    }

    /// Removes every process behind `port`. Takes time proportional to the table size.
    pub fn forget_port(&mut self, port: Port) {
        for entry in &mut self.ports {
            if *entry == port.0 {
                *entry = UNKNOWN;
            }
        }
    }

    #[inline]
    pub(crate) fn next(&self, dst: ProcessId) -> Option<NextHop> {
        match *self.ports.get(dst.index())? {
            UNKNOWN => self.has_upper.then_some(NextHop::Up),
            port => Some(NextHop::Down(PortRange::one(Port(port)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_found_at_last_port() {
        let mut forwarding_table = ForwardingTable::new(4, false);
        assert_eq!(forwarding_table.next(ProcessId(2)), None);
        assert!(
            forwarding_table.learn(ProcessId(2), Port(7))
                && forwarding_table.learn(ProcessId(2), Port(1))
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
    fn ids_and_ports_out_of_range_change_nothing() {
        let mut forwarding_table = ForwardingTable::new(4, true);
        let before = forwarding_table.clone();
        assert!(
            !forwarding_table.learn(ProcessId(4), Port(0))
                && !forwarding_table.learn(ProcessId(0), Port(u16::MAX))
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
            forwarding_table.learn(ProcessId(process), Port(port));
        }
        forwarding_table.forget_port(Port(1));
        let found: [bool; 4] =
            core::array::from_fn(|id| forwarding_table.next(ProcessId(id as u32)).is_some());
        assert_eq!(found, [false, true, false, false]);
    }
}
