//! Scheduling latency of the calling thread.

/// Requested scheduling slice, in ns: the minimum that the kernel grants. The default slice (0.7 to
/// 3 ms) bounds how long a woken thread may wait for a thread that computes, and a message or a
/// failure notice passes through half a dozen threads.
const SLICE_NS: u64 = 100_000;

/// Asks the kernel to wake this thread from timed waits as exactly as it can (by default it groups
/// wake-ups over 50 us), and to schedule it soon after a wake-up although others compute, by
/// requesting short slices (Linux 6.12, EEVDF). Threads started later inherit both. The thread's
/// share of a core does not change. No effect where the kernel refuses.
pub fn reduce_wakeup_latency() {
    const SLACK_NS: libc::c_ulong = 1;
    // SAFETY: this option takes one number and accesses no memory of the process.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
    shorten_slice();
}

/// `struct sched_attr` of `sched_setattr(2)`, without the fields appended since.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Requests the short slice, unless the thread has a scheduling policy other than the default.
fn shorten_slice() {
    const SIZE: u32 = size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most `SIZE` bytes to the structure, which has that size.
    let read = unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0 as libc::c_uint)
    };
    if read != 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    (attributes.size, attributes.runtime) = (SIZE, SLICE_NS);
    // SAFETY: the kernel reads `size` bytes of the structure.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0 as libc::c_uint) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads policy, nice value and slice of this thread.
    fn attributes_of_this_thread() -> (u32, i32, u64) {
        let mut attributes = Attributes::default();
        let size = size_of::<Attributes>() as u32;
        // SAFETY: the kernel writes at most `size` bytes to the structure, which has that size.
        let read = unsafe {
            libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0 as libc::c_uint)
        };
        assert_eq!(read, 0);
        (attributes.policy, attributes.nice, attributes.runtime)
    }

    #[test]
    fn only_the_slice_is_changed() {
        std::thread::spawn(|| {
            let (policy, nice, slice_ns) = attributes_of_this_thread();
            reduce_wakeup_latency();
            let now = attributes_of_this_thread();
            assert_eq!((now.0, now.1), (policy, nice));
            // Kernels before 6.12 report no slice; nor have threads of other policies one.
            assert_eq!(now.2, if slice_ns == 0 { 0 } else { SLICE_NS });
        })
        .join()
        .expect("the thread does not panic");
    }
}
