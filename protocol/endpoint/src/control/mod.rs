//! The process's side of failures: who is on its links, what the controllers tell it, what it tells
//! them (design: docs/design/failure.md).
//!
//! [`Control`] owns no registers and no messages. The composer shows it frames and dead links, and
//! does what it is told: it discards, recalls, calls the application back, and says when that is
//! done. The steps, in the composer's words:
//!
//! 1. Every intact frame for this process goes through [`Control::on_link_frame`] first, which says
//!    whether to go on with it, and whether its promises count. Silence, unlinking and goodbyes go
//!    to [`Control::on_link_dead`].
//! 2. A frame whose opcode `is_control` goes to [`Control::on_frame`], and its promises nowhere.
//!    After `LinksChanged`, `Reborn` or `Dead` the barriers are read anew from the registers.
//! 3. Then [`Control::poll_failure`] until it is empty, and [`Control::excluded`].
//! 4. While [`Control::owes_completion`] and everything polled is done:
//!    [`Control::on_failures_handled`].
//! 5. In `poll_transmit`, a beacon if [`Control::take_beacon`], then [`Control::write_next`] until
//!    it is empty, each with the header of [`Control::header`].
//!
//! Without controllers it only watches the links: it writes nothing, nothing freezes.

mod announce;
mod failures;
mod handle;
mod links;
mod recover;
mod relay;
mod round;
mod stats;
mod undeliverable;
mod wave;

#[cfg(test)]
mod tests;

use onepipe_base::{
    Address, Backoff, Controllers, Incarnation, Instance, Mono, Port, ProcessId, Promises, Psn,
    Registers, Timestamp,
};
use onepipe_wire::{Failure, Header, Opcode, Undeliverable};

use crate::stamp::SILENCE_NS;
use crate::{Config, Links};

use announce::Announcer;
use failures::Failures;
pub(crate) use handle::Handled;
pub(crate) use links::LinkNews;
use links::OwnLinks;
use recover::Recover;
pub(crate) use recover::Recovered;
pub(crate) use relay::RELAY_OVERHEAD_BYTES;
use relay::Relay;
pub use stats::ControlStats;
use undeliverable::Undeliverables;
use wave::Waves;

/// The first repetition follows after two beacon intervals, or, without beacons, after this, in ns
/// (failure.md, "Where is the controller?").
const STEP_NS: u64 = 20_000;
/// A controller on a link of its own says hello every 20 us, while other links bear beacons every
/// 3 us and die after ten of them. Ten of theirs may be missing here, too, and controllers are in
/// no hurry: this many link timeouts.
const CONTROLLER_TIMEOUTS: u64 = 10;
/// A peer is written to by relay for this many slow announcements before it is tried directly
/// again: by then the controllers know whatever has changed about its links.
const RELAY_ANNOUNCEMENTS: u64 = 10;

/// A frame to be sealed: its payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControlFrame {
    /// To whom; this process itself when the frame crosses one link only.
    pub to: ProcessId,
    pub opcode: Opcode,
    pub psn: Psn,
    /// Bytes of payload.
    pub bytes: usize,
    /// The link that it speaks of, with a single hop. `None`: it is routed as any frame.
    pub hop_port: Option<Port>,
}

impl ControlFrame {
    fn to(to: ProcessId, opcode: Opcode, psn: Psn, bytes: usize) -> Self {
        Self { to, opcode, psn, bytes, hop_port: None }
    }
}

/// See the module's first page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Control {
    process: ProcessId,
    own: Instance,
    processes_max: u32,
    controllers: Option<Controllers>,
    links: OwnLinks,
    announcer: Announcer,
    waves: Waves,
    failures: Failures,
    relay: Relay,
    undeliverable: Undeliverables,
    recover: Recover,
    /// Who has asked for a sign of life.
    pong: Option<ProcessId>,
    /// Who speaks as the active controller, and when it last did.
    active: Option<(ProcessId, Mono)>,
    excluded: Option<Timestamp>,
    /// The store of the controllers knows of this life, and it was told who had failed before.
    is_welcome: bool,
    stats: ControlStats,
}

