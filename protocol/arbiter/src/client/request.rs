//! What an endpoint asks its arbiter for: totals, and when they are said again.

use alloc::vec::Vec;
use core::cmp::Ordering;

use onepipe_base::{Incarnation, Mono, Now, ProcessId};
use onepipe_wire::{Fcp, FcpForm, FcpParams, FcpTotal, FcpWriter, Watchdog};

use super::config::{CONTROL_BURST, ClientConfig, TermsMismatch};
use crate::fcp::{DESTINATIONS_MAX, DestinationSet, PacketVerdict, Session, WINDOW};
use crate::ring::Ring;

/// Timeslots that may be wanted from one destination at a time: half of what a count can tell apart
/// from one that goes back.
const WANTED_MAX: u32 = 1 << 14;
/// What was heard is said again after so much, as long as it is not given, in ns: the arbiter may
/// have had no room for it, or its answer was lost.
const REFRESH_NS: u64 = 5_000_000;
/// Who has said nothing for so long says that it is there, in ns: a switch that was replaced learns
/// where it sits, and can bring it what others send.
const KEEPALIVE_NS: u64 = 1_000_000_000;
/// A reset that is not answered is said again at least so often, in ns.
const RESET_SLOW_NS: u64 = 2_000_000;
/// A total may be told modulo 2^8 if not more is open: what the arbiter has taken down already lies
/// between what it is known to have given and what is requested for now.
const SHORT_MAX: u16 = i8::MAX as u16;
/// Of a batch, so manieth part is left between when a packet should come and when the batch is
/// closed: for what delays it.
const MARGIN: u64 = 8;
/// Losses in a row without a sign of life after which another arbiter is requested: with one each
/// 200 us, a watchdog's time. Each time that this happens a loss takes twice as long, as the way
/// may be longer.
const TIMEOUTS_MAX: u32 = 5;

/// Of one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Totals {
    /// Ever requested for since the reset, modulo 2^16; and ever given, as the arbiter has told.
    requested: u16,
    granted: u16,
    /// The last packet that has told it as a total: what those before have given is in it.
    total_sequence: u32,
    /// It is in the queue of those to be told.
    is_due: bool,
}

impl Totals {
    /// Asked for, and not known to be given.
    fn open(self) -> u16 {
        self.requested.wrapping_sub(self.granted)
    }

