//! The gate of the switch: challenges unknown addresses before they get a port.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::{Instance, Now};
use onepipe_join::{Admission, Applicant, Cookies};
use onepipe_transport_clock::incarnation_after;
use onepipe_wire::Terms;

/// A cookie is accepted for one to two of these, in ns.
const COOKIE_INTERVAL_NS: u64 = 10_000_000_000;
/// Number of answers to unknown addresses in one turn; further requests are repeated later.
const ANSWERS_MAX: u32 = 64;
/// How far the clock of a joiner may be ahead.
const CLOCK_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Admits joiners. It holds no state about an address that has not proved that it receives.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) admission: Admission,
    /// The secret of this start: SipHash with random keys.
    secret: RandomState,
    answers_left: u32,
}

impl Gate {
    pub(crate) fn new(own: Instance, terms: Terms, hello_interval_ns: u64) -> Self {
        let admission = Admission::new(own, terms, hello_interval_ns);
        Self { admission, secret: RandomState::new(), answers_left: ANSWERS_MAX }
    }

    /// Begins a turn.
    pub(crate) fn on_turn(&mut self) {
        self.answers_left = ANSWERS_MAX;
    }

    /// Returns whether one more answer may be sent in this turn.
    pub(crate) fn take_answer(&mut self) -> bool {
        let may_answer = self.answers_left > 0;
        self.answers_left = self.answers_left.saturating_sub(1);
        may_answer
    }

    /// Returns the cookies of `applicant` at address `from`.
    pub(crate) fn cookies(&self, now: Now, from: SocketAddr, applicant: Applicant) -> Cookies {
        let interval = now.mono.as_ns() / COOKIE_INTERVAL_NS;
        // 0 stands for "no cookie".
        let cookie = |interval: u64| self.secret.hash_one((from, applicant, interval)).max(1);
        Cookies { present: cookie(interval), previous: cookie(interval.wrapping_sub(1)) }
    }

    /// Returns the highest incarnation that a joiner may have.
    pub(crate) fn incarnation_max() -> onepipe_base::Incarnation {
        incarnation_after(CLOCK_AHEAD_MAX)
    }
}
