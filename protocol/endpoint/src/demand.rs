//! Beacons on demand at a process: which promises the switch waits for, and when to solicit one.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{
    AdaptiveTimeout, AnswerBudget, Mono, Promises, SolicitTimer, Timestamp, is_plausible_request,
};

/// A promise above the timestamps of received messages, which follows them unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Response {
    /// The highest timestamp of the messages.
    to: Timestamp,
    at: Mono,
    /// Whether `at` had passed at the last input or timeout.
    is_due: bool,
}

//= spec/ordering.md#R41
//= spec/ordering.md#R42
/// The promises that the uplink waits for, and those that this process waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Demand {
    interval_ns: u64,
    /// Whether a solicit was received since the last promise was sent.
    must_answer: bool,
    answers: AnswerBudget,
    /// The highest timestamp that the uplink waits for, until a promise above it was sent.
    requested: Option<Timestamp>,
    /// Whether a solicit has asked for it: the beacon that satisfies it then counts as an answer.
    is_solicited: bool,
    /// Whether a solicited beacon waits for the budget of answers.
    is_put_off: bool,
    /// When the clock will have passed `requested`, if nothing else holds the promise back.
    retry_at: Option<Mono>,
    /// The promise that follows received messages.
    response: Option<Response>,
    /// When a frame was last sent on the uplink.
    sent_at: Option<Mono>,
    /// Whether the switch was sent a promise since this process has a time to promise.
    has_promised: bool,
    /// The newest undelivered timestamp when the solicit timer was last started, and when that was.
    awaited: Option<Timestamp>,
    awaited_since: Mono,
    solicits: SolicitTimer,
    timeout: AdaptiveTimeout,
    /// The link timeout as of the last answer or look at links, in ns.
    timeout_ns: u64,
}

impl Demand {
    pub fn new(interval_ns: u64, heartbeat_ns: u64, timeout_ns: u64) -> Self {
        Self {
            interval_ns,
            must_answer: false,
            answers: AnswerBudget::new(interval_ns),
            requested: None,
            is_solicited: false,
            is_put_off: false,
            retry_at: None,
            response: None,
            sent_at: None,
            has_promised: false,
            awaited: None,
            awaited_since: Mono::from_ns(0),
            solicits: SolicitTimer::new(interval_ns, heartbeat_ns, timeout_ns),
            timeout: AdaptiveTimeout::new(timeout_ns),
            timeout_ns,
        }
    }

    /// Sets the interval of responses, which is longer while this process is late.
    pub fn set_interval(&mut self, interval_ns: u64) {
        self.interval_ns = interval_ns;
    }

    /// Handles a solicit for a promise above `wanted`, if it is to be remembered.
    pub fn on_solicit(&mut self, clock: Timestamp, wanted: Option<Timestamp>) {
        self.must_answer = true;
        if let Some(wanted) = wanted
            && is_plausible_request(clock, wanted)
        {
            self.is_solicited = true;
            self.require(wanted);
        }
    }

    /// Makes a beacon leave as soon as this process promises more than `timestamp`, unless another
    /// frame carries that promise first.
    #[inline]
    pub fn require(&mut self, timestamp: Timestamp) {
        self.requested = self.requested.max(Some(timestamp));
    }

    /// Handles a received message: all other receivers, and the sender, wait for a promise above
    /// its timestamp. Schedules one, at once unless a frame was sent within the last interval.
    #[inline]
    pub fn on_message(&mut self, now: Mono, timestamp: Timestamp) {
        if let Some(response) = &mut self.response {
            response.to = response.to.max(timestamp);
            return;
        }
        let earliest = self.sent_at.map(|at| at.after_ns(self.interval_ns));
        let at = earliest.map_or(now, |at| at.max(now));
        self.response = Some(Response { to: timestamp, at, is_due: at <= now });
    }

    /// Handles a timeout: a response may have become due.
    pub fn on_timeout(&mut self, now: Mono) {
        if let Some(response) = &mut self.response {
            response.is_due = response.at <= now;
        }
    }

