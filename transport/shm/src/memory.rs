//! Memory of shared files: reserved before it is used.
//!
//! A process that touches a page for which a full memory file system has no memory gets SIGBUS, and
//! loses the whole mapping ([`crate::sigbus`]). So every page is allocated before any process
//! touches it, by a call that fails with an error instead.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Allocates memory for a part of `file`, given by offset and length, so that accessing it cannot
/// fail later. What is allocated already stays as it is, and so does the length of the file: one
/// that another process has shortened must not be extended again, by zeros.
///
/// A signal that interrupts an allocation releases pages of its part that no process has accessed
/// yet, whoever has allocated them. [`crate::mapping::Mapping::touch`] protects them.
pub(crate) fn preallocate(file: &File, part: (usize, usize)) -> io::Result<()> {
    loop {
        match allocate(file, libc::FALLOC_FL_KEEP_SIZE, part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Returns the memory of a part of `file`, given by offset and length, to the system; it then reads
/// as zeros.
pub(crate) fn punch_hole(file: &File, part: (usize, usize)) -> io::Result<()> {
    allocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, part)
}

fn allocate(file: &File, mode: libc::c_int, (start, bytes): (usize, usize)) -> io::Result<()> {
    // SAFETY: takes integers only.
    let result = unsafe {
        libc::fallocate(file.as_raw_fd(), mode, start as libc::off_t, bytes as libc::off_t)
    };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the free bytes of the file system of `file`, `u64::MAX` if it has no limit.
pub(crate) fn free_bytes(file: &File) -> io::Result<u64> {
    let mut status = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the descriptor is open, and the kernel writes one `statvfs`.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), status.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so all of it is written.
    let status = unsafe { status.assume_init() };
    // A memory file system without a limit has no size.
    let is_limited = status.f_blocks > 0;
    Ok(if is_limited { status.f_bavail.saturating_mul(status.f_frsize) } else { u64::MAX })
}
