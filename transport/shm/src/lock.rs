//! Byte-range locks that a process holds as long as it is alive.
//!
//! Open-file-description locks: the kernel releases them when the process ends, however it ends, so
//! the holder of a lock is alive. (A forked child that has not called `exec` counts as its parent.)

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the setup lock is waited for. It is held while memory is allocated: for milliseconds,
/// or seconds where the machine swaps.
pub(crate) const SETUP_WAIT: Duration = Duration::from_secs(10);
/// How often it is tried meanwhile.
const SETUP_INTERVAL: Duration = Duration::from_millis(1);

/// The byte locked while a segment is set up, attached or detached. Above all process ids.
const SETUP: i64 = 1 << 20;

//= spec/ordering.md#R83
/// Takes the setup lock; waits for at most `wait` until no other process holds it. Returns whether
/// it is taken.
pub(crate) fn lock_setup(file: &File, wait: Duration) -> io::Result<bool> {
    let began = Instant::now();
    while !try_lock_setup(file)? {
        if began.elapsed() >= wait {
            return Ok(false);
        }
        std::thread::sleep(SETUP_INTERVAL);
    }
    Ok(true)
}

/// Returns the pid of the process that holds the setup lock, if this user may see it: the kernel
/// names no holder of an open-file-description lock, but lists the locks of each open file.
pub(crate) fn setup_holder(file: &File) -> Option<u32> {
    let line_end = format!(":{} {SETUP} {SETUP}", file.metadata().ok()?.ino());
    let holds = |fdinfo: &Path| {
        let is_it = |line: &str| line.starts_with("lock:") && line.ends_with(&line_end);
        std::fs::read_to_string(fdinfo).is_ok_and(|text| text.lines().any(is_it))
    };
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let mut files = std::fs::read_dir(process.path().join("fdinfo")).ok()?.flatten();
        files.any(|file| holds(&file.path())).then_some(pid)
    })
}

/// Takes the setup lock and returns true, or returns false instead of waiting.
pub(crate) fn try_lock_setup(file: &File) -> io::Result<bool> {
    try_lock(file, SETUP)
}

/// Releases the setup lock.
pub(crate) fn unlock_setup(file: &File) -> io::Result<()> {
    fcntl_lock(file, libc::F_OFD_SETLK, &mut range(SETUP, 1, libc::F_UNLCK))
}

/// Locks the process id `process`. Returns false when a live process holds it.
pub(crate) fn lock_process(file: &File, process: usize) -> io::Result<bool> {
    try_lock(file, process as i64)
}

fn try_lock(file: &File, byte: i64) -> io::Result<bool> {
    match fcntl_lock(file, libc::F_OFD_SETLK, &mut range(byte, 1, libc::F_WRLCK)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Unlocks the process id `process`.
pub(crate) fn unlock_process(file: &File, process: usize) -> io::Result<()> {
    fcntl_lock(file, libc::F_OFD_SETLK, &mut range(process as i64, 1, libc::F_UNLCK))
}

/// Whether another live process holds the process id `process`.
pub(crate) fn is_locked_by_other(file: &File, process: usize) -> io::Result<bool> {
    is_any_taken(file, process as i64, 1)
}

/// Whether another live process holds any process id.
pub(crate) fn has_live_process(file: &File) -> io::Result<bool> {
    is_any_taken(file, 0, SETUP)
}

fn is_any_taken(file: &File, start: i64, bytes: i64) -> io::Result<bool> {
    let mut result = range(start, bytes, libc::F_WRLCK);
    fcntl_lock(file, libc::F_OFD_GETLK, &mut result)?;
    Ok(result.l_type != libc::F_UNLCK as libc::c_short)
}

fn range(start: i64, bytes: i64, kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: bytes,
        l_pid: 0,
    }
}

fn fcntl_lock(file: &File, command: libc::c_int, range: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and all three lock commands take a pointer to a `flock`,
    // which is valid for the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(range)) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the effective user id: processes share files of this user only.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}
