//! The arbiter's sessions with all endpoints (the communication core of Fastpass).
//!
//! Requested totals come in, and their increments become demand; batches go in, and control packets
//! with grants come out. Allocation is not part of this, and may run elsewhere meanwhile
//! (`docs/design/arbiter.md`, "How do several cores give out what one would?").

mod config;
mod grant;
mod grant_queue;
mod held;
mod invariants;
mod probe;
mod rejection;
mod timer;
mod totals;

use alloc::vec::Vec;

use onepipe_base::{Mono, Now};
use onepipe_reliability::{BoundedQueue, IndexQueue};
use onepipe_wire::{Fcp, FcpEncoding, FcpPart, FcpTotal, Frame};

use crate::command::RefusedDemand;
use crate::fcp::{PacketVerdict, Session};
use crate::{ConfigError, Demand};
use grant_queue::GrantQueue;
use held::HeldGrants;
use probe::Probes;
use rejection::Rejection;
use totals::PairTotals;

pub use config::{CommConfig, CommStats};

/// Maximum number of destinations per endpoint whose totals wait to be resent. Others are requested
/// by the endpoint itself.
const RESEND_MAX: usize = 32;
/// Maximum number of demands that wait for the allocator.
const DEMANDS_MAX: usize = 4_096;

/// What is known of an endpoint since its session was last reset or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PeerState {
    /// There is no session.
    Closed,
    /// A reset was sent and not answered.
    Resetting,
    /// A packet in step was received.
    InStep,
    /// The endpoint does not answer, and gets rare probes.
    Unreachable,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Peer {
    state: PeerState,
    session: Session,
    grants: GrantQueue,
    /// Destinations whose totals are to be resent. If this queue is full, further totals are not
    /// resent: the endpoint requests them, as it does not know that its timeslots were granted.
    resend: BoundedQueue<u16>,
    last_seen: Mono,
    /// The first batch that counts the demand since the last reset. Batches before it, which may be
    /// in flight, serve the demand before the reset.
    first_batch: u64,
    /// Timeslots requested and not granted.
    pending: u32,
}

/// The batch that counts the current demand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DemandBatch {
    number: u64,
    /// When the batch before it was closed, and the number of timeslots of the last one granted.
    closed_at: Mono,
    slots: u8,
}

/// The arbiter's sessions with all endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Comm {
    config: CommConfig,
    peers: Vec<Peer>,
    /// A row for each source.
    totals: Vec<PairTotals>,
    /// Endpoints that may have a packet to send.
    ready: IndexQueue,
    held: HeldGrants,
    /// Endpoints with a pending retransmission or acknowledgement, ordered by deadline.
    timers: IndexQueue<Mono>,
    /// Unreachable endpoints.
    probes: Probes,
    /// An endpoint with other parameters.
    rejection: Rejection,
    demands: BoundedQueue<Demand>,
    batch: DemandBatch,
    epoch: u32,
    stats: CommStats,
}

impl Comm {
    /// Creates closed sessions. All memory is allocated here.
    ///
    /// # Errors
    /// When a setting is out of range.
    pub fn new(config: CommConfig) -> Result<Self, ConfigError> {
        config.check()?;
        let nodes = config.nodes as usize;
        let peer = || Peer {
            state: PeerState::Closed,
            session: Session::new(config.session, config.idle_timeout_ns),
            grants: GrantQueue::EMPTY,
            resend: BoundedQueue::new(RESEND_MAX),
            last_seen: Mono::from_ns(0),
            first_batch: 0,
            pending: 0,
        };
        Ok(Self {
            peers: (0..nodes).map(|_| peer()).collect(),
            totals: alloc::vec![PairTotals::default(); nodes * nodes],
            ready: IndexQueue::new(nodes),
            held: HeldGrants::new(nodes),
            timers: IndexQueue::new(nodes),
            probes: Probes::new(config.nodes, config.probe_ns),
            rejection: Rejection::NONE,
            demands: BoundedQueue::new(nodes + DEMANDS_MAX),
            batch: DemandBatch { number: 0, closed_at: Mono::from_ns(0), slots: 0 },
            epoch: 0,
            stats: CommStats::default(),
            config,
        })
    }

