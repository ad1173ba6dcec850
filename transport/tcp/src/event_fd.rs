//! A doorbell that `epoll` can hear.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use onepipe_transport_driver::Waker;
use rustix::event::{EventfdFlags, eventfd};

/// An event counter of the kernel's.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes all rings so far.
    pub fn clear(&self) {
        // Fails when nobody has rung, which is as good.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl Waker for EventFd {
    fn ring(&self) {
        // Fails only when it was rung 2^64 − 2 times already: it rings.
        let _ = rustix::io::write(&self.0, &[0, 0, 0, 1, 0, 0, 0, 1]);
    }
}
