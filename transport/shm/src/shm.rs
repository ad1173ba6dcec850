//! A process's attachment to a segment, as a transport.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use onepipe_base::{
    Cause, Incarnation, Mono, Now, Port, ProcessId, Promises, Timestamp, Transmit, Verdict,
};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Doorbell, SharedWait, Transport, Wait, Waker};

use crate::inbound::{Inbound, PeerChange};
use crate::mapping::Mapping;
use crate::outbound::Outbound;
use crate::segment::Segment;
use crate::sleep::{ASLEEP, ASLEEP_APART, FutexSlot, fence_before_wake};
use crate::sync::Ordering;
use crate::{AttachError, Config, SegmentLost, Stats, futex};

/// A process's attachment to a segment of shared memory. Dropping it detaches.
///
/// Ports are process ids: a full mesh. The crate documentation says why promises need no frames.
pub struct Shm {
    segment: Segment,
    inbound: Inbound,
    outbound: Outbound,
    waker: Arc<FutexWaker>,
    stats: Stats,
    /// The membership epoch that `inbound` knows.
    epoch: Option<u64>,
    next_liveness_check: Mono,
    liveness_checks: u64,
    /// The published value of this process's commit hold.
    commit_hold: Option<Timestamp>,
    is_lost: bool,
}

impl Shm {
    /// Attaches to the segment `name` of this user as `process`, or as the lowest free id. Creates
    /// the segment if there is none, or only the remains of a crash. A segment in use keeps its
    /// sizes: see [`Shm::config`].
    ///
    /// # Errors
    /// [`AttachError`]: a live process has this id; a field is out of range; the kernel refuses.
    pub fn attach(
        name: &str,
        process: Option<ProcessId>,
        config: &Config,
    ) -> Result<Self, AttachError> {
        let segment = Segment::attach(name, process, config)?;
        // The setup lock is held until `publish`, so no process starts to read the state that is
        // being taken over here.
        let outbound = Outbound::resume(&segment)?;
        let inbound = Inbound::resume(&segment);
        segment.publish()?;
        if segment.is_lost() {
            return Err(segment.loss().into());
        }
        let waker = Arc::new(FutexWaker {
            mapping: Arc::clone(segment.mapping()),
            futex_slot_at: segment.config().futex_slot_at(segment.process()),
            is_rung: AtomicBool::new(false),
        });
        Ok(Self {
            segment,
            inbound,
            outbound,
            waker,
            stats: Stats::default(),
            epoch: None,
            next_liveness_check: Mono::from_ns(0),
            liveness_checks: 0,
            commit_hold: None,
            is_lost: false,
        })
    }

    /// The id of this process.
    pub fn process(&self) -> ProcessId {
        ProcessId(self.segment.process() as u32)
    }

    /// The incarnation of this process: higher than any previous one in this segment, or in a
    /// segment of this name that was removed more than a second ago.
    pub fn incarnation(&self) -> Incarnation {
        self.segment.incarnation()
    }

    /// The sizes of the segment, as its creator chose them.
    pub fn config(&self) -> &Config {
        self.segment.config()
    }

    /// The clock that all processes of the segment share. Promises are exact with this clock only.
    pub fn clock(&self) -> SystemClock {
        SystemClock::with_calibration(self.segment.calibration())
    }

    /// The path of the segment.
    pub fn path(&self) -> &Path {
        self.segment.path()
    }

    /// Removes the segment's name: attached processes stay attached, no other process can attach,
    /// and nothing is left behind when all have ended, however they end.
    ///
    /// # Errors
    /// The kernel's; another process may have removed the name already.
    pub fn unlink(&self) -> std::io::Result<()> {
        self.segment.unlink()
    }

    /// Why this attachment is of no more use, if it is not: another process has shortened the file.
    /// Noticed by the next turn. Nothing is delivered from then on, and nothing that is sent
    /// arrives.
    #[inline]
    pub fn loss(&self) -> Option<SegmentLost> {
        self.is_lost.then(|| self.segment.loss())
    }

