//! The two logical switches in one: which inputs feed which outputs.

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, Port, Promises, Registers, Timestamp};

use crate::port_set::PortSet;

mod holds;

/// No promise was advertised on an output yet, or none since it was last advertised as unfed.
const NOT_ADVERTISED: Option<Timestamp> = Some(Timestamp::from_ns(u64::MAX));

//= spec/ordering.md#R9
/// The registers of all input links and the promises advertised on every output link.
///
/// - Up: an upper port gets the minimum over the lower ports.
/// - Down: a lower port gets the minimum over the upper ports and all *other* lower ports. Its own
///   promise need not come back: a process inserts messages to itself locally, and its timestamps
///   are at least any barrier that it has received. A lone port gets its own promise, so that its
///   barrier advances at all.
///
/// An output keeps its last advertised promise while the minimum lies below (a joiner catches up).
///
/// The hold of a dead link counts in the commit minimum wherever the link would, and also for the
/// lower port's own output: the current peer may have messages of its predecessor. Until a
/// controller is received, the commits that were advertised where it counts do not rise up to it
/// either (`docs/design/failure.md`, "What may rise while a dead link holds commits?").
///
/// An output without any input can still show that it is up (`docs/design/failure.md`, "What does
/// an unfed switch send?"): [`Aggregator::advertise_unfed`]. The next promise on it lies above
/// that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Aggregator {
    lower_ports: u16,
    lower: Registers,
    upper: Registers,
    advertised: Vec<Option<Promises>>,
    /// For each output, the advertised barrier that the other end must report as counted in its
    /// own minima before joiners of this switch may commit; `None` once it has.
    awaited: Vec<Option<Timestamp>>,
    /// Outputs that were last advertised as unfed.
    unfed: PortSet,
    /// Whether a link has died since a controller was last received.
    is_cut: bool,
    /// Inputs whose other end says that the commits that it promises do not rise.
    stopped_behind: PortSet,
    /// The highest commit advertised on any output.
    max_commit_advertised: Option<Timestamp>,
    /// The highest commit advertised on a lower output.
    max_commit_below: Option<Timestamp>,
}

impl Aggregator {
    pub(crate) fn new(lower_ports: u16, upper_ports: u16) -> Self {
        let port_count = usize::from(lower_ports) + usize::from(upper_ports);
        Self {
            lower_ports,
            lower: Registers::new(lower_ports),
            upper: Registers::new(upper_ports),
            advertised: alloc::vec![None; port_count],
            awaited: alloc::vec![NOT_ADVERTISED; port_count],
            unfed: PortSet::new(lower_ports + upper_ports),
            is_cut: false,
            stopped_behind: PortSet::new(lower_ports + upper_ports),
            max_commit_advertised: None,
            max_commit_below: None,
        }
    }

