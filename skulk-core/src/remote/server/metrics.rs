//! How is the server doing? Numbers for Prometheus.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::engine::FfnService;

/// The content type of [`Metrics::text`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = [(&'static str, Cow<'static, str>); 2];

/// What is counted.
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    answered: AtomicU64,
    rows: Counter,
    computing: Histogram,
    /// Seconds from a request's coming to the begin of its computing.
    pub(super) waiting: Histogram,
    /// Requests of which nothing has been computed.
    pub(super) queue: Gauge,
    pub(super) connections: Gauge,
    pub(super) received: Counter,
    pub(super) sent: Counter,
}

/// What of the weights is in memory, where there is a budget.
struct Memory(Arc<dyn FfnService>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Collector for Memory {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(memory) = self.0.memory() else { return Ok(()) };
        let gauges = [
            ("weights_budget_bytes", "Weights that may be in memory", memory.budget),
            ("weights_memory_bytes", "Weights that are in memory", memory.in_memory),
            ("weights_peak_bytes", "The most weights that were in memory", memory.peak),
        ];
        for (name, help, bytes) in gauges {
            let gauge = ConstGauge::new(bytes.bytes() as f64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

impl Metrics {
    /// Of a server with these blocks.
    pub(super) fn new(service: Arc<dyn FfnService>) -> Self {
        // From 10 microseconds on, each twice as long.
        let seconds = || Histogram::new(exponential_buckets(1e-5, 2.0, 22));
        let mut new = Self {
            registry: Registry::with_prefix("skulk_ffn"),
            requests: Family::default(),
            answered: AtomicU64::new(0),
            rows: Counter::default(),
            computing: seconds(),
            waiting: seconds(),
            queue: Gauge::default(),
            connections: Gauge::default(),
            received: Counter::default(),
            sent: Counter::default(),
        };
        let to = &mut new.registry;
        to.register("requests", "Requests that were answered", new.requests.clone());
        to.register("rows", "Rows that were computed, of each layer", new.rows.clone());
        to.register(
            "computing_seconds",
            "How long layers' rows are computed together",
            new.computing.clone(),
        );
        to.register("waiting_seconds", "How long requests wait to be computed", new.waiting.clone());
        to.register("queue_requests", "Requests that wait to be computed", new.queue.clone());
        to.register("connections", "Open connections", new.connections.clone());
        to.register("received_bytes", "Bytes that clients sent", new.received.clone());
        to.register("sent_bytes", "Bytes that clients were sent", new.sent.clone());
        to.register_collector(Box::new(Memory(service)));
        new
    }

    /// A request was answered.
    pub(super) fn answered(&self, route: &'static str, status: u16) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        let labels = [("route", Cow::Borrowed(route)), ("status", Cow::Owned(status.to_string()))];
        self.requests.get_or_create(&labels).inc();
    }

    /// Requests that were answered.
    pub(super) fn all_answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// So many rows of a layer were computed together.
    pub(super) fn computed(&self, rows: u64, computing: Duration) {
        self.rows.inc_by(rows);
        self.computing.observe(computing.as_secs_f64());
    }

    /// All numbers, as Prometheus reads them.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Strings take all that is written.
        prometheus_client::encoding::text::encode(&mut text, &self.registry).ok();
        text
    }
}
