//! The schedule of beacons: on idle links at instants, and on all links when a barrier rises.

use onepipe_base::{Mono, Now, Port};

use crate::aggregator::Aggregator;
use crate::eager::{Eager, Rounds};
use crate::port_set::PortSet;

/// Beacon instants are multiples of the interval of the synchronised clock, so that the beacons of
/// all hops coincide and each hop waits for half an interval on average instead of a whole one
/// (1Pipe section 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Beacons {
    interval_ns: u64,
    /// The next instant by the local clock. Recomputed at each instant, so that a step of the
    /// synchronised clock shifts an instant by less than an interval.
    next: Option<Mono>,
    /// Links that have carried a frame since the last instant.
    busy: PortSet,
    pending: PortSet,
    /// Whether promises were received since eager beacons were last considered.
    has_update: bool,
    eager: Eager,
    rounds: Rounds,
}

impl Beacons {
    pub(crate) fn new(interval_ns: u64, eager: Eager, ports: u16) -> Self {
        let (busy, pending) = (PortSet::new(ports), PortSet::new(ports));
        let rounds = Rounds::new(interval_ns);
        Self { interval_ns, next: None, busy, pending, has_update: false, eager, rounds }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert!(self.next.is_none() || self.interval_ns > 0, "an instant without an interval");
        [&self.busy, &self.pending].into_iter().for_each(PortSet::check_invariants);
        self.rounds.check_invariants();
    }

    pub(crate) fn start(&mut self, now: Now) {
        self.next = (self.interval_ns > 0).then(|| self.instant_after(now));
    }

