//! Progress bar on a terminal, for commands that take longer than two seconds.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time after which a progress bar is shown.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Resolution of the bar.
const STEPS: u64 = 1000;

/// A progress bar on standard error; hidden where that is not a terminal.
pub struct Progress {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Creates a hidden bar.
    pub fn new() -> Self {
        Self { began: Instant::now(), bar: None }
    }

    /// Shows the fraction that is done, 0 to 1, and what is being done.
    pub fn show(&mut self, fraction: f64, message: &str) {
        if self.began.elapsed() < SHOW_AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(STEPS);
            let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed}  {msg}");
            if let Ok(style) = style {
                bar.set_style(style.progress_chars("█░"));
            }
            bar
        });
        bar.set_message(message.to_string());
        bar.set_position((fraction * STEPS as f64) as u64);
    }

    /// Shows what has been done, where the total is unknown.
    pub fn show_count(&mut self, message: impl FnOnce() -> String) {
        if self.began.elapsed() < SHOW_AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(message());
        bar.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