    /// Handles a control packet. Returns whether it was accepted. Its demands must be taken by
    /// [`Comm::poll_demand`] before the next call.
    pub fn handle_frame(&mut self, now: Now, frame: &Frame<'_>) -> bool {
        let src = frame.header.src();
        let Ok(fcp) = Fcp::parse(frame.header.psn().0, frame.payload) else {
            self.stats.malformed += 1;
            return false;
        };
        let params_mismatch = Session::params_mismatch(&fcp, self.config.params());
        let Some(peer) = self.peers.get_mut(src.index()).filter(|_| params_mismatch.is_none())
        else {
            let is_stranger = src.0 >= self.config.nodes;
            self.stats.unknown_sources += u64::from(is_stranger);
            self.stats.params_mismatch += u64::from(!is_stranger);
            // Only reject endpoints by their own parameters: two arbiters would answer each other
            // forever.
            if params_mismatch.is_some_and(|theirs| src.0 < theirs.nodes.into()) {
                self.rejection.request(now.mono, src, self.config.reject_interval_ns);
            }
            return false;
        };
        let verdict = peer.session.verify(now, &fcp);
        // Probes that the endpoint missed may have put the ends out of step.
        let was_away = peer.state == PeerState::Unreachable;
        let src = src.0 as u16;
        match verdict {
            PacketVerdict::Accepted { is_new_session } => {
                self.stats.received += 1;
                peer.last_seen = now.mono;
                peer.state = PeerState::InStep;
                if is_new_session {
                    self.stats.resets_accepted += 1;
                    self.forget(src);
                    self.mark_ready(src);
                }
                self.on_parts(src, &fcp);
                self.arm_timer(now.mono, src);
                true
            }
            PacketVerdict::Duplicate => {
                self.stats.duplicates += 1;
                self.arm_timer(now.mono, src);
                false
            }
            PacketVerdict::Stale => {
                // The endpoint may not know the newer reset yet.
                self.stats.stale += 1;
                if was_away {
                    self.reset(now, src);
                }
                false
            }
            //= spec/arbiter.md#R20
            PacketVerdict::NoSession => {
                self.reset(now, src);
                false
            }
            PacketVerdict::OutOfStep { is_burst } => {
                self.stats.bad += 1;
                if is_burst || was_away {
                    self.reset(now, src);
                }
                false
            }
        }
    }

    /// Resets the session with an endpoint.
    fn reset(&mut self, now: Now, src: u16) {
        self.stats.resets += 1;
        self.forget(src);
        let peer = &mut self.peers[usize::from(src)];
        peer.session.restart(now);
        peer.last_seen = now.mono;
        peer.state = PeerState::Resetting;
        self.arm_timer(now.mono, src);
        self.mark_ready(src);
    }

    /// Sets the epoch of the arbiter. Endpoints reject arbiters of a lower epoch than they know.
    pub fn set_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// Returns the epoch of the arbiter.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Resets the sessions with all endpoints, so that they report their demand again. For an
    /// arbiter that becomes the primary.
    pub fn reset_all(&mut self, now: Now) {
        (0..self.config.nodes as u16).for_each(|src| self.reset(now, src));
    }

    /// Closes the sessions with all endpoints.
    pub fn close_all(&mut self) {
        for src in 0..self.config.nodes as u16 {
            self.forget(src);
            let peer = &mut self.peers[usize::from(src)];
            peer.session.close();
            peer.state = PeerState::Closed;
        }
        self.rejection.clear();
    }

    //= spec/arbiter.md#R15
    /// Drops all demand, grants and unacknowledged state of an endpoint.
    fn forget(&mut self, src: u16) {
        let peer = &mut self.peers[usize::from(src)];
        peer.grants.clear();
        peer.resend.clear();
        // No batch is valid for the endpoint until the allocator has executed `Demand::Forget`.
        peer.first_batch = u64::MAX;
        peer.pending = 0;
        let nodes = self.config.nodes as usize;
        self.totals[usize::from(src) * nodes..][..nodes].fill(PairTotals::default());
        let own = u32::from(src);
        self.demands.retain(|demand| match demand {
            Demand::Forget(src) | Demand::Want { src, .. } => *src != own,
        });
        let is_queued = self.demands.push(Demand::Forget(own));
        assert!(is_queued, "the queue has space for one of each endpoint");
    }

    fn on_parts(&mut self, src: u16, fcp: &Fcp<'_>) {
        for part in fcp.parts() {
            let FcpPart::Totals(totals) = part else { continue };
            let is_short = totals.encoding() == FcpEncoding::ShortMap;
            // First come, first served. A map is in ascending order, and if all sources started at
            // its begin they would contend for the same destinations: start at another one each.
            let begin = match totals.encoding() {
                FcpEncoding::List => 0,
                _ => (u32::from(src).wrapping_add(fcp.sequence) as usize) % totals.totals().count(),
            };
            let (first, last) = (totals.totals().skip(begin), totals.totals().take(begin));
            first.chain(last).for_each(|total| self.on_request(src, total, is_short));
        }
    }

