//! How late the kernel may wake this thread.

/// Asks the kernel to wake this thread from timed waits as exactly as it can: by default it gathers
/// wake-ups over 50 us. Without effect where the kernel refuses.
pub fn sharpen_timers() {
    const SLACK_NS: libc::c_ulong = 1;
    // SAFETY: this option takes one number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}
