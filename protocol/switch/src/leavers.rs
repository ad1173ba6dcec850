//! Processes that have left, and the acknowledgements that each of them gets.

use alloc::vec::Vec;

use onepipe_base::{Instance, Port};
use onepipe_wire::Header;

use crate::links::is_direct;
use crate::port_set::PortSet;

/// Instances that have left, and acknowledgements to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leavers {
    /// By port: the last instance that has left.
    left: Vec<Option<Instance>>,
    pending_acks: PortSet,
}

impl Leavers {
    pub(crate) fn new(ports: u16) -> Self {
        Self { left: alloc::vec![None; usize::from(ports)], pending_acks: PortSet::new(ports) }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        self.pending_acks.check_invariants();
        let is_named = |port: Port| self.left[port.index()].is_some();
        assert!(self.pending_acks.iter().all(is_named), "an acknowledgement for nobody");
    }

    /// Forgets who has left at `port`, which may lead elsewhere from now on.
    pub(crate) fn forget(&mut self, port: Port) {
        self.left[port.index()] = None;
        self.pending_acks.remove(port);
    }

    /// Handles the Leave of a process, which is acknowledged.
    pub(crate) fn on_left(&mut self, port: Port, header: &Header) {
        if is_direct(header.hops()) {
            self.left[port.index()] = header.sender();
            self.pending_acks.insert(port);
        }
    }

    //= spec/ordering.md#R57
    /// Returns whether the sender of a Leave has left before: its acknowledgement was lost, and is
    /// repeated.
    pub(crate) fn is_repeated(&mut self, port: Port, header: &Header) -> bool {
        let left = self.left[port.index()];
        let is_repeated = left.is_some() && left == header.sender();
        if is_repeated && is_direct(header.hops()) {
            self.pending_acks.insert(port);
        }
        is_repeated
    }

    /// Takes the next port with an acknowledgement to send, to the instance that has left there.
    #[inline]
    pub(crate) fn pop_ack(&mut self) -> Option<(Port, Option<Instance>)> {
        let port = self.pending_acks.pop()?;
        let peer = self.left[port.index()];
        debug_assert!(peer.is_some(), "a Leave names its sender");
        Some((port, peer))
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Address, Incarnation, ProcessId, Promises, Timestamp};
    use onepipe_wire::Opcode;

    use super::*;

    //= spec/ordering.md#R57
    #[test]
    fn repeated_leave_is_acknowledged_again() {
        let leaver =
            Instance { address: Address::Process(ProcessId(3)), incarnation: Incarnation(1) };
        let promises = Promises::both(Timestamp::from_ns(1));
        let leave = Header::hop_only(Opcode::Leave, leaver, None, promises);
        let mut leavers = Leavers::new(2);
        assert!(!leavers.is_repeated(Port(1), &leave));
        leavers.on_left(Port(1), &leave);
        let ack = Some((Port(1), Some(leaver)));
        assert_eq!([leavers.pop_ack(), leavers.pop_ack()], [ack, None]);
        assert!(leavers.is_repeated(Port(1), &leave));
        leavers.check_invariants();
        assert_eq!(leavers.pop_ack(), ack);
        leavers.forget(Port(1));
        assert!(!leavers.is_repeated(Port(1), &leave));
    }
}