    //= spec/ordering.md#R10
    /// Asserts what holds between any two calls: every minimum is the one over all inputs, and what
    /// is known of an output fits what was advertised on it.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.awaited.len(), self.advertised.len());
        assert!(self.max_commit_below <= self.max_commit_advertised);
        let ports = || (0..self.advertised.len() as u16).map(Port);
        let live = ports().filter(|port| self.is_live(*port)).count();
        assert_eq!((self.lower.live_count() + self.upper.live_count()) as usize, live);
        assert_eq!(
            (self.has_no_input(), self.has_all_inputs()),
            (live == 0, ports().count() == live)
        );
        let (mut lower, mut upper) = (Lowest::default(), Lowest::default());
        for port in ports() {
            let Some(promises) = self.promised(port) else { continue };
            assert!(self.is_live(port), "a promise of a dead link");
            let inputs = if self.is_upper(port) { &mut upper } else { &mut lower };
            inputs.add(port, promises.barrier);
        }
        for port in ports() {
            let own = || self.promised(port).map(|promises| promises.barrier);
            let expected = match (self.is_upper(port), upper.first(), lower.except(port)) {
                (true, ..) => lower.first(),
                (false, None, None) => own(),
                (false, Some(upper), Some(lower)) => Some(upper.min(lower)),
                (false, upper, lower) => upper.or(lower),
            };
            let minimum = self.minimum(port).map(|minimum| minimum.barrier);
            assert_eq!(
                minimum, expected,
                "the minimum of port {} is not that of its inputs",
                port.0
            );
            self.check_output(port);
        }
    }

    /// Asserts that what the other end of `port` is to confirm was advertised there.
    fn check_output(&self, port: Port) {
        let (advertised, awaited) = (self.advertised(port), self.awaited[port.index()]);
        let is_held_below = self.is_held(port) && !self.is_upper(port);
        assert!(!is_held_below || self.commit_floor(port).is_some(), "a hold holds nothing");
        if self.unfed.contains(port) {
            assert!(advertised.is_some() && awaited == NOT_ADVERTISED);
        } else if awaited != NOT_ADVERTISED {
            let is_advertised = |at| advertised.is_some_and(|advertised| at <= advertised.barrier);
            assert!(awaited.is_none_or(is_advertised), "port {} awaits too much", port.0);
        }
    }

    #[inline]
    pub(crate) fn is_upper(&self, port: Port) -> bool {
        port.0 >= self.lower_ports
    }

    /// Applies promises received on `port`. Returns whether the link was not live before.
    #[inline]
    pub(crate) fn update(&mut self, now: Mono, port: Port, promises: Promises) -> bool {
        if self.is_upper(port) {
            self.upper.update(now, self.upper_index(port), promises)
        } else {
            self.lower.update(now, port, promises)
        }
    }

    /// As [`Aggregator::update`] for a beacon of an unfed link: see [`Registers::update_unfed`].
    pub(crate) fn update_unfed(
        &mut self,
        now: Mono,
        port: Port,
        mark: Timestamp,
        held: Option<Timestamp>,
    ) -> bool {
        let (registers, port) = self.registers_mut(port);
        registers.update_unfed(now, port, mark, held)
    }

    /// Returns the promises of `port`, if an input feeds it.
    pub(crate) fn promised(&self, port: Port) -> Option<Promises> {
        if self.is_upper(port) {
            self.upper.get(self.upper_index(port))
        } else {
            self.lower.get(port)
        }
    }

    /// Whether any live input feeds `port`.
    pub(crate) fn is_fed(&self, port: Port) -> bool {
        self.minimum_live(port).is_some()
    }

    /// Whether `port` is up and holds no commit except those of its dead instances.
    pub(crate) fn promises_no_commit(&self, port: Port) -> bool {
        if self.is_upper(port) {
            self.upper.promises_no_commit(self.upper_index(port))
        } else {
            self.lower.promises_no_commit(port)
        }
    }

    #[inline]
    pub(crate) fn is_live(&self, port: Port) -> bool {
        if self.is_upper(port) {
            self.upper.is_live(self.upper_index(port))
        } else {
            self.lower.is_live(port)
        }
    }

    pub(crate) fn has_no_input(&self) -> bool {
        self.lower.live_count() + self.upper.live_count() == 0
    }

    pub(crate) fn has_all_inputs(&self) -> bool {
        (self.lower.live_count() + self.upper.live_count()) as usize == self.advertised.len()
    }

    /// Takes a link out of the minima. Returns whether it was live.
    pub(crate) fn remove(&mut self, port: Port) -> bool {
        let (registers, port) = self.registers_mut(port);
        registers.remove(port)
    }

    /// Takes all links without an update since `deadline` out.
    pub(crate) fn expire(&mut self, deadline: Mono, mut lost: impl FnMut(Port)) {
        self.lower.expire(deadline, &mut lost);
        let lower_ports = self.lower_ports;
        self.upper.expire(deadline, |port| lost(Port(port.0 + lower_ports)));
    }

    /// Takes a live link out of the barriers and freezes its commit. Returns the last commit
    /// promised, or `None` when the link was not live.
    pub(crate) fn freeze(&mut self, port: Port) -> Option<Timestamp> {
        let (registers, port) = self.registers_mut(port);
        registers.freeze(port)
    }

    /// Assumes that the live instance that feeds `port` has promised `commit` or, if that is
    /// lower, the highest commit advertised on the outputs that `port` feeds: an instance that has
    /// joined since then promises no less than that.
    pub(crate) fn assume_promised(&mut self, port: Port, commit: Timestamp) {
        let advertised =
            if self.is_upper(port) { self.max_commit_below } else { self.max_commit_advertised };
        let Some(advertised) = advertised else { return };
        let (registers, port) = self.registers_mut(port);
        registers.assume_commit(port, commit.min(advertised));
    }

    /// Returns a live link without an update since `deadline`, if there is one.
    pub(crate) fn idle_since(&self, deadline: Mono) -> Option<Port> {
        let upper = || self.upper.idle_since(deadline);
        self.lower.idle_since(deadline).or_else(|| Some(Port(upper()?.0 + self.lower_ports)))
    }

    /// Returns the oldest last update of a live link.
    pub(crate) fn oldest_update(&self) -> Option<Mono> {
        Mono::earlier(self.lower.oldest_update(), self.upper.oldest_update())
    }

    /// Forgets what was advertised on `port`: a new link takes its place.
    pub(crate) fn forget_advertised(&mut self, port: Port) {
        self.advertised[port.index()] = None;
        self.awaited[port.index()] = NOT_ADVERTISED;
        self.unfed.remove(port);
    }

    /// Handles a link that has come up: whether its other end counts what this switch advertises is
    /// unknown until it reports so.
    pub(crate) fn await_peer_report(&mut self, port: Port) {
        let promises = self.advertised[port.index()].filter(|_| !self.unfed.contains(port));
        self.awaited[port.index()] =
            promises.map_or(NOT_ADVERTISED, |promises| Some(promises.barrier));
    }

    /// Notes that the other end of `port` counts what was advertised up to `counted`.
    pub(crate) fn on_peer_report(&mut self, port: Port, counted: Timestamp) {
        let awaited = &mut self.awaited[port.index()];
        if awaited.is_some_and(|awaited| awaited <= counted) {
            *awaited = None;
        }
    }

    /// Whether the other end of `port`, if the link is live, is known to count what this switch
    /// advertises.
    pub(crate) fn is_counted_by_peer(&self, port: Port) -> bool {
        self.awaited[port.index()].is_none() || !self.is_live(port)
    }

    /// Returns what was advertised on `port`.
    pub(crate) fn advertised(&self, port: Port) -> Option<Promises> {
        self.advertised[port.index()]
    }

    /// Returns what can be advertised on `port`, and records it; `None` while no input feeds it.
    #[inline]
    pub(crate) fn advertise(&mut self, port: Port) -> Option<Promises> {
        let fresh = self.minimum(port)?;
        let promises = self.record_advertised(port, fresh);
        debug_assert!(promises.barrier >= fresh.barrier && promises.commit >= fresh.commit);
        self.record_commit(port, promises.commit);
        Some(promises)
    }

    #[inline]
    fn record_commit(&mut self, port: Port, commit: Timestamp) {
        self.max_commit_advertised = self.max_commit_advertised.max(Some(commit));
        if !self.is_upper(port) {
            self.max_commit_below = self.max_commit_below.max(Some(commit));
        }
    }

    /// Assumes that a previous incarnation of this switch has advertised commits up to here.
    pub(crate) fn assume_advertised(&mut self, commit: Timestamp) {
        self.max_commit_advertised = self.max_commit_advertised.max(Some(commit));
    }

    //= spec/ordering.md#R6
    //= spec/ordering.md#R7
    //= spec/ordering.md#R13
    /// Raises what was advertised on `port` to `fresh`, and returns it.
    #[inline]
    fn record_advertised(&mut self, port: Port, fresh: Promises) -> Promises {
        let index = port.index();
        if self.awaited[index] == NOT_ADVERTISED {
            return self.record_first_advertised(port, fresh);
        }
        let advertised = &mut self.advertised[index];
        let before = advertised.filter(|_| !makes(Mistake::BarrierBack));
        let promises = before.map_or(fresh, |advertised| advertised.max(fresh));
        debug_assert!(advertised.is_none_or(|advertised| {
            promises.barrier >= advertised.barrier && promises.commit >= advertised.commit
        }));
        *advertised = Some(promises);
        promises
    }

    /// As [`Aggregator::record_advertised`] where nothing has fed `port` before.
    #[cold]
    fn record_first_advertised(&mut self, port: Port, fresh: Promises) -> Promises {
        let promises = self.advertised(port).map_or(fresh, |advertised| advertised.max(fresh));
        self.unfed.remove(port);
        let before = self.advertised[port.index()].replace(promises);
        debug_assert!(before.is_none_or(|before| before.barrier <= promises.barrier));
        self.awaited[port.index()] = Some(promises.barrier);
        promises
    }

    //= spec/failure.md#R15
    /// Returns the promises of a beacon on the unfed output `port`, and whether dead links hold
    /// commits. The barrier is no promise but a mark that shows that the link is up; the commit is
    /// that of the dead links, if there are any and `with_commit` is set. Both are at least
    /// `lower_bound`.
    ///
    /// The mark lies above everything advertised before, so that the other end can recognise
    /// reordered frames. No live input contradicts the mark, since there is none.
    pub(crate) fn advertise_unfed(
        &mut self,
        port: Port,
        lower_bound: Promises,
        with_commit: bool,
    ) -> (Promises, bool) {
        debug_assert!(!self.is_fed(port), "a mark contradicts the promises of the inputs");
        let floor = self.commit_floor(port);
        let commit = floor.filter(|_| with_commit).unwrap_or(lower_bound.commit);
        let fresh = Promises { commit: commit.max(lower_bound.commit), ..lower_bound };
        let mut promises = self.advertised(port).map_or(fresh, |advertised| advertised.max(fresh));
        if !self.unfed.contains(port) {
            promises.barrier = promises.barrier.wrapping_add_ns(1);
            self.unfed.insert(port);
        }
        let before = self.advertised[port.index()].replace(promises);
        debug_assert!(before.is_none_or(|before| before.barrier <= promises.barrier));
        self.awaited[port.index()] = NOT_ADVERTISED;
        if floor.is_some() && with_commit {
            self.record_commit(port, promises.commit);
        }
        (promises, floor.is_some())
    }

    //= spec/failure.md#R14
    /// Whether `promises` of `port` are at or above every commit advertised on an output that the
    /// port feeds. An instance that promises that much holds each of these commits from then on.
    ///
    /// Of a switch above, the barrier is compared: it advertises no commit while it waits to be
    /// counted. Its barrier bounds the joiners above it in the same way: they have nothing open.
    pub(crate) fn has_reached(&self, port: Port, promises: Promises) -> bool {
        match self.is_upper(port) {
            true => self.max_commit_below.is_none_or(|advertised| advertised <= promises.barrier),
            false => {
                self.max_commit_advertised.is_none_or(|advertised| advertised <= promises.commit)
            }
        }
    }

    /// As [`Aggregator::advertise`] for an output whose other end may not know yet which instance
    /// it receives: the commit stays at what was advertised before, at least `lower_bound`.
    pub(crate) fn advertise_barrier(
        &mut self,
        port: Port,
        lower_bound: Timestamp,
    ) -> Option<Promises> {
        let fresh = Promises { commit: lower_bound, ..self.minimum(port)? };
        Some(self.record_advertised(port, fresh))
    }

    /// Whether more could be advertised on `port`; commits count only if `with_commit`.
    #[inline]
    pub(crate) fn has_update(&self, port: Port, with_commit: bool) -> bool {
        let Some(fresh) = self.minimum(port) else { return false };
        self.advertised[port.index()].is_none_or(|advertised| match with_commit {
            true => advertised.max(fresh) != advertised,
            false => fresh.barrier > advertised.barrier,
        })
    }

    /// Returns the minimum over all inputs of the uplinks.
    #[inline]
    pub(crate) fn uplink_minimum(&self) -> Option<Promises> {
        self.lower.minimum()
    }

    /// Returns the minimum over all inputs of the downlinks.
    #[inline]
    pub(crate) fn downlink_minimum(&self) -> Option<Promises> {
        match (self.upper.minimum(), self.lower.minimum()) {
            (Some(upper), Some(lower)) => Some(upper.min(lower)),
            (upper, lower) => upper.or(lower),
        }
    }

    /// Returns whether no other input than `port` feeds its own output.
    pub(crate) fn is_alone(&self, port: Port) -> bool {
        self.upper.minimum().is_none() && self.lower.minimum_except(port).is_none()
    }

    /// Returns the minimum over the inputs of `port`; `None` while no input feeds it.
    #[inline]
    pub(crate) fn minimum(&self, port: Port) -> Option<Promises> {
        if self.has_holds() {
            return self.minimum_held(port);
        }
        self.minimum_live(port)
    }

    //= spec/ordering.md#R10
    #[inline]
    fn minimum_live(&self, port: Port) -> Option<Promises> {
        if self.is_upper(port) {
            let others = match makes(Mistake::LiveLinkDropped) {
                true => self.lower.minimum_except(Port(0)),
                false => None,
            };
            return others.or(self.lower.minimum());
        }
        match (self.upper.minimum(), self.lower.minimum_except(port)) {
            (Some(upper), Some(lower)) => Some(upper.min(lower)),
            (None, None) => self.lower.get(port),
            (upper, lower) => upper.or(lower),
        }
    }

    #[inline]
    fn registers_mut(&mut self, port: Port) -> (&mut Registers, Port) {
        match self.is_upper(port) {
            true => (&mut self.upper, Port(port.0 - self.lower_ports)),
            false => (&mut self.lower, port),
        }
    }

    #[inline]
    fn upper_index(&self, port: Port) -> Port {
        Port(port.0 - self.lower_ports)
    }
}

/// The two lowest barriers of some inputs.
#[derive(Default)]
struct Lowest {
    first: Option<(Port, Timestamp)>,
    second: Option<Timestamp>,
}

impl Lowest {
    fn add(&mut self, port: Port, barrier: Timestamp) {
        if self.first.is_none_or(|(_, lowest)| barrier < lowest) {
            self.second = self.first();
            self.first = Some((port, barrier));
        } else {
            self.second = Some(self.second.map_or(barrier, |second| second.min(barrier)));
        }
    }

    fn first(&self) -> Option<Timestamp> {
        self.first.map(|(_, lowest)| lowest)
    }

    fn except(&self, port: Port) -> Option<Timestamp> {
        if self.first.is_some_and(|(at, _)| at == port) { self.second } else { self.first() }
    }
}

#[cfg(test)]
mod tests;
