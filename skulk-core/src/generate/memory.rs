//! What does a loaded model hold of memory, and what did its plan say?

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::{Model, StageInfo};
use crate::bytes::ByteSize;
use crate::engine::{EngineId, Shard};
use crate::plan::Bytes;
use crate::weights::process_memory;

/// What a loaded model holds of memory, beside what its plan said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ModelMemory {
    /// Weights that its stages, and what drafts, have mapped, read or copied. Of those that stay on disk, what a budget lets be in memory is
    /// [told apart](Model::ffn_memory).
    #[serde(rename = "weightBytes")]
    pub weights: ByteSize,
    /// What is reserved for keys and values, in use or not, those of what drafts among them.
    #[serde(rename = "kvCacheBytes")]
    pub kv_cache: ByteSize,
    /// By engine all that is reserved on a device that weights are copied to: weights, keys and values, and buffers.
    #[serde(rename = "deviceBytes")]
    pub devices: BTreeMap<EngineId, ByteSize>,
    /// What drafts, which is part of the above; its keys and values are those of one session.
    pub draft_model: Option<StageInfo>,
    /// What the plan counted for the devices of this machine; `None`: the placement was not planned.
    pub planned: Option<Bytes>,
    /// What the system has in memory for this process, whatever for. Of mapped weights that are pages that were read, and
    /// are still there. `None`: the system does not tell.
    #[serde(rename = "processBytes")]
    pub process: Option<ByteSize>,
}

/// A stage's engine, and what is reserved on its device, where it has memory of its own.
fn on_device(stage: &StageInfo, shard: &dyn Shard) -> Option<(EngineId, ByteSize)> {
    Some((stage.engine.clone(), shard.device_memory()?))
}

impl Model {
    /// What the model holds of memory at present, and what its plan counted.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// use skulk::{Cluster, LoadOptions, Model, Planner, Request, open_checkpoint};
    /// let request = Request::default().context_tokens(512);
    /// let placement = Planner::plan_checkpoint(path, &Cluster::local(), &request)?;
    /// let model = Model::load(&*open_checkpoint(path)?, &placement, &LoadOptions::default())?;
    /// let memory = model.memory();
    /// let planned = memory.planned.unwrap();
    /// assert!(memory.weights.bytes() <= planned.attention + planned.feed_forward);
    /// assert!(memory.kv_cache.bytes() <= planned.kv_cache);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    pub fn memory(&self) -> ModelMemory {
        let (stages, shards, placement) = (self.stages(), &self.inner.shards.shards, self.placement());
        let here = placement.stages().first().map(|stage| &stage.node);
        let budgets = placement.budgets().iter().filter(|budget| Some(&budget.node) == here);
        let second = self.inner.second.as_ref();
        let drafts = second.map(|second| &second.info);
        let kept = second.map(|second| second.stages.kv_memory().reserved);
        ModelMemory {
            weights: stages.iter().chain(drafts).map(|stage| stage.weights).sum(),
            kv_cache: [self.kv_memory().reserved].into_iter().chain(kept).sum(),
            devices: stages
                .iter()
                .zip(shards)
                .filter_map(|(stage, shard)| on_device(stage, &**shard))
                .collect(),
            draft_model: drafts.cloned(),
            planned: budgets.map(|budget| budget.bytes).reduce(|a, b| a + b),
            process: process_memory(),
        }
    }
}
