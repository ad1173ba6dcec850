//! The timer that makes a standing-by thread drive the pipe when the caller stays away.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fd::OwnedFd;
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer that one thread waits for and another one sets: a timerfd(2).
#[derive(Debug)]
pub(crate) struct StandbyTimer {
    fd: OwnedFd,
    /// Set until the waiting thread has seen the expiry, so that a caller that comes and goes makes
    /// one system call until then.
    is_set: AtomicBool,
}

impl StandbyTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        Ok(Self { fd, is_set: AtomicBool::new(false) })
    }

    /// Has the timer expire in `delay_ns`, unless it is set already.
    #[inline]
    pub(crate) fn set(&self, delay_ns: u64) {
        if !self.is_set.swap(true, Ordering::SeqCst) {
            self.arm(delay_ns.max(1));
        }
    }

    /// Has the timer expire at once.
    pub(crate) fn fire(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.arm(1);
    }

    /// Stops the timer, if it is set.
    #[inline]
    pub(crate) fn cancel(&self) {
        if self.is_set.load(Ordering::SeqCst) {
            // In this order: a timer that counts as set must run, or the thread would sleep on.
            self.arm(0);
            self.is_set.store(false, Ordering::SeqCst);
        }
    }

    /// Blocks until the timer expires.
    pub(crate) fn wait(&self) {
        // Interrupted or expired: the caller looks for the cause in either case.
        let _ = io::read(&self.fd, &mut [0; 8]);
        self.is_set.store(false, Ordering::SeqCst);
    }

    /// Sets the expiry; 0 means never.
    fn arm(&self, delay_ns: u64) {
        let delay = Timespec {
            tv_sec: (delay_ns / 1_000_000_000) as i64,
            tv_nsec: (delay_ns % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: delay };
        let set = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once);
        debug_assert!(set.is_ok(), "the descriptor is a timer and the time is valid: {set:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn expires_once_unless_cancelled() {
        let timer = StandbyTimer::new().expect("a descriptor is free");
        let begin = Instant::now();
        timer.set(1_000_000);
        timer.set(60_000_000_000);
        timer.wait();
        assert!(begin.elapsed() >= Duration::from_millis(1), "the first setting counts");
        timer.set(60_000_000_000);
        timer.cancel();
        timer.set(2_000_000);
        timer.wait();
        timer.set(60_000_000_000);
        timer.fire();
        timer.wait();
        assert!(begin.elapsed() < Duration::from_secs(50), "cancelled and overtaken settings");
    }
}
