//! What an endpoint asks its arbiter for: totals, and when they are said again.

use alloc::vec::Vec;
use core::cmp::Ordering;

use onepipe_base::{Incarnation, Mono, Now, ProcessId};
use onepipe_wire::{Fcp, FcpForm, FcpParams, FcpTotal, FcpWriter, Watchdog};

use super::config::{BURST, ClientConfig, Unlike};
use crate::fcp::{Judgement, Session, TOLD_MAX, Told, WINDOW};
use crate::ring::Ring;

/// Timeslots that may be wanted from one destination at a time: half of what a count can tell apart
/// from one that goes back.
const WANTED_MAX: u32 = 1 << 14;
/// What was heard is said again after so much, as long as it is not given, in ns: the arbiter may
/// have had no room for it, or its answer was lost.
const REMIND_NS: u64 = 5_000_000;
/// Who has said nothing for so long says that it is there, in ns: a switch that was replaced learns
/// where it sits, and can bring it what others send.
const QUIET_NS: u64 = 1_000_000_000;
/// A reset that is not answered is said again at least so often, in ns.
const RESET_SLOW_NS: u64 = 2_000_000;
/// A total may be told modulo 2^8 if not more is open: what the arbiter has taken down already lies
/// between what it is known to have given and what is asked for now.
const SHORT_MAX: u16 = i8::MAX as u16;
/// Of a batch, so manieth part is left between when a packet should come and when the batch is
/// closed: for what delays it.
const MARGIN: u64 = 8;
/// Losses in a row without a sign of life after which another arbiter is asked: with one each
/// 200 us, a watchdog's time. Each time that this happens a loss takes twice as long, as the way
/// may be longer.
const SILENT_MAX: u32 = 5;

/// Of one destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Totals {
    /// Ever asked for since the reset, modulo 2^16; and ever given, as the arbiter has told.
    asked: u16,
    given: u16,
    /// The last packet that has told it as a total: what those before have given is in it.
    told_by: u32,
    /// It is in the queue of those to be told.
    is_due: bool,
}

impl Totals {
    /// Asked for, and not known to be given.
    fn open(self) -> u16 {
        self.asked.wrapping_sub(self.given)
    }

    /// Whether what the packet of this number has given is in the total already. No packet comes
    /// that is a window older: so one that seems to be is 2^31 or more newer than a total that was
    /// told long ago, or never.
    fn is_told(self, sequence: u32) -> bool {
        self.told_by.wrapping_sub(sequence) < WINDOW as u32
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    totals: Vec<Totals>,
    due: Ring<u16>,
    /// Destinations that are asked for more than was given.
    open: u32,
    arbiters: Vec<ProcessId>,
    asked: usize,
    session: Session,
    /// The highest claim that it has met: the epoch of a reset, and whose that was.
    known: Option<Watchdog>,
    /// An arbiter that does not know that another one is asked.
    misled: Option<ProcessId>,
    /// The last life of each that was in step; and one of which a former life has spoken since.
    incarnations: Vec<Incarnation>,
    outlived: Option<usize>,
    silent: u32,
    remind_at: Option<Mono>,
    /// When the next packet would leave if all left evenly.
    even_at: Mono,
    pace_ns: u64,
    terms: FcpParams,
    process: ProcessId,
    /// When the last packet left, and its number.
    left: (u32, Mono),
    /// A time at which a packet leaves that comes shortly before a batch is closed, and from one
    /// such time to the next, ns.
    beat: Option<(Mono, u64)>,
}

impl Asking {
    pub fn new(config: &ClientConfig) -> Self {
        Self {
            totals: alloc::vec![Totals::default(); config.nodes as usize],
            due: Ring::new(config.nodes as usize),
            open: 0,
            arbiters: config.arbiters.clone(),
            asked: 0,
            session: Session::new(RESET_SLOW_NS),
            known: None,
            misled: None,
            incarnations: alloc::vec![Incarnation(0); config.arbiters.len()],
            outlived: None,
            silent: 0,
            remind_at: None,
            even_at: Mono::from_ns(0),
            pace_ns: config.pace_ns,
            terms: config.terms(),
            process: config.process,
            left: (0, Mono::from_ns(0)),
            beat: None,
        }
    }

    pub fn arbiter(&self) -> ProcessId {
        self.arbiters[self.asked]
    }

