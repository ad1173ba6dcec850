//! Result of a demo.

use std::fmt;

use anyhow::Result;
use hdrhistogram::Histogram;
use onepipe_verify_logs::{Checker, LongestPauses, Verdict};
use serde::Serialize;

use super::display::row;
use super::messages::Sample;
use super::process_state::{Phase, ProcessState};
use super::quantiles;
use super::scenario::Scenario;
use crate::units::{readable, readable_ns};

const HEADING: [&str; 7] =
    ["process", "delivered", "scatterings", "latency p50", "p99", "max", "failed"];

/// The result; its fields are those of `--json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    processes: u32,
    transport: &'static str,
    payload_len: u32,
    /// Time for which the processes sent.
    seconds: f64,
    messages_delivered: u64,
    /// Mean deliveries per second of a process that was not killed.
    per_process_rate: f64,
    latency_us: LatencyUs,
    /// Messages reported lost, and with unknown outcome, including those to a killed process.
    messages_lost: u64,
    messages_unknown: u64,
    messages_died_with_sender: u64,
    messages_compared: u64,
    windows_compared: u64,
    windows_compared_in_full: u64,
    pub violations: u64,
    pub violation_texts: Vec<String>,
    killed: Option<usize>,
    /// Longest pause in deliveries that the kill caused at a survivor: of the reliable service, if
    /// it was used.
    pub recovered_in_us: Option<f64>,
    /// The same for a survivor's own messages: how long a survivor could not send.
    senders_recovered_in_us: Option<f64>,
    /// Longest pause in best-effort deliveries that is unrelated to a kill.
    longest_other_pause_us: f64,
    /// Time after the end of sending until all messages had an outcome.
    drain_seconds: f64,
    #[serde(flatten)]
    pub reliable: Option<ReliableSummary>,
    /// Rows of the table.
    #[serde(skip)]
    rows: Vec<String>,
}

