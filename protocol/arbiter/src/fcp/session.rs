//! What one end knows of the other since their last reset.

use core::cmp::Ordering;

use onepipe_base::{Backoff, Mono, Now, Timestamp};
use onepipe_wire::{Fcp, FcpParams, FcpReset, FcpWriter};

use super::window::{DestinationSet, ReceiveWindow, SendWindow};

/// Packets in a row whose check fails, after which both ends are taken to be out of step (the
/// original's burst; design: arbiter.md section 4).
const BAD_MAX: u32 = 10;
/// A reset that lies further from the own clock is not taken: a stray of long ago, or a clock that
/// is wrong. In ns.
const RESET_AGE_MAX_NS: u64 = 1_000_000_000;
/// An acknowledgement waits for so much for something to go with, in ns.
const ACK_NS: u64 = 50_000;
/// What is not heard for so long is said again, in ns.
pub(crate) const RTO_MIN_NS: u64 = 200_000;
/// Nobody is waited for any longer than this before it is said again: more than any way takes. In
/// ns.
const RTO_MAX_NS: u64 = RTO_MIN_NS << 6;

/// What has come of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PacketVerdict {
    /// It is in step. `is_new_session`: with a reset that is new here, so that all counts begin anew.
    Accepted { is_new_session: bool },
    /// It is in step, and has come before or is too old to tell; or what it says could be
    /// misunderstood, as a later one has come.
    Duplicate,
    /// It begins with a reset that is older than the last one, or far from the own clock.
    Stale,
    /// There was no reset yet.
    NoSession,
    /// It is out of step. `is_burst`: so many are that a reset is due.
    OutOfStep { is_burst: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    /// Of the last reset, and what follows from it.
    time: Option<Timestamp>,
    seed: u64,
    is_open: bool,
    /// The other end is known to have had the same reset.
    is_confirmed: bool,
    /// A reset was taken over, and the next packet says so, and in which epoch.
    confirms_reset: bool,
    reset_backoff: Backoff,
    received: ReceiveWindow,
    pub unacked: SendWindow,
    bad_checks: u32,
    /// How long an answer may take: see [`Session::rto_ns`].
    rto_ns: u64,
    /// Since when something waits to be acknowledged.
    pub ack_pending_since: Option<Mono>,
}

impl Session {
    /// Before the first reset. One that is not answered is said again after 200 us, and each time
    /// after twice as long, up to `slow_ns`.
    pub fn new(slow_ns: u64) -> Self {
        Self {
            time: None,
            seed: 0,
            is_open: false,
            is_confirmed: false,
            confirms_reset: false,
            reset_backoff: Backoff::new(RTO_MIN_NS, slow_ns),
            received: ReceiveWindow::NONE,
            unacked: SendWindow::new(),
            bad_checks: 0,
            rto_ns: RTO_MIN_NS,
            ack_pending_since: None,
        }
    }

    /// Whether there has been a reset, and it was not closed since.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the other end is known to be in step.
    pub fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Forgets all, but not the time of the last reset: those before it stay old.
    pub fn close(&mut self) {
        self.unacked.reset();
        (self.is_open, self.ack_pending_since) = (false, None);
    }

    /// Begins anew, with a reset of its own that is said until it is heard.
    pub fn restart(&mut self, now: Now) {
        let after = self.time.map_or(now.sync, |last| now.sync.max(last.wrapping_add_ns(1)));
        self.begin(after);
        self.reset_backoff.on_change(now.mono);
    }

    fn begin(&mut self, time: Timestamp) {
        (self.time, self.seed) = (Some(time), mix(time.as_ns()));
        (self.is_open, self.is_confirmed) = (true, false);
        self.confirms_reset = false;
        self.received = ReceiveWindow::NONE;
        self.unacked.reset();
        (self.bad_checks, self.ack_pending_since) = (0, None);
    }

