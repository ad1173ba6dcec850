//! State of a session since its last reset.

use core::cmp::Ordering;

use onepipe_base::{Backoff, Mono, Now, Psn, Timestamp};
use onepipe_reliability::{ReceivedBitmap, RetransmitTimer, RttEstimator};
use onepipe_wire::{Fcp, FcpParams, FcpReset, FcpWriter};

use super::send_window::{DestinationSet, SendWindow};
use super::times::SessionTimes;

/// Consecutive packets with a wrong check after which the session is reset (Fastpass's value;
/// `docs/design/arbiter.md`, "Who notices that both ends are out of step?").
const BAD_MAX: u32 = 10;

/// The result of checking a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PacketVerdict {
    /// In step. `is_new_session`: it carries a new reset, so all totals restart at zero.
    Accepted { is_new_session: bool },
    /// In step, but received before or too old to be known, or ambiguous because a later packet has
    /// overtaken it.
    Duplicate,
    /// Carries a reset that is older than the last one, or far from the local clock.
    Stale,
    /// There is no session.
    NoSession,
    /// The check is wrong. `is_burst`: the number of such packets requires a reset.
    OutOfStep { is_burst: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    times: SessionTimes,
    /// Time of the last reset, from which the seed of checks is derived.
    time: Option<Timestamp>,
    seed: u64,
    is_open: bool,
    /// The peer has confirmed the last reset.
    is_confirmed: bool,
    /// The peer's reset was accepted; the next packet confirms it.
    confirms_reset: bool,
    reset_backoff: Backoff,
    /// The last 64 packets of the peer. The first one of a session has number 1.
    received: ReceivedBitmap<1>,
    pub unacked: SendWindow,
    bad_checks: u32,
    rtt: RttEstimator,
    timer: RetransmitTimer,
    /// Time of the oldest received packet that was not acknowledged.
    pub ack_pending_since: Option<Mono>,
}

impl Session {
    /// Creates a closed session. An unanswered reset is repeated after the retransmission timeout
    /// and then with exponential backoff up to `slow_ns`.
    pub fn new(times: SessionTimes, slow_ns: u64) -> Self {
        Self {
            times,
            time: None,
            seed: 0,
            is_open: false,
            is_confirmed: false,
            confirms_reset: false,
            reset_backoff: Backoff::new(times.rto_ns_min, slow_ns),
            received: ReceivedBitmap::complete_until(Psn(0)),
            unacked: SendWindow::new(),
            bad_checks: 0,
            rtt: RttEstimator::new(times.rto_ns_min, times.rto_ns_max),
            timer: RetransmitTimer::default(),
            ack_pending_since: None,
        }
    }

    /// Asserts what no packet can break.
    pub fn check_invariants(&self) {
        self.received.check_invariants();
        self.unacked.check_invariants();
        assert!(self.bad_checks < BAD_MAX, "a burst resets the session");
        assert!(self.rto_ns() >= self.times.rto_ns_min, "the timeout is not below its minimum");
        assert!(self.rto_ns() <= self.times.rto_ns_max, "the timeout is not above its maximum");
        if self.is_open {
            let time = self.time.expect("an open session was reset");
            assert_eq!(self.seed, mix(time.as_ns()), "the checks follow from the reset");
        } else {
            assert!(self.ack_pending_since.is_none(), "a closed session acknowledges nothing");
            assert!(self.unacked.oldest_sent_at().is_none(), "a closed session awaits nothing");
        }
        assert!(!self.confirms_reset || self.is_confirmed, "only a known reset is confirmed");
    }

    /// Whether the session was reset and not closed since.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the peer has confirmed the last reset.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Closes the session. The time of the last reset is kept, so that older resets stay invalid.
    pub fn close(&mut self) {
        self.unacked.reset();
        (self.is_open, self.ack_pending_since) = (false, None);
    }

    /// Starts a session with a reset of its own, repeated until it is confirmed.
    pub fn restart(&mut self, now: Now) {
        let after = self.time.map_or(now.sync, |last| now.sync.max(last.wrapping_add_ns(1)));
        debug_assert!(self.time < Some(after), "a reset is later than all before it");
        self.begin(after);
        self.reset_backoff.on_change(now.mono);
    }

    fn begin(&mut self, time: Timestamp) {
        (self.time, self.seed) = (Some(time), mix(time.as_ns()));
        (self.is_open, self.is_confirmed) = (true, false);
        self.confirms_reset = false;
        self.received = ReceivedBitmap::complete_until(Psn(0));
        self.unacked.reset();
        (self.bad_checks, self.ack_pending_since) = (0, None);
    }

    /// Verifies a received packet, and records it if it is accepted.
    pub fn verify(&mut self, now: Now, fcp: &Fcp<'_>) -> PacketVerdict {
        let mut is_new_session = false;
        match (fcp.reset().map(|reset| reset.time), self.time) {
            (Some(time), own) => {
                if !fcp.is_in_step(mix(time.as_ns())) {
                    return self.on_bad_check();
                }
                //= spec/arbiter.md#R21
                is_new_session = self.is_recent(now, time) && own.is_none_or(|own| own < time);
                if is_new_session {
                    self.begin(time);
                } else if own != Some(time) || !self.is_open {
                    // A peer whose clock was set back repeats its reset: answer with a newer one.
                    return match self.on_bad_check() {
                        PacketVerdict::OutOfStep { is_burst: true } => {
                            PacketVerdict::OutOfStep { is_burst: true }
                        }
                        _ => PacketVerdict::Stale,
                    };
                }
            }
            (None, _) if !self.is_open => return PacketVerdict::NoSession,
            (None, _) if !fcp.is_in_step(self.seed) => return self.on_bad_check(),
            (None, _) => {}
        }
        (self.is_confirmed, self.bad_checks) = (true, 0);
        self.confirms_reset |= is_new_session;
        if let Some(round_trip_ns) = self.unacked.on_ack(now.mono, fcp.received, fcp.received_bits)
        {
            self.rtt.on_sample(round_trip_ns);
            self.timer.reset();
        }
        if fcp.parts().next().is_some() {
            self.ack_pending_since.get_or_insert(now.mono);
        }
        //= spec/arbiter.md#R4
        if fcp.is_relative() && self.received.is_overtaken(Psn(fcp.sequence)) {
            // Not recorded, so that the peer retransmits it.
            return PacketVerdict::Duplicate;
        }
        let is_new = self.received.is_new(Psn(fcp.sequence));
        self.received.insert(Psn(fcp.sequence));
        match is_new {
            true => PacketVerdict::Accepted { is_new_session },
            false => PacketVerdict::Duplicate,
        }
    }

