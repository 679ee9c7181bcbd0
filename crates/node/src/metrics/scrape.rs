//! The metrics of a status as OpenMetrics text.
use super::metric::Value;
use super::table::METRICS;
use crate::control::Status;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// The metrics of one status as a scrape shows them: OpenMetrics text.
pub fn text(status: &Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(status.clone())));
    let mut text = String::new();
    // Writing to a string cannot fail; a metric that could not be written would be missing from the end on.
    if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
        tracing::error!("the metrics could not be written");
    }
    text
}

#[derive(Debug)]
struct Scrape(Status);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for metric in METRICS {
            let samples = (metric.read)(&self.0);
            if samples.is_empty() {
                continue;
            }
            // The encoder adds the ending of counters.
            let (name, kind) = match metric.name.strip_suffix("_total") {
                Some(name) => (name, MetricType::Counter),
                None => (metric.name, MetricType::Gauge),
            };
            let mut family = encoder.encode_descriptor(name, metric.help, None, kind)?;
            for sample in samples {
                let labels = sample.labels.as_slice();
                let mut one = family.encode_family(&labels)?;
                match (kind, sample.value) {
                    (MetricType::Counter, Value::Whole(n)) => {
                        one.encode_counter::<NoLabelSet, _, f64>(&n, None)?;
                    }
                    (MetricType::Counter, Value::Real(x)) => {
                        one.encode_counter::<NoLabelSet, _, f64>(&x, None)?;
                    }
                    (_, Value::Whole(n)) => one.encode_gauge(&n)?,
                    (_, Value::Real(x)) => one.encode_gauge(&x)?,
                }
            }
        }
        Ok(())
    }
}
