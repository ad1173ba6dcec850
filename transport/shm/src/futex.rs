//! Blocking on words that other processes can change (futex(2)).

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

/// Maximum number of words that [`wait_for_any`] can block on: FUTEX_WAITV_MAX of Linux.
pub(crate) const WORDS_MAX: usize = 128;

/// Flag of a word of 32 bits that other processes map, too: FUTEX2_SIZE_U32.
const SHARED_32_BITS: u32 = 2;

/// What futex_waitv(2) needs of a word.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Blocks while all `words` hold `value`, for at most `timeout_ns`. May return early (spurious
/// wake-up). Returns false at once if there are more than [`WORDS_MAX`], or if the kernel does not
/// have futex_waitv(2).
pub(crate) fn wait_for_any<'a>(
    words: impl IntoIterator<Item = &'a AtomicU32>,
    value: u32,
    timeout_ns: u64,
) -> bool {
    let mut waiters = [Waiter::default(); WORDS_MAX];
    let mut count = 0;
    for word in words {
        let Some(waiter) = waiters.get_mut(count) else { return false };
        let address = word.as_ptr() as u64;
        *waiter = Waiter { value: u64::from(value), address, flags: SHARED_32_BITS, reserved: 0 };
        count += 1;
    }
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `until` is valid for the call, which writes it only.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) };
    let nanoseconds = until.tv_nsec as u64 + timeout_ns;
    until.tv_sec += (nanoseconds / 1_000_000_000) as libc::time_t;
    until.tv_nsec = (nanoseconds % 1_000_000_000) as libc::c_long;
    // SAFETY: the kernel only reads the waiters, of which `count` are set, and `until`. The words
    // are borrowed for the call.
    let error = unsafe { waitv(waiters.as_ptr(), count, &raw const until) };
    matches!(error, None | Some(libc::EAGAIN | libc::EINTR | libc::ETIMEDOUT))
}

/// Returns whether the kernel has futex_waitv(2).
pub(crate) fn has_wait_for_any() -> bool {
    // SAFETY: with no waiters the kernel reads nothing.
    let error = unsafe { waitv(std::ptr::null(), 0, std::ptr::null()) };
    error == Some(libc::EINVAL)
}

/// Calls futex_waitv(2). Returns its error.
///
/// # Safety
/// `waiters` are `count` valid ones, and `until` is valid or null.
unsafe fn waitv(waiters: *const Waiter, count: usize, until: *const libc::timespec) -> Option<i32> {
    let (call, flags, clock) = (libc::SYS_futex_waitv, 0, libc::CLOCK_MONOTONIC);
    // SAFETY: the caller's; the kernel only reads both.
    let woken = unsafe { libc::syscall(call, waiters, count, flags, until, clock) };
    (woken == -1).then(|| std::io::Error::last_os_error().raw_os_error()).flatten()
}

/// Wakes the process that blocks on `word`.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only to identify the futex.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}
