//! Requests to the arbiter: totals of each destination, and their retransmission.

use alloc::vec::Vec;
use core::cmp::Ordering;

use onepipe_base::{Incarnation, Mono, Now, ProcessId};
use onepipe_reliability::IndexQueue;
use onepipe_wire::{Fcp, FcpEncoding, FcpParams, FcpTotal, FcpWriter, Watchdog};

use super::config::{CONTROL_BURST, ClientConfig, ParamsMismatch};
use crate::fcp::{DESTINATIONS_MAX, DestinationSet, PacketVerdict, Session, WINDOW};

/// Maximum number of timeslots requested and not granted per destination: half of the
/// distance at which a growing 16-bit total looks like a decreasing one.
const WANTED_MAX: u32 = 1 << 14;
//= spec/arbiter.md#R4
/// A total is sent modulo 2^8 if at most this number of timeslots is open: what the arbiter has
/// recorded lies between the granted and the requested total.
const SHORT_MAX: u16 = i8::MAX as u16;
/// The part of a batch (1/8) by which packets are sent early, as a margin for delays.
const MARGIN: u64 = 8;
/// Consecutive retransmission timeouts without any packet from the arbiter after which the next
/// arbiter is asked. At the minimum timeout this takes a millisecond, the takeover time. The
/// timeout doubles each time, as the round trip may be longer.
const TIMEOUTS_MAX: u32 = 5;

/// The totals of one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Totals {
    /// Timeslots requested since the reset, modulo 2^16, and granted, as known from the arbiter.
    requested: u16,
    granted: u16,
    /// The last packet that carried the granted total, which includes all earlier grants.
    total_sequence: u32,
}

impl Totals {
    /// Returns the timeslots requested and not granted.
    fn open(self) -> u16 {
        self.requested.wrapping_sub(self.granted)
    }

    /// Whether the total includes the grants of packet `sequence` already. Packets older than a
    /// window are never accepted, so a larger distance means that the packet is at least 2^31 newer
    /// than the total.
    fn is_counted(self, sequence: u32) -> bool {
        self.total_sequence.wrapping_sub(sequence) < WINDOW as u32
    }
}

//= spec/arbiter.md#R1
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requester {
    totals: Vec<Totals>,
    /// Destinations whose totals are to be sent.
    due: IndexQueue,
    /// Destinations with open timeslots.
    open: u32,
    arbiters: Vec<ProcessId>,
    current: usize,
    session: Session,
    /// The highest claim received: the epoch of a reset, and the arbiter that sent it.
    known: Option<Watchdog>,
    /// An arbiter that does not know that another one is asked.
    stale_arbiter: Option<ProcessId>,
    /// The last incarnation of each arbiter that was in step, and an arbiter of which an earlier
    /// incarnation has sent a packet since.
    incarnations: Vec<Incarnation>,
    replaced: Option<usize>,
    timeouts: u32,
    refresh_at: Option<Mono>,
    /// When the next packet would be sent at an even rate.
    paced_at: Mono,
    control_interval_ns: u64,
    refresh_ns: u64,
    keepalive_ns: u64,
    params: FcpParams,
    process: ProcessId,
    /// Number and time of the last packet.
    last_sent: (u32, Mono),
    /// A send time at which a packet arrives shortly before a batch is closed, and the interval
    /// between such times, ns.
    batch_close: Option<(Mono, u64)>,
}

impl Requester {
    pub fn new(config: &ClientConfig) -> Self {
        Self {
            totals: alloc::vec![Totals::default(); config.nodes as usize],
            due: IndexQueue::new(config.nodes as usize),
            open: 0,
            arbiters: config.arbiters.clone(),
            current: 0,
            session: Session::new(config.session, config.reset_ns_max),
            known: None,
            stale_arbiter: None,
            incarnations: alloc::vec![Incarnation(0); config.arbiters.len()],
            replaced: None,
            timeouts: 0,
            refresh_at: None,
            paced_at: Mono::from_ns(0),
            control_interval_ns: config.control_interval_ns,
            refresh_ns: config.refresh_ns,
            keepalive_ns: config.keepalive_ns,
            params: config.params(),
            process: config.process,
            last_sent: (0, Mono::from_ns(0)),
            batch_close: None,
        }
    }