    /// Returns whether the promise that a received message asks for is due, and asks for it.
    #[inline]
    pub fn take_response(&mut self, now: Mono) -> bool {
        let due = self.response.take_if(|response| response.at <= now);
        if let Some(response) = due {
            self.require(response.to);
        }
        due.is_some()
    }

    /// Returns whether the switch was sent a promise since this process has a time to promise.
    #[inline]
    pub fn has_promised(&self) -> bool {
        self.has_promised
    }

    /// Handles the loss of the uplink, or another switch there, which knows no promise of this
    /// process.
    pub fn on_link_change(&mut self) {
        self.has_promised = false;
        self.solicits.on_answered();
    }

    /// Handles a frame with `promises` that was sent on the uplink. `is_started`: they are real.
    #[inline]
    pub fn on_sent(&mut self, now: Mono, promises: Promises, is_started: bool) {
        self.sent_at = Some(now);
        self.has_promised |= is_started;
        if self.response.is_some_and(|response| promises.have_passed(response.to)) {
            self.response = None;
        }
        if self.must_answer {
            self.must_answer = false;
            self.answers.on_answered(now);
        }
        if self.requested.is_some() {
            let is_early = makes(Mistake::AnswerEarly);
            let wanted = self.requested;
            self.requested = wanted.filter(|wanted| !is_early && !promises.have_passed(*wanted));
            self.is_solicited &= self.requested.is_some();
            let is_met = wanted.is_some_and(|wanted| promises.have_passed(wanted));
            debug_assert!(self.requested.is_some() || is_met, "a request stands until it is met");
        }
    }

    /// Returns whether a beacon may be due: an answer, or a promise that was waited for.
    #[inline]
    pub fn wants_beacon(&self, promises: impl FnOnce() -> Option<Promises>) -> bool {
        let has_passed = |wanted| promises().is_some_and(|own| own.have_passed(wanted));
        let has_response = self.response.is_some_and(|response| response.is_due);
        self.must_answer || has_response || self.requested.is_some_and(has_passed)
    }

    //= spec/ordering.md#R46
    /// Returns whether a beacon is due. It counts as an answer if a solicit has asked for it, and
    /// waits while answers exceed their budget.
    pub fn take_beacon(&mut self, now: Mono, promises: Option<Promises>) -> bool {
        let wanted = self.requested.zip(promises);
        let is_satisfied = wanted.is_some_and(|(wanted, own)| own.have_passed(wanted));
        if is_satisfied && !self.is_solicited {
            return true;
        }
        let is_due = is_satisfied || self.must_answer;
        self.is_put_off = is_due && !self.answers.admits(now);
        if !is_due || self.is_put_off {
            return false;
        }
        self.must_answer = false;
        self.answers.on_answered(now);
        true
    }

    /// Follows what is undelivered: `newest` is the newest timestamp that the barrier has not
    /// passed, and `barrier` the lowest barrier that something waits for. `is_asked`: the switch
    /// has seen what is undelivered, and asks others to raise it.
    pub fn on_undelivered(
        &mut self,
        now: Mono,
        newest: Option<Timestamp>,
        barrier: Option<Timestamp>,
        is_asked: bool,
    ) {
        let is_passed = self.awaited.is_some_and(|awaited| Some(awaited) < barrier);
        if newest.is_some() && self.awaited.is_some() && !is_passed {
            return;
        }
        if newest.is_none() && self.awaited.is_none() {
            return;
        }
        let has_ended = is_passed || newest.is_none();
        if has_ended && is_asked {
            self.solicits.on_response(now.since_ns(self.awaited_since));
        }
        (self.awaited, self.awaited_since) = (newest, now);
        if newest.is_some() {
            let wait_ns = if is_passed || is_asked { self.solicits.wait_ns() } else { 0 };
            self.solicits.start(now.after_ns(wait_ns));
        } else {
            self.solicits.stop();
            self.solicits.on_answered();
        }
    }

