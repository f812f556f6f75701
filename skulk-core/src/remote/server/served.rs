//! What does a server have, and what does it say of itself?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::batch::{Done, Form, Piece, Queue, Refused};
use super::ends::Ends;
use super::guard::Guard;
use super::metrics::Metrics;
use super::options::ServeOptions;
use super::reply::{Refusal, stopping};
use super::{Limits, Stop, facts};
use crate::arch::{ArchSpec, LayerSpec};
use crate::cancel::CancelToken;
use crate::engine::FfnService;
use crate::engine::ffn::experts_of;
use crate::engines::CpuFfn;
use crate::error::Result;
use crate::ids::LayerIdx;
use crate::model::CpuEnds;
use crate::tokenizer::Tokenizer;
use crate::weights::{Checkpoint, Metadata};

/// What computes, waits and counts.
pub(super) struct Running {
    pub(super) arch: Arc<ArchSpec>,
    pub(super) service: Arc<CpuFfn>,
    pub(super) queue: Arc<Queue>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stop: watch::Receiver<Stop>,
    /// Ends what is being computed.
    pub(super) cancel: CancelToken,
}

/// All that requests are answered with.
pub(super) struct Served {
    pub(super) running: Running,
    pub(super) limits: Limits,
    pub(super) guard: Guard,
    /// Where the checkpoint has them.
    pub(super) ends: Option<Ends>,
    /// Whose turn it is to compute logits, and how many may wait for that.
    turns: Semaphore,
    most_waiting: usize,
    waiting: AtomicUsize,
    /// What `/v1/stats` and `/v1/models` reply.
    pub(super) stats: Value,
    pub(super) models: Value,
    started: Instant,
}

impl Served {
    pub(super) fn new(checkpoint: &dyn Checkpoint, options: &ServeOptions, running: Running) -> Result<Self> {
        let limits = Limits {
            connections: options.max_connections,
            body: usize::try_from(options.max_body.bytes()).unwrap_or(usize::MAX),
            header: options.header_timeout,
            read: options.body_timeout,
            idle: options.idle_timeout,
        };
        let ends = CpuEnds::load(checkpoint, &running.service, &options.cancel)?.map(|weights| Ends {
            weights: Arc::new(weights),
            tokenizer: Tokenizer::from_checkpoint(checkpoint).ok().map(Arc::new),
        });
        let facts = facts(checkpoint, &running)?;
        let stats = stats(checkpoint, &running.arch, &facts, ends.is_some());
        let models = models(&stats);
        let guard = Guard::new(options.key.as_deref());
        let (turns, waiting, started) = (Semaphore::new(1), AtomicUsize::new(0), Instant::now());
        let most_waiting = options.queue;
        Ok(Self { running, limits, guard, ends, turns, most_waiting, waiting, stats, models, started })
    }

    /// What `/v1/health` replies.
    pub(super) fn health(&self) -> Value {
        json!({
            "status": "ok",
            "uptime_seconds": self.started.elapsed().as_secs(),
            "requests_served": self.running.metrics.all_answered(),
        })
    }

    /// Elements of a row.
    pub(super) fn hidden(&self) -> usize {
        self.running.arch.hidden_size
    }

    fn layer(&self, layer: u32) -> Result<(usize, &LayerSpec), Refusal> {
        let (at, layers) = (layer as usize, &self.running.arch.layers);
        let spec = layers.get(at).ok_or_else(|| {
            Refusal::bad(format!("layer {layer} out of range (num_layers = {})", layers.len()))
        })?;
        Ok((at, spec))
    }

    /// A layer whose dense block is served.
    pub(super) fn dense(&self, layer: u32) -> Result<usize, Refusal> {
        let (at, spec) = self.layer(layer)?;
        if spec.ffn.experts.is_some() || experts_of(spec) == 0 {
            return Err(Refusal::bad(format!("layer {layer} has no dense block that is served")));
        }
        if self.running.service.serves(LayerIdx(at)).is_empty() {
            return Err(Refusal::bad(format!("layer {layer} is not served here")));
        }
        Ok(at)
    }