    /// Asserts what no packet can break.
    pub fn check_invariants(&self) {
        self.session.check_invariants();
        self.due.check_invariants();
        assert!(self.current < self.arbiters.len(), "the current arbiter is configured");
        let is_open = |totals: &&Totals| totals.requested != totals.granted;
        let open = self.totals.iter().filter(is_open).count();
        assert_eq!(open, self.open as usize, "the destinations with open timeslots");
        let open_max = self.totals.iter().map(|totals| u32::from(totals.open())).max();
        assert!(open_max <= Some(WANTED_MAX), "the open timeslots of a destination are bounded");
        assert!(self.timeouts < TIMEOUTS_MAX, "the next arbiter is asked in time");
        let is_known = self.known.is_none_or(|known| self.index_of(known.primary).is_some());
        assert!(is_known, "a claim is of a configured arbiter");
    }

    pub fn arbiter(&self) -> ProcessId {
        self.arbiters[self.current]
    }

    /// Returns the index of an arbiter.
    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        self.arbiters.iter().position(|arbiter| *arbiter == process)
    }

    pub fn totals(&self, dst: u16) -> (u16, u16) {
        self.totals.get(usize::from(dst)).map_or((0, 0), |to| (to.requested, to.granted))
    }

    /// Resets the session with the current arbiter.
    pub fn restart(&mut self, now: Now) {
        self.session.restart(now);
        self.timeouts = 0;
    }

    /// Drops all totals.
    pub fn forget(&mut self) {
        self.totals.fill(Totals::default());
        self.due.clear();
        self.open = 0;
        self.refresh_at = None;
        self.batch_close = None;
    }

    /// Returns the parameters of both ends if a packet's reset carries others.
    pub fn params_mismatch(&self, arbiter: ProcessId, fcp: &Fcp<'_>) -> Option<ParamsMismatch> {
        let (theirs, own) = (Session::params_mismatch(fcp, self.params)?, self.params);
        Some(ParamsMismatch { arbiter, theirs, own })
    }

    //= spec/arbiter.md#R30
    /// Whether a packet is from an earlier incarnation of the arbiter at `index`, as another
    /// process has started with the same id. The earlier one will be notified.
    pub fn is_stale_incarnation(&mut self, index: usize, incarnation: Incarnation) -> bool {
        let is_stale_incarnation = incarnation < self.incarnations[index];
        if is_stale_incarnation {
            self.replaced = Some(index);
        }
        is_stale_incarnation
    }

    /// Records the incarnation of the arbiter at `index`, which was in step.
    pub fn on_incarnation(&mut self, index: usize, incarnation: Incarnation) {
        self.incarnations[index] = self.incarnations[index].max(incarnation);
    }

    /// Returns a watchdog for an arbiter that was replaced, with its latest incarnation.
    pub fn poll_replaced(&mut self, now: Mono) -> Option<(Watchdog, Incarnation)> {
        let index = self.replaced.filter(|_| now >= self.send_allowed_at())?;
        self.replaced = None;
        self.paced_at = self.paced_at.max(now).after_ns(self.control_interval_ns);
        Some((self.claim(index, self.epoch()), self.incarnations[index]))
    }

    /// Switches to the arbiter at `index` if it sends a reset that is not later than that of this
    /// session: it was not asked then and cannot know. Answers with a newer reset.
    pub fn follow_late_reset(&mut self, now: Now, index: usize, fcp: &Fcp<'_>) -> bool {
        let reset = self.session.compare_reset(now, fcp);
        if index == self.current || reset.is_none_or(Ordering::is_gt) {
            return false;
        }
        let claim = fcp.reset().map(|reset| self.claim(index, reset.epoch));
        if claim < self.known {
            return false;
        }
        self.known = claim;
        self.switch_to(now, index);
        self.restart(now);
        true
    }

    /// Whether a packet's reset is outside the accepted range of the local clock.
    pub fn is_clock_skewed(&self, now: Now, fcp: &Fcp<'_>) -> bool {
        self.session.is_clock_skewed(now, fcp)
    }

    fn claim(&self, index: usize, epoch: u32) -> Watchdog {
        Watchdog { epoch, primary: self.arbiters[index] }
    }

    /// Makes the arbiter at `index` the current one. The next packet to it is not paced.
    fn switch_to(&mut self, now: Now, index: usize) {
        self.paced_at = now.mono;
        if index != self.current {
            self.stale_arbiter = Some(self.arbiter());
        }
        self.current = index;
    }

    //= spec/arbiter.md#R29
    /// Verifies a packet of the arbiter at `index`. An arbiter that resets becomes the current one,
    /// unless its epoch is over; then it is notified.
    pub fn verify(&mut self, now: Now, index: usize, fcp: &Fcp<'_>) -> PacketVerdict {
        let epoch = fcp.reset().map(|reset| reset.epoch);
        let is_over = epoch.is_some_and(|epoch| epoch < self.epoch());
        if is_over || (index != self.current && epoch.is_none()) {
            self.stale_arbiter = Some(self.arbiters[index]);
            return PacketVerdict::Stale;
        }
        if index != self.current && self.session.compare_reset(now, fcp) != Some(Ordering::Greater)
        {
            // No packet of another arbiter may count against the current session.
            return PacketVerdict::Stale;
        }
        let verdict = self.session.verify(now, fcp);
        match verdict {
            PacketVerdict::Accepted { is_new_session } => {
                if is_new_session {
                    self.switch_to(now, index);
                }
                self.timeouts = 0;
                if let Some(epoch) = epoch {
                    self.known = Some(self.claim(index, epoch));
                }
            }
            PacketVerdict::Duplicate => self.timeouts = 0,
            _ => {}
        }
        verdict
    }

    //= spec/arbiter.md#R29
    /// Returns a watchdog for an arbiter that does not know the current one.
    pub fn poll_stale_arbiter(&mut self, now: Mono) -> Option<(ProcessId, Watchdog)> {
        if now < self.send_allowed_at() {
            return None;
        }
        let stale_arbiter = self.stale_arbiter.take()?;
        // It may be the claimant itself, after an interruption.
        let known = self.known.filter(|known| known.primary != stale_arbiter)?;
        self.paced_at = self.paced_at.max(now).after_ns(self.control_interval_ns);
        Some((stale_arbiter, known))
    }

    fn epoch(&self) -> u32 {
        self.known.map_or(0, |known| known.epoch)
    }

    /// Sets the demand of a destination beyond its grants.
    pub fn set_demand(&mut self, dst: u16, slots: u32) {
        let to = &mut self.totals[usize::from(dst)];
        let requested = to.granted.wrapping_add(slots.min(WANTED_MAX) as u16);
        if requested.wrapping_sub(to.requested) as i16 > 0 {
            self.open += u32::from(to.requested == to.granted);
            to.requested = requested;
            self.enqueue_total(dst);
        }
    }

    /// Handles one granted timeslot in packet `sequence`.
    pub fn on_granted(&mut self, dst: u16, sequence: u32) {
        let to = &self.totals[usize::from(dst)];
        if !to.is_counted(sequence) {
            self.count(dst, to.granted.wrapping_add(1));
        }
    }

    /// Handles the granted total in packet `sequence`, which includes the grants of that packet.
    pub fn on_total(&mut self, dst: u16, sequence: u32, total: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if !to.is_counted(sequence) {
            to.total_sequence = sequence;
            self.count(dst, total);
        }
    }

    /// Advances the granted total.
    fn count(&mut self, dst: u16, total: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if total.wrapping_sub(to.granted) as i16 <= 0 {
            return;
        }
        let was_open = to.requested != to.granted;
        to.granted = total;
        if total.wrapping_sub(to.requested) as i16 > 0 {
            // Grants beyond the requests stem from before a reset.
            to.requested = total;
        }
        debug_assert!(to.granted.wrapping_sub(to.requested) as i16 <= 0, "granted was requested");
        self.open -= u32::from(was_open && to.requested == to.granted);
    }

    /// Handles the information that packet `number` arrived `early_ns` before a batch was closed.
    pub fn on_arrival(&mut self, number: u32, early_ns: u64, batch_ns: u64) {
        if number == self.last_sent.0 && batch_ns > 0 {
            let margin_ns = batch_ns / MARGIN;
            if self.batch_close.is_none() {
                // Endpoints that started together should not all send in the same batch.
                let batch_offset =
                    u64::from(self.process.0) % (self.control_interval_ns / batch_ns).max(1);
                self.paced_at = self.paced_at.after_ns(batch_offset * batch_ns);
            }
            let shift_ns = (early_ns + batch_ns).saturating_sub(margin_ns) % batch_ns;
            self.batch_close = Some((self.last_sent.1.after_ns(shift_ns), batch_ns));
        }
    }

    fn enqueue_total(&mut self, dst: u16) {
        self.due.push(dst, ());
    }

    fn retransmit(&mut self, destinations: DestinationSet) {
        destinations.as_slice().iter().for_each(|dst| self.enqueue_total(*dst));
    }

    /// Retransmits totals that are lost or due. Returns whether another arbiter is asked now, so
    /// that all totals restart.
    pub fn on_timeout(&mut self, now: Now) -> bool {
        let rto_ns = self.session.rto_ns();
        let before = Mono::from_ns(now.mono.as_ns().saturating_sub(rto_ns));
        let mut is_lost = false;
        while let Some(destinations) = self.session.unacked.take_expired(before) {
            is_lost = true;
            self.retransmit(destinations);
        }
        self.timeouts += u32::from(is_lost);
        //= spec/arbiter.md#R24
        if self.timeouts >= TIMEOUTS_MAX {
            self.current = (self.current + 1) % self.arbiters.len();
            self.session.back_off();
            self.restart(now);
            return true;
        }
        if self.refresh_at.is_some_and(|at| at <= now.mono) {
            self.refresh_at = None;
            for dst in 0..self.totals.len() as u16 {
                let to = self.totals[usize::from(dst)];
                if to.requested != to.granted {
                    self.enqueue_total(dst);
                }
            }
        }
        false
    }

    /// Writes the next packet if one is due and paced. Returns its number and its length.
    pub fn poll(&mut self, now: Mono, buffer: &mut [u8]) -> Option<(u32, usize)> {
        if now < self.send_allowed_at() {
            return None;
        }
        let is_reset = self.session.take_reset(now);
        let is_ack_due = self.session.ack_due().is_some_and(|due| due <= now);
        // Before the arbiter has confirmed a reset, totals travel with the reset.
        let has_updates = self.session.is_confirmed() && !self.due.is_empty();
        let is_keepalive_due = self.keepalive_due().is_some_and(|due| due <= now);
        if !(is_reset || is_ack_due || has_updates || is_keepalive_due) {
            return None;
        }
        let mut writer = self.session.write(buffer, self.epoch(), self.params)?;
        let mut destinations = DestinationSet::NONE;
        self.write(&mut writer, &mut destinations);
        self.paced_at = self.paced_at.max(now).after_ns(self.control_interval_ns);
        if self.open > 0 && self.refresh_at.is_none() {
            self.refresh_at = Some(now.after_ns(self.refresh_ns));
        }
        let number = self.session.unacked.next();
        self.last_sent = (number, now);
        let (bytes, lost) = self.session.finish(now, writer, &destinations);
        if let Some(lost) = lost {
            self.retransmit(lost);
        }
        Some((number, bytes))
    }

    /// Writes the totals that are due, as far as they fit.
    fn write(&mut self, writer: &mut FcpWriter<'_>, destinations: &mut DestinationSet) {
        let (mut all, mut count) = ([FcpTotal { dst: 0, total: 0 }; DESTINATIONS_MAX], 0);
        while count < DESTINATIONS_MAX
            && let Some((dst, ())) = self.due.pop()
        {
            all[count] = FcpTotal { dst, total: self.totals[usize::from(dst)].requested };
            count += 1;
        }
        let all = &mut all[..count];
        let is_long = |one: &FcpTotal| self.totals[usize::from(one.dst)].open() > SHORT_MAX;
        all.sort_by_key(is_long);
        let (short, long) = all.split_at_mut(all.partition_point(|one| !is_long(one)));
        for (totals, may_be_short) in [(short, true), (long, false)] {
            let encoding = FcpEncoding::shortest(totals, may_be_short);
            if encoding != FcpEncoding::List {
                totals.sort_unstable_by_key(|one| one.dst);
            }
            let written = match writer.totals(encoding, totals) {
                // A map is written as a whole or not at all; a list may be cut.
                0 => writer.totals(FcpEncoding::List, totals),
                written => written,
            };
            totals[..written].iter().for_each(|total| destinations.push(total.dst));
            totals[written..].iter().for_each(|total| self.enqueue_total(total.dst));
        }
    }

    //= spec/arbiter.md#R25
    /// Returns the time from which pacing allows a packet.
    fn send_allowed_at(&self) -> Mono {
        let ahead_ns = (CONTROL_BURST - 1) * self.control_interval_ns;
        let paced_ns = self.paced_at.as_ns().saturating_sub(ahead_ns);
        let Some((batch_close, batch_ns)) = self.batch_close else {
            return Mono::from_ns(paced_ns);
        };
        // The nearest time shortly before a batch is closed: much earlier is no use, and a little
        // later misses the batch.
        let first_ns = paced_ns.saturating_sub(batch_ns / 2);
        let after_ns = match first_ns.checked_sub(batch_close.as_ns()) {
            Some(since_ns) => since_ns % batch_ns,
            None => batch_ns - (batch_close.as_ns() - first_ns) % batch_ns,
        };
        Mono::from_ns(first_ns + (batch_ns - after_ns) % batch_ns)
    }

    //= spec/arbiter.md#R26
    /// Returns the time of the next keepalive.
    fn keepalive_due(&self) -> Option<Mono> {
        let (_, last_sent) = self.last_sent;
        self.session.is_confirmed().then(|| last_sent.after_ns(self.keepalive_ns))
    }

    /// Returns the time of the next action.
    pub fn due(&self) -> Option<Mono> {
        let has_updates = self.session.is_confirmed() && !self.due.is_empty();
        let updates = has_updates.then_some(Mono::from_ns(0));
        let has_notice = self.stale_arbiter.is_some() || self.replaced.is_some();
        let stale_arbiter = has_notice.then_some(Mono::from_ns(0));
        let packet = Mono::earlier(Mono::earlier(updates, stale_arbiter), self.session.ack_due());
        let packet = Mono::earlier(packet, self.session.reset_due());
        let packet = Mono::earlier(packet, self.keepalive_due());
        let packet = packet.map(|at| at.max(self.send_allowed_at()));
        let rto_ns = self.session.rto_ns();
        let lost = self.session.unacked.oldest_sent_at().map(|since| since.after_ns(rto_ns));
        Mono::earlier(packet, Mono::earlier(lost, self.refresh_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_count_across_sequence_number_wrap() {
        for passed in [0, 1 << 31, u32::MAX - 500] {
            let config = ClientConfig::new(ProcessId(0), 8, ProcessId(9), 1_250);
            let mut request = Requester::new(&config);
            request.set_demand(3, 3);
            // Without losses no total was ever sent in this long session.
            request.on_granted(3, passed + 105);
            assert_eq!(request.totals(3), (3, 1), "a grant by packet {passed} + 105");
            request.on_total(3, passed + 106, 2);
            assert_eq!(request.totals(3), (3, 2), "and a total by the next");
            request.on_granted(3, passed + 104);
            assert_eq!(request.totals(3), (3, 2), "the total includes overtaken grants");
            request.on_granted(3, passed.wrapping_add(106 + (1 << 31)));
            assert_eq!(request.totals(3), (3, 3), "and long after that");
        }
    }
}
