//! How does Swift plan where a model runs? What is behind `plan`, `Placement` and `PlanReport`.

use std::sync::Arc;

use skulk::ModelCard;
use skulk::plan::Cluster;
use skulk_contract::by_hand::by_counts;
use skulk_contract::functions::write;
use skulk_contract::options::PlanOptions;
use skulk_contract::price::PriceOptions;
use skulk_contract::{PlacementFacts, Price};

use crate::convert::unsigned;
use crate::error::{Answer, invalid, options, read};
use crate::work::run;

/// What is behind a `Placement`.
#[derive(uniffi::Object)]
pub struct RawPlacement(pub(crate) skulk::Placement);

#[uniffi::export]
impl RawPlacement {
    /// Reads one.
    #[uniffi::constructor]
    pub fn from_json(text: String) -> Answer<Arc<Self>> {
        Ok(Arc::new(Self(skulk::Placement::from_json(&text)?)))
    }

    /// Stages of so many layers each, on engines by name.
    #[uniffi::constructor]
    pub fn by_counts(engines: Vec<String>, layers: Vec<i64>) -> Answer<Arc<Self>> {
        let layers = layers.into_iter().map(|n| unsigned("placement", n)).collect::<Answer<Vec<usize>>>()?;
        Ok(Arc::new(Self(by_counts(engines.into_iter().zip(layers).collect())?)))
    }

    /// The same, with a node's address.
    pub fn with_address(&self, node: String, address: String) -> Arc<Self> {
        Arc::new(Self(self.0.clone().with_address(node, address)))
    }

    /// All that is plain data, as JSON.
    pub fn facts(&self) -> Answer<String> {
        Ok(write(&PlacementFacts::from(&self.0))?)
    }

    /// The model's card, as JSON.
    pub fn card(&self) -> Option<String> {
        self.0.card().map(ModelCard::to_json)
    }

    /// Why it is as it is.
    pub fn report(&self) -> Option<Arc<RawReport>> {
        self.0.report().map(|report| Arc::new(RawReport(report.clone())))
    }

    /// The placement as JSON.
    pub fn json(&self) -> String {
        self.0.to_json()
    }

    /// The placement as text.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// Whether both say the same, and not why: that is lost where it is written and read again.
    pub fn equals(&self, other: Arc<Self>) -> bool {
        self.json() == other.json()
    }

    /// The shard of one rank, as JSON.
    pub fn shard_metadata(&self, rank: i64) -> Answer<String> {
        let shard = usize::try_from(rank).ok().and_then(|rank| self.0.shard_metadata(rank));
        let ranks = self.0.stages().len();
        let none = || invalid("rank", format!("expected a rank below {ranks}, found {rank}"));
        shard.ok_or_else(none).map(|shard| shard.to_string())
    }

    /// Checks it by a card.
    pub fn check(&self, by: String) -> Answer<()> {
        Ok(self.0.check(&ModelCard::from_json(&by)?)?)
    }

    /// Checks it by a card and a cluster.
    pub fn check_on(&self, by: String, cluster: String, context_tokens: i64) -> Answer<()> {
        let tokens = unsigned("contextTokens", context_tokens)?;
        Ok(self.0.check_on(&ModelCard::from_json(&by)?, &read::<Cluster>("cluster", &cluster)?, tokens)?)
    }
}

/// What is behind a `PlanReport`.
#[derive(Debug, uniffi::Object)]
pub struct RawReport(pub(crate) skulk::PlanReport);

#[uniffi::export]
impl RawReport {
    /// Reads one.
    #[uniffi::constructor]
    pub fn from_json(text: String) -> Answer<Arc<Self>> {
        read("report", &text).map(|report| Arc::new(Self(report)))
    }

    /// All of it as JSON.
    pub fn json(&self) -> String {
        self.0.to_json()
    }

    /// A table in text.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// Tables in Markdown.
    pub fn markdown(&self) -> String {
        self.0.to_markdown()
    }

    /// Tables and bars in HTML.
    pub fn html(&self) -> String {
        self.0.to_html()
    }

    /// A picture.
    pub fn svg(&self) -> String {
        self.0.to_svg()
    }

    /// Whether both are the same.
    pub fn equals(&self, other: Arc<Self>) -> bool {
        self.0 == other.0
    }
}

/// Plans where the model of a card runs, or that of a checkpoint.
#[uniffi::export]
pub async fn raw_plan(
    by: Option<String>,
    path: Option<String>,
    cluster: Option<String>,
    given: String,
) -> Answer<Arc<RawPlacement>> {
    let request = options(&given, PlanOptions::read)?;
    let by = by.map(|text| ModelCard::from_json(&text)).transpose()?;
    let cluster = cluster.map(|cluster| read::<Cluster>("cluster", &cluster)).transpose()?;
    let placement = run(move || {
        let cluster = cluster.unwrap_or_else(Cluster::local);
        match (by, path) {
            (Some(card), _) => request.place(&card, &cluster),
            (None, path) => request.place_checkpoint(path.unwrap_or_default().into(), &cluster),
        }
    });
    Ok(Arc::new(RawPlacement(placement.await?)))
}

/// What a placement of a card's model, or of a checkpoint's, costs, as JSON.
#[uniffi::export]
pub async fn raw_price(
    by: Option<String>,
    path: Option<String>,
    placement: Arc<RawPlacement>,
    cluster: Option<String>,
    given: String,
) -> Answer<String> {
    let asked = options(&given, PriceOptions::read)?;
    let by = by.map(|text| ModelCard::from_json(&text)).transpose()?;
    let cluster = cluster.map(|cluster| read::<Cluster>("cluster", &cluster)).transpose()?;
    let priced = run(move || {
        let cluster = cluster.unwrap_or_else(Cluster::local);
        match (by, path) {
            (Some(card), _) => asked.price(&card, &cluster, &placement.0),
            (None, path) => asked.price_checkpoint(path.unwrap_or_default().into(), &cluster, &placement.0),
        }
    });
    Ok(write(&Price::from(&priced.await?))?)
}