/// What concerns the reliable service.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReliableSummary {
    atomicity: &'static str,
    /// Time from the kill to the first survivor that is notified by the controller.
    pub detected_in_us: Option<f64>,
    best_effort_recovered_in_us: Option<f64>,
    reliable_messages_compared: u64,
    reliable_windows_compared: u64,
    reliable_scatterings_recalled: u64,
    /// Failures reported to survivors, counted at each.
    #[serde(skip)]
    pub failures: u64,
    /// Longest pauses in deliveries: that the kill caused at a survivor, and others.
    #[serde(skip)]
    pub recovered_us: f64,
    #[serde(skip)]
    pub longest_other_pause_us: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct LatencyUs {
    p50: f64,
    p99: f64,
    max: f64,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Summary {
    /// Checks what the logs do not show, and computes the result of a scenario that has ended.
    pub fn new(scenario: &mut Scenario) -> Result<Self> {
        let verdicts: Vec<Verdict> = scenario.checkers.iter_mut().map(Checker::finish).collect();
        let pauses = scenario.checkers[0].longest_pauses();
        let reliable = scenario.checkers.get(1);
        let reliable = reliable.map(|checker| ReliableSummary::new(checker, &pauses, scenario));
        add_stalled(scenario, reliable.as_ref());
        let mut all = Histogram::<u64>::new(2)?;
        let mut rows = Vec::new();
        for (process, state) in scenario.states.iter().enumerate() {
            for &(value, count) in &state.latencies {
                all.record_n(value, count)?;
            }
            rows.push(row_of(&process.to_string(), &[state], state.sample.latency_ns));
        }
        let states: Vec<&ProcessState> = scenario.states.iter().collect();
        rows.push(row_of("all", &states, quantiles(&all)));
        let sum = |count: fn(&Sample) -> u64| states.iter().map(|state| count(&state.sample)).sum();
        let seconds = scenario.sent_for.as_secs_f64();
        let survivors = scenario.survivors().map(|(_, state)| state.sample.delivered);
        let rate = survivors.clone().sum::<u64>() as f64 / survivors.count().max(1) as f64;
        let [p50, p99, max] = quantiles(&all).map(us);
        let [recovered_us, senders_us] = pauses.of_kill_ns.map(us);
        let recovered_us = reliable.as_ref().map_or(recovered_us, |reliable| reliable.recovered_us);
        let Scenario { arguments, kill, problems, drained_in, .. } = scenario;
        let texts = verdicts.iter().flat_map(|verdict| &verdict.texts).chain(&*problems);
        let violations: u64 = verdicts.iter().map(|verdict| verdict.violations).sum();
        Ok(Self {
            processes: arguments.processes,
            transport: arguments.transport.name(),
            payload_len: arguments.size,
            seconds,
            messages_delivered: sum(|sample| sample.delivered),
            per_process_rate: rate / seconds,
            latency_us: LatencyUs { p50, p99, max },
            messages_lost: sum(|sample| sample.best_effort.lost),
            messages_unknown: sum(|sample| sample.best_effort.unknown),
            messages_died_with_sender: verdicts[0].died_with_sender,
            messages_compared: verdicts[0].messages,
            windows_compared: verdicts[0].windows,
            windows_compared_in_full: verdicts[0].windows_full,
            violations: violations + problems.len() as u64,
            violation_texts: texts.cloned().collect(),
            killed: kill.map(|kill| kill.process),
            recovered_in_us: kill.map(|_| recovered_us),
            senders_recovered_in_us: kill.map(|_| senders_us),
            longest_other_pause_us: us(pauses.other_ns),
            drain_seconds: drained_in.as_secs_f64(),
            reliable,
            rows,
        })
    }
}

impl ReliableSummary {
    fn new(checker: &Checker, best_effort: &LongestPauses, scenario: &Scenario) -> Self {
        let (verdict, pauses) = (checker.verdict(), checker.longest_pauses());
        let detected_ns = scenario.kill.and_then(|kill| {
            let of_kill = checker.failures().filter(|one| one.process as usize == kill.process);
            of_kill.map(|one| one.notified_ns.saturating_sub(kill.at_ns)).min()
        });
        Self {
            atomicity: if verdict.violations == 0 { "held" } else { "broken" },
            detected_in_us: detected_ns.map(us),
            best_effort_recovered_in_us: scenario.kill.map(|_| us(best_effort.of_kill_ns[0])),
            reliable_messages_compared: verdict.messages,
            reliable_windows_compared: verdict.windows,
            reliable_scatterings_recalled: checker.recalled(),
            failures: checker.failures().count() as u64,
            recovered_us: us(pauses.of_kill_ns[0]),
            longest_other_pause_us: us(pauses.other_ns),
        }
    }
}

/// Adds the survivors that have delivered nothing, or nothing that was sent after the kill, to the
/// problems; also a kill of which none was notified.
fn add_stalled(scenario: &mut Scenario, reliable: Option<&ReliableSummary>) {
    let mut problems = Vec::new();
    for (process, ProcessState { sample, .. }) in scenario.survivors() {
        if sample.delivered == 0 {
            problems.push(format!("process {process} delivered nothing"));
        } else if scenario.kill.is_some_and(|kill| sample.seen_ns <= kill.timestamp_ns) {
            problems.push(format!("process {process} delivered nothing sent after the kill"));
        }
    }
    let is_notified = reliable.is_none_or(|reliable| reliable.detected_in_us.is_some());
    if scenario.kill.is_some() && !is_notified {
        problems.push("no survivor was notified of the failure".to_string());
    }
    scenario.problems.extend(problems);
}

/// Returns the row of a process, or of all.
fn row_of(name: &str, states: &[&ProcessState], latency_ns: [u64; 3]) -> String {
    let samples = || states.iter().map(|state| &state.sample);
    let delivered: u64 = samples().map(|sample| sample.delivered).sum();
    let submitted: u64 = samples().map(|sample| sample.submitted).sum();
    let (delivered, submitted) = (readable(delivered as f64), readable(submitted as f64));
    if let [ProcessState { phase: Phase::Dead, .. }] = states {
        return format!("  {name:>7} {delivered:>12} {submitted:>12}  killed");
    }
    let failed: u64 = samples().map(Sample::failed).sum();
    let [p50, p99, max] = latency_ns.map(readable_ns);
    row([name.to_string(), delivered, submitted, p50, p99, max, failed.to_string()])
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |us: f64| readable_ns((us * 1e3) as u64);
        writeln!(f, "{}", row(HEADING))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        let (rate, messages) =
            (readable(self.per_process_rate), readable(self.messages_compared as f64));
        let (windows, full) = (self.windows_compared, self.windows_compared_in_full);
        writeln!(
            f,
            "
  rate       {rate} messages/s delivered at each process, in one order for all
  order      {messages} messages in {windows} windows of time compared across receivers;
             in {full} of them all receivers delivered exactly the same"
        )?;
        if let Some(reliable) = &self.reliable {
            let messages = readable(reliable.reliable_messages_compared as f64);
            let windows = reliable.reliable_windows_compared;
            let recalled = reliable.reliable_scatterings_recalled;
            writeln!(
                f,
                "  atomicity  {messages} reliable messages in {windows} windows: identical at all \
                 survivors;\n             {recalled} reliable scatterings were recalled"
            )?;
        }
        if let (Some(killed), Some(recovered_us)) = (self.killed, self.recovered_in_us) {
            let mut best_effort_us = recovered_us;
            if let Some(reliable) = &self.reliable {
                best_effort_us = reliable.best_effort_recovered_in_us.unwrap_or_default();
                let detected = reliable.detected_in_us.map_or("never".to_string(), time);
                let paused = time(recovered_us);
                writeln!(
                    f,
                    "  failure    process {killed} was killed: known after {detected}, reliable \
                     deliveries paused for {paused} at most"
                )?;
            }
            let paused = time(best_effort_us);
            let unrelated = time(self.longest_other_pause_us);
            let sending = time(self.senders_recovered_in_us.unwrap_or_default());
            writeln!(
                f,
                "  recovery   process {killed} was killed: deliveries paused for {paused} at most
             ({unrelated} unrelated to the kill), sending for {sending} at most"
            )?;
        }
        let (lost, unknown) = (self.messages_lost, self.messages_unknown);
        let died = self.messages_died_with_sender;
        if lost + unknown + died > 0 {
            writeln!(
                f,
                "  failed     {lost} messages were reported lost, {unknown} with unknown outcome; \
                 {died} lost with their killed sender"
            )?;
        }
        self.violation_texts.iter().try_for_each(|text| writeln!(f, "  VIOLATION  {text}"))?;
        match self.violations {
            0 => writeln!(f, "  verdict    every invariant held"),
            violations => writeln!(f, "  verdict    {violations} VIOLATIONS"),
        }
    }
}