    /// What to make of a packet. It is taken note of if it is good.
    pub fn verify(&mut self, now: Now, fcp: &Fcp<'_>) -> PacketVerdict {
        let mut is_new_session = false;
        match (fcp.reset().map(|reset| reset.time), self.time) {
            (Some(time), own) => {
                if !fcp.is_in_step(mix(time.as_ns())) {
                    return self.on_bad_check();
                }
                is_new_session = is_recent(now, time) && own.is_none_or(|own| own < time);
                if is_new_session {
                    self.begin(time);
                } else if own != Some(time) || !self.is_open {
                    // Who says so for ever, because its clock was put back, is told a newer one.
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
            let enough_ns = (round_trip_ns + round_trip_ns / 2).clamp(RTO_MIN_NS, RTO_MAX_NS);
            let less_ns = self.rto_ns - self.rto_ns.saturating_sub(enough_ns).div_ceil(8);
            self.rto_ns = less_ns.max(enough_ns);
        }
        if fcp.parts().next().is_some() {
            self.ack_pending_since.get_or_insert(now.mono);
        }
        if fcp.is_relative() && self.received.is_overtaken(fcp.sequence) {
            // It is not taken to be heard, and said again.
            return PacketVerdict::Duplicate;
        }
        match self.received.record(fcp.sequence) {
            true => PacketVerdict::Accepted { is_new_session },
            false => PacketVerdict::Duplicate,
        }
    }

    /// On which other terms than these the sender of a packet is, if it bears a reset that is in
    /// step with itself and says so. There is nothing to be agreed on then.
    pub fn terms_mismatch(fcp: &Fcp<'_>, terms: FcpParams) -> Option<FcpParams> {
        let reset = fcp.reset().filter(|reset| reset.terms != terms)?;
        fcp.is_in_step(mix(reset.time.as_ns())).then_some(reset.terms)
    }

    /// Whether the sender of a packet has reset at a time that is not recent, by the clock here.
    pub fn is_clock_skewed(now: Now, fcp: &Fcp<'_>) -> bool {
        let reset = fcp.reset().filter(|reset| fcp.is_in_step(mix(reset.time.as_ns())));
        reset.is_some_and(|reset| !is_recent(now, reset.time))
    }

    /// A packet with a reset and nothing else, to whom there is no session with. Answers its
    /// bytes.
    pub fn reject(buffer: &mut [u8], reset: FcpReset) -> Option<usize> {
        let mut writer = FcpWriter::new(buffer, (0, u64::MAX))?;
        let seed = mix(reset.time.as_ns());
        writer.reset(reset).then(|| writer.finish(seed))
    }

    /// How a packet's reset lies to the last one here; `None` if it bears none that is in step with
    /// itself and of late.
    pub fn compare_reset(&self, now: Now, fcp: &Fcp<'_>) -> Option<Ordering> {
        let time = fcp.reset()?.time;
        let is_right = is_recent(now, time) && fcp.is_in_step(mix(time.as_ns()));
        is_right.then(|| Some(time).cmp(&self.time))
    }

    fn on_bad_check(&mut self) -> PacketVerdict {
        // Before its own reset is answered, what comes was said before that.
        self.bad_checks += u32::from(self.is_confirmed || !self.is_open);
        let is_burst = self.bad_checks >= BAD_MAX;
        if is_burst {
            self.bad_checks = 0;
        }
        PacketVerdict::OutOfStep { is_burst }
    }

    /// What was not acknowledged for so long is lost, ns: half as long again as an answer takes,
    /// the longest of late, 200 us at least; and twice as long each time that there was none.
    pub fn rto_ns(&self) -> u64 {
        self.rto_ns
    }

    /// Nothing that was said is answered: perhaps the way is longer.
    pub fn back_off(&mut self) {
        self.rto_ns = (2 * self.rto_ns).min(RTO_MAX_NS);
    }

    /// When an acknowledgement is due, if nothing goes with which it could go.
    pub fn ack_due(&self) -> Option<Mono> {
        self.ack_pending_since.map(|oldest_sent_at| oldest_sent_at.after_ns(ACK_NS))
    }

    /// Whether a reset is to be said now.
    pub fn take_reset(&mut self, now: Mono) -> bool {
        self.is_open() && !self.is_confirmed && self.reset_backoff.take(now)
    }

    /// When a reset is to be said, if it is not known to be heard.
    pub fn reset_due(&self) -> Option<Mono> {
        self.reset_backoff.due().filter(|_| self.is_open() && !self.is_confirmed)
    }

    /// Begins the next packet. If it has to bear a reset, that is of this epoch and these terms.
    pub fn write<'a>(
        &self,
        buffer: &'a mut [u8],
        (epoch, terms): (u32, FcpParams),
    ) -> Option<FcpWriter<'a>> {
        let received = (self.received.highest, self.received.bits);
        let mut writer = FcpWriter::new(buffer, received)?;
        match self.time.filter(|_| !self.is_confirmed || self.confirms_reset) {
            Some(time) if !writer.reset(FcpReset { time, epoch, terms }) => None,
            _ => Some(writer),
        }
    }

    /// The packet leaves. Answers its bytes, and what is lost because it is too long ago.
    pub fn finish(
        &mut self,
        now: Mono,
        writer: FcpWriter<'_>,
        destinations: &DestinationSet,
    ) -> (usize, Option<DestinationSet>) {
        (self.ack_pending_since, self.confirms_reset) = (None, false);
        // A reset that nobody answers is as good as lost.
        let is_noted = !destinations.is_empty() || !self.is_confirmed;
        (writer.finish(self.seed), self.unacked.send(now, destinations, is_noted))
    }
}

fn is_recent(now: Now, time: Timestamp) -> bool {
    now.sync.as_ns().abs_diff(time.as_ns()) <= RESET_AGE_MAX_NS
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014): the seed that follows from the
/// time of a reset.
const fn mix(time: u64) -> u64 {
    let bits = time.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
