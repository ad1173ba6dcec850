//! The arbiter's ends of the control protocol, one for each endpoint.
//!
//! Totals come in, of which what is new is demand; batches go in, and control packets come out. It
//! knows nothing of how timeslots are allocated, so that this may go on elsewhere meanwhile
//! (design: arbiter.md sections 2 and 4).

mod config;
mod rows;
mod telling;
mod totals;

use alloc::vec::Vec;

use onepipe_base::{Mono, Now, ProcessId};
use onepipe_wire::{Fcp, FcpForm, FcpPart, FcpTotal, Frame};

use crate::ConfigError;
use crate::fcp::{Judgement, Session};
use crate::ring::Ring;
use rows::Rows;
use totals::Totals;

pub use config::{CommConfig, CommStats};

/// Destinations whose totals wait to be told again, of one endpoint; the others are asked for.
const AGAIN_MAX: usize = 32;
/// An endpoint that did not answer is called again at intervals of so much, in ns. Who has
/// something to say need not wait for that; and of 4,096 who are not there a thousand are called
/// in a second.
const CALL_NS: u64 = 4_000_000_000;
/// Who cannot be served is told why, one of them in so many ns.
const TURN_AWAY_NS: u64 = 2_000_000;
/// Demands that wait to be taken.
const DEMANDS_MAX: usize = 4_096;

/// What an allocator is to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Demand {
    /// Forget all that this endpoint wants: it begins anew.
    Forget(u32),
    /// `src` wants `slots` more timeslots to `dst`.
    Want {
        /// Who wants to send.
        src: u32,
        /// To whom.
        dst: u32,
        /// How many more.
        slots: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    session: Session,
    rows: Rows,
    /// Destinations whose totals are to be told again. When it is full the endpoint will ask, as it
    /// waits for timeslots that it does not know to be given.
    again: Ring<u16>,
    heard_at: Mono,
    /// The first batch that gives it what it has asked for since it began anew; what is given by
    /// those before, which are still under way, its former life has asked for.
    since: u64,
    /// Timeslots that it is owed.
    owed: u32,
    /// It has said something in step since the last beginning.
    is_known: bool,
    is_ready: bool,
    is_looked_after: bool,
    is_held: bool,
    /// It does not answer, and is called now and then.
    is_away: bool,
    /// It is among those who are called next.
    is_called: bool,
}

/// The arbiter's ends of the control protocol, one for each endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comm {
    config: CommConfig,
    peers: Vec<Peer>,
    /// A row for each source.
    totals: Vec<Totals>,
    ready: Ring<u16>,
    /// Who was given something of which it is told with what it is given next; how many timeslots
    /// there are in the batches that are held back so; and when it must be told all the same.
    held: Ring<u16>,
    held_slots: u32,
    held_until: Option<Mono>,
    /// Who is looked after next, and when: soonest first.
    ticks: Ring<(Mono, u16)>,
    /// Who is called next if it is still away, and when: soonest first, and not all at once.
    calls: Ring<(Mono, u16)>,
    called_last: Mono,
    /// Who is told next that it is set up with other terms, and from when on the next one may be.
    turned_away: Option<ProcessId>,
    turns_away_from: Mono,
    demands: Ring<Demand>,
    /// The number of the batch that what is demanded now counts in.
    batch: u64,
    /// When the last one was closed, and how long it is; and the time of the last call.
    closed_at: Mono,
    batch_slots: u8,
    now: Mono,
    epoch: u32,
    stats: CommStats,
}

impl Comm {
    /// With nothing heard. All memory that it will ever need is taken here.
    ///
    /// # Errors
    /// When a setting makes no sense.
    pub fn new(config: CommConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let nodes = config.nodes as usize;
        let peer = || Peer {
            session: Session::new(config.silence_ns),
            rows: Rows::EMPTY,
            again: Ring::new(AGAIN_MAX),
            heard_at: Mono::from_ns(0),
            since: 0,
            owed: 0,
            is_known: false,
            is_ready: false,
            is_looked_after: false,
            is_held: false,
            is_away: false,
            is_called: false,
        };
        Ok(Self {
            peers: (0..nodes).map(|_| peer()).collect(),
            totals: alloc::vec![Totals::default(); nodes * nodes],
            ready: Ring::new(nodes),
            held: Ring::new(nodes),
            held_slots: 0,
            held_until: None,
            ticks: Ring::new(nodes),
            calls: Ring::new(nodes),
            called_last: Mono::from_ns(0),
            turned_away: None,
            turns_away_from: Mono::from_ns(0),
            demands: Ring::new(nodes + DEMANDS_MAX),
            batch: 0,
            closed_at: Mono::from_ns(0),
            batch_slots: 0,
            now: Mono::from_ns(0),
            epoch: 0,
            stats: CommStats::default(),
            config,
        })
    }

