//! Until when something is waited for.

use std::time::{Duration, Instant};

/// So long at a time: whoever waits looks again then.
const AT_A_TIME: Duration = Duration::from_secs(3_600);

/// A time at which waiting ends, unless it is so far away that no clock tells it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// In so long, from now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// How long to wait now; `None` when it is over.
    pub(crate) fn left(self) -> Option<Duration> {
        let Some(at) = self.0 else { return Some(AT_A_TIME) };
        let left = at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        left.map(|left| left.min(AT_A_TIME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_and_may_be_as_far_away_as_one_likes() {
        assert_eq!(Deadline::after(Duration::ZERO).left(), None);
        let left = Deadline::after(Duration::from_secs(60)).left();
        assert!(left.is_some_and(|left| left > Duration::from_secs(50)));
        assert_eq!(Deadline::after(Duration::MAX).left(), Some(AT_A_TIME));
    }
}