    /// Whether what the packet of this number has given is in the total already. No packet comes
    /// that is a window older: so one that seems to be is 2^31 or more newer than a total that was
    /// told long ago, or never.
    fn is_counted(self, sequence: u32) -> bool {
        self.total_sequence.wrapping_sub(sequence) < WINDOW as u32
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requester {
    totals: Vec<Totals>,
    due: Ring<u16>,
    /// Destinations that are requested for more than was given.
    open: u32,
    arbiters: Vec<ProcessId>,
    current: usize,
    session: Session,
    /// The highest claim that it has met: the epoch of a reset, and whose that was.
    known: Option<Watchdog>,
    /// An arbiter that does not know that another one is requested.
    stale_arbiter: Option<ProcessId>,
    /// The last life of each that was in step; and one of which a former life has spoken since.
    incarnations: Vec<Incarnation>,
    replaced: Option<usize>,
    timeouts: u32,
    refresh_at: Option<Mono>,
    /// When the next packet would leave if all left evenly.
    paced_at: Mono,
    control_interval_ns: u64,
    terms: FcpParams,
    process: ProcessId,
    /// When the last packet left, and its number.
    last_sent: (u32, Mono),
    /// A time at which a packet leaves that comes shortly before a batch is closed, and from one
    /// such time to the next, ns.
    batch_close: Option<(Mono, u64)>,
}

impl Requester {
    pub fn new(config: &ClientConfig) -> Self {
        Self {
            totals: alloc::vec![Totals::default(); config.nodes as usize],
            due: Ring::new(config.nodes as usize),
            open: 0,
            arbiters: config.arbiters.clone(),
            current: 0,
            session: Session::new(RESET_SLOW_NS),
            known: None,
            stale_arbiter: None,
            incarnations: alloc::vec![Incarnation(0); config.arbiters.len()],
            replaced: None,
            timeouts: 0,
            refresh_at: None,
            paced_at: Mono::from_ns(0),
            control_interval_ns: config.control_interval_ns,
            terms: config.terms(),
            process: config.process,
            last_sent: (0, Mono::from_ns(0)),
            batch_close: None,
        }
    }

    pub fn arbiter(&self) -> ProcessId {
        self.arbiters[self.current]
    }

    /// Which of the arbiters it is.
    pub fn index_of(&self, process: ProcessId) -> Option<usize> {
        self.arbiters.iter().position(|arbiter| *arbiter == process)
    }

    pub fn totals(&self, dst: u16) -> (u16, u16) {
        self.totals.get(usize::from(dst)).map_or((0, 0), |to| (to.requested, to.granted))
    }

    /// Begins anew with the arbiter that is requested.
    pub fn restart(&mut self, now: Now) {
        self.session.restart(now);
        self.timeouts = 0;
    }

    /// All counts are nothing.
    pub fn forget(&mut self) {
        self.totals.fill(Totals::default());
        self.due.clear();
        self.open = 0;
        self.refresh_at = None;
        self.batch_close = None;
    }

    /// What an arbiter is set up with, if it says in a packet that it is with anything else.
    pub fn terms_mismatch(&self, arbiter: ProcessId, fcp: &Fcp<'_>) -> Option<TermsMismatch> {
        let (theirs, own) = (Session::terms_mismatch(fcp, self.terms)?, self.terms);
        Some(TermsMismatch { arbiter, theirs, own })
    }

    /// Whether this is a former life of the arbiter at `index`: another process has begun since
    /// with the same id. It is told so.
    pub fn is_stale_incarnation(&mut self, index: usize, incarnation: Incarnation) -> bool {
        let is_stale_incarnation = incarnation < self.incarnations[index];
        if is_stale_incarnation {
            self.replaced = Some(index);
        }
        is_stale_incarnation
    }

    /// This life of the arbiter at `index` was in step.
    pub fn on_incarnation(&mut self, index: usize, incarnation: Incarnation) {
        self.incarnations[index] = self.incarnations[index].max(incarnation);
    }

    /// Whom to tell that there is a later life of it, and which.
    pub fn poll_replaced(&mut self, now: Mono) -> Option<(Watchdog, Incarnation)> {
        let index = self.replaced.filter(|_| now >= self.send_allowed_at())?;
        self.replaced = None;
        self.paced_at = self.paced_at.max(now).after_ns(self.control_interval_ns);
        Some((self.claim(index, self.epoch()), self.incarnations[index]))
    }

    /// Goes over to the arbiter at `index`, if it is not requested and resets, but not later than was
    /// reset here: as it was not requested then, it cannot know. It is told so by a newer reset.
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

    fn claim(&self, index: usize, epoch: u32) -> Watchdog {
        Watchdog { epoch, primary: self.arbiters[index] }
    }

    /// Asks the arbiter at `index`. What is to be said to it waits for no pace.
    fn switch_to(&mut self, now: Now, index: usize) {
        self.paced_at = now.mono;
        if index != self.current {
            self.stale_arbiter = Some(self.arbiter());
        }
        self.current = index;
    }

    /// Judges a packet of the arbiter at `index`. Whoever resets is requested from then on, unless it
    /// is of an epoch that is over: who is so is told.
    pub fn verify(&mut self, now: Now, index: usize, fcp: &Fcp<'_>) -> PacketVerdict {
        let epoch = fcp.reset().map(|reset| reset.epoch);
        let is_over = epoch.is_some_and(|epoch| epoch < self.epoch());
        if is_over || (index != self.current && epoch.is_none()) {
            self.stale_arbiter = Some(self.arbiters[index]);
            return PacketVerdict::Stale;
        }
        if index != self.current && self.session.compare_reset(now, fcp) != Some(Ordering::Greater)
        {
            // Nothing that it says makes the one that is requested out of step.
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

    /// Whom to tell which arbiter is requested, in which epoch.
    pub fn poll_stale_arbiter(&mut self, now: Mono) -> Option<(ProcessId, Watchdog)> {
        if now < self.send_allowed_at() {
            return None;
        }
        let stale_arbiter = self.stale_arbiter.take()?;
        // It may be the one that claims so, and was not heard for a while.
        let known = self.known.filter(|known| known.primary != stale_arbiter)?;
        self.paced_at = self.paced_at.max(now).after_ns(self.control_interval_ns);
        Some((stale_arbiter, known))
    }

    fn epoch(&self) -> u32 {
        self.known.map_or(0, |known| known.epoch)
    }

    /// So many timeslots more than are granted are wanted now.
    pub fn set_demand(&mut self, dst: u16, slots: u32) {
        let to = &mut self.totals[usize::from(dst)];
        let requested = to.granted.wrapping_add(slots.min(WANTED_MAX) as u16);
        if requested.wrapping_sub(to.requested) as i16 > 0 {
            self.open += u32::from(to.requested == to.granted);
            to.requested = requested;
            self.enqueue_total(dst);
        }
    }

    /// The arbiter has given one more timeslot, by the packet of this number.
    pub fn on_granted(&mut self, dst: u16, sequence: u32) {
        let to = &self.totals[usize::from(dst)];
        if !to.is_counted(sequence) {
            self.count(dst, to.granted.wrapping_add(1));
        }
    }

    /// The arbiter has given so many in all, with those of the packet of this number.
    pub fn on_total(&mut self, dst: u16, sequence: u32, total: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if !to.is_counted(sequence) {
            to.total_sequence = sequence;
            self.count(dst, total);
        }
    }

    /// So many are known to be given.
    fn count(&mut self, dst: u16, total: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if total.wrapping_sub(to.granted) as i16 <= 0 {
            return;
        }
        let was_open = to.requested != to.granted;
        to.granted = total;
        if total.wrapping_sub(to.requested) as i16 > 0 {
            // More than was requested for: it was requested before a reset.
            to.requested = total;
        }
        self.open -= u32::from(was_open && to.requested == to.granted);
    }

    /// The packet of this number has come so long before a batch was closed.
    pub fn on_early(&mut self, number: u32, early_ns: u64, batch_ns: u64) {
        if number == self.last_sent.0 && batch_ns > 0 {
            let margin_ns = batch_ns / MARGIN;
            if self.batch_close.is_none() {
                // Who has begun with others does not ask in the same batches as all of them.
                let batch_offset =
                    u64::from(self.process.0) % (self.control_interval_ns / batch_ns).max(1);
                self.paced_at = self.paced_at.after_ns(batch_offset * batch_ns);
            }
            let later_ns = (early_ns + batch_ns).saturating_sub(margin_ns) % batch_ns;
            self.batch_close = Some((self.last_sent.1.after_ns(later_ns), batch_ns));
        }
    }

    fn enqueue_total(&mut self, dst: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if !to.is_due {
            to.is_due = self.due.push(dst);
        }
    }

    fn retransmit(&mut self, destinations: DestinationSet) {
        destinations.as_slice().iter().for_each(|dst| self.enqueue_total(*dst));
    }

    /// What was told and not heard is due again. Answers whether another arbiter is requested now, and
    /// all begins anew.
    pub fn on_timeout(&mut self, now: Now) -> bool {
        let rto_ns = self.session.rto_ns();
        let before = Mono::from_ns(now.mono.as_ns().saturating_sub(rto_ns));
        let mut is_lost = false;
        while let Some(destinations) = self.session.unacked.take_expired(before) {
            is_lost = true;
            self.retransmit(destinations);
        }
        self.timeouts += u32::from(is_lost);
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

    /// The next packet, if one is due and its time has come. Answers its number and its bytes.
    pub fn poll(&mut self, now: Mono, buffer: &mut [u8]) -> Option<(u32, usize)> {
        if now < self.send_allowed_at() {
            return None;
        }
        let is_reset = self.session.take_reset(now);
        let is_ack_due = self.session.ack_due().is_some_and(|due| due <= now);
        // Before the arbiter has answered a reset, what else there is to say goes with the reset.
        let has_updates = self.session.is_confirmed() && !self.due.is_empty();
        let is_keepalive_due = self.keepalive_due().is_some_and(|due| due <= now);
        if !(is_reset || is_ack_due || has_updates || is_keepalive_due) {
            return None;
        }
        let mut writer = self.session.write(buffer, (self.epoch(), self.terms))?;
        let mut destinations = DestinationSet::NONE;
        self.write(&mut writer, &mut destinations);
        self.paced_at = self.paced_at.max(now).after_ns(self.control_interval_ns);
        if self.open > 0 && self.refresh_at.is_none() {
            self.refresh_at = Some(now.after_ns(REFRESH_NS));
        }
        let number = self.session.unacked.next();
        self.last_sent = (number, now);
        let (bytes, lost) = self.session.finish(now, writer, &destinations);
        if let Some(lost) = lost {
            self.retransmit(lost);
        }
        Some((number, bytes))
    }

    /// Writes what is due, as much as fits.
    fn write(&mut self, writer: &mut FcpWriter<'_>, destinations: &mut DestinationSet) {
        let (mut all, mut count) = ([FcpTotal { dst: 0, total: 0 }; DESTINATIONS_MAX], 0);
        while count < DESTINATIONS_MAX
            && let Some(dst) = self.due.pop()
        {
            let to = &mut self.totals[usize::from(dst)];
            to.is_due = false;
            all[count] = FcpTotal { dst, total: to.requested };
            count += 1;
        }
        let all = &mut all[..count];
        let is_long = |one: &FcpTotal| self.totals[usize::from(one.dst)].open() > SHORT_MAX;
        all.sort_by_key(is_long);
        let (short, long) = all.split_at_mut(all.partition_point(|one| !is_long(one)));
        for (totals, may_be_short) in [(short, true), (long, false)] {
            let form = FcpForm::shortest(totals, may_be_short);
            if form != FcpForm::List {
                totals.sort_unstable_by_key(|one| one.dst);
            }
            let written = match writer.totals(form, totals) {
                // A list need not fit as a whole.
                0 => writer.totals(FcpForm::List, totals),
                written => written,
            };
            totals[..written].iter().for_each(|total| destinations.push(total.dst));
            totals[written..].iter().for_each(|total| self.enqueue_total(total.dst));
        }
    }

    /// From when on the pace lets a packet leave.
    fn send_allowed_at(&self) -> Mono {
        let ahead_ns = (CONTROL_BURST - 1) * self.control_interval_ns;
        let paced_ns = self.paced_at.as_ns().saturating_sub(ahead_ns);
        let Some((batch_close, batch_ns)) = self.batch_close else {
            return Mono::from_ns(paced_ns);
        };
        // The nearest time at which a batch is about to be closed: there is no use in being there
        // much sooner, and a bit later is too late.
        let first_ns = paced_ns.saturating_sub(batch_ns / 2);
        let after_ns = match first_ns.checked_sub(batch_close.as_ns()) {
            Some(since_ns) => since_ns % batch_ns,
            None => batch_ns - (batch_close.as_ns() - first_ns) % batch_ns,
        };
        Mono::from_ns(first_ns + (batch_ns - after_ns) % batch_ns)
    }

    /// When it is to say that it is there.
    fn keepalive_due(&self) -> Option<Mono> {
        let (_, last_sent) = self.last_sent;
        self.session.is_confirmed().then(|| last_sent.after_ns(KEEPALIVE_NS))
    }

    /// When something is to be done.
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
            // Of a session that goes on for long: nothing was ever lost, so no total was ever told.
            request.on_granted(3, passed + 105);
            assert_eq!(request.totals(3), (3, 1), "a grant by packet {passed} + 105");
            request.on_total(3, passed + 106, 2);
            assert_eq!(request.totals(3), (3, 2), "and a total by the next");
            request.on_granted(3, passed + 104);
            assert_eq!(request.totals(3), (3, 2), "what it has overtaken is in it");
            request.on_granted(3, passed.wrapping_add(106 + (1 << 31)));
            assert_eq!(request.totals(3), (3, 3), "and long after that");
        }
    }
}
