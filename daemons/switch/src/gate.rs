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

#[cfg(test)]
mod tests {
    use onepipe_base::{Address, Incarnation, Mono, ProcessId, SwitchId, Timestamp};
    use onepipe_wire::JoinRole;

    use super::*;

    fn node(address: Address) -> Instance {
        Instance { address, incarnation: Incarnation(1) }
    }

    fn gate() -> Gate {
        let terms = Terms {
            processes_max: 16,
            controllers: None,
            link_timeout_ns: 1,
            frame_len_max: 1_472,
            key_epoch: 0,
            version: onepipe_wire::VERSION,
        };
        Gate::new(node(Address::Switch(SwitchId(0))), terms, 1)
    }

    //= spec/ordering.md#R64
    #[test]
    fn cookie_expires_after_two_intervals() {
        let gate = gate();
        let instance = node(Address::Process(ProcessId(1)));
        let applicant = Applicant { instance, role: JoinRole::Process };
        let cookies = |seconds: u64| {
            let mono = Mono::from_ns(seconds * 1_000_000_000);
            let now = Now { mono, sync: Timestamp::from_ns(1) };
            gate.cookies(now, SocketAddr::from(([127, 0, 0, 1], 1)), applicant)
        };
        let sent = cookies(1_005).present;
        for (seconds, is_accepted) in [(1_009, true), (1_019, true), (1_020, false), (1_030, false)]
        {
            let Cookies { present, previous } = cookies(seconds);
            assert_eq!([present, previous].contains(&sent), is_accepted, "at {seconds} s");
        }
    }

    #[test]
    fn answers_of_a_turn_are_limited() {
        let mut gate = gate();
        for _ in 0..2 {
            let answers = (0..1_000).filter(|_| gate.take_answer()).count();
            assert_eq!(answers, ANSWERS_MAX as usize);
            gate.on_turn();
        }
    }
}