impl Control {
    /// For a process that has heard nothing. `announce_interval_ns` is the slow pace at which
    /// everything is said again, in ns.
    pub fn new(
        config: &Config,
        controllers: Option<Controllers>,
        announce_interval_ns: u64,
    ) -> Self {
        let own =
            Instance { address: Address::Process(config.process), incarnation: config.incarnation };
        let links = match config.links {
            Links::Uplink | Links::Overlay => 1,
            Links::Mesh => config.processes_max as u16,
        };
        let silence_ns = CONTROLLER_TIMEOUTS.saturating_mul(config.link_timeout_ns);
        let all = controllers.unwrap_or(Controllers { first: ProcessId(0), count: 0 });
        let step_ns = match config.beacon_interval_ns {
            0 => STEP_NS,
            beacon => 2 * beacon,
        };
        let pace = Backoff::new(step_ns, announce_interval_ns);
        // What leads past the aggregator is no link.
        let (kind, beacon_ns) = match config.links {
            Links::Uplink | Links::Overlay => (Links::Uplink, config.beacon_interval_ns),
            Links::Mesh => (Links::Mesh, 0),
        };
        let links = OwnLinks::new(own, (kind, links), controllers, silence_ns, beacon_ns);
        // Batches of consecutive lives are numbered far apart.
        let first = Psn(config.incarnation.0 << 16);
        let relay_ns = RELAY_ANNOUNCEMENTS.saturating_mul(announce_interval_ns);
        Self {
            process: config.process,
            own,
            processes_max: config.processes_max,
            controllers,
            links,
            announcer: Announcer::new(
                all,
                Backoff::with_jitter(step_ns, announce_interval_ns, own.address),
            ),
            waves: Waves::new(),
            failures: Failures::new(config.processes_max),
            relay: Relay::new(all, config.frame_len_max, relay_ns),
            undeliverable: Undeliverables::new(all, pace.clone(), first),
            recover: Recover::new(all, pace),
            pong: None,
            active: None,
            excluded: None,
            is_welcome: controllers.is_none(),
            stats: ControlStats::default(),
        }
    }

    /// A frame has arrived on `port`. Answers what it has shown about the link, and whether to go
    /// on with the frame. Of what has crossed a switch nothing is learned.
    #[inline]
    pub fn on_link_frame(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        (header, opcode): (&Header, Opcode),
    ) -> LinkNews {
        let news = self.links.on_frame(registers, now, (port, header, opcode));
        self.stats.frames_refused += u64::from(news == LinkNews::Refused);
        news
    }

    /// The world knows which life is at the other end of `port`, where promises lie in memory and
    /// no frame need say it. To be told once, and again when it has changed.
    pub fn on_peer(
        &mut self,
        registers: &mut Registers,
        now: Mono,
        port: Port,
        instance: Instance,
    ) -> LinkNews {
        self.links.on_peer(registers, now, port, instance)
    }

    /// Nothing more is heard on `port`: silence, or the world says so. Freezes its register
    /// (without controllers: drops it). Answers whether it was up.
    pub fn on_link_dead(&mut self, registers: &mut Registers, port: Port) -> bool {
        self.links.on_silence(registers, port)
    }

    /// Whom this end hears on `port`, for own frames that cross it only.
    pub fn echo(&self, registers: &Registers, port: Port) -> Option<Instance> {
        self.links.echo(registers, port)
    }

    /// The next failure that this process was not told before. It may cover this process, too.
    #[inline]
    pub fn poll_failure(&mut self) -> Option<Failure> {
        self.failures.poll()
    }

    /// The failure timestamp of this very life: it was told that it has failed, and must stop. It
    /// keeps nobody waiting from then on, and announces nothing.
    #[inline]
    pub fn excluded(&self) -> Option<Timestamp> {
        self.excluded
    }