    /// Which of the arbiters it is.
    pub fn place(&self, process: ProcessId) -> Option<usize> {
        self.arbiters.iter().position(|arbiter| *arbiter == process)
    }

    pub fn totals(&self, dst: u16) -> (u16, u16) {
        self.totals.get(usize::from(dst)).map_or((0, 0), |to| (to.asked, to.given))
    }

    /// Begins anew with the arbiter that is asked.
    pub fn restart(&mut self, now: Now) {
        self.session.restart(now);
        self.silent = 0;
    }

    /// All counts are nothing.
    pub fn forget(&mut self) {
        self.totals.fill(Totals::default());
        self.due.clear();
        self.open = 0;
        self.remind_at = None;
        self.beat = None;
    }

    /// What an arbiter is set up with, if it says in a packet that it is with anything else.
    pub fn unlike(&self, arbiter: ProcessId, fcp: &Fcp<'_>) -> Option<Unlike> {
        let (its, own) = (Session::unlike(fcp, self.terms)?, self.terms);
        Some(Unlike { arbiter, its, own })
    }

    /// Whether this is a former life of the arbiter at `place`: another process has begun since
    /// with the same id. It is told so.
    pub fn is_outlived(&mut self, place: usize, incarnation: Incarnation) -> bool {
        let is_outlived = incarnation < self.incarnations[place];
        if is_outlived {
            self.outlived = Some(place);
        }
        is_outlived
    }

    /// This life of the arbiter at `place` was in step.
    pub fn on_life(&mut self, place: usize, incarnation: Incarnation) {
        self.incarnations[place] = self.incarnations[place].max(incarnation);
    }

    /// Whom to tell that there is a later life of it, and which.
    pub fn poll_outlived(&mut self, now: Mono) -> Option<(Watchdog, Incarnation)> {
        let place = self.outlived.filter(|_| now >= self.allowed_at())?;
        self.outlived = None;
        self.even_at = self.even_at.max(now).after_ns(self.pace_ns);
        Some((self.claim(place, self.epoch()), self.incarnations[place]))
    }

    /// Goes over to the arbiter at `place`, if it is not asked and resets, but not later than was
    /// reset here: as it was not asked then, it cannot know. It is told so by a newer reset.
    pub fn follow(&mut self, now: Now, place: usize, fcp: &Fcp<'_>) -> bool {
        let reset = self.session.compare(now, fcp);
        if place == self.asked || reset.is_none_or(Ordering::is_gt) {
            return false;
        }
        let claim = fcp.reset().map(|reset| self.claim(place, reset.epoch));
        if claim < self.known {
            return false;
        }
        self.known = claim;
        self.go_over(now, place);
        self.restart(now);
        true
    }

    fn claim(&self, place: usize, epoch: u32) -> Watchdog {
        Watchdog { epoch, primary: self.arbiters[place] }
    }

    /// Asks the arbiter at `place`. What is to be said to it waits for no pace.
    fn go_over(&mut self, now: Now, place: usize) {
        self.even_at = now.mono;
        if place != self.asked {
            self.misled = Some(self.arbiter());
        }
        self.asked = place;
    }

    /// Judges a packet of the arbiter at `place`. Whoever resets is asked from then on, unless it
    /// is of an epoch that is over: who is so is told.
    pub fn judge(&mut self, now: Now, place: usize, fcp: &Fcp<'_>) -> Judgement {
        let epoch = fcp.reset().map(|reset| reset.epoch);
        let is_over = epoch.is_some_and(|epoch| epoch < self.epoch());
        if is_over || (place != self.asked && epoch.is_none()) {
            self.misled = Some(self.arbiters[place]);
            return Judgement::Stale;
        }
        if place != self.asked && self.session.compare(now, fcp) != Some(Ordering::Greater) {
            // Nothing that it says makes the one that is asked out of step.
            return Judgement::Stale;
        }
        let judgement = self.session.judge(now, fcp);
        match judgement {
            Judgement::Good { begins } => {
                if begins {
                    self.go_over(now, place);
                }
                self.silent = 0;
                if let Some(epoch) = epoch {
                    self.known = Some(self.claim(place, epoch));
                }
            }
            Judgement::Again => self.silent = 0,
            _ => {}
        }
        judgement
    }

