//! Summary of a demo.

use std::io::{Result, Write, stdout};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::atomicity::AtomicityReport;
use super::check::Verdict;
use super::log::StreamFaults;
use super::process_state::ProcessState;
use crate::units::{readable, readable_ns};

/// The kill of a process, and its effect on the others.
#[derive(Clone, Debug)]
pub struct Kill {
    /// The killed process.
    pub process: usize,
    /// Time of the kill, in ns of the parent's clock.
    pub at_ns: u64,
    /// Time of the kill, in ns of the timestamps' clock.
    pub timestamp_ns: u64,
    /// Longest pause in deliveries at a survivor that ended after the kill and began no more than
    /// 10 ms after it, in ns.
    pub recovered_in_ns: u64,
    /// The same for a survivor's own messages: how long a survivor could not send, in ns.
    pub senders_recovered_in_ns: u64,
    /// Time from the kill to the first survivor that is notified by the controller, in ns.
    pub detected_in_ns: Option<u64>,
}

/// Counters of one process.
#[derive(Clone, Debug)]
pub struct ProcessSummary {
    is_dead: bool,
    delivered: u64,
    submitted: u64,
    lost: u64,
    unknown: u64,
    latency: Quantiles,
}

impl ProcessSummary {
    /// Returns the counters of a process.
    pub fn new(state: &ProcessState, latencies: &Histogram<u64>) -> Self {
        let last = &state.last_sample;
        Self {
            is_dead: state.is_dead,
            delivered: last.delivered,
            submitted: last.submitted,
            lost: last.lost,
            unknown: last.unknown,
            latency: Quantiles::of(latencies),
        }
    }
}