    /// Takes a control packet. Answers whether it was one, and in step. What it demands must be
    /// taken by [`Comm::poll_demand`] before the next one.
    pub fn handle_frame(&mut self, now: Now, frame: &Frame<'_>) -> bool {
        self.now = now.mono;
        let src = frame.header.src();
        let Ok(fcp) = Fcp::parse(frame.header.psn().0, frame.payload) else {
            self.stats.malformed += 1;
            return false;
        };
        let unlike = Session::unlike(&fcp, self.config.terms());
        let Some(peer) = self.peers.get_mut(src.index()).filter(|_| unlike.is_none()) else {
            let is_stranger = src.0 >= self.config.nodes;
            self.stats.strangers += u64::from(is_stranger);
            self.stats.unlike += u64::from(!is_stranger);
            // Who is an endpoint by its own terms: arbiters do not answer each other for ever.
            if unlike.is_some_and(|its| src.0 < its.nodes.into()) {
                self.turn_away(now.mono, src);
            }
            return false;
        };
        let judgement = peer.session.judge(now, &fcp);
        // What it was told in vain may have put it out of step.
        let was_away = peer.is_away;
        let src = src.0 as u16;
        match judgement {
            Judgement::Good { begins } => {
                self.stats.received += 1;
                peer.heard_at = now.mono;
                peer.is_away = false;
                if begins {
                    self.stats.resets_taken += 1;
                    self.forget(src);
                    self.be_ready(src);
                }
                self.peers[usize::from(src)].is_known = true;
                self.on_parts(src, &fcp);
                self.look_after(now.mono, src);
                true
            }
            Judgement::Again => {
                self.stats.again += 1;
                self.look_after(now.mono, src);
                false
            }
            Judgement::Stale => {
                // It may not know the newer one yet.
                self.stats.stale += 1;
                if was_away {
                    self.reset(now, src);
                }
                false
            }
            Judgement::Stranger => {
                self.reset(now, src);
                false
            }
            Judgement::Bad { is_burst } => {
                self.stats.bad += 1;
                if is_burst || was_away {
                    self.reset(now, src);
                }
                false
            }
        }
    }

    /// It is told what it must be set up with, when there is nobody else to be told and none was of
    /// late.
    fn turn_away(&mut self, now: Mono, who: ProcessId) {
        if self.turned_away.is_none() && now >= self.turns_away_from {
            self.turned_away = Some(who);
            self.turns_away_from = now.after_ns(TURN_AWAY_NS);
        }
    }

    /// Begins anew with an endpoint.
    fn reset(&mut self, now: Now, src: u16) {
        self.stats.resets += 1;
        self.forget(src);
        let peer = &mut self.peers[usize::from(src)];
        peer.session.restart(now);
        peer.heard_at = now.mono;
        peer.is_away = false;
        self.look_after(now.mono, src);
        self.be_ready(src);
    }

    /// Of which epoch the arbiter is. Endpoints refuse who is of a lower one than they know.
    pub fn set_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// Begins anew with all endpoints: they tell what they still want. For an arbiter that knows
    /// nothing of what another one has done.
    pub fn reset_all(&mut self, now: Now) {
        (0..self.config.nodes as u16).for_each(|src| self.reset(now, src));
    }

    /// Forgets all endpoints, and says nothing more to any.
    pub fn close_all(&mut self) {
        for src in 0..self.config.nodes as u16 {
            self.forget(src);
            let peer = &mut self.peers[usize::from(src)];
            peer.session.close();
            peer.is_away = false;
        }
        self.turned_away = None;
    }

    /// All counts of an endpoint are nothing.
    fn forget(&mut self, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        peer.rows.clear();
        peer.again.clear();
        // Until the allocator is told.
        peer.since = u64::MAX;
        peer.owed = 0;
        peer.is_known = false;
        let nodes = self.config.nodes as usize;
        self.totals[usize::from(src) * nodes..][..nodes].fill(Totals::default());
        let own = u32::from(src);
        self.demands.retain(|demand| match demand {
            Demand::Forget(src) | Demand::Want { src, .. } => *src != own,
        });
        // There is room for one of each endpoint.
        self.demands.push(Demand::Forget(own));
    }

