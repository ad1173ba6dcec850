//! A process's place in a segment, as a transport.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onepipe_base::{
    Incarnation, Mono, Now, Port, ProcessId, Promises, Timestamp, Transmit, Verdict,
};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Bell, Doorbell, Transport};

use crate::inbound::{Change, Inbound};
use crate::mapping::Mapping;
use crate::outbound::Outbound;
use crate::segment::Segment;
use crate::sleep::{ASLEEP, Bed, before_wake};
use crate::sync::Ordering;
use crate::{AttachError, Config, Stats, futex};

/// A process's place in a segment of shared memory. Dropping it leaves.
///
/// Ports are process ids: a mesh. See the crate for why promises need no frames here.
pub struct Shm {
    segment: Segment,
    inbound: Inbound,
    outbound: Outbound,
    bell: Arc<SharedBell>,
    stats: Stats,
    /// The membership that `inbound` knows.
    epoch: Option<u64>,
    watch_at: Mono,
    watches: u64,
    /// What the word beside this process's line says.
    open: Option<Timestamp>,
}

impl Shm {
    /// Joins the segment `name` of this user as `process`, or as the lowest id that is free.
    /// Creates the segment where there is none, or only what a crash has left. A segment that
    /// others use keeps its sizes: see [`Shm::config`].
    ///
    /// # Errors
    /// [`AttachError`]: a living process has this id; numbers out of range; the kernel refuses.
    pub fn attach(
        name: &str,
        process: Option<ProcessId>,
        config: &Config,
    ) -> Result<Self, AttachError> {
        let segment = Segment::enter(name, process, config)?;
        // Others cannot join or leave until the segment is opened, so nobody starts reading what
        // is being taken over here.
        let outbound = Outbound::resume(&segment);
        let inbound = Inbound::resume(&segment);
        segment.open()?;
        let bell = Arc::new(SharedBell {
            mapping: Arc::clone(segment.mapping()),
            bed_at: segment.config().bed_at(segment.process()),
            is_rung: AtomicBool::new(false),
        });
        Ok(Self {
            segment,
            inbound,
            outbound,
            bell,
            stats: Stats::default(),
            epoch: None,
            watch_at: Mono::from_ns(0),
            watches: 0,
            open: None,
        })
    }

    /// Which process this is.
    pub fn process(&self) -> ProcessId {
        ProcessId(self.segment.process() as u32)
    }

    /// Which life of it: higher than of any former one in this segment, or in one of this name that
    /// was removed more than a second ago.
    pub fn incarnation(&self) -> Incarnation {
        self.segment.incarnation()
    }

    /// The sizes of the segment, as its creator chose them.
    pub fn config(&self) -> &Config {
        self.segment.config()
    }

    /// The clock that all processes of the segment share. Only with this one are promises exact.
    pub fn clock(&self) -> SystemClock {
        SystemClock::adopting(self.segment.calibration())
    }

    /// Where the segment lies.
    pub fn path(&self) -> &Path {
        self.segment.path()
    }

    /// Takes the segment's name away: who has come may stay, nobody else comes, and nothing is left
    /// when all have gone, however they go.
    ///
    /// # Errors
    /// What the kernel says; somebody else may have taken it away already.
    pub fn unlink(&self) -> std::io::Result<()> {
        self.segment.unlink()
    }

    /// What has happened so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The others that are alive, as known after the last turn.
    pub fn peers(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.inbound.live().map(|process| ProcessId(process as u32))
    }

