//! The lock between the caller and the pipe's thread, and who of them drives.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use onepipe_base::Mono;
use onepipe_transport_driver::Waker;
use rustix::io::Errno;

use super::core::{Core, ThreadState};
use super::standby::StandbyTimer;
use super::waiter::Waiter;

/// How long the caller may stay away before the thread drives the pipe, in ns: longer than most
/// programs take for a message, and about one beacon interval, for which others may wait meanwhile.
const GRACE_MIN_NS: u64 = 50_000;
/// The longest grace is this many times the shortest: a busy caller, which comes back without ever
/// blocking, should not wake the thread 20,000 times a second just to be found present.
const GRACE_LOG2_MAX: u32 = 3;

/// What the caller and the pipe's thread share.
///
/// The thread that holds the lock may take a turn. The caller drives while it is inside a call that
/// waits (`caller_drives`); it holds the lock meanwhile, even while it blocks. The pipe's thread
/// drives when the caller has been away for the grace, or always once a callback was set or the
/// pipe is leaving (`is_thread_driven`); it waits without the lock.
#[derive(Debug)]
pub(crate) struct Shared {
    core: Mutex<Core>,
    /// The caller waits for the lock: the thread must not take it again before.
    caller_wants_lock: AtomicBool,
    caller_drives: AtomicBool,
    /// When the caller last stopped driving, and for how long the thread leaves the pipe alone from
    /// then on, in ns.
    caller_left_at: AtomicU64,
    grace_ns: AtomicU64,
    is_thread_driven: AtomicBool,
    timer: StandbyTimer,
    /// Counts turns of a thread that always drives which may have made an event or room.
    progress: AtomicU64,
    /// Where the caller waits for such a thread.
    waiter: Waiter,
}

impl Shared {
    pub(crate) fn new(core: Core) -> Result<Self, Errno> {
        Ok(Self {
            core: Mutex::new(core),
            caller_wants_lock: AtomicBool::new(false),
            caller_drives: AtomicBool::new(false),
            caller_left_at: AtomicU64::new(0),
            grace_ns: AtomicU64::new(GRACE_MIN_NS),
            is_thread_driven: AtomicBool::new(false),
            timer: StandbyTimer::new()?,
            progress: AtomicU64::new(0),
            waiter: Waiter::default(),
        })
    }

    /// Locks the core, for the caller. Waits for at most one turn of the thread.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.caller_wants_lock.store(true, Ordering::Relaxed);
                let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
                self.caller_wants_lock.store(false, Ordering::Relaxed);
                core
            }
        }
    }

    /// Locks the core, for the thread. `None` if the caller drives.
    pub(crate) fn lock_for_thread(&self) -> Option<MutexGuard<'_, Core>> {
        loop {
            if !self.caller_wants_lock.load(Ordering::Relaxed) {
                match self.core.try_lock() {
                    Ok(core) => return Some(core),
                    Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                    Err(TryLockError::WouldBlock) => {}
                }
            }
            if self.caller_drives.load(Ordering::SeqCst) {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// Whether the thread drives, whatever the caller does.
    #[inline]
    pub(crate) fn is_thread_driven(&self) -> bool {
        self.is_thread_driven.load(Ordering::Acquire)
    }

    /// Has the thread drive from now on, and at once, after `change`.
    pub(crate) fn hand_to_thread(&self, change: impl FnOnce(&mut Core)) {
        let mut core = self.lock();
        change(&mut core);
        self.is_thread_driven.store(true, Ordering::Release);
        core.wake_thread(ThreadState::Driving);
        drop(core);
        self.timer.fire();
    }

    /// Takes a turn, or wakes the thread to take it if the thread always drives.
    pub(crate) fn turn(&self, core: &mut Core) {
        match self.is_thread_driven() {
            true => core.wake_thread(ThreadState::Driving),
            false => core.turn_beside_thread(),
        }
    }

    /// Starts to drive as the caller.
    #[inline]
    pub(crate) fn enter(&self) -> Caller<'_> {
        self.caller_drives.store(true, Ordering::SeqCst);
        let mut core = self.lock();
        if core.thread_state != ThreadState::Standby {
            core.wake_thread(ThreadState::Standby);
        }
        Caller { shared: self, core }
    }

    /// Notes at `now` that the caller has used the core without driving it, and has left work that
    /// the thread must do if the caller does not come back.
    #[inline]
    pub(crate) fn on_used(&self, now: Mono) {
        self.caller_left_at.store(now.as_ns(), Ordering::Relaxed);
        self.timer.set(self.grace_ns.load(Ordering::Relaxed));
    }

    /// Notes that the caller stops driving at `now`. `has_blocked`: it had to wait since it began.
    #[inline]
    pub(crate) fn on_caller_away(&self, now: Mono, has_blocked: bool) {
        let grace_ns = match has_blocked {
            true => GRACE_MIN_NS,
            false => {
                let grace_ns = 2 * self.grace_ns.load(Ordering::Relaxed);
                grace_ns.clamp(GRACE_MIN_NS, GRACE_MIN_NS << GRACE_LOG2_MAX)
            }
        };
        self.grace_ns.store(grace_ns, Ordering::Relaxed);
        self.caller_left_at.store(now.as_ns(), Ordering::Relaxed);
        self.caller_drives.store(false, Ordering::SeqCst);
        self.timer.set(grace_ns);
    }

    /// Blocks the thread until it must drive: because the caller has been away for the grace, or
    /// because the thread always drives. `now` reads the clock.
    pub(crate) fn stand_by(&self, mut now: impl FnMut() -> Mono) {
        while !self.is_thread_driven() {
            if !self.caller_drives.load(Ordering::SeqCst) {
                let left_at = Mono::from_ns(self.caller_left_at.load(Ordering::Relaxed));
                let away_ns = now().since_ns(left_at);
                let grace_ns = self.grace_ns.load(Ordering::Relaxed);
                if away_ns >= grace_ns {
                    return;
                }
                self.timer.set(grace_ns - away_ns);
            }
            self.timer.wait();
        }
    }

    /// Returns the number of turns so far that [`Shared::wait_for_thread`] is to wait beyond.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Acquire)
    }

    /// Notes that the thread, which always drives, may have made an event or room.
    pub(crate) fn on_progress(&self) {
        self.progress.fetch_add(1, Ordering::Release);
        self.waiter.wake();
    }

    /// Blocks the caller until the thread has made progress beyond `seen`, for at most `timeout`.
    pub(crate) fn wait_for_thread(&self, seen: u64, timeout: Duration) {
        self.waiter.wait(timeout, || self.progress() != seen);
    }
}

/// Has the thread drive, so that the stop of the pipe takes effect.
impl Waker for Shared {
    fn ring(&self) {
        self.hand_to_thread(|_| ());
    }
}

/// The caller while it drives. It must end by [`Caller::leave`].
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    shared: &'a Shared,
    pub(crate) core: MutexGuard<'a, Core>,
}

impl Caller<'_> {
    /// Blocks for at most `timeout`, or until there is something to do.
    pub(crate) fn block(&mut self, timeout: Duration) {
        self.shared.timer.cancel();
        self.core.block(timeout);
    }

    /// Stops driving at `now`.
    #[inline]
    pub(crate) fn leave(self, now: Mono, has_blocked: bool) {
        drop(self.core);
        self.shared.on_caller_away(now, has_blocked);
    }
}
