//! The same status in the text that monitors read (OpenMetrics).

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::Report;

pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `report` as text.
pub(crate) fn text(report: Report) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("onepipe_controller");
    registry.register_collector(Box::new(Scrape(report)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape(Report);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(report) = self;
        let states = ["joining", "up", "suspected", "failed"];
        let mut members = BTreeMap::from(states.map(|state| (state, 0i64)));
        for member in &report.members {
            *members.entry(&member.state).or_default() += 1;
        }
        let gauges = [
            ("active", "Whether this replica is active", i64::from(report.epoch.is_some())),
            ("epoch", "Its epoch, 0 if it is not active", i64::from(report.epoch.unwrap_or(0))),
            (
                "store_available",
                "Whether the store has answered the last time",
                i64::from(report.store.is_available),
            ),
            (
                "records_waiting",
                "Records that wait for the store",
                report.store.records_waiting as i64,
            ),
            ("failures_open", "Failures that are not recovered from", report.open.len() as i64),
            ("links_frozen", "Links that hold commits", report.frozen.len() as i64),
        ];
        for (name, help, value) in gauges {
            gauge(&mut encoder, name, help, value)?;
        }
        for (state, count) in members {
            gauge(&mut encoder, &format!("members_{state}"), "Nodes in this state", count)?;
        }
        for (name, value) in &report.counters {
            counter(&mut encoder, name, *value)?;
        }
        counter(&mut encoder, "store_calls_failed", report.store.failures)
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    let help = name.replace('_', " ");
    counter.encode(encoder.encode_descriptor(name, &help, None, counter.metric_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn monitors_read_gauges_by_state_and_counters_by_name() {
        let text = text(report()).expect("text has room");
        for line in [
            "onepipe_controller_active 1",
            "onepipe_controller_epoch 4",
            "onepipe_controller_store_available 0",
            "onepipe_controller_members_up 1",
            "onepipe_controller_members_failed 1",
            "onepipe_controller_members_joining 0",
            "onepipe_controller_failures_open 1",
            "onepipe_controller_frames_taken_total 17",
            "onepipe_controller_store_calls_failed_total 3",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
