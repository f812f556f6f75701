//! What do plans expect of the device? Its speed as engines measure it, and the model's as the planner prices it.

use std::path::Path;

use serde_json::{Value, json};
use skulk::plan::Accelerator;
use skulk::{Cluster, DeviceInfo, DeviceSpeed, Engine, Model, ModelCard, Node, Planner, Request};

use crate::AnyError;
use crate::gpu_times::Metric;

/// Memory that the device is taken to have: prices do not depend on it.
const MEMORY: u64 = 1 << 40;

/// The device's speed, and what is expected of the model.
pub(crate) struct Expected {
    pub(crate) speed: DeviceSpeed,
    /// Tokens a second.
    pub(crate) figures: Vec<(Metric, f64)>,
}

impl Expected {
    /// `None`: the engine does not measure itself.
    pub(crate) fn of(
        (engine, device): (&dyn Engine, &DeviceInfo),
        (path, model): (&Path, &Model),
        metrics: &[Metric],
    ) -> Result<Option<Self>, AnyError> {
        let Some(speed) = engine.measure()? else { return Ok(None) };
        let backend = model.placement().stages().first().and_then(|stage| stage.backend.clone());
        let backend = backend.ok_or("the placement names no backend")?;
        let accelerator = Accelerator::new(device.vendor)
            .name(&device.name)
            .backend(&backend)
            .vram_total_bytes(MEMORY)
            .vram_used_bytes(0)
            .bytes_per_second(speed.bytes_per_second)
            .operations_per_second(speed.operations_per_second)
            .layer_seconds(speed.layer_seconds)
            .round_trip_seconds(speed.round_trip_seconds);
        let node = Node::new("local").backends([backend]).memory(MEMORY, MEMORY).accelerator(accelerator);
        let (cluster, card) = (Cluster::new(vec![node], Vec::new()), ModelCard::from_checkpoint(path)?);
        let price = |request: &Request| Planner::price(&card, &cluster, request, model.placement());
        let figure = |metric: &Metric| -> Result<(Metric, f64), AnyError> {
            let request = Request::default();
            let figure = match *metric {
                // Tokens are priced in the middle of the context.
                Metric::Decode(depth) => {
                    price(&request.context_tokens(2 * depth.max(1) as u64))?.0.tokens_per_second
                }
                Metric::Prefill(tokens) => {
                    let prompt = price(&request.prompt_tokens(tokens as u64))?.1;
                    tokens as f64 / prompt.seconds
                }
            };
            Ok((*metric, figure))
        };
        Ok(Some(Self { speed, figures: metrics.iter().map(figure).collect::<Result<_, _>>()? }))
    }

    pub(crate) fn json(&self) -> Value {
        let figures = self.figures.iter().map(|(metric, figure)| (metric.name(), json!(figure)));
        json!({ "speed": self.speed, "tokens_per_second": figures.collect::<serde_json::Map<_, _>>() })
    }
}
