//! Errors of the store of a controller or a coordinator, in the log.

use std::time::{Duration, Instant};

/// A text that was printed less than this ago is not printed again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Number of texts that are remembered.
const TEXTS_MAX: usize = 16;

/// Prints what becomes of a store.
#[derive(Debug, Default)]
pub struct StoreErrors {
    /// The texts printed in the last [`REPEAT_INTERVAL`], and when.
    printed: Vec<(String, Instant)>,
    /// Whether the last error was printed, so that its end is printed as well.
    is_end_due: bool,
}

impl StoreErrors {
    /// Prints an error, unless the same text was printed just before.
    pub fn print(&mut self, reason: &str) {
        if self.is_new(reason, Instant::now()) {
            self.is_end_due = true;
            tracing::error!("the store has failed, it is tried again: {reason}");
        }
    }

    /// Prints that the store works again, if its last error was printed.
    pub fn print_recovered(&mut self) {
        if std::mem::take(&mut self.is_end_due) {
            tracing::info!("the store works again");
        }
    }

    fn is_new(&mut self, text: &str, now: Instant) -> bool {
        self.printed.retain(|(_, at)| now.duration_since(*at) < REPEAT_INTERVAL);
        if self.printed.iter().any(|(printed, _)| printed == text) {
            return false;
        }
        if self.printed.len() < TEXTS_MAX {
            self.printed.push((text.to_owned(), now));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_new_once_in_ten_seconds() {
        let (mut errors, began) = (StoreErrors::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        assert!(errors.is_new("the disk is full", at(0)));
        assert!(errors.is_new("no such file", at(1)));
        assert!(!errors.is_new("the disk is full", at(9)));
        assert!(errors.is_new("the disk is full", at(10)));
    }
}
