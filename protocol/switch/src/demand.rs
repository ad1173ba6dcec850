//! Beacons on demand: which outputs wait for promises, and which inputs are solicited for them.

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{AdaptiveTimeout, AnswerBudget, Mono, Port, Promises, SolicitTimer, Timestamp};
use onepipe_wire::Flags;

use crate::aggregator::Aggregator;
use crate::liveness::Liveness;
use crate::port_set::PortSet;

/// A process that gets one message after the other is solicited nevertheless when it has not
/// responded to the first one for this many response times.
const WAITS_MAX: u64 = 8;
/// For how many heartbeats a link is expected to come up after a beacon which shows that an end has
/// lost it.
const HEARTBEATS_PER_DISAGREEMENT: u64 = 2;

/// What one input link is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Input {
    /// When a solicit may leave, and since when none was answered.
    solicits: SolicitTimer,
    /// When a message last arrived on the link or was passed to it: its peer is awake, and promises
    /// more by itself.
    active_at: Option<Mono>,
    /// The first message passed to the process on the link that it has not promised more than, and
    /// when that was.
    asked: Option<(Mono, Timestamp)>,
    /// When a solicit from this link may be answered.
    answers: AnswerBudget,
    /// Since when no solicit was answered when the link was lost for that.
    lost_since: Option<Mono>,
}

//= spec/ordering.md#R40
//= spec/ordering.md#R41
/// The timestamps that the outputs of a switch wait for, and the solicits to its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    interval_ns: u64,
    heartbeat_ns: u64,
    /// Interval of beacons while something waits: the shortest time that an input is given before
    /// it is solicited.
    instant_ns: u64,
    /// By output, the highest timestamp that something behind it waits for; valid where `waiting`
    /// has the port.
    wanted: Vec<Timestamp>,
    waiting: PortSet,
    inputs: Vec<Input>,
    /// Ports whose other end sends beacons on demand as well, as its last beacon says.
    on_demand: PortSet,
    /// Inputs to be solicited now.
    pending: PortSet,
    /// Whether an output waits for more since inputs were last considered.
    has_new_request: bool,
    /// Whether inputs are considered although nothing waits: at a heartbeat, and when one of them
    /// lagged at the last time.
    must_scan: bool,
    /// Whether links are being set up, so that all outputs carry beacons at the fast interval.
    is_settling: bool,
    /// Until when the ends of a link are expected to learn that the other one has lost it.
    disagreed_until: Mono,
    /// When all outputs carry a beacon again, whatever they wait for.
    heartbeat_at: Mono,
    /// Times the check for solicits that were not answered.
    liveness: Liveness,
    timeout: AdaptiveTimeout,
}

