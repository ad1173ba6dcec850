//! The status in the OpenMetrics text format.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::Status;

/// The content type of the metrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Encodes `report` as OpenMetrics text.
///
/// # Errors
/// Those of the writer.
pub fn encode_metrics<S: Status>(report: S) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(S::PREFIX);
    registry.register_collector(Box::new(Scrape(report)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape<S>(S);

impl<S: Status> Collector for Scrape<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Metrics(encoder))
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