    fn on_parts(&mut self, src: u16, fcp: &Fcp<'_>) {
        for part in fcp.parts() {
            let FcpPart::Totals(totals) = part else { continue };
            let is_short = totals.form() == FcpForm::ShortMap;
            // Who comes first is served first. A map is in order, and if that were the same for all
            // they would wait for each other: so each begins with another one.
            let begin = match totals.form() {
                FcpForm::List => 0,
                _ => (u32::from(src).wrapping_add(fcp.sequence) as usize) % totals.totals().count(),
            };
            let (first, last) = (totals.totals().skip(begin), totals.totals().take(begin));
            first.chain(last).for_each(|total| self.on_request(src, total, is_short));
        }
    }

    fn on_request(&mut self, src: u16, FcpTotal { dst, total }: FcpTotal, is_short: bool) {
        let nodes = self.config.nodes;
        if u32::from(dst) >= nodes || dst == src {
            self.stats.unknown += 1;
            return;
        }
        let totals = &mut self.totals[usize::from(src) * nodes as usize + usize::from(dst)];
        let owed = totals.owed();
        let more = total.wrapping_sub(totals.asked);
        let more = if is_short { i16::from(more as i8) } else { more as i16 };
        if more <= 0 {
            self.stats.backwards += u64::from(more < 0);
            if owed == 0 {
                // It waits for what was given long ago.
                self.tell_again(src, dst);
            }
            return;
        }
        let wanted = more as u32;
        let slots = wanted.min(self.config.demand_slots_max.saturating_sub(owed));
        self.stats.capped += u64::from(wanted - slots);
        let demand = Demand::Want { src: u32::from(src), dst: u32::from(dst), slots };
        if slots == 0 {
            return;
        }
        if self.demands.len() >= DEMANDS_MAX || !self.demands.push(demand) {
            self.stats.refused += u64::from(slots);
            return;
        }
        totals.asked = totals.asked.wrapping_add(slots as u16);
        self.stats.demanded += u64::from(slots);
        self.peers[usize::from(src)].owed += slots;
    }

    /// The next thing that the allocator is to do.
    pub fn poll_demand(&mut self) -> Option<Demand> {
        let demand = self.demands.pop()?;
        if let Demand::Forget(src) = demand {
            self.peers[src as usize].since = self.batch;
        }
        Some(demand)
    }

    /// What was polled until now counts in a batch whose number is answered; what is polled from
    /// now on, in later ones.
    pub fn close_batch(&mut self) -> u64 {
        self.closed_at = self.now;
        self.batch += 1;
        self.batch - 1
    }

    /// Batch `number` has not taken `slots` of what was demanded: the endpoint will ask again.
    pub fn refuse(&mut self, number: u64, (src, dst): (u32, u32), slots: u32) {
        let nodes = self.config.nodes;
        let has_src = self.peers.get(src as usize).is_some_and(|peer| peer.since <= number);
        if !has_src || dst >= nodes {
            return;
        }
        let totals = &mut self.totals[(src * nodes + dst) as usize];
        totals.asked = totals.asked.wrapping_sub(slots as u16);
        let owed = &mut self.peers[src as usize].owed;
        *owed = owed.saturating_sub(slots);
        self.stats.refused += u64::from(slots);
    }

    /// The totals of a pair are to be told, though nothing is granted.
    fn tell_again(&mut self, src: u16, dst: u16) {
        self.peers[usize::from(src)].again.push_once(dst);
        self.be_ready(src);
    }

    fn be_ready(&mut self, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        if !peer.is_ready {
            peer.is_ready = self.ready.push(src);
        }
    }

    fn look_after(&mut self, now: Mono, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        if !peer.is_looked_after {
            // So often that nothing is told again much later than it should be.
            let due = now.after_ns(self.config.retry_ns / 2);
            peer.is_looked_after = self.ticks.push((due, src));
        }
    }

