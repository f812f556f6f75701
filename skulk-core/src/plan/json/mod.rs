//! How do placements travel? As JSON: the reference's instances for its transports, and an instance of this
//! library's own.

mod read;
mod wire;
mod write;

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::instance::Instance;
use super::placement::Placement;
use crate::error::Result;

/// The tags of instances.
const RING: &str = "MlxRingInstance";
const JACCL: &str = "MlxJacclInstance";
const DIRECT: &str = "SkulkInstance";

/// The tags of shards.
const PIPELINE: &str = "PipelineShardMetadata";
const TENSOR: &str = "TensorShardMetadata";
const CFG: &str = "CfgShardMetadata";

impl Placement {
    /// The placement as JSON on one line, in camelCase. For [`Instance::MlxRing`](super::Instance::MlxRing) and
    /// [`Instance::MlxJaccl`](super::Instance::MlxJaccl) that is Skulk 1.3's own `MlxRingInstance` or
    /// `MlxJacclInstance`, which has no place for budgets; else it is a `SkulkInstance`:
    ///
    /// ```
    /// use skulk::{EngineId, Placement};
    /// let placement = Placement::even(4, 1, &EngineId::new("cpu"))?;
    /// let json = placement.to_json();
    /// let shard = r#"{"deviceRank":0,"worldSize":1,"resolvedBackend":"skulk-cpu","immediateException":false,"#;
    /// let shard = format!(r#"{shard}"shouldTimeout":null,"startLayer":0,"endLayer":4,"nLayers":4}}"#);
    /// let stage = format!(r#"{{"node":"local","shard":{{"PipelineShardMetadata":{shard}}}}}"#);
    /// assert!(json.starts_with(r#"{"SkulkInstance":{"instanceId":"#));
    /// assert!(json.contains(&format!(r#""coordinator":"local","stages":[{stage}],"experts":[]"#)));
    /// assert_eq!(Placement::from_json(&json)?, placement);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    ///
    /// Why the placement is as it is, its [`report`](Self::report), is not written.
    pub fn to_json(&self) -> String {
        write::instance(self)
    }

    /// Reads what [`to_json`](Self::to_json) writes, and Skulk 1.3's instances. Instances and shards may be without
    /// their tags, and keys may be in snake_case. Fields that the format does not have are refused. Where no context
    /// limit is given, the card's `context_length` is, as in Skulk 1.3.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`](crate::ErrorKind::PlacementInvalid), with the field's path as `field`: for what
    /// is not in that format, for more than 65,536 layers, ranks or experts, for ranks that are not 0, 1, 2, … once
    /// each, and for stages and experts that do not cover the model exactly once.
    pub fn from_json(text: &str) -> Result<Self> {
        read::placement(text)
    }

    /// The tagged shard of one rank, as Skulk 1.3 gives it to a runner: `PipelineShardMetadata`,
    /// `TensorShardMetadata` or `CfgShardMetadata`, with the card. `None`: there is no such rank.
    pub fn shard_metadata(&self, rank: usize) -> Option<Value> {
        let stage = self.stages().get(rank)?;
        serde_json::to_value(write::shard::<true>(self, rank, stage, Some(write::card(self)))).ok()
    }

    /// The name of this placement: the one that it came with, or the model's and a number that follows from nodes,
    /// backends, layers and transport. Where Skulk 1.3 draws names at random, equal placements here have equal names.
    pub fn instance_id(&self) -> String {
        self.ids.as_ref().map_or_else(|| derived_id(self), |ids| ids.instance.clone())
    }

    /// The name of the runner of one rank: the one that it came with, or the placement's name, `/`, and the rank.
    pub fn runner_id(&self, rank: usize) -> String {
        let given = self.ids.as_ref().and_then(|ids| ids.runners.get(rank));
        given.cloned().unwrap_or_else(|| format!("{}/{rank}", self.instance_id()))
    }
}

/// A name that follows from the placement's own content.
fn derived_id(placement: &Placement) -> String {
    let model = placement.card().map_or("model", |card| &card.model_id).replace('/', "--");
    // FNV-1a: other software remembers the name, so it must stay the same for ever.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    // With a byte that no text has, so that neighbours never run together.
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    add(match placement.instance() {
        Instance::Direct { .. } => DIRECT,
        Instance::MlxRing { .. } => RING,
        Instance::MlxJaccl { .. } => JACCL,
    });
    for (rank, stage) in placement.stages().iter().enumerate() {
        add(stage.node.as_str());
        add(&write::text(&write::shard::<false>(placement, rank, stage, None)));
    }
    for shard in placement.experts() {
        add(&write::text(&wire::Experts::from(shard)));
    }
    format!("{model}@{hash:016x}")
}
