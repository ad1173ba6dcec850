//! Progress on a terminal: a bar for commands that take longer than two seconds, and a table that
//! is redrawn.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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

/// Where a command shows its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Stdout,
    /// Standard output is for the result.
    Stderr,
    Quiet,
}

/// Lines of text above a table and a bar; on anything but a terminal the lines only.
pub struct LiveTable {
    output: Output,
    bar: Option<ProgressBar>,
}

impl LiveTable {
    /// Creates a table whose bar is full after `length`.
    pub fn new(output: Output, length: Duration) -> Self {
        let target = match output {
            Output::Stdout => ProgressDrawTarget::stdout(),
            Output::Stderr => ProgressDrawTarget::stderr(),
            Output::Quiet => ProgressDrawTarget::hidden(),
        };
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let style = ProgressStyle::with_template("{msg}\n  {bar:60}  {prefix}").ok();
        let bar = style.filter(|_| !is_dumb && !target.is_hidden()).map(|style| {
            let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), target);
            bar.with_style(style.progress_chars("█░"))
        });
        Self { output, bar }
    }

    /// Returns whether the table is visible.
    pub fn is_visible(&self) -> bool {
        self.bar.is_some()
    }

    /// Redraws the table.
    pub fn show(&self, table: String, elapsed: Duration) {
        if let Some(bar) = &self.bar {
            bar.set_position(elapsed.as_millis() as u64);
            bar.set_prefix(format!("{:.1} s", elapsed.as_secs_f64()));
            bar.set_message(table);
        }
    }

    /// Prints a line above the table.
    pub fn print(&self, line: &str) {
        // The command continues when the output is closed.
        let _ = match (&self.bar, self.output) {
            (Some(bar), _) => {
                bar.println(line);
                Ok(())
            }
            (None, Output::Stdout) => writeln!(std::io::stdout(), "{line}"),
            (None, Output::Stderr) => writeln!(std::io::stderr(), "{line}"),
            (None, Output::Quiet) => Ok(()),
        };
    }
}

impl Drop for LiveTable {
    fn drop(&mut self) {
        // Leaves the table as it is; further output goes below it.
        if let Some(bar) = self.bar.take() {
            bar.abandon();
            self.print("");
        }
    }
}
