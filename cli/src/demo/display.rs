//! Display of a running demo: a table that is redrawn in place on a terminal, otherwise a line per
//! second.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::Arguments;
use super::check::Verdict;
use super::process_state::ProcessState;
use crate::units::{readable, readable_ns};

/// Maximum number of processes that are listed individually.
const ROWS_MAX: usize = 16;
/// Width of the progress bar.
const BAR_WIDTH: usize = 60;
const HEADING: &str =
    "  process  delivered/s  latency p50        p99        max  barrier lag    failed";

/// Display of a demo. With `--json` it uses standard error.
pub struct ProgressDisplay {
    is_quiet: bool,
    is_on_stderr: bool,
    is_table: bool,
    title: String,
    notes: Vec<String>,
    /// The table as last drawn, without the notes.
    table: Vec<String>,
    /// Number of lines drawn on the terminal.
    lines_drawn: usize,
    last_second: u64,
}

impl ProgressDisplay {
    /// Creates a display for a demo.
    pub fn new(arguments: &Arguments) -> Self {
        let is_terminal = match arguments.json {
            true => std::io::stderr().is_terminal(),
            false => std::io::stdout().is_terminal(),
        };
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let transport = match arguments.transport {
            super::Transport::Shm => "over shared memory",
            super::Transport::Udp => "over UDP through a software switch",
        };
        let title = format!(
            "{} processes {transport}; {}-byte messages, all to all",
            arguments.processes, arguments.size
        );
        Self {
            is_quiet: false,
            is_on_stderr: arguments.json,
            is_table: is_terminal && !is_dumb,
            title,
            notes: Vec::new(),
            table: Vec::new(),
            lines_drawn: 0,
            last_second: 0,
        }
    }

    /// Creates a display that prints nothing.
    pub fn quiet(arguments: &Arguments) -> Self {
        Self { is_quiet: true, ..Self::new(arguments) }
    }

    /// Prints the title, when all processes have joined.
    pub fn begin(&mut self) {
        let title = self.title.clone();
        self.write_lines(&[title]);
        if self.is_table {
            self.write_lines(&[String::new()]);
        }
    }

    /// Prints an event for the user.
    pub fn note(&mut self, text: &str) {
        if self.is_table {
            self.notes.push(text.to_string());
            self.redraw();
        } else {
            self.write_lines(&[format!("         {text}")]);
        }
    }

    /// Redraws the table, or prints a line if a second has passed.
    pub fn tick(
        &mut self,
        states: &[ProcessState],
        verdict: &Verdict,
        elapsed: Duration,
        length: Duration,
    ) {
        if self.is_table {
            self.table = self.table_rows(states, verdict, elapsed.min(length), length);
            self.redraw();
        } else if elapsed.as_secs() > self.last_second && elapsed <= length {
            self.last_second = elapsed.as_secs();
            let line = status_line(states, verdict, elapsed);
            self.write_lines(&[line]);
        }
    }

    /// Leaves the table as it is; further output goes below it.
    pub fn end(&mut self) {
        if self.is_table {
            self.write_lines(&[String::new()]);
            self.lines_drawn = 0;
        }
    }

    fn table_rows(
        &self,
        states: &[ProcessState],
        verdict: &Verdict,
        elapsed: Duration,
        length: Duration,
    ) -> Vec<String> {
        let mut lines = vec![format!("\x1b[1m{HEADING}\x1b[0m")];
        for (process, state) in states.iter().enumerate().take(ROWS_MAX) {
            lines.push(match state.is_dead {
                true => format!("\x1b[2m  {process:>7}  killed\x1b[0m"),
                false => row(&process.to_string(), state.rate_per_s, state),
            });
        }
        if states.len() > ROWS_MAX {
            lines.push(format!("           and {} more", states.len() - ROWS_MAX));
        }
        let survivors = || states.iter().filter(|state| !state.is_dead);
        let rate: f64 = survivors().map(|state| state.rate_per_s).sum();
        lines.push(format!("      all  {:>11}", readable(rate)));
        lines.push(String::new());
        let fraction = (elapsed.as_secs_f64() / length.as_secs_f64()).min(1.0);
        let full = (fraction * BAR_WIDTH as f64) as usize;
        lines.push(format!(
            "  {}{}  {:.1} of {:.1} s",
            "█".repeat(full),
            "░".repeat(BAR_WIDTH - full),
            elapsed.as_secs_f64(),
            length.as_secs_f64(),
        ));
        lines.push(format!("  {}", agreement(verdict)));
        lines
    }

    fn redraw(&mut self) {
        let notes = self.notes.iter().map(|note| format!("  {note}"));
        let lines: Vec<String> = self.table.iter().cloned().chain(notes).collect();
        // Disables line wrapping, which would shift the table.
        let mut text = "\x1b[?7l".to_string();
        if self.lines_drawn > 0 {
            text += &format!("\x1b[{}A", self.lines_drawn);
        }
        for line in &lines {
            text += "\x1b[2K";
            text += line;
            text += "\n";
        }
        text += "\x1b[?7h";
        self.lines_drawn = lines.len();
        self.write_text(&text);
    }

    fn write_lines(&mut self, lines: &[String]) {
        self.write_text(&(lines.join("\n") + "\n"));
    }

    fn write_text(&mut self, text: &str) {
        if self.is_quiet {
            return;
        }
        // The demo continues when the output is closed.
        let _ = match self.is_on_stderr {
            true => std::io::stderr().lock().write_all(text.as_bytes()),
            false => std::io::stdout().lock().write_all(text.as_bytes()),
        };
    }
}

fn row(name: &str, rate_per_s: f64, state: &ProcessState) -> String {
    let last = &state.last_sample;
    format!(
        "  {name:>7}  {:>11}  {:>11} {:>10} {:>10}  {:>11} {:>9}",
        readable(rate_per_s),
        readable_ns(last.latency.p50_ns),
        readable_ns(last.latency.p99_ns),
        readable_ns(state.latency_max_ns),
        readable_ns(last.barrier_lag_ns),
        last.lost + last.unknown,
    )
}

fn status_line(states: &[ProcessState], verdict: &Verdict, elapsed: Duration) -> String {
    let survivors = || states.iter().filter(|state| !state.is_dead);
    let rate: f64 = survivors().map(|state| state.rate_per_s).sum();
    let highest =
        |value: fn(&ProcessState) -> u64| readable_ns(survivors().map(value).max().unwrap_or(0));
    format!(
        "{:>5.0} s  {} messages/s delivered; latency p50 {} p99 {} max {}; failed {}; {}",
        elapsed.as_secs_f64(),
        readable(rate),
        highest(|state| state.last_sample.latency.p50_ns),
        highest(|state| state.last_sample.latency.p99_ns),
        highest(|state| state.latency_max_ns),
        survivors().map(|state| state.last_sample.lost + state.last_sample.unknown).sum::<u64>(),
        agreement(verdict)
    )
}

fn agreement(verdict: &Verdict) -> String {
    match verdict.windows {
        0 => "order: nothing compared yet".to_string(),
        _ => format!("order: {} messages compared, all agree", readable(verdict.messages as f64)),
    }
}
