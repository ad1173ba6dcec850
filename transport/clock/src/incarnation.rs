//! When a life began, as a number.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onepipe_base::Incarnation;

/// Lives are told apart by when they began, in eighths of a second since 2024-01-01: 32 bits last
/// until 2041.
const TICK: Duration = Duration::from_millis(125);
const EPOCH: Duration = Duration::from_secs(1_704_067_200);

/// A number above that of any former life on this machine, and below that of any later one: waits
/// until the next one would be higher, an eighth of a second at most. Good for as long as the
/// system's clock is not put back by more than a life has lasted.
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
