//! A waker that `poll` can wait for: an eventfd(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use onepipe_transport_driver::Waker;

/// An event counter of the kernel.
#[derive(Debug)]
pub(crate) struct EventFd(File);

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes integers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and has no other owner.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Clears all wake-ups so far.
    pub(crate) fn clear(&self) {
        // Fails when the counter is zero, which is as good.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl Waker for EventFd {
    fn ring(&self) {
        // Fails only when the counter is at its maximum: then it is readable already.
        let _ = (&self.0).write(&[0, 0, 0, 1, 0, 0, 0, 1]);
    }
}
