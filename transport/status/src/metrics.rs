//! The same status in the text that monitors read (OpenMetrics).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::Status;

/// What kind of text it is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `report` as text.
///
/// # Errors
/// Those of writing.
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

/// Where a report's metrics are written.
#[derive(Debug)]
pub struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    /// What goes up and down.
    ///
    /// # Errors
    /// Those of writing.
    pub fn gauge(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// What goes up only; its name says what it counts.
    ///
    /// # Errors
    /// Those of writing.
    pub fn counter(&mut self, name: &str, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        let help = name.replace('_', " ");
        counter.encode(self.0.encode_descriptor(name, &help, None, counter.metric_type())?)
    }
}
