//! Frozen links: dead links whose commit registers are held until a controller resolves them.

use alloc::vec::Vec;

use crate::{Address, Cause, Instance, Port, Registers, Timestamp};

/// Maximum number of entries for the instances of one address on one port. A further entry needs a
/// further restart of the node before a controller has resolved the first failure.
const INSTANCES_MAX: usize = 8;

/// A frozen link of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    /// The node's own number of this failure, from 1: a port can be frozen more than once.
    pub number: u32,
    /// The port of the link.
    pub port: Port,
    /// The failed instance; `None` if it was never known.
    pub instance: Option<Instance>,
    /// The last commit promised on the link.
    pub commit: Timestamp,
    /// Why the link died.
    pub cause: Cause,
}

/// The frozen links of a node, oldest first. Empty unless there is a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrozenLinks {
    links: Vec<Frozen>,
    last_number: u32,
    /// For each port whose failed switch is resolved: the switch, and the highest commit that it
    /// promised there.
    promised_before: Vec<(Port, Address, Timestamp)>,
}

impl FrozenLinks {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self { links: Vec::new(), last_number: 0, promised_before: Vec::new() }
    }

    /// Freezes `port` of `registers`, whose other end was `instance`. Returns whether the link was
    /// live.
    pub fn freeze(
        &mut self,
        registers: &mut Registers,
        port: Port,
        instance: Option<Instance>,
        cause: Cause,
    ) -> bool {
        if let Some(commit) = self.promised_before(port, instance) {
            registers.assume_commit(port, commit);
        }
        let Some(commit) = registers.freeze(port) else { return false };
        self.record(port, instance, commit, cause);
        true
    }

    /// Records that `port`, whose other end was `instance`, is frozen at `commit`. Returns the
    /// number of this failure.
    ///
    /// A second failure of the same instance replaces the first, but keeps the commit of the first:
    /// no higher commit was advertised in between, because the commits of a link that has come back
    /// count only once its failure is resolved. So a flapping link needs no more space. Each
    /// instance of one address has an entry of its own, because its commit bounds the messages that
    /// it may have left behind; beyond `INSTANCES_MAX` (8) the last two are merged at the lower
    /// commit. The last cause counts.
    pub fn record(
        &mut self,
        port: Port,
        instance: Option<Instance>,
        mut commit: Timestamp,
        cause: Cause,
    ) -> u32 {
        let address = |instance: Option<Instance>| instance.map(|instance| instance.address);
        let is_same = |frozen: &Frozen| frozen.port == port && frozen.instance == instance;
        let is_related =
            |frozen: &&Frozen| frozen.port == port && address(frozen.instance) == address(instance);
        if let Some(at) = self.links.iter().position(is_same) {
            commit = self.links.remove(at).commit;
        } else if self.links.iter().filter(is_related).count() >= INSTANCES_MAX
            && let Some(at) = self.links.iter().rposition(|frozen| is_related(&frozen))
        {
            commit = commit.min(self.links.remove(at).commit);
        }
        self.last_number = self.last_number.wrapping_add(1).max(1);
        self.links.push(Frozen { number: self.last_number, port, instance, commit, cause });
        let related = self.links.iter().filter(is_related).count();
        debug_assert!(related <= INSTANCES_MAX, "the entries of an address are bounded");
        self.last_number
    }

    //= spec/failure.md#R40
    /// Returns the highest commit that dead instances of the switch of `instance` promised on
    /// `port`; `None` if `instance` is a process, because each instance of a process counts for
    /// itself. All nodes behind the switch have committed everything below that promise: a later
    /// instance of the switch that promised less had not yet received their promises.
    pub fn promised_before(&self, port: Port, instance: Option<Instance>) -> Option<Timestamp> {
        let switch = instance.map(|instance| instance.address).filter(is_switch)?;
        let held = self.links.iter().filter(|frozen| frozen.port == port);
        let held = held
            .filter(|frozen| frozen.instance.is_some_and(|instance| instance.address == switch));
        let promised_before =
            self.promised_before.iter().find(|(at, known, _)| (*at, *known) == (port, switch));
        held.map(|frozen| frozen.commit).chain(promised_before.map(|(.., commit)| *commit)).max()
    }

    /// Resolves failure `number` and releases its hold. Returns its link, if the failure exists.
    pub fn resolve(&mut self, registers: &mut Registers, number: u32) -> Option<Frozen> {
        let (resolved, held) = self.take(number)?;
        registers.hold(resolved.port, held);
        Some(resolved)
    }

    /// Removes failure `number`. Returns its link, and the lowest commit that other failures on the
    /// same port still hold.
    pub fn take(&mut self, number: u32) -> Option<(Frozen, Option<Timestamp>)> {
        let at = self.links.iter().position(|frozen| frozen.number == number)?;
        let resolved = self.links.remove(at);
        let is_again = self.links.iter().any(|frozen| frozen.number == number);
        debug_assert!(!is_again, "a failure has a number of its own");
        self.record_promised(resolved);
        let same = self.links.iter().filter(|frozen| frozen.port == resolved.port);
        Some((resolved, same.map(|frozen| frozen.commit).min()))
    }

    fn record_promised(&mut self, resolved: Frozen) {
        let Some(switch) = resolved.instance.map(|instance| instance.address).filter(is_switch)
        else {
            return;
        };
        match self.promised_before.iter_mut().find(|(port, ..)| *port == resolved.port) {
            Some((_, known, commit)) if *known == switch => *commit = resolved.commit.max(*commit),
            // Another switch is connected there now.
            Some(entry) => *entry = (resolved.port, switch, resolved.commit),
            None => self.promised_before.push((resolved.port, switch, resolved.commit)),
        }
    }

    /// Returns all frozen links, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frozen> {
        self.links.iter()
    }

    /// Returns whether no link is frozen.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

