//! Affinity of threads to cores.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the cores that this thread may run on, in ascending order.
///
/// # Errors
/// If the kernel does not report the affinity mask.
pub fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Pins this thread, and the threads it starts later, to one core.
///
/// # Errors
/// If the core does not exist or the process may not use it.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_thread_stays_on_its_core() {
        let all = cores().expect("the kernel reports the affinity mask");
        let last = *all.last().expect("there is at least one core");
        let pinned = std::thread::spawn(move || {
            pin_to_core(last).expect("the core exists");
            cores().expect("the kernel reports the affinity mask")
        });
        assert_eq!(pinned.join().expect("the thread ends"), [last]);
        assert!(pin_to_core(1 << 20).is_err() && pin_to_core(1_023).is_err());
    }
}
