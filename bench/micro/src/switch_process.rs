//! The software switch as a process of a benchmark.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use onepipe_daemon_switch::SoftwareSwitch;

/// How long the switch runs after the measurement, in which the other processes leave.
const LEAVE_TIME: Duration = Duration::from_millis(300);

/// Runs the switch until all other processes have finished.
pub(crate) fn run_switch(bind: &str, is_released: &AtomicBool) -> Result<()> {
    let mut switch = SoftwareSwitch::new(&onepipe_daemon_switch::Config::new(bind.parse()?))?;
    let (stop, doorbell) = (AtomicBool::new(false), switch.doorbell());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_released.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(LEAVE_TIME);
            stop.store(true, Ordering::Release);
            doorbell.ring();
        });
        switch.run(&stop, |_| {});
    });
    Ok(())
}
