//! How does Node.js plan where a model runs? What is behind `plan` and `Placement`.

use std::path::PathBuf;

use napi_derive::napi;
use serde_json::{Value, json};
use skulk::Planner;
use skulk::plan::Cluster;
use skulk_contract::functions::write;
use skulk_contract::options::PlanOptions;
use skulk_contract::{ExpertShard, PlacedStage};

use crate::arguments_of;
use crate::error::raise;
use crate::job::{self, Answer, CancelToken, Tell};

/// Which node runs which layers and experts.
#[napi]
pub struct Placement(pub(crate) skulk::Placement);

/// Plans for a card or a checkpoint, on a cluster or on this machine.
#[napi(catch_unwind)]
pub fn plan(arguments: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
    job::start(&tell, token, move |_| {
        let mut given = arguments_of(&arguments)?;
        let (options, spelling) = given.options()?;
        let request = PlanOptions::read(options, spelling)?;
        let cluster = given.take::<Option<Cluster>>("cluster")?.unwrap_or_else(Cluster::local);
        match given.take::<Option<PathBuf>>("checkpoint")? {
            Some(path) => Planner::plan_checkpoint(path, &cluster, &request),
            None => Planner::plan(&given.card()?, &cluster, &request),
        }
        .map(Answer::Placement)
    })
}

/// Reads what `toJson` writes.
#[napi(catch_unwind)]
pub fn placement_from_json(text: String) -> napi::Result<Placement> {
    skulk::Placement::from_json(&text).map(Placement).map_err(raise)
}

/// Stages of so many layers each on engines by name, as pairs in JSON.
#[napi(catch_unwind)]
pub fn placement_by_counts(arguments: String) -> napi::Result<Placement> {
    let counts = || {
        let counts: Vec<(String, usize)> = arguments_of(&arguments)?.take("placement")?;
        skulk::Placement::by_counts(counts)
    };
    counts().map(Placement).map_err(raise)
}

#[napi]
impl Placement {
    /// All of it as plain data.
    #[napi(catch_unwind)]
    pub fn facts(&self) -> napi::Result<String> {
        let of = &self.0;
        let card: Option<Value> = of.card().and_then(|card| serde_json::from_str(&card.to_json()).ok());
        write(&json!({
            "nLayers": of.n_layers(),
            "stages": of.stages().iter().map(PlacedStage::from).collect::<Vec<_>>(),
            "experts": of.experts().iter().map(ExpertShard::from).collect::<Vec<_>>(),
            "budgets": of.budgets(),
            "contextTokens": of.context_tokens(),
            "contextLimit": of.context_limit(),
            "instanceId": of.instance_id(),
            "card": card,
            "report": of.report(),
            "text": of.to_string(),
        }))
        .map_err(raise)
    }

    /// The placement as JSON.
    #[napi(catch_unwind)]
    pub fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// The tagged shard of a rank, as JSON.
    #[napi(catch_unwind)]
    pub fn shard_metadata(&self, rank: u32) -> Option<String> {
        self.0.shard_metadata(rank as usize).map(|shard| shard.to_string())
    }

    /// Whether it is sound for a card, and for a cluster where there is one.
    #[napi(catch_unwind)]
    pub fn check(&self, arguments: String) -> napi::Result<()> {
        let check = || {
            let mut given = arguments_of(&arguments)?;
            match given.take::<Option<Cluster>>("cluster")? {
                Some(cluster) => {
                    let tokens = given.take("contextTokens")?;
                    self.0.check_on(&given.card()?, &cluster, tokens)
                }
                None => self.0.check(&given.card()?),
            }
        };
        check().map_err(raise)
    }
}