    /// Whom to tell which arbiter is asked, in which epoch.
    pub fn poll_misled(&mut self, now: Mono) -> Option<(ProcessId, Watchdog)> {
        if now < self.allowed_at() {
            return None;
        }
        let misled = self.misled.take()?;
        // It may be the one that claims so, and was not heard for a while.
        let known = self.known.filter(|known| known.primary != misled)?;
        self.even_at = self.even_at.max(now).after_ns(self.pace_ns);
        Some((misled, known))
    }

    fn epoch(&self) -> u32 {
        self.known.map_or(0, |known| known.epoch)
    }

    /// So many timeslots more than are granted are wanted now.
    pub fn want(&mut self, dst: u16, slots: u32) {
        let to = &mut self.totals[usize::from(dst)];
        let asked = to.given.wrapping_add(slots.min(WANTED_MAX) as u16);
        if asked.wrapping_sub(to.asked) as i16 > 0 {
            self.open += u32::from(to.asked == to.given);
            to.asked = asked;
            self.say(dst);
        }
    }

    /// The arbiter has given one more timeslot, by the packet of this number.
    pub fn on_granted(&mut self, dst: u16, sequence: u32) {
        let to = &self.totals[usize::from(dst)];
        if !to.is_told(sequence) {
            self.count(dst, to.given.wrapping_add(1));
        }
    }

    /// The arbiter has given so many in all, with those of the packet of this number.
    pub fn on_total(&mut self, dst: u16, sequence: u32, total: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if !to.is_told(sequence) {
            to.told_by = sequence;
            self.count(dst, total);
        }
    }

    /// So many are known to be given.
    fn count(&mut self, dst: u16, total: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if total.wrapping_sub(to.given) as i16 <= 0 {
            return;
        }
        let was_open = to.asked != to.given;
        to.given = total;
        if total.wrapping_sub(to.asked) as i16 > 0 {
            // More than was asked for: it was asked before a reset.
            to.asked = total;
        }
        self.open -= u32::from(was_open && to.asked == to.given);
    }

    /// The packet of this number has come so long before a batch was closed.
    pub fn on_early(&mut self, number: u32, early_ns: u64, batch_ns: u64) {
        if number == self.left.0 && batch_ns > 0 {
            let margin_ns = batch_ns / MARGIN;
            if self.beat.is_none() {
                // Who has begun with others does not ask in the same batches as all of them.
                let turn = u64::from(self.process.0) % (self.pace_ns / batch_ns).max(1);
                self.even_at = self.even_at.after_ns(turn * batch_ns);
            }
            let later_ns = (early_ns + batch_ns).saturating_sub(margin_ns) % batch_ns;
            self.beat = Some((self.left.1.after_ns(later_ns), batch_ns));
        }
    }

    fn say(&mut self, dst: u16) {
        let to = &mut self.totals[usize::from(dst)];
        if !to.is_due {
            to.is_due = self.due.push(dst);
        }
    }

    fn say_again(&mut self, told: Told) {
        told.all().iter().for_each(|dst| self.say(*dst));
    }

    /// What was told and not heard is due again. Answers whether another arbiter is asked now, and
    /// all begins anew.
    pub fn on_timeout(&mut self, now: Now) -> bool {
        let patience_ns = self.session.patience_ns();
        let before = Mono::from_ns(now.mono.as_ns().saturating_sub(patience_ns));
        let mut is_lost = false;
        while let Some(told) = self.session.unheard.lose(before) {
            is_lost = true;
            self.say_again(told);
        }
        self.silent += u32::from(is_lost);
        if self.silent >= SILENT_MAX {
            self.asked = (self.asked + 1) % self.arbiters.len();
            self.session.be_patient();
            self.restart(now);
            return true;
        }
        if self.remind_at.is_some_and(|at| at <= now.mono) {
            self.remind_at = None;
            for dst in 0..self.totals.len() as u16 {
                let to = self.totals[usize::from(dst)];
                if to.asked != to.given {
                    self.say(dst);
                }
            }
        }
        false
    }