    /// Returns whether anything was undelivered when that was last looked at.
    #[inline]
    pub fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Makes a solicit leave now, because a peer does not respond: either the peer or the uplink
    /// is dead.
    pub fn probe_uplink(&mut self, now: Mono) {
        self.solicits.reschedule(now);
    }

    /// Returns whether a solicit is due, and schedules the next one.
    pub fn take_solicit(&mut self, now: Mono) -> bool {
        let is_due = self.solicits.take(now);
        if is_due && (self.awaited.is_none() || makes(Mistake::SolicitOnce)) {
            self.solicits.stop();
        }
        is_due
    }

    //= spec/ordering.md#R55
    /// Handles a frame with promises from the uplink.
    #[inline]
    pub fn on_uplink(&mut self, now: Mono) {
        if let Some(since) = self.solicits.unanswered_since() {
            self.on_response(now, now.since_ns(since));
            self.solicits.on_answered();
        }
    }

    /// Handles a response of a live peer that took `elapsed_ns`.
    pub fn on_response(&mut self, now: Mono, elapsed_ns: u64) {
        self.timeout.on_response(now, elapsed_ns);
        self.refresh_timeout(now);
    }

    /// Forgets responses that are no longer recent.
    pub fn refresh_timeout(&mut self, now: Mono) {
        self.timeout_ns = self.timeout.ns(now);
    }

    /// Returns the link timeout in ns, which is longer while answers take long.
    pub fn timeout_ns(&self) -> u64 {
        self.timeout_ns
    }

    /// Returns since when a solicit was not answered.
    pub fn unanswered_since(&self) -> Option<Mono> {
        self.solicits.unanswered_since()
    }

    /// Schedules the next look at a request that only the clock holds back: `promised` is what this
    /// process promises now, unless something else than the clock limits that.
    pub fn on_drained(&mut self, now: Mono, promised: Option<Timestamp>) {
        self.retry_at = self.requested.zip(promised).map(|(wanted, promised)| {
            let wait_ns = wanted.since_ns(promised).saturating_add(1);
            now.after_ns(wait_ns.max(self.answers.gap_ns()))
        });
    }

    /// Checks that whatever is waited for has a timer.
    pub fn check_invariants(&self) {
        let has_timer = self.solicits.due().is_some();
        assert!(self.awaited.is_none() || has_timer, "what is undelivered is solicited");
        assert!(!self.is_solicited || self.requested.is_some(), "a solicit names a timestamp");
    }

    /// Returns when the next answer, requested promise or solicit is due.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        let answer = self.answers.next().filter(|_| self.must_answer || self.is_put_off);
        let own = Mono::earlier(self.response.map(|response| response.at), self.solicits.due());
        Mono::earlier(Mono::earlier(answer, self.retry_at), own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= spec/ordering.md#R42
    /// A Join leaves before output is polled for the response, and may carry the promise.
    #[test]
    fn promise_sent_earlier_replaces_the_response() {
        let (start, at) = (Mono::from_ns(1_000), Timestamp::from_ns(500));
        let mut demand = Demand::new(100, 0, 1_000);
        let wants = |demand: &Demand| {
            demand.check_invariants();
            demand.wants_beacon(|| None)
        };
        demand.on_message(start, at);
        assert!(wants(&demand));
        demand.on_sent(start, Promises::both(at), true);
        assert!(wants(&demand), "a promise below the message is no response");
        demand.on_sent(start, Promises::both(at.wrapping_add_ns(1)), true);
        assert!(!wants(&demand) && demand.deadline().is_none());
        assert!(!demand.take_response(start));
        // The next one waits for an interval, and becomes due in a timeout.
        demand.on_message(start, at.wrapping_add_ns(10));
        assert!(!wants(&demand) && demand.deadline() == Some(start.after_ns(100)));
        demand.on_timeout(start.after_ns(99));
        assert!(!wants(&demand));
        demand.on_timeout(start.after_ns(100));
        assert!(wants(&demand) && demand.take_response(start.after_ns(100)));
        assert!(!wants(&demand), "it is required from now on");
        assert_eq!(demand.requested, Some(at.wrapping_add_ns(10)));
    }
}