    /// When this life of `process` has failed, or the last failed one if that is a later one.
    /// `None` while it has not.
    #[inline]
    pub fn has_failed(&self, process: ProcessId, incarnation: Incarnation) -> Option<Timestamp> {
        self.failures.has_failed(process, incarnation)
    }

    /// The last life of `process` that has failed, if one has.
    pub fn failed_life(&self, process: ProcessId) -> Option<Incarnation> {
        self.failures.last_life(process)
    }

    /// Whether the life that `port` was last heard of may be heard there, where the world hands
    /// promises over without a frame: not when it was declared dead.
    pub fn may_hear(&self, port: Port) -> bool {
        self.links.may_hear(port)
    }

    /// Whether a controller waits until everything polled by [`Control::poll_failure`] is done.
    pub fn owes_completion(&self) -> bool {
        self.waves.is_open() && !self.failures.has_news()
    }

    /// Everything that was polled is done: discarded, its recalls acknowledged or given to
    /// [`Control::on_undeliverable`], the application back from its callback. The answer leaves as
    /// soon as all of the latter are recorded.
    pub fn on_failures_handled(&mut self) {
        debug_assert!(!self.failures.has_news(), "nothing unpolled is done");
        if !self.failures.has_news() {
            self.waves.on_handled();
            self.answer_if_clear();
        }
    }

    fn answer_if_clear(&mut self) {
        if self.excluded.is_some() {
            self.waves.on_handled();
        } else if self.undeliverable.pending() > 0 {
            return;
        }
        self.waves.on_clear();
    }

    /// A recall whose receiver has failed: to be recorded by the controllers. Answers false when
    /// too many wait already: try again later, and hold the completion back.
    pub fn on_undeliverable(&mut self, recall: Undeliverable) -> bool {
        self.undeliverable.push(recall)
    }

    /// How many recalls have been recorded since this was last asked: the first ones that were
    /// given to [`Control::on_undeliverable`].
    #[inline]
    pub fn take_recorded(&mut self) -> usize {
        self.undeliverable.take_recorded()
    }

    /// How many recalls are not recorded yet.
    #[cfg(test)]
    pub fn undeliverable_pending(&self) -> usize {
        self.undeliverable.pending()
    }

    /// Takes a sealed frame that shall be handed on by the controllers. Answers false when one
    /// still waits for [`Control::write_next`], the frame is too long by
    /// [`RELAY_OVERHEAD_BYTES`], or there are no controllers.
    pub fn wrap(&mut self, inner: &[u8]) -> bool {
        let active = self.active.map(|(process, _)| process);
        self.controllers.is_some() && self.relay.wrap(inner, active)
    }

    /// `peer` does not answer: frames to it go by relay for a while.
    pub fn on_unreachable(&mut self, now: Mono, peer: ProcessId) {
        if self.controllers.is_some() {
            self.relay.on_unreachable(now, peer);
        }
    }

    /// A frame has arrived from `peer` without a detour.
    #[inline]
    pub fn on_direct(&mut self, peer: ProcessId) {
        self.relay.on_direct(peer);
    }

    /// Whether frames to `peer` go by relay now.
    #[inline]
    pub fn is_relayed(&self, now: Mono, peer: ProcessId) -> bool {
        self.relay.is_relayed(now, peer)
    }

    /// Asks the controllers, until they answer, for what has happened. For a process that is
    /// excluded.
    pub fn start_recover(&mut self, now: Mono) {
        if self.controllers.is_some() {
            self.recover.start(now);
        }
    }

    /// The whole answer to [`Control::start_recover`], once.
    pub fn poll_recovered(&mut self) -> Option<Recovered> {
        self.recover.poll()
    }

    /// See [`OwnLinks::is_echoed`].
    #[inline]
    pub fn is_echoed(&self, port: Port) -> bool {
        self.links.is_echoed(port)
    }

