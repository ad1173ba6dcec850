//! CPU time of processes.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time that this process has used, in s.
pub(super) fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the CPU time that running processes have used, with all their threads, in s. The kernel
/// counts it in ticks, of 10 ms as a rule.
pub(super) fn seconds_of(pids: &[u32]) -> Result<f64> {
    let mut ticks = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        ticks += ticks_in(&stat).with_context(|| format!("{path} has an unknown format"))?;
    }
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the user and system time in the text of a `stat` file: its fields 14 and 15. The second
/// field, the name, may have spaces and parentheses.
fn ticks_in(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_user_and_system_time() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 2 3 20 0 1 0 5 6 7";
        assert_eq!(ticks_in(stat), Some(42));
        assert_eq!(ticks_in("7 (a) S 1"), None);
    }

    #[test]
    fn counts_work_of_this_process() {
        let before = own_seconds();
        let pid = [std::process::id()];
        let began = seconds_of(&pid).expect("this process runs");
        while own_seconds() - before < 0.05 {
            std::hint::spin_loop();
        }
        assert!(seconds_of(&pid).expect("this process runs") > began);
    }
}