    /// Returns the next instant.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.next
    }

    /// Notes that `port` has carried a frame, and with it the barrier.
    #[inline]
    pub(crate) fn on_forwarded(&mut self, port: Port) {
        self.busy.insert(port);
    }

    /// Notes that promises were received.
    #[inline]
    pub(crate) fn on_update(&mut self) {
        self.has_update = true;
    }

    /// Takes whether promises were received since the last call.
    #[inline]
    pub(crate) fn take_update(&mut self) -> bool {
        core::mem::take(&mut self.has_update)
    }

    /// Takes whether outputs are to be advertised before the next instant.
    #[inline]
    pub(crate) fn take_rise(&mut self, aggregator: &Aggregator) -> bool {
        self.take_update()
            && match self.eager {
                Eager::Never => false,
                Eager::ByRound => {
                    self.rounds.is_over(aggregator.uplink_minimum(), aggregator.downlink_minimum())
                }
                Eager::Always => true,
            }
    }

    /// Requests the beacon of a rise for `port`. A round replaces the beacon of the next instant.
    pub(crate) fn request_rise(&mut self, port: Port) {
        self.request(port);
        if self.eager == Eager::ByRound {
            self.on_forwarded(port);
        }
    }

    /// Whether an instant is due.
    pub(crate) fn is_due(&self, now: Mono) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Sets the interval. A shorter one takes effect now, a longer one at the next instant.
    pub(crate) fn set_interval(&mut self, now: Now, interval_ns: u64) {
        debug_assert!(interval_ns > 0 || self.next.is_none(), "instants never end");
        let is_shorter = interval_ns < self.interval_ns;
        self.interval_ns = interval_ns;
        if is_shorter && self.next.is_some() {
            self.next = Mono::earlier(self.next, Some(self.instant_after(now)));
        }
    }

    /// Makes `port` get a beacon at the next instant even if it was busy.
    pub(crate) fn force_next(&mut self, port: Port) {
        self.busy.remove(port);
    }

    /// Requests a beacon for `port` at once.
    #[inline]
    pub(crate) fn request(&mut self, port: Port) {
        self.pending.insert(port);
    }

    /// Takes the next port with a requested beacon.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Port> {
        self.pending.pop()
    }

    //= spec/ordering.md#R11
    /// At an instant, requests a beacon for each idle link of `linked`. Instants missed by a late
    /// timer count as one.
    pub(crate) fn on_timeout(&mut self, now: Now, linked: &PortSet) {
        if self.next.is_none_or(|next| next > now.mono) {
            return;
        }
        self.pending.add_difference(linked, &self.busy);
        self.end_instant(now);
    }

    /// Requests a beacon for `port` unless it has carried a frame since the last instant.
    pub(crate) fn request_if_idle(&mut self, port: Port) {
        if !self.busy.contains(port) {
            self.pending.insert(port);
        }
    }

    /// Completes an instant whose beacons were requested, and schedules the next one.
    pub(crate) fn end_instant(&mut self, now: Now) {
        self.busy.clear();
        let next = self.instant_after(now);
        debug_assert!(next > now.mono, "an instant follows");
        self.next = Some(next);
    }

    /// Returns the first multiple of the interval that is more than an eighth of it away: the two
    /// clocks run at slightly different rates, and a timer slightly ahead of its instant must not
    /// fire twice.
    fn instant_after(&self, now: Now) -> Mono {
        let interval_ns = self.interval_ns;
        debug_assert!(interval_ns > 0, "there are no instants");
        let wait_ns = interval_ns - now.sync.as_ns() % interval_ns;
        let skip_ns = if wait_ns <= interval_ns / 8 { interval_ns } else { 0 };
        now.mono.after_ns(wait_ns.saturating_add(skip_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Timestamp;

    fn at(mono: u64, sync: u64) -> Now {
        Now { mono: Mono::from_ns(mono), sync: Timestamp::from_ns(sync) }
    }

    fn all(count: u16) -> PortSet {
        let mut set = PortSet::new(count);
        (0..count).for_each(|port| set.insert(Port(port)));
        set
    }

    //= spec/ordering.md#R11
    #[test]
    fn instants_are_multiples_of_the_interval() {
        let mut beacons = Beacons::new(3_000, Eager::ByRound, 2);
        beacons.start(at(77, 10_000));
        assert_eq!(beacons.due(), Some(Mono::from_ns(77 + 2_000)));
        beacons.on_timeout(at(77 + 2_000, 12_000), &all(2));
        assert_eq!(beacons.due(), Some(Mono::from_ns(77 + 5_000)));
    }

    #[test]
    fn rise_is_taken_once_and_replaces_the_next_instant() {
        let aggregator = Aggregator::new(1, 1);
        let rises = [(Eager::Never, false), (Eager::ByRound, false), (Eager::Always, true)];
        for (eager, has_risen) in rises {
            let mut beacons = Beacons::new(3_000, eager, 2);
            assert!(!beacons.take_rise(&aggregator), "nothing was received");
            beacons.on_update();
            assert_eq!(beacons.take_rise(&aggregator), has_risen);
            assert!(!beacons.take_update());
            beacons.request_rise(Port(1));
            assert_eq!(beacons.pop(), Some(Port(1)));
            beacons.request_if_idle(Port(1));
            assert_eq!(beacons.pop().is_none(), eager == Eager::ByRound);
        }
    }

    #[test]
    fn slow_clock_does_not_repeat_an_instant() {
        let mut beacons = Beacons::new(3_000, Eager::ByRound, 2);
        beacons.start(at(0, 9_000));
        beacons.on_timeout(at(3_000, 11_999), &all(2));
        assert_eq!(beacons.due(), Some(Mono::from_ns(6_001)));
    }

    #[test]
    fn late_timer_requests_one_beacon_per_link() {
        let mut beacons = Beacons::new(3_000, Eager::ByRound, 2);
        beacons.start(at(0, 9_000));
        beacons.on_timeout(at(31_000, 40_000), &all(2));
        assert_eq!(
            [beacons.pop(), beacons.pop(), beacons.pop()],
            [Some(Port(0)), Some(Port(1)), None]
        );
        assert_eq!(beacons.due(), Some(Mono::from_ns(33_000)));
    }

    #[test]
    fn instant_may_request_beacons_of_some_idle_links() {
        let mut beacons = Beacons::new(3_000, Eager::ByRound, 3);
        beacons.start(at(0, 9_000));
        beacons.on_forwarded(Port(1));
        [0, 1].into_iter().for_each(|port| beacons.request_if_idle(Port(port)));
        beacons.end_instant(at(3_000, 12_000));
        assert_eq!([beacons.pop(), beacons.pop()], [Some(Port(0)), None]);
        beacons.request_if_idle(Port(1));
        assert_eq!(beacons.pop(), Some(Port(1)), "idle since the instant");
        assert_eq!(beacons.due(), Some(Mono::from_ns(6_000)));
    }

    #[test]
    fn clock_step_costs_less_than_an_interval() {
        let hour = 3_600_000_000_000;
        for sync in [9_000, 9_000 + hour + 1_234, 9_000 + 7 * hour] {
            let mut beacons = Beacons::new(3_000, Eager::ByRound, 2);
            beacons.start(at(0, 5 * hour));
            beacons.on_timeout(at(3_000, sync), &all(2));
            let wait_ns = beacons.due().map(|due| due.as_ns() - 3_000);
            assert!(wait_ns.is_some_and(|ns| ns <= 3_375), "{wait_ns:?}");
        }
    }

    //= spec/ordering.md#R11
    #[test]
    fn only_idle_links_get_beacons() {
        let mut beacons = Beacons::new(3_000, Eager::ByRound, 3);
        beacons.start(at(0, 9_000));
        beacons.on_forwarded(Port(1));
        beacons.on_timeout(at(3_000, 12_000), &all(3));
        assert_eq!(
            [beacons.pop(), beacons.pop(), beacons.pop()],
            [Some(Port(0)), Some(Port(2)), None]
        );
        beacons.on_timeout(at(6_000, 15_000), &all(3));
        assert_eq!(beacons.pop().map(|_| beacons.pop()), Some(Some(Port(1))), "idle since");
        while beacons.pop().is_some() {}
        [0, 1].into_iter().for_each(|port| beacons.on_forwarded(Port(port)));
        beacons.force_next(Port(1));
        beacons.on_timeout(at(9_000, 18_000), &all(3));
        assert_eq!(beacons.pop().map(|_| beacons.pop()), Some(Some(Port(2))));
    }
}
