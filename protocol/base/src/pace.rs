//! When to say again what nobody acknowledges.

use crate::Mono;

/// Says something when it has changed, again after 1, 2, 4, … steps, and then for ever at a slow
/// pace, so that who has lost it or comes later hears it (design: failure.md, "Where is the
/// controller?").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    step_ns: u64,
    slow_ns: u64,
    wait_ns: u64,
    due: Option<Mono>,
}

impl Pace {
    /// Silent until the first change. `step_ns` at least 1; both in ns.
    pub const fn new(step_ns: u64, slow_ns: u64) -> Self {
        Self { step_ns, slow_ns, wait_ns: 0, due: None }
    }

    /// It has changed: due at once.
    pub fn on_change(&mut self, now: Mono) {
        self.wait_ns = self.step_ns;
        self.due = Some(now);
    }

    /// When it is due.
    pub fn due(&self) -> Option<Mono> {
        self.due
    }

    /// Whether it is to be said now; puts the next time off.
    pub fn take(&mut self, now: Mono) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.due = Some(now.after_ns(self.wait_ns));
        self.wait_ns = self.wait_ns.saturating_mul(2).min(self.slow_ns.max(self.step_ns));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn said_at_once_then_ever_more_rarely_but_for_ever() {
        let mut pace = Pace::new(10, 35);
        assert!(!pace.take(Mono::from_ns(1_000)), "nothing to say yet");
        pace.on_change(Mono::from_ns(100));
        let mut said = alloc::vec::Vec::new();
        for ns in 100..300 {
            if pace.take(Mono::from_ns(ns)) {
                said.push(ns);
            }
        }
        assert_eq!(said, [100, 110, 130, 165, 200, 235, 270]);
        pace.on_change(Mono::from_ns(301));
        assert_eq!(pace.due(), Some(Mono::from_ns(301)));
    }
}