impl Demand {
    /// Returns the demand of a switch with `ports`. Without `heartbeat_ns` beacons leave at the
    /// fixed interval, and only solicits of neighbours are answered.
    pub(crate) fn new(ports: u16, interval_ns: u64, heartbeat_ns: u64, timeout_ns: u64) -> Self {
        let mut solicits = SolicitTimer::new(interval_ns, heartbeat_ns, timeout_ns);
        solicits.start(Mono::from_ns(0));
        let answers = AnswerBudget::new(interval_ns);
        let input = Input { solicits, active_at: None, asked: None, answers, lost_since: None };
        Self {
            interval_ns,
            heartbeat_ns,
            instant_ns: interval_ns,
            wanted: alloc::vec![Timestamp::from_ns(0); usize::from(ports)],
            waiting: PortSet::new(ports),
            inputs: alloc::vec![input; usize::from(ports)],
            on_demand: PortSet::new(ports),
            pending: PortSet::new(ports),
            has_new_request: false,
            must_scan: true,
            is_settling: true,
            disagreed_until: Mono::from_ns(0),
            heartbeat_at: Mono::from_ns(0),
            liveness: Liveness::new(timeout_ns),
            timeout: AdaptiveTimeout::new(timeout_ns),
        }
    }

    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.wanted.len(), self.inputs.len());
        self.liveness.check_invariants();
        [&self.waiting, &self.pending].into_iter().for_each(PortSet::check_invariants);
        assert!(self.heartbeat_ns == 0 || self.heartbeat_ns >= self.interval_ns);
        assert!(self.instant_ns > 0 || self.interval_ns == 0, "instants without end");
        assert!(self.is_on_demand() || self.waiting.is_empty(), "nothing waits without demand");
        for input in &self.inputs {
            assert!(input.asked.is_none() || input.active_at.is_some(), "asked, but not awake");
            let is_unanswered = input.solicits.unanswered_since().is_some();
            assert!(input.lost_since.is_none() || !is_unanswered, "a lost link is solicited");
        }
    }

    #[inline]
    pub(crate) fn is_on_demand(&self) -> bool {
        self.heartbeat_ns > 0
    }

    /// Returns the flag by which neighbours learn the mode of this switch.
    pub(crate) fn mode_flag(&self) -> u8 {
        if self.is_on_demand() { Flags::ON_DEMAND } else { 0 }
    }

    /// Handles the mode of the neighbour at `port`.
    #[inline]
    pub(crate) fn set_on_demand(&mut self, port: Port, is_on_demand: bool) {
        if is_on_demand {
            self.on_demand.insert(port);
        } else {
            self.on_demand.remove(port);
        }
    }

    /// Returns the ports of `linked` that carry beacons at the fixed interval.
    pub(crate) fn fixed<'a>(&'a self, linked: &'a PortSet) -> impl Iterator<Item = Port> + 'a {
        linked.iter().filter(|port| !self.on_demand.contains(*port))
    }

    /// Returns the interval at which beacons are due now on the ports of `linked`.
    pub(crate) fn beacon_interval_ns(&self, linked: &PortSet) -> u64 {
        let is_fixed =
            self.is_settling || !self.is_on_demand() || self.fixed(linked).next().is_some();
        match () {
            () if is_fixed => self.interval_ns,
            () if self.waiting.is_empty() => self.heartbeat_ns,
            () => self.instant_ns.min(self.heartbeat_ns),
        }
    }

    /// Handles a message with `timestamp` that passes from `input` to `output`. `is_process`: a
    /// process is at the output, which responds to the message; a switch does not.
    #[inline]
    pub(crate) fn on_message(
        &mut self,
        now: Mono,
        input: Port,
        output: Port,
        timestamp: Timestamp,
        is_process: bool,
    ) {
        if self.is_on_demand() {
            self.inputs[input.index()].active_at = Some(now);
            if is_process {
                let receiver = &mut self.inputs[output.index()];
                receiver.active_at = Some(now);
                receiver.asked.get_or_insert((now, timestamp));
            }
            self.require(output, timestamp);
        }
    }

    /// Handles a solicit from `port` for promises above `wanted`, if it names any. Returns whether
    /// the budget of the port permits to answer it at once.
    pub(crate) fn on_solicit(&mut self, now: Mono, port: Port, wanted: Option<Timestamp>) -> bool {
        if let Some(wanted) = wanted
            && self.is_on_demand()
        {
            self.require(port, wanted);
        }
        let answers = &mut self.inputs[port.index()].answers;
        let may_answer = answers.admits(now);
        if may_answer {
            answers.on_answered(now);
        }
        may_answer
    }

    #[inline]
    fn require(&mut self, output: Port, timestamp: Timestamp) {
        let wanted = &mut self.wanted[output.index()];
        if !self.waiting.contains(output) {
            self.waiting.insert(output);
            *wanted = timestamp;
        } else if *wanted < timestamp {
            *wanted = timestamp;
        } else {
            return;
        }
        self.has_new_request = true;
    }

    /// Handles a frame on `port` with these promises, or with a mark.
    #[inline]
    pub(crate) fn on_input(&mut self, now: Mono, port: Port, promises: Option<Promises>) {
        let input = &mut self.inputs[port.index()];
        let lost_since = input.lost_since.take();
        if let Some(since) = input.solicits.unanswered_since().or(lost_since) {
            self.timeout.on_response(now, now.since_ns(since));
            input.solicits.on_answered();
        }
        if let Some((since, timestamp)) = input.asked
            && promises.is_none_or(|promises| promises.have_passed(timestamp))
        {
            input.asked = None;
            if promises.is_some() {
                input.solicits.on_response(now.since_ns(since));
            }
        }
    }

    /// Handles a change of links: beacons leave at the fast interval until all are set up.
    pub(crate) fn on_link_change(&mut self) {
        self.is_settling = true;
    }

    /// Handles a beacon of a neighbour that has not noticed the loss of the link, or has noticed it
    /// first: the link comes up after several beacons. The next one of a neighbour at rest follows
    /// within a heartbeat.
    pub(crate) fn on_disagreement(&mut self, now: Mono) {
        self.is_settling = true;
        self.disagreed_until = now.after_ns(HEARTBEATS_PER_DISAGREEMENT * self.heartbeat_ns);
    }

    /// Handles promises of an input that has not caught up.
    pub(crate) fn on_joiner(&mut self) {
        self.must_scan = true;
    }

    /// Forgets what waits behind `port`, whose link is down. If it was lost for its silence, a
    /// later frame of the same peer answers what was solicited.
    pub(crate) fn forget(&mut self, port: Port) {
        self.waiting.remove(port);
        let Input { solicits, active_at, asked, lost_since, .. } = &mut self.inputs[port.index()];
        *lost_since = solicits.unanswered_since().or(*lost_since);
        solicits.on_answered();
        solicits.start(Mono::from_ns(0));
        (*active_at, *asked) = (None, None);
    }

    /// Handles another peer at `port`, which answers nothing that the previous one was asked.
    pub(crate) fn on_new_peer(&mut self, port: Port) {
        self.inputs[port.index()].lost_since = None;
    }

    /// Handles a beacon instant. Returns whether all outputs carry a beacon: always at the fixed
    /// interval, else for a heartbeat and while links are being set up.
    pub(crate) fn on_instant(&mut self, now: Mono, is_settling: bool) -> bool {
        self.is_settling = is_settling || now < self.disagreed_until;
        let is_heartbeat = self.heartbeat_at <= now;
        if is_heartbeat {
            self.must_scan = true;
            // An eighth early: after a late instant the next heartbeat still meets its own.
            self.heartbeat_at = now.after_ns(self.heartbeat_ns - self.heartbeat_ns / 8);
        }
        !self.is_on_demand() || self.is_settling || is_heartbeat
    }

    /// Returns the outputs that wait.
    pub(crate) fn waiting(&self) -> &PortSet {
        &self.waiting
    }

    /// Takes whether an output waits for more since the last call.
    #[inline]
    pub(crate) fn take_new_request(&mut self) -> bool {
        core::mem::take(&mut self.has_new_request)
    }

    /// Takes the next input to solicit, and the timestamp that its promises must pass, if an output
    /// waits for any.
    pub(crate) fn pop(&mut self, aggregator: &Aggregator) -> Option<(Port, Option<Timestamp>)> {
        let port = self.pending.pop()?;
        Some((port, Need::of(self, aggregator).of_input(aggregator, port)))
    }

    /// Ends the wait of every output whose minimum has passed what it waits for. Calls `on_passed`
    /// with each of them.
    pub(crate) fn take_passed(&mut self, aggregator: &Aggregator, mut on_passed: impl FnMut(Port)) {
        let (is_early, wanted) = (makes(Mistake::AnswerEarly), &self.wanted);
        self.waiting.retain(|port| {
            let minimum = aggregator.minimum(port);
            let has_passed = minimum
                .is_some_and(|minimum| is_early || minimum.have_passed(wanted[port.index()]));
            if has_passed {
                on_passed(port);
            }
            !has_passed
        });
    }

    //= spec/ordering.md#R41
    /// Decides which inputs are solicited now: those that lag behind what an output waits for, and
    /// those that have not caught up since they came up. An input on which a message has just
    /// arrived is given one interval to promise more unasked. Ends all waits if nothing lags: then
    /// something holds the outputs back that no live input can end.
    pub(crate) fn solicit(
        &mut self,
        now: Mono,
        aggregator: &Aggregator,
        is_joining: impl Fn(Port) -> bool,
    ) {
        if self.waiting.is_empty() && !self.is_settling && !self.must_scan {
            return;
        }
        debug_assert!(self.is_on_demand(), "beacons leave at the fixed interval");
        let need = Need::of(self, aggregator);
        let mut lags = false;
        self.must_scan = false;
        self.instant_ns = u64::MAX;
        for port in (0..self.inputs.len() as u16).map(Port) {
            let Some(promised) = aggregator.promised(port) else { continue };
            let is_joining = is_joining(port);
            if is_joining && makes(Mistake::JoinerNotSolicited) {
                continue;
            }
            let is_behind =
                need.of_input(aggregator, port).is_some_and(|wanted| !promised.have_passed(wanted));
            if !is_behind && !is_joining {
                self.inputs[port.index()].solicits.on_satisfied(now);
                continue;
            }
            lags |= is_behind;
            self.must_scan = true;
            self.solicit_input(now, port);
        }
        if !lags {
            self.waiting.clear();
        }
        if self.instant_ns == u64::MAX {
            self.instant_ns = self.interval_ns;
        }
        debug_assert!(self.must_scan || self.pending.is_empty() || !lags);
    }

    fn solicit_input(&mut self, now: Mono, port: Port) {
        let (interval_ns, input) = (self.interval_ns, &mut self.inputs[port.index()]);
        let wait_ns = input.solicits.wait_ns();
        self.instant_ns = self.instant_ns.min(wait_ns);
        let is_within = |at: Option<Mono>, ns: u64| at.is_some_and(|at| now < at.after_ns(ns));
        let asked_at = input.asked.map(|(at, _)| at);
        let may_respond = asked_at.is_none() || is_within(asked_at, WAITS_MAX * wait_ns);
        let is_active = interval_ns > 0 && may_respond && is_within(input.active_at, wait_ns);
        let is_repeat = input.solicits.unanswered_since().is_some();
        if is_active
            || (is_repeat && makes(Mistake::SolicitOnce))
            || !self.on_demand.contains(port)
            || !input.solicits.take(now)
        {
            return;
        }
        if !is_repeat {
            self.liveness.on_joined(now);
        }
        self.pending.insert(port);
    }

    //= spec/ordering.md#R44
    //= spec/ordering.md#R55
    /// Calls `lost` with each input that has answered no solicit for the link timeout.
    pub(crate) fn expire(&mut self, now: Mono, mut lost: impl FnMut(Port)) {
        if self.liveness.check(now).is_none() {
            return;
        }
        let deadline = self.deadline(now);
        let mut oldest = None;
        for (index, input) in self.inputs.iter_mut().enumerate() {
            let solicits = &mut input.solicits;
            if solicits.unanswered_since().is_some_and(|since| since < deadline) {
                input.lost_since = solicits.unanswered_since();
                solicits.on_answered();
                lost(Port(index as u16));
            }
            oldest = Mono::earlier(oldest, solicits.unanswered_since());
        }
        self.liveness.on_checked(now, oldest);
    }

    //= spec/ordering.md#R55
    /// Returns since when nothing must have been received on a link that has timed out.
    pub(crate) fn deadline(&self, now: Mono) -> Mono {
        Mono::from_ns(now.as_ns().saturating_sub(self.timeout.ns(now)))
    }

    /// Handles a stall of the driver: see [`Liveness::postpone`].
    pub(crate) fn postpone(&mut self, now: Mono) {
        self.liveness.postpone(now);
    }

    /// Returns when solicits are checked for answers next.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.liveness.due()
    }
}