fn is_switch(address: &Address) -> bool {
    matches!(address, Address::Switch(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Incarnation, Mono, ProcessId, Promises, SwitchId};

    #[test]
    fn two_failures_on_a_port_resolve_in_any_order() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut registers = Registers::new(2);
            let mut frozen = FrozenLinks::new();
            let update = |registers: &mut Registers, port, ns| {
                let promises = Promises::both(Timestamp::from_ns(ns));
                registers.update(Mono::from_ns(ns), Port(port), promises);
            };
            update(&mut registers, 0, 10);
            update(&mut registers, 1, 900);
            assert!(frozen.freeze(&mut registers, Port(0), None, Cause::TimedOut));
            assert!(!frozen.freeze(&mut registers, Port(0), None, Cause::TimedOut), "dead already");
            update(&mut registers, 0, 20);
            let instance =
                Instance { address: Address::Process(ProcessId(0)), incarnation: Incarnation(1) };
            assert!(frozen.freeze(&mut registers, Port(0), Some(instance), Cause::TimedOut));
            let commit =
                |registers: &Registers| registers.minimum().map(|minimum| minimum.commit.as_ns());
            assert_eq!(commit(&registers), Some(10));
            let held = frozen.resolve(&mut registers, first).map(|frozen| frozen.commit.as_ns());
            assert_eq!(held, Some(10 * u64::from(first)));
            assert_eq!(commit(&registers), Some(10 * u64::from(second)));
            assert!(frozen.resolve(&mut registers, first).is_none());
            frozen.resolve(&mut registers, second);
            assert!(frozen.is_empty());
            assert_eq!(commit(&registers), Some(900));
        }
    }

    /// Port 0 promises 900; on port 1, instances of process 3 promise `commits`, and fail one after
    /// the other.
    fn fail_in_turn(commits: &[(u32, u64)]) -> (Registers, FrozenLinks) {
        let (mut registers, mut frozen) = (Registers::new(2), FrozenLinks::new());
        registers.update(Mono::from_ns(0), Port(0), Promises::both(Timestamp::from_ns(900)));
        for &(incarnation, ns) in commits {
            let promises = Promises::both(Timestamp::from_ns(ns));
            registers.update(Mono::from_ns(0), Port(1), promises);
            let address = Address::Process(ProcessId(3));
            let instance = Some(Instance { address, incarnation: Incarnation(incarnation) });
            assert!(frozen.freeze(&mut registers, Port(1), instance, Cause::TimedOut));
        }
        (registers, frozen)
    }

    fn entries(frozen: &FrozenLinks) -> Vec<(u32, u32, u64)> {
        let entry = |dead: &Frozen| {
            let instance = dead.instance.expect("its instance is known");
            (dead.number, instance.incarnation.0, dead.commit.as_ns())
        };
        frozen.iter().map(entry).collect()
    }

    #[test]
    fn flapping_link_keeps_one_entry_at_first_commit() {
        for later in [700, 5] {
            let (mut registers, mut frozen) = fail_in_turn(&[(1, 50), (1, later), (1, later)]);
            assert_eq!(entries(&frozen), [(3, 1, 50)], "{later}");
            assert!(frozen.resolve(&mut registers, 2).is_none(), "merged into the next failure");
            assert!(frozen.resolve(&mut registers, 3).is_some());
            assert_eq!(registers.minimum().map(|minimum| minimum.commit.as_ns()), Some(900));
        }
    }

    /// An instance that comes back and promises nothing does not lower the commit of the one
    /// before.
    #[test]
    fn keeps_instances_of_one_address_apart() {
        let (mut registers, mut frozen) = fail_in_turn(&[(1, 50), (2, 5), (3, 70)]);
        assert_eq!(entries(&frozen), [(1, 1, 50), (2, 2, 5), (3, 3, 70)]);
        let commit =
            |registers: &Registers| registers.minimum().map(|minimum| minimum.commit.as_ns());
        for (number, then) in [(2, 50), (1, 70), (3, 900)] {
            frozen.resolve(&mut registers, number);
            assert_eq!(commit(&registers), Some(then));
        }
    }

    //= spec/failure.md#R40
    /// Nodes behind a switch have promised what its previous instance did; the lower promise of a
    /// new instance that has not received theirs yet is no bound.
    #[test]
    fn later_switch_instance_freezes_no_lower() {
        let instance = |incarnation| {
            let address = Address::Switch(SwitchId(7));
            Some(Instance { address, incarnation: Incarnation(incarnation) })
        };
        let update = |registers: &mut Registers, ns| {
            let promises = Promises::both(Timestamp::from_ns(ns));
            registers.update(Mono::from_ns(0), Port(0), promises);
        };
        for is_resolved in [false, true] {
            let (mut registers, mut frozen) = (Registers::new(1), FrozenLinks::new());
            update(&mut registers, 50);
            assert!(frozen.freeze(&mut registers, Port(0), instance(1), Cause::TimedOut));
            if is_resolved {
                frozen.resolve(&mut registers, 1);
            }
            update(&mut registers, 5);
            assert!(frozen.freeze(&mut registers, Port(0), instance(2), Cause::TimedOut));
            update(&mut registers, 70);
            assert!(frozen.freeze(&mut registers, Port(0), instance(3), Cause::TimedOut));
            let commits: Vec<u64> = frozen.iter().map(|dead| dead.commit.as_ns()).collect();
            assert_eq!(commits[commits.len() - 2..], [50, 70], "resolved: {is_resolved}");
            let other =
                Some(Instance { address: Address::Switch(SwitchId(8)), ..instance(4).unwrap() });
            assert_eq!(frozen.promised_before(Port(0), other), None, "another switch");
        }
    }

    //= spec/failure.md#R40
    /// The last instance of the switch had promised nothing.
    #[test]
    fn empty_link_freezes_at_earlier_switch_promise() {
        let instance = |incarnation| {
            let address = Address::Switch(SwitchId(7));
            Some(Instance { address, incarnation: Incarnation(incarnation) })
        };
        let (mut registers, mut frozen) = (Registers::new(1), FrozenLinks::new());
        let mark = Timestamp::from_ns(60);
        registers.update_unfed(Mono::from_ns(0), Port(0), mark, None);
        assert!(!frozen.freeze(&mut registers, Port(0), instance(1), Cause::TimedOut));
        registers.remove(Port(0));
        registers.update(Mono::from_ns(0), Port(0), Promises::both(Timestamp::from_ns(50)));
        assert!(frozen.freeze(&mut registers, Port(0), instance(1), Cause::TimedOut));
        frozen.resolve(&mut registers, 1);
        registers.update_unfed(Mono::from_ns(0), Port(0), mark, None);
        assert!(frozen.freeze(&mut registers, Port(0), instance(2), Cause::TimedOut));
        assert_eq!(frozen.iter().map(|dead| dead.commit.as_ns()).collect::<Vec<_>>(), [50]);
    }

    #[test]
    fn instances_beyond_limit_share_last_entry() {
        let commits: Vec<(u32, u64)> =
            (1..=12).map(|instance| (instance, u64::from(instance) * 10)).collect();
        let (registers, frozen) = fail_in_turn(&commits);
        assert_eq!(frozen.iter().len(), INSTANCES_MAX);
        assert_eq!(entries(&frozen).last(), Some(&(12, 12, 80)), "the lowest of the last five");
        assert_eq!(registers.minimum().map(|minimum| minimum.commit.as_ns()), Some(10));
    }
}