    /// Notes who has come, gone or died.
    #[inline]
    fn attend(&mut self, now: Mono) {
        let epoch = self.segment.epoch().load(Ordering::Acquire);
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            let (outbound, stats) = (&mut self.outbound, &mut self.stats);
            self.inbound.update(&self.segment, |Change { process, is_live, has_died }| {
                stats.deaths += u64::from(has_died);
                outbound.set_live(process, is_live);
            });
        }
        if now >= self.watch_at {
            self.watch(now);
        }
    }

    #[cold]
    fn watch(&mut self, now: Mono) {
        self.watch_at = now.after_ns(self.segment.config().watch_interval_ns);
        self.watches += 1;
        let (outbound, stats) = (&mut self.outbound, &mut self.stats);
        let deaths = stats.deaths;
        self.inbound.watch(&self.segment, self.watches, |Change { process, is_live, .. }| {
            stats.deaths += 1;
            outbound.set_live(process, is_live);
        });
        if stats.deaths > deaths {
            self.segment.alarm();
        }
    }

    /// Slots that are not in flight.
    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> usize {
        self.outbound.free()
    }

    /// Ends as a process does that is killed: only the kernel cleans up.
    #[cfg(test)]
    pub(crate) fn die(self) {
        self.segment.give_up_place();
        std::mem::forget(self);
    }

    /// What others can reach, to do harm to it.
    #[cfg(test)]
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl Transport for Shm {
    const IS_FIFO: bool = true;

    #[inline]
    fn expect(&mut self, is_waiting: bool) {
        self.inbound.expect(is_waiting);
    }

    #[inline]
    fn receive(&mut self, now: Now, take: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        self.attend(now.mono);
        let (outbound, stats) = (&mut self.outbound, &mut self.stats);
        let frames = self.inbound.receive(&self.segment, now, outbound, stats, take);
        // What was forwarded, if anything was.
        self.outbound.publish(&self.segment);
        self.outbound.finish(&self.segment, &mut self.stats);
        frames
    }

    #[inline]
    fn met(&mut self, meet: impl FnMut(Port, Incarnation)) {
        self.inbound.met(meet);
    }

    #[inline]
    fn heard(&mut self, _: Now, hear: impl FnMut(Port, Promises)) {
        self.inbound.heard(hear);
    }

    #[inline]
    fn gone(&mut self, unlink: impl FnMut(Port)) {
        self.inbound.gone(unlink);
    }

    #[inline]
    fn has_room(&mut self, now: Now) -> bool {
        let has_room = self.outbound.has_room(&self.segment, now.mono, &mut self.stats);
        self.stats.bursts_held += u64::from(!has_room);
        has_room
    }

    #[inline]
    fn begin_burst(&mut self, now: Now, promises: Option<Promises>) {
        // Who has promised nothing yet will stamp by the clock, which only goes on from here.
        let floor = promises.map_or(now.sync, |promises| promises.barrier);
        self.segment.line(self.segment.process()).announce(floor.as_ns());
    }

    #[inline]
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.outbound.slot(&self.segment)
    }

    #[inline]
    fn send(&mut self, transmit: Transmit) {
        self.outbound.send(&self.segment, transmit, &mut self.stats);
    }

    #[inline]
    fn flush(&mut self) {
        self.outbound.publish(&self.segment);
    }

    #[inline]
    fn hold_commits(&mut self, since: Option<Timestamp>) {
        if self.open != since {
            self.open = since;
            let word = self.segment.open_word(self.segment.process());
            word.say(since.map(Timestamp::as_ns));
        }
    }

    #[inline]
    fn end_burst(&mut self, rest: Option<Promises>) {
        self.outbound.publish(&self.segment);
        let line = self.segment.line(self.segment.process());
        match rest {
            // The machine counts a frame that waits here as sent: the floor of the burst holds.
            _ if self.outbound.is_parked() => {}
            None => line.withdraw(),
            Some(rest) => line.hold(rest.barrier.as_ns()),
        }
        self.outbound.finish(&self.segment, &mut self.stats);
    }

    fn wait(&mut self, timeout_ns: u64) {
        let bed = self.segment.bed(self.segment.process());
        bed.lie_down();
        let is_quiet = self.inbound.is_empty(&self.segment)
            && self.epoch == Some(self.segment.epoch().load(Ordering::Acquire))
            && !self.bell.is_rung.load(Ordering::Acquire);
        if is_quiet {
            futex::wait(bed.0, ASLEEP, timeout_ns);
        }
        bed.get_up();
        self.bell.is_rung.store(false, Ordering::Release);
    }

    fn doorbell(&self) -> Doorbell {
        Doorbell::new(self.bell.clone())
    }
}

impl fmt::Debug for Shm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shm")
            .field("path", &self.path())
            .field("process", &self.process())
            .field("incarnation", &self.incarnation())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// Wakes this process's driver from another thread.
#[derive(Debug)]
struct SharedBell {
    mapping: Arc<Mapping>,
    bed_at: usize,
    is_rung: AtomicBool,
}

impl Bell for SharedBell {
    fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        before_wake();
        let bed = Bed(self.mapping.half_word(self.bed_at));
        if bed.must_wake() {
            futex::wake(bed.0);
        }
    }
}