    /// What was not heard is told again, and so on, as far as its time has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now.mono;
        if self.held_until.is_some_and(|until| until <= now.mono) {
            self.let_go();
        }
        while let Some((_, src)) = self.ticks.front().copied().filter(|(due, _)| *due <= now.mono) {
            self.ticks.pop();
            self.peers[usize::from(src)].is_looked_after = false;
            self.on_tick(now.mono, src);
        }
        while let Some((_, src)) = self.calls.front().copied().filter(|(due, _)| *due <= now.mono) {
            self.calls.pop();
            let peer = &mut self.peers[usize::from(src)];
            peer.is_called = false;
            if peer.is_away {
                peer.session.restart(now);
                self.call_later(now.mono, src);
                self.be_ready(src);
            }
        }
    }

    /// It does not answer: it is owed nothing any more, and told nothing until it is called.
    fn leave_alone(&mut self, now: Mono, src: u16) {
        self.stats.silent += u64::from(self.peers[usize::from(src)].is_known);
        self.forget(src);
        let peer = &mut self.peers[usize::from(src)];
        peer.session.close();
        peer.is_away = true;
        if !peer.is_called {
            self.call_later(now, src);
        }
    }

    fn call_later(&mut self, now: Mono, src: u16) {
        let spread = self.called_last.after_ns(CALL_NS / u64::from(self.config.nodes));
        self.called_last = now.after_ns(CALL_NS).max(spread);
        self.peers[usize::from(src)].is_called = self.calls.push((self.called_last, src));
    }

    fn on_tick(&mut self, now: Mono, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        if !peer.session.is_open() || peer.is_away {
            return;
        }
        let retry_ns = self.config.retry_ns.max(peer.session.patience_ns());
        let before = Mono::from_ns(now.as_ns().saturating_sub(retry_ns));
        while let Some(told) = peer.session.unheard.lose(before) {
            told.all().iter().for_each(|dst| peer.again.push_once(*dst));
        }
        let is_silent = now.since_ns(peer.heard_at) > self.config.silence_ns;
        let owes_answer = peer.owed > 0
            || !peer.again.is_empty()
            || peer.session.unheard.since().is_some()
            || peer.session.reset_due().is_some();
        if is_silent && owes_answer {
            return self.leave_alone(now, src);
        }
        let is_due = peer.session.reset_due().is_some_and(|due| due <= now);
        // What is held back is told soon, and acknowledges with it. So does most likely, of who is
        // owed timeslots, what the batch gives it that is closed next.
        let slots = if peer.owed > 0 { self.batch_slots } else { 0 };
        let waits_ns = u64::from(slots) * self.config.slot_ns;
        let due = peer.session.ack_due().map(|due| due.after_ns(waits_ns));
        let owes = !peer.is_held && due.is_some_and(|due| due <= now);
        if is_due || owes || !peer.again.is_empty() {
            self.be_ready(src);
        }
        let peer = &self.peers[usize::from(src)];
        let is_open = peer.session.unheard.since().is_some()
            || peer.session.reset_due().is_some()
            || peer.session.owes_since.is_some();
        if is_open || peer.is_ready {
            self.look_after(now, src);
        }
    }

    /// When [`Comm::handle_timeout`] must next be called, if ever.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let tick = self.ticks.front().map(|(due, _)| *due);
        let call = self.calls.front().map(|(due, _)| *due);
        Mono::earlier(Mono::earlier(tick, call), self.held_until)
    }

    /// Whether [`Comm::poll_transmit`] has something to say.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.turned_away.is_some()
    }

    /// Timeslots that `src` is owed, of all destinations.
    pub fn owed(&self, src: u32) -> u32 {
        self.peers.get(src as usize).map_or(0, |peer| peer.owed)
    }

    /// Endpoints that have said something in step since the last beginning with them.
    pub fn known(&self) -> u32 {
        self.peers.iter().map(|peer| u32::from(peer.is_known)).sum()
    }

    /// Timeslots of a pair since its reset, modulo 2^16: demanded, and told as given.
    pub fn totals(&self, src: u32, dst: u32) -> (u16, u16) {
        let nodes = self.config.nodes;
        let place = (src.min(nodes) * nodes + dst.min(nodes - 1)) as usize;
        self.totals.get(place).map_or((0, 0), |totals| (totals.asked, totals.given))
    }

    /// As it was set up.
    pub fn config(&self) -> &CommConfig {
        &self.config
    }

    /// What it has done.
    pub fn stats(&self) -> &CommStats {
        &self.stats
    }
}