    /// Counters of this attachment.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The other live processes, as of the last turn.
    pub fn peers(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.inbound.live().map(|process| ProcessId(process as u32))
    }

    /// Notes processes that attached, detached or died.
    #[inline]
    fn update_membership(&mut self, now: Mono) {
        let epoch = self.segment.epoch().load(Ordering::Acquire);
        if self.epoch != Some(epoch) {
            self.epoch = Some(epoch);
            // A segment in use never has the epoch 0 that a lost one shows.
            self.is_lost |= self.segment.is_lost();
            let (outbound, stats) = (&mut self.outbound, &mut self.stats);
            self.inbound.refresh_membership(
                &self.segment,
                |PeerChange { process, is_live, has_died }| {
                    stats.deaths += u64::from(has_died);
                    outbound.set_live(process, is_live);
                },
            );
        }
        if now >= self.next_liveness_check {
            self.check_liveness(now);
        }
    }

    #[cold]
    fn check_liveness(&mut self, now: Mono) {
        self.next_liveness_check = now.after_ns(self.segment.config().liveness_interval_ns);
        self.liveness_checks += 1;
        self.is_lost |= self.segment.is_lost();
        let (outbound, stats) = (&mut self.outbound, &mut self.stats);
        let deaths = stats.deaths;
        self.inbound.check_liveness(
            &self.segment,
            self.liveness_checks,
            |PeerChange { process, is_live, .. }| {
                stats.deaths += 1;
                outbound.set_live(process, is_live);
            },
        );
        if stats.deaths > deaths {
            self.segment.notify_membership_change();
        }
    }

    /// Returns the number of slots that are not in flight.
    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> usize {
        self.outbound.free()
    }

    /// Ends like a killed process: only the kernel cleans up.
    #[cfg(test)]
    pub(crate) fn kill(self) {
        self.segment.release_process_lock();
        std::mem::forget(self);
    }

