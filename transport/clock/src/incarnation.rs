//! Incarnation numbers derived from the start time of a process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onepipe_base::Incarnation;

/// An incarnation number counts eighths of a second since 2024-01-01: 32 bits last until 2041.
const TICK: Duration = Duration::from_millis(125);
const EPOCH: Duration = Duration::from_secs(1_704_067_200);

/// Returns an incarnation above that of any previous incarnation on this machine and below that of
/// any later one. Sleeps until the next number would be returned, at most an eighth of a second.
/// Holds as long as the system's clock is not set back by more than an incarnation has lasted.
pub fn start_incarnation() -> Incarnation {
    let since = SystemTime::now().duration_since(UNIX_EPOCH + EPOCH).unwrap_or_default();
    let ticks = since.as_nanos() / TICK.as_nanos();
    let passed = Duration::from_nanos((since.as_nanos() % TICK.as_nanos()) as u64);
    std::thread::sleep(TICK - passed);
    Incarnation(ticks as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_incarnation_is_above_the_last() {
        let ticks = [start_incarnation(), start_incarnation(), start_incarnation()];
        assert!(ticks.is_sorted_by(|one, next| one < next), "{ticks:?}");
        assert!(ticks[0] > Incarnation(0));
    }
}
