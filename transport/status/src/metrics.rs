//! The status in the OpenMetrics text format.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::Status;
use crate::connections::ConnectionCounters;

/// The content type of the metrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes `report` as OpenMetrics text.
///
/// # Errors
/// Those of the writer.
pub fn encode_metrics<S: Status>(report: S) -> Result<String, fmt::Error> {
    encode_with_connections(report, Arc::default())
}

/// As [`encode_metrics`], with the counters of the server's connections.
pub(crate) fn encode_with_connections<S: Status>(
    report: S,
    connections: Arc<ConnectionCounters>,
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(S::PREFIX);
    registry.register_collector(Box::new(Scrape { report, connections }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape<S> {
    report: S,
    connections: Arc<ConnectionCounters>,
}

impl<S: Status> Collector for Scrape<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metrics = Metrics(encoder);
        self.report.write(&mut metrics)?;
        metrics.counter("status_connections_refused", self.connections.refused())?;
        metrics.counter("status_connections_timed_out", self.connections.timed_out())
    }
}

/// The writer of a report's metrics.
#[derive(Debug)]
pub struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    /// Writes a gauge: a value that rises and falls.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn gauge(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// Writes a counter, which only rises; the help text is derived from its name.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn counter(&mut self, name: &str, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        let help = name.replace('_', " ");
        counter.encode(self.0.encode_descriptor(name, &help, None, counter.metric_type())?)
    }
}
