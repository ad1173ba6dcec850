//! On which cores threads run.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores that this thread may run on, by ascending number.
///
/// # Errors
/// When the kernel does not say.
pub fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// This thread runs on this core from now on, and threads that it starts later too.
///
/// # Errors
/// When there is no such core, or it is none of those that the process may use.
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
        let all = cores().expect("the kernel says");
        let last = *all.last().expect("there is one at least");
        let pinned = std::thread::spawn(move || {
            pin_to_core(last).expect("it is one of those there are");
            cores().expect("the kernel says")
        });
        assert_eq!(pinned.join().expect("it ends"), [last]);
        assert!(pin_to_core(1 << 20).is_err() && pin_to_core(1_023).is_err());
    }
}