    /// A layer these experts of which are served in this form.
    pub(super) fn experts(
        &self,
        layer: u32,
        experts: impl Iterator<Item = u32>,
        form: Form,
    ) -> Result<usize, Refusal> {
        if !self.running.arch.layers.iter().any(|spec| spec.ffn.experts.is_some()) {
            return Err(Refusal::bad("model is not a hybrid MoE — no expert endpoints available"));
        }
        let (at, spec) = self.layer(layer)?;
        let Some(n) = spec.ffn.experts.map(|experts| experts.n_experts) else {
            return Err(Refusal::bad(format!("layer {layer} has no experts")));
        };
        let served = self.running.service.serves(LayerIdx(at));
        let mut taken = 0;
        for expert in experts {
            taken += 1;
            if expert as usize >= n {
                return Err(Refusal::bad(format!("expert {expert} out of range (num_experts = {n})")));
            }
            if !served.contains(&(expert as usize)) {
                return Err(Refusal::bad(format!("expert {expert} of layer {layer} is not served here")));
            }
        }
        if taken > n {
            return Err(Refusal::bad(format!("a row takes {taken} experts of layer {layer}, which has {n}")));
        }
        if form.is_of_residual() && !self.running.service.norms(LayerIdx(at)) {
            return Err(Refusal::bad(format!("the served checkpoint lacks the norm of layer {layer}")));
        }
        Ok(at)
    }

    /// `Ok` for a reply of so many numbers.
    pub(super) fn room(&self, rows: usize) -> Result<(), Refusal> {
        let bytes = rows.saturating_mul(self.hidden()).saturating_mul(size_of::<f32>());
        if bytes <= self.limits.body {
            return Ok(());
        }
        let most = self.limits.body;
        Err(Refusal::new(
            hyper::StatusCode::PAYLOAD_TOO_LARGE,
            format!("the reply would have {bytes} bytes of rows, of {most} at most: ask for fewer at a time"),
        ))
    }

    /// Waits for the turn to compute logits.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        if let Ok(turn) = self.turns.try_acquire() {
            return Ok(turn);
        }
        let place = Place(&self.waiting);
        if place.0.fetch_add(1, Ordering::Relaxed) >= self.most_waiting {
            return Err(Refused::Full.into());
        }
        self.turns.acquire().await.map_err(|_| stopping())
    }

    /// Computes a request's pieces: what comes of each, in their order.
    pub(super) async fn compute(&self, pieces: Vec<Piece>) -> Result<Vec<Done>, Refusal> {
        let replies = self.running.queue.push(pieces)?;
        let mut done = Vec::with_capacity(replies.len());
        for reply in replies {
            done.push(reply.await.map_err(|_| stopping())??);
        }
        Ok(done)
    }
}

/// A place among those that wait.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What clients of this library compare with their plan.
fn facts(checkpoint: &dyn Checkpoint, running: &Running) -> Result<facts::Facts> {
    let arch = &running.arch;
    let mut blocks = Vec::new();
    for layer in 0..arch.n_layers() {
        let experts = running.service.serves(LayerIdx(layer));
        if experts.is_empty() {
            continue;
        }
        let weights = facts::weights(checkpoint, arch, layer)?.unwrap_or_default();
        blocks.push(facts::Block { layer, experts, weights });
    }
    Ok(facts::Facts { computes: running.service.computes(), blocks })
}

/// LARQL's members, and `skulk`.
fn stats(checkpoint: &dyn Checkpoint, arch: &ArchSpec, facts: &facts::Facts, ends: bool) -> Value {
    let path = checkpoint.path();
    let name = path.file_name().or_else(|| path.parent()?.file_name());
    let name = name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let widths = || arch.layers.iter().map(|layer| layer.ffn.width);
    let mut stats = json!({
        "model": name,
        "family": arch.family,
        "mode": "ffn-service",
        "layers": arch.n_layers(),
        "features": widths().sum::<usize>(),
        "features_per_layer": widths().max(),
        "hidden_size": arch.hidden_size,
        "vocab_size": arch.vocab_size,
        "extract_level": "all",
        "dtype": "f32",
        "layer_bands": null,
        "loaded": { "browse": false, "inference": false, "ffn_service": true, "embed_service": ends },
        "q4k_ffn": {
            "cache_slots": 0,
            "cache_bytes": 0,
            "feature_major_down": checkpoint.tensor(&arch.names.down_features(0)).is_some(),
        },
        "skulk": facts,
    });
    if let Metadata::Vindex(metadata) = checkpoint.metadata() {
        let index = metadata.index();
        stats["model"] = json!(index.model);
        stats["family"] = json!(index.family);
        stats["features"] = json!(index.layers.iter().map(|layer| layer.num_features).sum::<usize>());
        stats["features_per_layer"] = json!(index.intermediate_size);
        stats["extract_level"] = json!(index.extract_level);
        stats["dtype"] = json!(index.dtype);
        stats["layer_bands"] = json!(index.layer_bands);
    }
    stats
}

/// The same as a list of models.
fn models(stats: &Value) -> Value {
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let name = stats["model"].as_str().unwrap_or_default();
    json!({
        "object": "list",
        "data": [{
            "id": name.rsplit('/').next(),
            "object": "model",
            "created": created.map_or(0, |since| since.as_secs()),
            "owned_by": "larql",
            "path": "/v1",
            "features": stats["features"],
            "loaded": true,
        }],
    })
}
