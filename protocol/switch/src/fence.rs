//! The instances that controllers have declared dead: their frames are ignored.

use alloc::vec::Vec;

use onepipe_base::{Address, Instance, Port};

/// The fenced instances, and the one that is to be notified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fence {
    /// The last dead instance of each address.
    dead: Vec<Instance>,
    notice: Option<DeathNotice>,
}

/// A switch that was received at a port after it was declared dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeathNotice {
    pub(crate) port: Port,
    pub(crate) instance: Instance,
}

impl Fence {
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        for (index, dead) in self.dead.iter().enumerate() {
            assert!(self.dead[..index].iter().all(|other| other.address != dead.address));
        }
        let is_dead = |notice: DeathNotice| self.contains(notice.instance);
        assert!(self.notice.is_none_or(is_dead), "a notice to a node that is not dead");
    }

    /// Adds `instance`, and all earlier ones of its address.
    pub(crate) fn declare(&mut self, instance: Instance) {
        match self.dead.iter_mut().find(|known| known.address == instance.address) {
            Some(known) => known.incarnation = known.incarnation.max(instance.incarnation),
            None => self.dead.push(instance),
        }
        debug_assert!(self.contains(instance));
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.dead.is_empty()
    }

    /// Whether `instance` was declared dead.
    pub(crate) fn contains(&self, instance: Instance) -> bool {
        self.dead.iter().any(|known| {
            known.address == instance.address && instance.incarnation <= known.incarnation
        })
    }

    /// Handles a beacon of a dead `instance` at `port`: a switch is notified.
    pub(crate) fn on_received(&mut self, port: Port, instance: Instance) {
        debug_assert!(self.contains(instance), "the node is not dead");
        if matches!(instance.address, Address::Switch(_)) {
            self.notice = Some(DeathNotice { port, instance });
        }
    }

    pub(crate) fn take_notice(&mut self) -> Option<DeathNotice> {
        self.notice.take()
    }
}

#[cfg(test)]
mod tests {
    use onepipe_base::{Incarnation, ProcessId, SwitchId};

    use super::*;

    //= spec/failure.md#R42
    #[test]
    fn fence_holds_until_the_next_incarnation_and_notifies_switches() {
        let instance =
            |address, incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let (switch, process) = (Address::Switch(SwitchId(1)), Address::Process(ProcessId(1)));
        let mut fence = Fence::default();
        [instance(switch, 4), instance(switch, 2), instance(process, 1)]
            .into_iter()
            .for_each(|dead| fence.declare(dead));
        assert!(fence.contains(instance(switch, 4)) && !fence.contains(instance(switch, 5)));
        fence.on_received(Port(1), instance(process, 1));
        assert_eq!(fence.take_notice(), None);
        fence.on_received(Port(2), instance(switch, 3));
        fence.check_invariants();
        let notice = DeathNotice { port: Port(2), instance: instance(switch, 3) };
        assert_eq!([fence.take_notice(), fence.take_notice()], [Some(notice), None]);
    }
}
