//! A learned forwarding table.

use alloc::vec::Vec;

use onepipe_base::{Port, ProcessId};

use crate::{Next, PortRange};

/// Marks an unknown process; so port 65,535 is never learned.
const NOWHERE: u16 = u16::MAX;

/// Process id → lower port, as an array of fixed size: what a software switch learns from its
/// neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    ports: Vec<u16>,
    has_upper: bool,
}

impl Table {
    /// Returns an empty table for process ids below `processes_max`. With `has_upper`, the next hop
    /// to an unknown process is up.
    pub fn new(processes_max: u32, has_upper: bool) -> Self {
        Self { ports: alloc::vec![NOWHERE; processes_max as usize], has_upper }
    }

    /// Records that `process` is now behind `port`. Returns false, and changes nothing, if the id
    /// or the port is out of range.
    pub fn learn(&mut self, process: ProcessId, port: Port) -> bool {
        match self.ports.get_mut(process.index()) {
            Some(place) if port.0 != NOWHERE => {
                *place = port.0;
                true
            }
            _ => false,
        }
    }

    /// Removes `process` if it is behind `port`. Returns whether it was.
    pub fn forget(&mut self, process: ProcessId, port: Port) -> bool {
        let sits_there = port.0 != NOWHERE && self.ports.get(process.index()) == Some(&port.0);
        if sits_there {
            self.ports[process.index()] = NOWHERE;
        }
        sits_there
    }

    /// Removes every process behind `port`. Takes time proportional to the table size.
    pub fn forget_port(&mut self, port: Port) {
        for place in &mut self.ports {
            if *place == port.0 {
                *place = NOWHERE;
            }
        }
    }

    #[inline]
    pub(crate) fn next(&self, dst: ProcessId) -> Option<Next> {
        match *self.ports.get(dst.index())? {
            NOWHERE => self.has_upper.then_some(Next::Up),
            port => Some(Next::Down(PortRange::one(Port(port)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_where_it_last_joined() {
        let mut table = Table::new(4, false);
        assert_eq!(table.next(ProcessId(2)), None);
        assert!(table.learn(ProcessId(2), Port(7)) && table.learn(ProcessId(2), Port(1)));
        assert_eq!(table.next(ProcessId(2)), Some(Next::Down(PortRange::one(Port(1)))));

        assert!(
            !table.forget(ProcessId(2), Port(7)),
            "a late goodbye from where it no longer sits"
        );
        assert!(table.forget(ProcessId(2), Port(1)));
        assert_eq!(table.next(ProcessId(2)), None);
    }

    #[test]
    fn ids_and_ports_out_of_range_change_nothing() {
        let mut table = Table::new(4, true);
        let before = table.clone();
        assert!(!table.learn(ProcessId(4), Port(0)) && !table.learn(ProcessId(0), Port(u16::MAX)));
        assert!(!table.forget(ProcessId(0), Port(u16::MAX)));
        assert_eq!(table, before);
        assert_eq!((table.next(ProcessId(3)), table.next(ProcessId(4))), (Some(Next::Up), None));
    }

    #[test]
    fn a_port_is_forgotten_with_all_behind_it() {
        let mut table = Table::new(4, false);
        for (process, port) in [(0, 1), (1, 2), (2, 1)] {
            table.learn(ProcessId(process), Port(port));
        }
        table.forget_port(Port(1));
        let found: [bool; 4] =
            core::array::from_fn(|id| table.next(ProcessId(id as u32)).is_some());
        assert_eq!(found, [false, true, false, false]);
    }
}
