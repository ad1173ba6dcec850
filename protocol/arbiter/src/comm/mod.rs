//! The arbiter's ends of the control protocol, one for each endpoint.
//!
//! Totals come in, of which what is new is demand; batches go in, and control packets come out. It
//! knows nothing of how timeslots are allocated, so that this may go on elsewhere meanwhile
//! (design: arbiter.md sections 2 and 4).

mod config;
mod rows;
mod totals;

use alloc::vec::Vec;

use onepipe_base::{Mono, Now, ProcessId};
use onepipe_wire::{Fcp, FcpGrant, FcpPart, FcpRequest, Frame, HEADER_OCTETS, NO_PATH, Opcode};

use crate::fcp::{Ends, Judgement, RETRY_NS, Session, Told, seal_frame};
use crate::ring::Ring;
use crate::{ConfigError, Paths, Routes, Schedule, Timeslot};
use rows::Rows;
use totals::Totals;

pub use config::{CommConfig, CommStats};

/// How often an endpoint with something open is looked after, in ns.
const TICK_NS: u64 = RETRY_NS / 2;
/// Destinations whose totals wait to be told again, of one endpoint; the others are asked for.
const AGAIN_MAX: usize = 32;
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
}

/// The arbiter's ends of the control protocol, one for each endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comm {
    config: CommConfig,
    peers: Vec<Peer>,
    /// A row for each source.
    totals: Vec<Totals>,
    ready: Ring<u16>,
    /// Who is looked after next, and when: soonest first.
    ticks: Ring<(Mono, u16)>,
    demands: Ring<Demand>,
    /// The number of the batch that what is demanded now counts in.
    batch: u64,
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
            session: Session::new(),
            rows: Rows::EMPTY,
            again: Ring::new(AGAIN_MAX),
            heard_at: Mono::from_ns(0),
            since: 0,
            owed: 0,
            is_known: false,
            is_ready: false,
            is_looked_after: false,
        };
        Ok(Self {
            peers: (0..nodes).map(|_| peer()).collect(),
            totals: alloc::vec![Totals::default(); nodes * nodes],
            ready: Ring::new(nodes),
            ticks: Ring::new(nodes),
            demands: Ring::new(nodes + DEMANDS_MAX),
            batch: 0,
            epoch: 0,
            stats: CommStats::default(),
            config,
        })
    }

    /// Takes a control packet. Answers whether it was one, and in step. What it demands must be
    /// taken by [`Comm::poll_demand`] before the next one.
    pub fn handle_frame(&mut self, now: Now, frame: &Frame<'_>) -> bool {
        let src = frame.header.src();
        let Some(peer) = self.peers.get_mut(src.index()) else {
            self.stats.unknown += 1;
            return false;
        };
        let Ok(fcp) = Fcp::parse(frame.payload) else {
            self.stats.malformed += 1;
            return false;
        };
        let judgement = peer.session.judge(now, &fcp);
        let src = src.0 as u16;
        match judgement {
            Judgement::Good { begins } => {
                self.stats.received += 1;
                peer.heard_at = now.mono;
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
                false
            }
            Judgement::Stranger => {
                self.reset(now, src);
                false
            }
            Judgement::Bad { is_burst } => {
                self.stats.bad += 1;
                if is_burst {
                    self.reset(now, src);
                }
                false
            }
        }
    }

    /// Begins anew with an endpoint.
    fn reset(&mut self, now: Now, src: u16) {
        self.stats.resets += 1;
        self.forget(src);
        let peer = &mut self.peers[usize::from(src)];
        peer.session.restart(now);
        peer.heard_at = now.mono;
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
            self.peers[usize::from(src)].session.close();
        }
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
            if let FcpPart::Requests(entries) = part {
                entries.requests().for_each(|request| self.on_request(src, request));
            }
        }
    }

    fn on_request(&mut self, src: u16, FcpRequest { dst, total }: FcpRequest) {
        let nodes = self.config.nodes;
        if u32::from(dst) >= nodes || dst == src {
            self.stats.unknown += 1;
            return;
        }
        let totals = &mut self.totals[usize::from(src) * nodes as usize + usize::from(dst)];
        let owed = totals.owed();
        let more = total.wrapping_sub(totals.asked) as i16;
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
        if slots == 0 || self.demands.len() >= DEMANDS_MAX || !self.demands.push(demand) {
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

    /// Tells endpoints what they were given in the first `slots` timeslots of batch `number`, which
    /// begins at `start`, by the paths that were chosen for it. Who has begun anew since the batch
    /// was closed is given nothing by it.
    ///
    /// # Panics
    /// When the paths are those of fewer endpoints than the schedule has.
    pub fn grant(
        &mut self,
        schedule: &Schedule,
        routes: &impl Routes,
        (number, start): (u64, Timeslot),
        slots: u32,
    ) {
        let all = u64::MAX.unbounded_shr(u64::BITS.saturating_sub(slots));
        let rack_nodes = routes.rack_nodes() as u16;
        let nodes = self.config.nodes.min(schedule.nodes());
        for src in 0..nodes as u16 {
            let busy = schedule.busy(u32::from(src)) & all;
            if busy == 0 {
                continue;
            }
            let peer = &mut self.peers[usize::from(src)];
            if !peer.session.is_open() || number < peer.since {
                // Its timeslots pass unused.
                self.stats.void += u64::from(busy.count_ones());
                continue;
            }
            let own = &mut self.totals[usize::from(src) * self.config.nodes as usize..]
                [..self.config.nodes as usize];
            let (again, owed, stats) = (&mut peer.again, &mut peer.owed, &mut self.stats);
            let mut void = |dst: u16, given: u32| {
                own[usize::from(dst)].give(given as u16);
                *owed = owed.saturating_sub(given);
                stats.void += u64::from(given);
                again.push_once(dst);
            };
            let row = peer.rows.push(|grant| void(grant.dst, grant.slots.count_ones()));
            row.start = start;
            row.targets = *schedule.of(u32::from(src));
            row.paths = *routes.of(u32::from(src));
            row.left = 0;
            let mut rest = busy;
            while rest != 0 {
                let slot = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let dst = row.targets[slot];
                let leaves = src / rack_nodes != dst / rack_nodes;
                if leaves && row.paths[slot] == Paths::NONE {
                    void(dst, 1);
                } else {
                    row.left |= 1 << slot;
                }
            }
            self.be_ready(src);
        }
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
            peer.is_looked_after = self.ticks.push((now.after_ns(TICK_NS), src));
        }
    }

    /// What was not heard is told again, and so on, as far as its time has come.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some((_, src)) = self.ticks.front().copied().filter(|(due, _)| *due <= now.mono) {
            self.ticks.pop();
            self.peers[usize::from(src)].is_looked_after = false;
            self.on_tick(now.mono, src);
        }
    }

    fn on_tick(&mut self, now: Mono, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        if !peer.session.is_open() {
            return;
        }
        let before = Mono::from_ns(now.as_ns().saturating_sub(self.config.retry_ns));
        while let Some(told) = peer.session.unheard.lose(before) {
            told.all().iter().for_each(|dst| peer.again.push_once(*dst));
        }
        let is_silent = now.since_ns(peer.heard_at) > self.config.silence_ns;
        if is_silent && peer.owed > 0 {
            self.stats.silent += 1;
            self.forget(src);
            self.peers[usize::from(src)].session.close();
            return;
        }
        let is_due = peer.session.reset_due().is_some_and(|due| due <= now);
        let owes = peer.session.ack_due().is_some_and(|due| due <= now);
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

    /// Writes the next control packet as a frame into `slot`, which must hold a whole one. Answers
    /// its octets.
    pub fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<usize> {
        let most = self.config.frame_octets_max;
        let room = slot.get_mut(..most)?;
        while let Some(src) = self.ready.pop() {
            self.peers[usize::from(src)].is_ready = false;
            if let Some((number, octets)) = self.write(now, src, &mut room[HEADER_OCTETS..]) {
                let (process, incarnation) = (self.config.process, self.config.incarnation);
                let ends = Ends { src: process, incarnation, dst: ProcessId(u32::from(src)) };
                let octets = seal_frame(room, (Opcode::Fcp, ends, number), now, octets);
                self.stats.sent += 1;
                self.stats.sent_octets += octets as u64;
                self.look_after(now.mono, src);
                return Some(octets);
            }
        }
        None
    }

    /// The next packet for an endpoint: its number and its octets.
    fn write(&mut self, now: Now, src: u16, room: &mut [u8]) -> Option<(u32, usize)> {
        let nodes = self.config.nodes as usize;
        let peer = &mut self.peers[usize::from(src)];
        if !peer.session.is_open() {
            return None;
        }
        let is_reset = peer.session.takes_reset(now.mono);
        let has_news = !peer.again.is_empty() || !peer.rows.is_empty();
        if !is_reset && peer.session.owes_since.is_none() && !has_news {
            return None;
        }
        let own = &mut self.totals[usize::from(src) * nodes..][..nodes];
        let mut writer = peer.session.write(room, self.epoch)?;
        let mut told = Told::NONE;
        let (owed, stats) = (&mut peer.owed, &mut self.stats);
        peer.rows.write(&mut writer, &mut told, |dst, more| {
            let given = own[usize::from(dst)].give(more);
            let more = i64::from(more as i16);
            *owed = owed.saturating_add_signed(-more as i32);
            stats.told = stats.told.wrapping_add_signed(more);
            given
        });
        while !told.is_full()
            && let Some(dst) = peer.again.pop()
        {
            let total = own[usize::from(dst)].given;
            if !writer.grant(0, FcpGrant { dst, total, path: NO_PATH, slots: 0 }) {
                peer.again.push_once(dst);
                break;
            }
            told.push(dst);
        }
        let number = peer.session.unheard.next();
        let (octets, lost) = peer.session.finish(now.mono, writer, told);
        lost.all().iter().for_each(|dst| peer.again.push_once(*dst));
        if !peer.rows.is_empty() || !peer.again.is_empty() {
            self.be_ready(src);
        }
        Some((number, octets))
    }

    /// When [`Comm::handle_timeout`] must next be called, if ever.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.ticks.front().map(|(due, _)| *due)
    }

    /// Whether [`Comm::poll_transmit`] has something to say.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
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
