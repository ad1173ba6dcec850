//! Display of a running demo: on a terminal a table that is redrawn, otherwise a line per second.

use std::time::Duration;

use onepipe_verify_logs::Verdict;

use super::process_state::{Phase, ProcessState};
use crate::progress::{LiveTable, Output};
use crate::units::{readable, readable_ns};

/// Maximum number of processes that are listed individually.
const ROWS_MAX: usize = 16;
const HEADING: [&str; 7] =
    ["process", "delivered/s", "barrier lag", "latency p50", "p99", "max", "failed"];

pub struct ProgressDisplay {
    pub table: LiveTable,
    last_second: u64,
}

impl ProgressDisplay {
    pub fn new(output: Output, length: Duration) -> Self {
        Self { table: LiveTable::new(output, length), last_second: 0 }
    }

    /// Redraws the table, or prints a line if a second has passed.
    pub fn tick(&mut self, states: &[ProcessState], verdict: &Verdict, elapsed: Duration) {
        let messages = readable(verdict.messages as f64);
        let agreement = match verdict.windows {
            0 => "order: nothing compared yet".to_string(),
            _ => format!("order: {messages} messages compared, all agree"),
        };
        if self.table.is_visible() {
            self.table.show(format!("{}\n\n  {agreement}", table_of(states)), elapsed);
        } else if elapsed.as_secs() > self.last_second {
            self.last_second = elapsed.as_secs();
            let status = status_of(states);
            self.table.print(&format!("{:>5} s  {status}; {agreement}", self.last_second));
        }
    }
}

/// Formats a row of a table.
pub fn row<T: std::fmt::Display>(cells: [T; 7]) -> String {
    let [name, one, two, p50, p99, max, failed] = cells;
    format!("  {name:>7} {one:>12} {two:>12} {p50:>12} {p99:>10} {max:>10} {failed:>9}")
}

fn table_of(states: &[ProcessState]) -> String {
    let mut rows = vec![row(HEADING)];
    for (process, state) in states.iter().enumerate().take(ROWS_MAX) {
        if state.phase == Phase::Dead {
            rows.push(format!("  {process:>7}  killed"));
            continue;
        }
        let [p50, p99, max] = state.sample.latency_ns.map(readable_ns);
        rows.push(row([
            process.to_string(),
            readable(state.sample.rate_per_s),
            readable_ns(state.sample.barrier_lag_ns),
            p50,
            p99,
            max,
            state.sample.failed().to_string(),
        ]));
    }
    if states.len() > ROWS_MAX {
        rows.push(format!("           and {} more", states.len() - ROWS_MAX));
    }
    rows.join("\n")
}

fn status_of(states: &[ProcessState]) -> String {
    let survivors = || states.iter().filter(|state| state.phase != Phase::Dead);
    let rate = readable(survivors().map(|state| state.sample.rate_per_s).sum());
    let [p50, p99, max] = [0, 1, 2]
        .map(|at| survivors().map(|state| state.sample.latency_ns[at]).max().unwrap_or(0))
        .map(readable_ns);
    let failed: u64 = survivors().map(|state| state.sample.failed()).sum();
    format!("{rate} messages/s delivered; latency p50 {p50} p99 {p99} max {max}; failed {failed}")
}