/// The highest timestamps that outputs wait for, from which the need of each input follows.
struct Need {
    upper: Option<Timestamp>,
    /// The highest of the lower outputs, and the highest without that one: a lower input does not
    /// feed its own output.
    lower: Option<(Port, Timestamp)>,
    lower_without: Option<Timestamp>,
}

impl Need {
    fn of(demand: &Demand, aggregator: &Aggregator) -> Self {
        let mut need = Self { upper: None, lower: None, lower_without: None };
        for port in demand.waiting.iter() {
            let wanted = demand.wanted[port.index()];
            if aggregator.is_upper(port) {
                need.upper = need.upper.max(Some(wanted));
            } else if need.lower.is_none_or(|(_, highest)| wanted > highest) {
                need.lower_without = need.lower_without.max(need.lower.map(|(_, ts)| ts));
                need.lower = Some((port, wanted));
            } else {
                need.lower_without = need.lower_without.max(Some(wanted));
            }
        }
        need
    }

    /// Returns the timestamp that the promises of `input` must pass, if any output that it feeds
    /// waits for one.
    fn of_input(&self, aggregator: &Aggregator, input: Port) -> Option<Timestamp> {
        let lower = self.lower.map(|(_, wanted)| wanted);
        if aggregator.is_upper(input) {
            return lower;
        }
        let is_own = self.lower.is_some_and(|(port, _)| port == input);
        let others = if is_own && !aggregator.is_alone(input) { self.lower_without } else { lower };
        self.upper.max(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beacons_leave_at_the_fast_interval_while_links_change() {
        let (interval_ns, heartbeat_ns) = (3_000, 1_000_000);
        let mut demand = Demand::new(2, interval_ns, heartbeat_ns, 0);
        let linked = PortSet::new(2);
        let at = |ns| Mono::from_ns(ns);
        assert_eq!(demand.beacon_interval_ns(&linked), interval_ns, "at the start");
        assert!(demand.on_instant(at(1), true), "all outputs carry a beacon");
        assert!(demand.on_instant(at(2), true), "again, without a heartbeat");
        assert!(!demand.on_instant(at(3), false), "all links are set up");
        assert_eq!(demand.beacon_interval_ns(&linked), heartbeat_ns);
        demand.on_link_change();
        assert_eq!(demand.beacon_interval_ns(&linked), interval_ns, "until the next instant");
        assert!(!demand.on_instant(at(4), false));
        demand.on_disagreement(at(4));
        assert_eq!(demand.beacon_interval_ns(&linked), interval_ns);
        let until = at(4).after_ns(HEARTBEATS_PER_DISAGREEMENT * heartbeat_ns);
        assert!(
            demand.on_instant(Mono::from_ns(until.as_ns() - 1), false),
            "the ends still disagree"
        );
        assert!(!demand.on_instant(until, false), "not any more");
    }
}