    /// Whether this life may scatter reliably: the controllers have taken note of it (failure.md,
    /// "How do controllers survive?"), or there are none. Its announcements ask them.
    #[inline]
    pub fn is_welcome(&self) -> bool {
        self.is_welcome
    }

    /// When the active controller was last heard.
    pub fn controller_heard(&self) -> Option<Mono> {
        self.active.map(|(_, heard)| heard)
    }

    /// Who was last heard as the active controller.
    pub fn active(&self) -> Option<ProcessId> {
        self.active.map(|(process, _)| process)
    }

    /// The highest epoch of a controller heard; 0 before any.
    pub fn epoch(&self) -> u32 {
        self.waves.epoch()
    }

    pub fn stats(&self) -> &ControlStats {
        &self.stats
    }

    /// Whether the uplink is owed a beacon now, whatever else was sent on it; puts the next off.
    pub fn take_beacon(&mut self, now: Mono) -> bool {
        self.links.take_beacon(now)
    }

    /// Whether [`Control::take_beacon`] or [`Control::write_next`] has something before the next
    /// deadline.
    #[inline]
    pub fn wants_transmit(&self, registers: &Registers) -> bool {
        if self.controllers.is_none() {
            return self.links.owes_beacon();
        }
        let announces = self.excluded.is_none()
            && (self.pong.is_some() || self.announcer.wants_transmit(registers, &self.links));
        announces
            || self.links.owes_beacon()
            || self.waves.wants_transmit()
            || self.relay.wants_transmit()
            || self.undeliverable.wants_transmit()
            || self.recover.wants_transmit()
    }

    /// Writes the next frame's payload. Answers are first: others wait for them.
    pub fn write_next(
        &mut self,
        now: Mono,
        registers: &Registers,
        payload: &mut [u8],
    ) -> Option<ControlFrame> {
        self.controllers?;
        if let Some(frame) = self.waves.write(self.process, payload) {
            return Some(frame);
        }
        if let Some(to) = self.pong.take()
            && self.excluded.is_none()
        {
            return Some(ControlFrame::to(to, Opcode::Pong, Psn::FIRST, 0));
        }
        let asked = self.relay.write(payload);
        let asked = asked.or_else(|| self.undeliverable.write(now, payload));
        let asked = asked.or_else(|| self.recover.write(now));
        if asked.is_some() || self.excluded.is_some() {
            return asked;
        }
        self.announcer.write(now, registers, &mut self.links, payload)
    }

    /// The header of such a frame, to be sealed by the composer. An announcement says up to where
    /// this process was told that reliable messages are `decided`.
    pub fn header(
        &self,
        registers: &Registers,
        frame: &ControlFrame,
        (promises, decided): (Promises, Option<Timestamp>),
    ) -> Header {
        let (opcode, to) = (frame.opcode, frame.to);
        if let Some(port) = frame.hop_port {
            return Header::hop_only(opcode, self.own, self.echo(registers, port), promises);
        }
        let message = match (opcode, decided) {
            (Opcode::Announce, Some(decided)) => decided,
            (Opcode::Announce, None) => promises.barrier.saturating_sub_ns(SILENCE_NS),
            _ => promises.barrier,
        };
        let header = Header::new(opcode, self.process, to, self.own.incarnation);
        header.stamped(message, promises, frame.psn)
    }

    /// The deadline has come.
    pub fn on_timeout(&mut self, now: Mono) {
        self.links.on_timeout(now);
    }

    /// When [`Control::on_timeout`], [`Control::take_beacon`] and [`Control::write_next`] are due.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        let beacon = self.links.beacon_due();
        if self.controllers.is_none() {
            return beacon;
        }
        let asks = Mono::earlier(self.undeliverable.deadline(), self.recover.deadline());
        let asks = Mono::earlier(beacon, asks);
        if self.excluded.is_some() {
            return asks;
        }
        let links = Mono::earlier(self.links.deadline(), self.announcer.deadline());
        Mono::earlier(asks, links)
    }
}
