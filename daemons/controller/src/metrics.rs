//! The status as metrics (OpenMetrics text).

use std::collections::BTreeMap;
use std::fmt;

use onepipe_base::Cause;
use onepipe_transport_status::{Metrics, Status};

use crate::Report;

/// The only one of the counters that is a level.
pub(crate) const PAUSE_MAX: &str = "pause_max_ns";

impl Status for Report {
    const PREFIX: &'static str = "onepipe_controller";

    fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
        let report = self;
        let states = ["joining", "up", "suspected", "failed", "left"];
        let mut members = BTreeMap::from(states.map(|state| (state, 0i64)));
        for member in &report.members {
            *members.entry(&member.state).or_default() += 1;
        }
        let left = Cause::Left.to_string();
        let failures_open = report.open.iter().filter(|failure| failure.cause != left).count();
        let gauges = [
            ("active", "Whether this replica is active", i64::from(report.epoch.is_some())),
            (
                "epoch",
                "Epoch of this replica, 0 if it is not active",
                i64::from(report.epoch.unwrap_or(0)),
            ),
            (
                "store_available",
                "Whether the last call of the store succeeded",
                i64::from(report.store.is_available),
            ),
            (
                "records_waiting",
                "Records that wait for the store",
                report.store.records_waiting as i64,
            ),
            ("failures_open", "Failures whose recovery is not complete", failures_open as i64),
            ("links_frozen", "Frozen links", report.frozen.len() as i64),
        ];
        for (name, help, value) in gauges {
            metrics.gauge(name, help, value)?;
        }
        for (state, count) in members {
            metrics.gauge(&format!("members_{state}"), "Nodes in this state", count)?;
        }
        for (name, value) in &report.counters {
            match name.as_str() {
                PAUSE_MAX => {
                    let help = "Longest time off the core since the start";
                    metrics.gauge(name, help, i64::try_from(*value).unwrap_or(i64::MAX))?;
                }
                name => metrics.counter(name, *value)?,
            }
        }
        metrics.counter("store_calls_failed", report.store.failures)
    }
}

#[cfg(test)]
mod tests {
    use onepipe_transport_status::encode_metrics;

    use crate::report::tests::report;

    #[test]
    fn monitors_read_gauges_by_state_and_counters_by_name() {
        let text = encode_metrics(report()).expect("strings grow");
        for line in [
            "onepipe_controller_active 1",
            "onepipe_controller_epoch 4",
            "onepipe_controller_store_available 0",
            "onepipe_controller_members_up 1",
            "onepipe_controller_members_failed 1",
            "onepipe_controller_members_joining 0",
            "onepipe_controller_failures_open 1",
            "onepipe_controller_frames_taken_total 17",
            "onepipe_controller_pause_max_ns 412000000",
            "onepipe_controller_store_calls_failed_total 3",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
