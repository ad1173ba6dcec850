//! Blocking on a word that other processes can change (futex(2)).

use crate::sync::AtomicU32;

/// Blocks while `word` holds `value`, for at most `timeout_ns`. May return early (spurious
/// wake-up).
pub(crate) fn wait(word: &AtomicU32, value: u32, timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (timeout_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: `word` and `timeout` are valid for the call; the kernel only reads both. The word
    // lies in a shared file, so the futex is not a private one.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const timeout)
    };
}

/// Wakes the process that blocks on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only to identify the futex.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}
