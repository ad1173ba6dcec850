//! How soon the kernel lets this thread run.

/// The slice asked for, in ns: the least that the kernel grants. The default (0.7 to 3 ms) is also
/// how long a thread that was woken may have to wait for one that computes, and a message or a
/// failure is handed on by half a dozen threads.
const SLICE_NS: u64 = 100_000;

/// Asks the kernel to wake this thread from timed waits as exactly as it can (by default it gathers
/// wake-ups over 50 us), and to let it run soon when it has woken though others compute: it asks
/// for short slices (Linux 6.12, EEVDF). Threads that it starts later inherit that. It gets no more
/// of a core than before. Without effect where the kernel refuses.
pub fn reduce_wakeup_latency() {
    const SLACK_NS: libc::c_ulong = 1;
    // SAFETY: this option takes one number and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
    shorten_slice();
}

/// As of `sched_setattr(2)`, without what has been added at its end since.
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

/// Only for a thread of the ordinary kind: whoever has chosen another one has a reason.
fn shorten_slice() {
    const SIZE: u32 = size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel writes at most `SIZE` bytes to the structure, which is that long.
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

    /// What the kernel says of this thread: policy, nice, slice.
    fn attributes_of_this_thread() -> (u32, i32, u64) {
        let mut attributes = Attributes::default();
        let size = size_of::<Attributes>() as u32;
        // SAFETY: as above.
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
            // A kernel before 6.12 knows no slices and tells none; another kind of thread has none.
            assert_eq!(now.2, if slice_ns == 0 { 0 } else { SLICE_NS });
        })
        .join()
        .expect("it holds");
    }
}