    /// The next packet, if one is due and its time has come. Answers its number and its bytes.
    pub fn poll(&mut self, now: Mono, room: &mut [u8]) -> Option<(u32, usize)> {
        if now < self.allowed_at() {
            return None;
        }
        let is_reset = self.session.takes_reset(now);
        let owes = self.session.ack_due().is_some_and(|due| due <= now);
        // Before the arbiter has answered a reset, what else there is to say goes with the reset.
        let has_news = self.session.is_confirmed() && !self.due.is_empty();
        let is_quiet = self.quiet_due().is_some_and(|due| due <= now);
        if !(is_reset || owes || has_news || is_quiet) {
            return None;
        }
        let mut writer = self.session.write(room, (self.epoch(), self.terms))?;
        let mut told = Told::NONE;
        self.write(&mut writer, &mut told);
        self.even_at = self.even_at.max(now).after_ns(self.pace_ns);
        if self.open > 0 && self.remind_at.is_none() {
            self.remind_at = Some(now.after_ns(REMIND_NS));
        }
        let number = self.session.unheard.next();
        self.left = (number, now);
        let (bytes, lost) = self.session.finish(now, writer, &told);
        if let Some(lost) = lost {
            self.say_again(lost);
        }
        Some((number, bytes))
    }

    /// Writes what is due, as much as fits.
    fn write(&mut self, writer: &mut FcpWriter<'_>, told: &mut Told) {
        let (mut all, mut count) = ([FcpTotal { dst: 0, total: 0 }; TOLD_MAX], 0);
        while count < TOLD_MAX
            && let Some(dst) = self.due.pop()
        {
            let to = &mut self.totals[usize::from(dst)];
            to.is_due = false;
            all[count] = FcpTotal { dst, total: to.asked };
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
            totals[..written].iter().for_each(|total| told.push(total.dst));
            totals[written..].iter().for_each(|total| self.say(total.dst));
        }
    }

    /// From when on the pace lets a packet leave.
    fn allowed_at(&self) -> Mono {
        let ahead_ns = (BURST - 1) * self.pace_ns;
        let even_ns = self.even_at.as_ns().saturating_sub(ahead_ns);
        let Some((beat, batch_ns)) = self.beat else { return Mono::from_ns(even_ns) };
        // The nearest time at which a batch is about to be closed: there is no use in being there
        // much sooner, and a bit later is too late.
        let first_ns = even_ns.saturating_sub(batch_ns / 2);
        let after_ns = match first_ns.checked_sub(beat.as_ns()) {
            Some(since_ns) => since_ns % batch_ns,
            None => batch_ns - (beat.as_ns() - first_ns) % batch_ns,
        };
        Mono::from_ns(first_ns + (batch_ns - after_ns) % batch_ns)
    }

    /// When it is to say that it is there.
    fn quiet_due(&self) -> Option<Mono> {
        let (_, left) = self.left;
        self.session.is_confirmed().then(|| left.after_ns(QUIET_NS))
    }

    /// When something is to be done.
    pub fn due(&self) -> Option<Mono> {
        let has_news = self.session.is_confirmed() && !self.due.is_empty();
        let news = has_news.then_some(Mono::from_ns(0));
        let has_word = self.misled.is_some() || self.outlived.is_some();
        let misled = has_word.then_some(Mono::from_ns(0));
        let packet = Mono::earlier(Mono::earlier(news, misled), self.session.ack_due());
        let packet = Mono::earlier(packet, self.session.reset_due());
        let packet = Mono::earlier(packet, self.quiet_due());
        let packet = packet.map(|at| at.max(self.allowed_at()));
        let patience_ns = self.session.patience_ns();
        let lost = self.session.unheard.since().map(|since| since.after_ns(patience_ns));
        Mono::earlier(packet, Mono::earlier(lost, self.remind_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_count_after_2_to_the_31_control_packets_and_more() {
        for passed in [0, 1 << 31, u32::MAX - 500] {
            let config = ClientConfig::new(ProcessId(0), 8, ProcessId(9), 1_250);
            let mut asking = Asking::new(&config);
            asking.want(3, 3);
            // Of a session that goes on for long: nothing was ever lost, so no total was ever told.
            asking.on_granted(3, passed + 105);
            assert_eq!(asking.totals(3), (3, 1), "a grant by packet {passed} + 105");
            asking.on_total(3, passed + 106, 2);
            assert_eq!(asking.totals(3), (3, 2), "and a total by the next");
            asking.on_granted(3, passed + 104);
            assert_eq!(asking.totals(3), (3, 2), "what it has overtaken is in it");
            asking.on_granted(3, passed.wrapping_add(106 + (1 << 31)));
            assert_eq!(asking.totals(3), (3, 3), "and long after that");
        }
    }
}
