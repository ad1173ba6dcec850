//! A waker that `epoll` can wait for: an eventfd(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onepipe_transport_driver::Waker;
use rustix::event::{EventfdFlags, eventfd};

/// An event counter of the kernel.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Clears all wake-ups so far.
    pub fn clear(&self) {
        // Fails when the counter is zero, which is as good.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl Waker for EventFd {
    fn ring(&self) {
        // Fails only when the counter is at its maximum: then it is readable already.
        let _ = rustix::io::write(&self.0, &[0, 0, 0, 1, 0, 0, 0, 1]);
    }
}
