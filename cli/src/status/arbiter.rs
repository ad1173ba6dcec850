//! Formats the report of an arbiter.

pub use onepipe_daemon_arbiter::Report;

use crate::units::pauses_text;

/// Formats a time in microseconds, the scale of leads.
fn us(ns: u64) -> String {
    format!("{:.0} us", ns as f64 / 1e3)
}

/// Formats the links and paths that the arbiter avoids.
pub fn avoided_text(report: &Report) -> String {
    match &report.avoided[..] {
        [] => "nothing".to_owned(),
        avoided => avoided.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// Formats the report of an arbiter as a table.
pub fn table(report: &Report) -> String {
    let role = if report.is_primary { "primary" } else { "secondary" };
    let lines = [
        (
            "arbiter",
            format!(
                "process {} incarnation {}, {role} in epoch {}, up for {:.0} s",
                report.process, report.incarnation, report.epoch, report.uptime_s
            ),
        ),
        ("attached", format!("{}, {} threads", report.attachment, report.threads)),
        (
            "endpoints",
            format!(
                "{} of {} known, {} timed out, {} resets",
                report.endpoints_known, report.endpoints, report.endpoints_timed_out, report.resets
            ),
        ),
        (
            "backlog",
            format!("{} timeslots of {} pairs", report.slots_waiting, report.pairs_waiting),
        ),
        (
            "timeslots",
            format!(
                "{} requested, {} granted, {} advertised, {} skipped, {} without a path",
                report.slots_demanded,
                report.slots_granted,
                report.slots_advertised,
                report.slots_skipped,
                report.slots_without_path
            ),
        ),
        ("rejected", format!("{}, and {} capped", report.slots_refused, report.slots_capped)),
        (
            "lag",
            format!(
                "{} of a lead of {}, max {}; {} of {} batches late",
                us(report.lag_ns),
                us(report.lead_ns),
                us(report.lag_max_ns),
                report.batches_late,
                report.batches
            ),
        ),
        (
            "packets",
            format!(
                "{} received, {} sent, {} invalid, {} of them by checksum; {} from unknown endpoints, {} from \
                 endpoints with other settings; {} frames dropped",
                report.packets_received,
                report.packets_sent,
                report.packets_bad,
                report.checks_failed,
                report.packets_unknown,
                report.packets_mismatched,
                report.frames_dropped
            ),
        ),
        (
            "faults",
            format!(
                "{} packets reported lost; {} faults located, {} retried; avoids {}",
                report.packets_lost,
                report.faults_found,
                report.faults_retried,
                avoided_text(report)
            ),
        ),
        ("pauses", pauses_text(report.pauses, report.pause_max_ns)),
    ];
    lines.iter().map(|(label, text)| format!("  {label:<11} {text}\n")).collect()
}
