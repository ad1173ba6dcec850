//! How far a command has come: on a terminal, and only if it takes longer than two seconds.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Who waits for less than this wants no progress bar.
const SHOW_AFTER: Duration = Duration::from_secs(2);
/// Parts of the whole that a bar can show.
const STEPS: u64 = 1000;

/// A progress bar on standard error, or nothing where that is no terminal.
pub struct Progress {
    began: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shows nothing yet.
    pub fn new() -> Self {
        Self { began: Instant::now(), bar: None }
    }

    /// The part that is done, 0 to 1, and what is being done.
    pub fn show(&mut self, part: f64, what: &str) {
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
        bar.set_message(what.to_string());
        bar.set_position((part * STEPS as f64) as u64);
    }

    /// What has been done, where nobody knows how much there is.
    pub fn show_count(&mut self, what: impl FnOnce() -> String) {
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
        bar.set_message(what());
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