    //= spec/arbiter.md#R22
    /// Returns the parameters in a packet's reset if they differ from `params` and the packet's
    /// check is valid. There can be no session between such ends.
    pub fn params_mismatch(fcp: &Fcp<'_>, params: FcpParams) -> Option<FcpParams> {
        let reset = fcp.reset().filter(|reset| reset.params != params)?;
        fcp.is_in_step(mix(reset.time.as_ns())).then_some(reset.params)
    }

    /// Whether a packet's reset is outside the accepted range of the local clock.
    pub fn is_clock_skewed(&self, now: Now, fcp: &Fcp<'_>) -> bool {
        let reset = fcp.reset().filter(|reset| fcp.is_in_step(mix(reset.time.as_ns())));
        reset.is_some_and(|reset| !self.is_recent(now, reset.time))
    }

    /// Writes a packet with only a reset, for a peer without a session. Returns its length.
    pub fn reject(buffer: &mut [u8], reset: FcpReset) -> Option<usize> {
        let mut writer = FcpWriter::new(buffer, 0, u64::MAX)?;
        let seed = mix(reset.time.as_ns());
        writer.reset(reset).then(|| writer.finish(seed))
    }

    /// Compares a packet's reset with the last one of this session; `None` if the packet carries no
    /// valid and recent reset.
    pub fn compare_reset(&self, now: Now, fcp: &Fcp<'_>) -> Option<Ordering> {
        let time = fcp.reset()?.time;
        let is_valid = self.is_recent(now, time) && fcp.is_in_step(mix(time.as_ns()));
        is_valid.then(|| Some(time).cmp(&self.time))
    }

    //= spec/arbiter.md#R20
    fn on_bad_check(&mut self) -> PacketVerdict {
        // Packets that arrive before the own reset is confirmed were sent before it.
        self.bad_checks += u32::from(self.is_confirmed || !self.is_open);
        let is_burst = self.bad_checks >= BAD_MAX;
        if is_burst {
            self.bad_checks = 0;
        }
        PacketVerdict::OutOfStep { is_burst }
    }

    //= spec/arbiter.md#R23
    /// Returns the retransmission timeout, ns.
    pub fn rto_ns(&self) -> u64 {
        self.timer.timeout_ns(&self.rtt)
    }

    /// Doubles the retransmission timeout, as no packet was answered.
    pub fn back_off(&mut self) {
        self.timer.back_off();
    }

    //= spec/arbiter.md#R25
    /// Returns the time at which an acknowledgement must be sent on its own.
    pub fn ack_due(&self) -> Option<Mono> {
        self.ack_pending_since.map(|since| since.after_ns(self.times.ack_delay_ns))
    }

    /// Whether a reset is due. The next one is scheduled with exponential backoff.
    pub fn take_reset(&mut self, now: Mono) -> bool {
        self.is_open() && !self.is_confirmed && self.reset_backoff.take(now)
    }

    /// Returns the time at which a reset is due, unless it is confirmed.
    pub fn reset_due(&self) -> Option<Mono> {
        self.reset_backoff.due().filter(|_| self.is_open() && !self.is_confirmed)
    }

    /// Starts a packet. A reset that it has to carry is of this epoch, with these parameters.
    pub fn write<'a>(
        &self,
        buffer: &'a mut [u8],
        epoch: u32,
        params: FcpParams,
    ) -> Option<FcpWriter<'a>> {
        let highest = self.received.largest()?;
        let mut writer = FcpWriter::new(buffer, highest.0, self.received.words()[0])?;
        match self.time.filter(|_| !self.is_confirmed || self.confirms_reset) {
            Some(time) if !writer.reset(FcpReset { time, epoch, params }) => None,
            _ => Some(writer),
        }
    }

    /// Completes a packet. Returns its length, and the destinations of the packet that left the
    /// window unacknowledged.
    pub fn finish(
        &mut self,
        now: Mono,
        writer: FcpWriter<'_>,
        destinations: &DestinationSet,
    ) -> (usize, Option<DestinationSet>) {
        (self.ack_pending_since, self.confirms_reset) = (None, false);
        // An unconfirmed reset is retransmitted like any content.
        let is_noted = !destinations.is_empty() || !self.is_confirmed;
        (writer.finish(self.seed), self.unacked.send(now, destinations, is_noted))
    }

    fn is_recent(&self, now: Now, time: Timestamp) -> bool {
        now.sync.as_ns().abs_diff(time.as_ns()) <= self.times.reset_age_ns_max
    }
}

/// Derives the seed of checks from the time of a reset. The finaliser of SplitMix64 (Steele, Lea,
/// Flood: OOPSLA 2014).
const fn mix(time: u64) -> u64 {
    let bits = time.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