    /// The memory that other processes can access, for fault injection.
    #[cfg(test)]
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl Transport for Shm {
    const IS_FIFO: bool = true;
    const POLLS_BY_SYSTEM_CALL: bool = false;
    const PROMISES_WAKE: bool = false;

    #[inline]
    fn set_awaiting_promises(&mut self, is_awaiting_promises: bool) {
        self.inbound.set_awaiting_promises(is_awaiting_promises);
    }

    #[inline]
    fn receive(&mut self, now: Now, on_frame: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize {
        self.update_membership(now.mono);
        let (outbound, stats) = (&mut self.outbound, &mut self.stats);
        let frames = self.inbound.receive(&self.segment, now, outbound, stats, on_frame);
        // Publish forwarded frames, if any.
        self.outbound.publish(&self.segment);
        self.outbound.finish(&self.segment, &mut self.stats);
        frames
    }

    #[inline]
    fn poll_peers(&mut self, on_peer: impl FnMut(Port, Incarnation)) {
        self.inbound.poll_peers(on_peer);
    }

    #[inline]
    fn poll_promises(&mut self, _: Now, on_promises: impl FnMut(Port, Promises)) {
        self.inbound.poll_promises(&self.segment, on_promises);
    }

    #[inline]
    fn poll_links_down(&mut self, on_link_down: impl FnMut(Port, Cause)) {
        self.inbound.poll_links_down(on_link_down);
    }

    #[inline]
    fn can_begin_burst(&mut self, now: Now) -> bool {
        let can_begin_burst =
            self.outbound.can_begin_burst(&self.segment, now.mono, &mut self.stats);
        self.stats.bursts_held += u64::from(!can_begin_burst);
        can_begin_burst
    }

    #[inline]
    fn begin_burst(&mut self, now: Now, promises: Option<Promises>) {
        // A process without promises stamps by the clock, which only advances from here.
        let floor = promises.map_or(now.sync, |promises| promises.barrier);
        self.segment.promise_word(self.segment.process()).announce(floor.as_ns());
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
        if self.commit_hold != since {
            self.commit_hold = since;
            let word = self.segment.commit_hold(self.segment.process());
            word.store(since.map(Timestamp::as_ns));
        }
    }

    #[inline]
    fn end_burst(&mut self, rest: Option<Promises>) {
        self.outbound.publish(&self.segment);
        let promise_word = self.segment.promise_word(self.segment.process());
        match rest {
            // The machine counts a parked frame as sent: the floor of the burst still holds.
            _ if self.outbound.is_parked() => {}
            None => promise_word.set_idle(),
            Some(rest) => promise_word.raise(rest.barrier.as_ns()),
        }
        self.outbound.finish(&self.segment, &mut self.stats);
    }

    fn wait(&mut self, timeout_ns: u64) {
        if self.prepare_sleep(ASLEEP) {
            let futex_slot = self.segment.futex_slot(self.segment.process());
            futex::wait(futex_slot.0, ASLEEP, timeout_ns);
            self.end_wait();
        }
    }

    fn doorbell(&self) -> Doorbell {
        Doorbell::new(self.waker.clone())
    }
}

impl Shm {
    /// Returns the number of attachments that [`Shm::wait_for_any`] can wait for: 1 if the kernel
    /// is older than Linux 5.16.
    pub fn waits_for_any_max() -> usize {
        if futex::has_wait_for_any() { futex::WORDS_MAX } else { 1 }
    }

    /// Blocks until one of several attachments has input, for at most `timeout_ns`. Each of them
    /// has announced a wait by [`SharedWait::begin_wait`]. May return early (spurious wake-up).
    /// Returns false at once if there are more than [`Shm::waits_for_any_max`].
    #[must_use]
    pub fn wait_for_any<'a>(
        attachments: impl IntoIterator<Item = &'a Self>,
        timeout_ns: u64,
    ) -> bool {
        let word = |shm: &'a Self| shm.segment.futex_slot(shm.segment.process()).0;
        futex::wait_for_any(attachments.into_iter().map(word), ASLEEP_APART, timeout_ns)
    }

    /// Announces that a thread sleeps while the word holds `value`. Returns false, and announces
    /// nothing, if there is something to do.
    fn prepare_sleep(&mut self, value: u32) -> bool {
        self.segment.futex_slot(self.segment.process()).prepare_sleep(value);
        let is_quiet = self.inbound.is_empty(&self.segment)
            && self.epoch == Some(self.segment.epoch().load(Ordering::Acquire))
            && !self.waker.is_rung.load(Ordering::Acquire);
        if !is_quiet {
            self.end_wait();
        }
        is_quiet
    }
}

impl SharedWait for Shm {
    fn wait_handle(&self) -> io::Result<Arc<dyn Wait>> {
        Ok(self.waker.clone())
    }

    fn begin_wait(&mut self) -> bool {
        self.prepare_sleep(ASLEEP_APART)
    }

    fn end_wait(&mut self) {
        self.segment.futex_slot(self.segment.process()).finish_sleep();
        self.waker.is_rung.store(false, Ordering::Release);
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

/// Wakes this process's driver from another thread, and blocks it.
#[derive(Debug)]
struct FutexWaker {
    mapping: Arc<Mapping>,
    futex_slot_at: usize,
    is_rung: AtomicBool,
}

impl Waker for FutexWaker {
    fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        fence_before_wake();
        let futex_slot = FutexSlot(self.mapping.word32(self.futex_slot_at));
        if futex_slot.take_wake() {
            futex::wake(futex_slot.0);
        }
    }
}

impl Wait for FutexWaker {
    fn wait(&self, timeout_ns: u64) {
        futex::wait(self.mapping.word32(self.futex_slot_at), ASLEEP_APART, timeout_ns);
    }

    fn ring(&self) {
        Waker::ring(self);
    }
}