    //= spec/arbiter.md#R1
    //= spec/arbiter.md#R3
    fn on_request(&mut self, src: u16, FcpTotal { dst, total }: FcpTotal, is_short: bool) {
        let nodes = self.config.nodes;
        if u32::from(dst) >= nodes || dst == src {
            self.stats.unknown_destinations += 1;
            return;
        }
        let totals = &mut self.totals[usize::from(src) * nodes as usize + usize::from(dst)];
        let pending = totals.pending();
        debug_assert!(pending <= self.config.demand_slots_max, "the demand is capped");
        let more = total.wrapping_sub(totals.requested);
        let more = if is_short { i16::from(more as i8) } else { more as i16 };
        if more <= 0 {
            self.stats.backwards += u64::from(more < 0);
            if pending == 0 {
                // The endpoint waits for timeslots that were granted before.
                self.resend_total(src, dst);
            }
            return;
        }
        let wanted = more as u32;
        let slots = wanted.min(self.config.demand_slots_max.saturating_sub(pending));
        self.stats.capped += u64::from(wanted - slots);
        let demand = Demand::Want { src: u32::from(src), dst: u32::from(dst), slots };
        if slots == 0 {
            return;
        }
        if self.demands.len() >= DEMANDS_MAX || !self.demands.push(demand) {
            self.stats.refused += u64::from(slots);
            return;
        }
        totals.requested = totals.requested.wrapping_add(slots as u16);
        self.stats.demanded += u64::from(slots);
        debug_assert!(totals.pending() <= self.config.demand_slots_max, "the demand is capped");
        self.peers[usize::from(src)].pending += slots;
    }

    /// Returns the next change of demand for the allocator.
    pub fn poll_demand(&mut self) -> Option<Demand> {
        let demand = self.demands.pop()?;
        if let Demand::Forget(src) = demand {
            self.peers[src as usize].first_batch = self.batch.number;
        }
        Some(demand)
    }

    /// Closes a batch, which counts all demand polled before, and returns its number.
    pub fn close_batch(&mut self, now: Mono) -> u64 {
        self.batch.closed_at = now;
        self.batch.number += 1;
        self.batch.number - 1
    }

    /// Withdraws demand that batch `number` has rejected. The endpoint will request it again.
    pub fn refuse(&mut self, number: u64, refused: RefusedDemand) {
        let RefusedDemand { src, dst, slots } = refused;
        let nodes = self.config.nodes;
        let is_current =
            self.peers.get(src as usize).is_some_and(|peer| peer.first_batch <= number);
        if !is_current || dst >= nodes {
            return;
        }
        let totals = &mut self.totals[(src * nodes + dst) as usize];
        totals.requested = totals.requested.wrapping_sub(slots as u16);
        let pending = &mut self.peers[src as usize].pending;
        *pending = pending.saturating_sub(slots);
        self.stats.refused += u64::from(slots);
    }

    /// Sends the totals of a pair although nothing is granted.
    fn resend_total(&mut self, src: u16, dst: u16) {
        self.peers[usize::from(src)].resend.push_once(dst);
        self.mark_ready(src);
    }

    fn mark_ready(&mut self, src: u16) {
        self.ready.push(src, ());
    }

    /// Retransmits what is lost, and performs other actions that are due.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.held.due().is_some_and(|until| until <= now.mono) {
            self.held.release(&mut self.ready);
        }
        while let Some(src) = self.timers.pop_if(|due| due <= now.mono) {
            self.on_timer(now.mono, src);
        }
        while let Some(src) = self.probes.pop_due(now.mono) {
            let peer = &mut self.peers[usize::from(src)];
            if peer.state == PeerState::Unreachable {
                peer.session.restart(now);
                self.probes.schedule(now.mono, src);
                self.mark_ready(src);
            }
        }
    }

    /// Returns the time at which [`Comm::handle_timeout`] must be called, if any.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let timer = self.timers.front().map(|(_, due)| due);
        Mono::earlier(Mono::earlier(timer, self.probes.due()), self.held.due())
    }

    /// Whether [`Comm::poll_transmit`] may have a packet to send.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty() || self.rejection.is_pending()
    }

    /// Returns the timeslots of `src` requested and not granted, to all destinations.
    pub fn pending(&self, src: u32) -> u32 {
        self.peers.get(src as usize).map_or(0, |peer| peer.pending)
    }

    /// Returns the number of endpoints that were in step since their last reset.
    pub fn known(&self) -> u32 {
        self.peers.iter().filter(|peer| peer.state == PeerState::InStep).count() as u32
    }

    /// Returns the timeslots of a pair since its reset, modulo 2^16: requested, and advertised.
    /// Both are 0 for a pair that does not exist.
    pub fn totals(&self, src: u32, dst: u32) -> (u16, u16) {
        let nodes = self.config.nodes;
        if src >= nodes || dst >= nodes {
            return (0, 0);
        }
        let totals = self.totals[(src * nodes + dst) as usize];
        (totals.requested, totals.granted)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &CommConfig {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&self) -> &CommStats {
        &self.stats
    }
}
