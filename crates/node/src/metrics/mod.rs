//! The figures of `forebay status` for Prometheus: each server process serves those of its own members over HTTP, on a
//! loopback address or a Unix socket.
//!
//! ```text
//!  setting --metrics -> address -> endpoint -- GET /metrics --> StatusSource (the control service) -> table -> scrape: text
//! ```
mod address;
mod endpoint;
mod http;
mod metric;
mod scrape;
mod table;

pub use address::Address;
pub use endpoint::{MetricsEndpoint, MetricsServer, StatusSource};
pub use metric::Metric;
pub use scrape::text;
pub use table::METRICS;
