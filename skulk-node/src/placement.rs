//! How does Node.js plan where a model runs? What is behind `plan` and `Placement`.

use std::path::PathBuf;

use napi_derive::napi;
use skulk::plan::Cluster;
use skulk::{ModelCard, PlanReport};
use skulk_contract::by_hand::by_counts;
use skulk_contract::functions::write;
use skulk_contract::options::PlanOptions;
use skulk_contract::price::PriceOptions;
use skulk_contract::{PlacementFacts, Price};

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
            Some(path) => request.place_checkpoint(path, &cluster),
            None => request.place(&given.card()?, &cluster),
        }
        .map(|placement| Answer::Placement(Box::new(placement)))
    })
}

/// What a placement costs, on a cluster or on this machine, as JSON.
#[napi(catch_unwind)]
pub fn price(
    arguments: String,
    placement: &Placement,
    token: &CancelToken,
    tell: Tell<'_>,
) -> napi::Result<()> {
    let placement = placement.0.clone();
    job::start(&tell, token, move |_| {
        let mut given = arguments_of(&arguments)?;
        let (options, spelling) = given.options()?;
        let asked = PriceOptions::read(options, spelling)?;
        let cluster = given.take::<Option<Cluster>>("cluster")?.unwrap_or_else(Cluster::local);
        let priced = match given.take::<Option<PathBuf>>("checkpoint")? {
            Some(path) => asked.price_checkpoint(path, &cluster, &placement)?,
            None => asked.price(&given.card()?, &cluster, &placement)?,
        };
        write(&Price::from(&priced)).map(Answer::Json)
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
        by_counts(counts)
    };
    counts().map(Placement).map_err(raise)
}

#[napi]
impl Placement {
    /// What it says of the model and its nodes, as JSON.
    #[napi(catch_unwind)]
    pub fn facts(&self) -> napi::Result<String> {
        write(&PlacementFacts::from(&self.0)).map_err(raise)
    }

    /// The same, with a node's address.
    #[napi(catch_unwind)]
    pub fn with_address(&self, node: String, address: String) -> Self {
        Self(self.0.clone().with_address(node, address))
    }

    /// The model's card, as JSON.
    #[napi(catch_unwind)]
    pub fn card(&self) -> Option<String> {
        self.0.card().map(ModelCard::to_json)
    }

    /// Why it is as it is, as JSON.
    #[napi(catch_unwind)]
    pub fn report(&self) -> Option<String> {
        self.0.report().map(PlanReport::to_json)
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