/// Latencies in ns.
#[derive(Clone, Copy, Debug)]
struct Quantiles {
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Quantiles {
    fn of(latencies: &Histogram<u64>) -> Self {
        Self {
            p50_ns: latencies.value_at_quantile(0.5),
            p99_ns: latencies.value_at_quantile(0.99),
            max_ns: latencies.max(),
        }
    }
}

/// Result of a demo.
#[derive(Clone, Debug)]
pub struct Summary {
    pub processes: u32,
    pub transport: &'static str,
    pub payload_len: u32,
    /// Time for which the processes sent.
    pub seconds: f64,
    /// Time after that until all messages had an outcome.
    pub drain_seconds: f64,
    pub per_process: Vec<ProcessSummary>,
    pub latencies: Histogram<u64>,
    pub verdict: Verdict,
    /// Result for the reliable stream, if there was one.
    pub atomicity_report: Option<AtomicityReport>,
    /// Longest pause in reliable deliveries that the kill caused at a survivor, in ns.
    pub reliable_recovered_in_ns: u64,
    pub faults: StreamFaults,
    /// Violations found outside of the order.
    pub problems: Vec<String>,
    pub kill: Option<Kill>,
    /// Longest pause in deliveries that is unrelated to a kill.
    pub pause_max_ns: u64,
    /// The same for reliable deliveries.
    pub reliable_pause_max_ns: u64,
}

#[derive(Serialize)]
struct Json {
    processes: u32,
    transport: &'static str,
    payload_len: u32,
    seconds: f64,
    messages_delivered: u64,
    per_process_rate: f64,
    latency_us: JsonLatency,
    messages_lost: u64,
    messages_unknown: u64,
    messages_died_with_sender: u64,
    messages_compared: u64,
    windows_compared: u64,
    windows_compared_in_full: u64,
    violations: u64,
    violation_texts: Vec<String>,
    killed: Option<usize>,
    recovered_in_us: Option<f64>,
    senders_recovered_in_us: Option<f64>,
    longest_other_pause_us: f64,
    drain_seconds: f64,
    #[serde(flatten)]
    reliable: Option<JsonReliable>,
}

#[derive(Serialize)]
struct JsonReliable {
    atomicity: &'static str,
    detected_in_us: Option<f64>,
    best_effort_recovered_in_us: Option<f64>,
    reliable_messages_compared: u64,
    reliable_windows_compared: u64,
    reliable_scatterings_recalled: u64,
}

#[derive(Serialize)]
struct JsonLatency {
    p50: f64,
    p99: f64,
    max: f64,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Summary {
    /// Returns the number of violations of all kinds.
    pub fn violations(&self) -> u64 {
        let violations = self
            .atomicity_report
            .as_ref()
            .map_or(0, |atomicity_report| atomicity_report.violations);
        self.verdict.violations + self.faults.count() + self.problems.len() as u64 + violations
    }

    /// Returns whether every invariant held.
    pub fn has_held(&self) -> bool {
        self.violations() == 0
    }

    /// Returns the longest pause at a survivor: of the reliable stream, if there is one.
    fn recovered_in_ns(&self, kill: &Kill) -> u64 {
        if self.atomicity_report.is_some() {
            self.reliable_recovered_in_ns
        } else {
            kill.recovered_in_ns
        }
    }

    fn delivered(&self) -> u64 {
        self.per_process.iter().map(|line| line.delivered).sum()
    }

    /// Returns the mean deliveries per second of a process that was not killed.
    fn per_process_rate(&self) -> f64 {
        let survivors = || self.per_process.iter().filter(|line| !line.is_dead);
        let delivered: u64 = survivors().map(|line| line.delivered).sum();
        delivered as f64 / self.seconds / (survivors().count().max(1)) as f64
    }

    /// Returns the messages reported lost, including those to a killed process.
    fn lost(&self) -> u64 {
        self.per_process.iter().map(|line| line.lost).sum()
    }

    /// Returns the messages reported with unknown outcome, including those to a killed process.
    fn unknown(&self) -> u64 {
        self.per_process.iter().map(|line| line.unknown).sum()
    }

    /// Formats the violations.
    pub fn violation_texts(&self) -> Vec<String> {
        let mut violation_texts: Vec<String> =
            self.verdict.first.iter().map(ToString::to_string).collect();
        let atomicity =
            self.atomicity_report.iter().flat_map(|atomicity_report| &atomicity_report.first);
        violation_texts.extend(atomicity.map(ToString::to_string));
        let faults = [
            (self.faults.order, "deliveries were not above the one before them"),
            (self.faults.causality, "deliveries were not above what their sender had seen"),
            (self.faults.payload, "payloads differ from what their sender wrote"),
        ];
        let faults = faults.iter().filter(|(count, _)| *count > 0);
        violation_texts.extend(faults.map(|(count, what)| format!("{count} {what}")));
        violation_texts.extend(self.problems.iter().cloned());
        violation_texts
    }

    /// Prints the result as JSON or as a table.
    pub fn print(&self, is_json: bool) -> Result<()> {
        if is_json { self.print_json() } else { self.print_table() }
    }

    fn print_json(&self) -> Result<()> {
        let latency = Quantiles::of(&self.latencies);
        let json = Json {
            processes: self.processes,
            transport: self.transport,
            payload_len: self.payload_len,
            seconds: self.seconds,
            messages_delivered: self.delivered(),
            per_process_rate: self.per_process_rate(),
            latency_us: JsonLatency {
                p50: us(latency.p50_ns),
                p99: us(latency.p99_ns),
                max: us(latency.max_ns),
            },
            messages_lost: self.lost(),
            messages_unknown: self.unknown(),
            messages_died_with_sender: self.verdict.died_with_sender,
            messages_compared: self.verdict.messages,
            windows_compared: self.verdict.windows,
            windows_compared_in_full: self.verdict.windows_full,
            violations: self.violations(),
            violation_texts: self.violation_texts(),
            killed: self.kill.as_ref().map(|kill| kill.process),
            recovered_in_us: self.kill.as_ref().map(|kill| us(self.recovered_in_ns(kill))),
            senders_recovered_in_us: self
                .kill
                .as_ref()
                .map(|kill| us(kill.senders_recovered_in_ns)),
            longest_other_pause_us: us(self.pause_max_ns),
            drain_seconds: self.drain_seconds,
            reliable: self.atomicity_report.as_ref().map(|atomicity_report| JsonReliable {
                atomicity: if atomicity_report.violations == 0 { "held" } else { "broken" },
                detected_in_us: self.kill.as_ref().and_then(|kill| kill.detected_in_ns.map(us)),
                best_effort_recovered_in_us: self
                    .kill
                    .as_ref()
                    .map(|kill| us(kill.recovered_in_ns)),
                reliable_messages_compared: atomicity_report.messages,
                reliable_windows_compared: atomicity_report.windows,
                reliable_scatterings_recalled: atomicity_report.recalled,
            }),
        };
        let mut stdout = stdout().lock();
        serde_json::to_writer(&mut stdout, &json)?;
        writeln!(stdout)
    }

    fn print_table(&self) -> Result<()> {
        let mut out = stdout().lock();
        writeln!(
            out,
            "  process    delivered  scatterings  latency p50        p99        max    failed"
        )?;
        for (process, line) in self.per_process.iter().enumerate() {
            write!(
                out,
                "  {process:>7} {:>12} {:>12}",
                readable(line.delivered as f64),
                readable(line.submitted as f64)
            )?;
            if line.is_dead {
                writeln!(out, "  killed")?;
                continue;
            }
            self.print_latency(&mut out, line.latency, line.lost + line.unknown)?;
        }
        let submitted: u64 = self.per_process.iter().map(|line| line.submitted).sum();
        let (delivered, submitted) = (self.delivered() as f64, submitted as f64);
        write!(out, "      all {:>12} {:>12}", readable(delivered), readable(submitted))?;
        let latencies = Quantiles::of(&self.latencies);
        self.print_latency(&mut out, latencies, self.lost() + self.unknown())?;
        writeln!(out)?;
        self.print_findings(&mut out)
    }

    fn print_latency(&self, out: &mut impl Write, latency: Quantiles, failed: u64) -> Result<()> {
        writeln!(
            out,
            "  {:>11} {:>10} {:>10} {failed:>9}",
            readable_ns(latency.p50_ns),
            readable_ns(latency.p99_ns),
            readable_ns(latency.max_ns),
        )
    }

    fn print_findings(&self, out: &mut impl Write) -> Result<()> {
        let verdict = &self.verdict;
        writeln!(
            out,
            "  rate       {} messages/s delivered at each process, in one order for all",
            readable(self.per_process_rate())
        )?;
        writeln!(
            out,
            "  order      {} messages in {} windows of time compared across receivers;\n{:13}in {} \
             of them all receivers delivered exactly the same",
            readable(verdict.messages as f64),
            verdict.windows,
            "",
            verdict.windows_full
        )?;
        if let Some(atomicity_report) = &self.atomicity_report {
            writeln!(
                out,
                "  atomicity  {} reliable messages in {} windows: identical at all survivors;\n\
                 {:13}{} reliable scatterings were recalled",
                readable(atomicity_report.messages as f64),
                atomicity_report.windows,
                "",
                atomicity_report.recalled
            )?;
        }
        if let Some(kill) = self.kill.as_ref().filter(|_| self.atomicity_report.is_some()) {
            writeln!(
                out,
                "  failure    process {} was killed: known after {}, reliable deliveries paused \
                 for {} at most",
                kill.process,
                kill.detected_in_ns.map_or("never".to_string(), readable_ns),
                readable_ns(self.reliable_recovered_in_ns)
            )?;
        }
        if let Some(kill) = &self.kill {
            writeln!(
                out,
                "  recovery   process {} was killed: deliveries paused for {} at most\n{:13}({} \
                 unrelated to the kill), sending for {} at most",
                kill.process,
                readable_ns(kill.recovered_in_ns),
                "",
                readable_ns(self.pause_max_ns),
                readable_ns(kill.senders_recovered_in_ns)
            )?;
        }
        if self.lost() + self.unknown() + verdict.died_with_sender > 0 {
            writeln!(
                out,
                "  failed     {} messages were reported lost, {} with unknown outcome; {} lost with \
                 their killed sender",
                self.lost(),
                self.unknown(),
                verdict.died_with_sender
            )?;
        }
        for text in self.violation_texts() {
            writeln!(out, "  VIOLATION  {text}")?;
        }
        match self.violations() {
            0 => writeln!(out, "  verdict    every invariant held"),
            count => writeln!(out, "  verdict    {count} VIOLATIONS"),
        }
    }
}
