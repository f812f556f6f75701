//! What does a model associate with an entity? The tokens that features write which answer to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;

use super::{LabelSource, VindexBrowser};
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::macros::{closed_set, setters};

/// Bytes that a target has at least: shorter ones say nothing.
const LEAST_BYTES: usize = 2;

closed_set! {
    /// Layers that are thought to do one thing, see [`VindexBrowser::bands`].
    #[derive(Default)]
    pub enum Band {
        /// Every layer.
        All = "all",
        /// Those of syntax.
        Syntax = "syntax",
        /// Those of facts.
        #[default]
        Knowledge = "knowledge",
        /// Those that form the output.
        Output = "output",
    }
}

/// What [`VindexBrowser::describe`] looks for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DescribeOptions {
    /// Layers that are searched.
    pub band: Band,
    /// Features that are looked at in each layer, and edges at most.
    pub limit: usize,
    /// Gate scores below this do not count.
    pub min_score: f32,
    /// Ends the search before the next layer.
    pub cancel: CancelToken,
}

impl Default for DescribeOptions {
    /// Twenty edges with scores of 5 and more, of the layers of facts.
    fn default() -> Self {
        Self { band: Band::Knowledge, limit: 20, min_score: 5.0, cancel: CancelToken::new() }
    }
}

setters!(DescribeOptions {
    /// Searches these layers.
    band: Band;
    /// Looks at so many features in each layer, and gives so many edges at most.
    limit: usize;
    /// Leaves out gate scores below this.
    min_score: f32;
    /// Ends when the token is cancelled.
    cancel: CancelToken;
});

/// What a model associates with an entity.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Description {
    /// The entity, as it was asked for.
    pub entity: String,
    /// The model's name in the index.
    pub model: String,
    /// The largest gate scores first; of equal ones the one that was found in an earlier layer.
    pub edges: Vec<Edge>,
}

/// A token that features write which answer to an entity.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Edge {
    /// The token, without spaces around it, as the first of the features spells it.
    pub target: String,
    /// The largest gate score among these features; 0 where all are below.
    #[serde(serialize_with = "crate::wire::wide")]
    pub gate_score: f32,
    /// The layer of that feature.
    pub layer: usize,
    /// That feature.
    pub feature: usize,
    /// Its label, where probes have confirmed one.
    pub relation: Option<String>,
    /// Where the label comes from.
    pub source: Option<LabelSource>,
    /// The first layer with such a feature.
    pub layer_min: usize,
    /// The last.
    pub layer_max: usize,
    /// Such features.
    pub count: usize,
    /// Up to three other tokens that the first of the features writes.
    pub also: Vec<String>,
}

impl VindexBrowser {
    /// What the model associates with an entity: features of [largest product](Self::nearest) with the mean embedding
    /// of its tokens, no special ones added, put together by the token that they write most, regardless of case.
    /// Tokens of one byte and the entity itself do not count. A text without tokens has no edges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for a `min_score` that is no number; then as
    /// [`nearest_in`](Self::nearest_in), [`embed`](Self::embed), [`feature`](Self::feature) and
    /// [`tokenizer`](Self::tokenizer).
    pub fn describe(&self, entity: &str, options: &DescribeOptions) -> Result<Description> {
        Self::expect_bound(options.min_score)?;
        let model = self.reader.index().model.clone();
        let mut found = Description { entity: entity.to_owned(), model, edges: Vec::new() };
        let tokens = self.tokenizer()?.encode(entity, false)?;
        if tokens.is_empty() {
            return Ok(found);
        }
        let (query, layers) = (self.embed_mean(&tokens)?, self.layers_of(options.band));
        let meta = self.meta()?;
        let entity = entity.to_lowercase();
        let mut by_target: HashMap<String, usize> = HashMap::new();
        for hit in self.nearest_in(layers, &query, options.limit, &options.cancel)? {
            if hit.score < options.min_score {
                continue;
            }
            let Some(tokens) = meta.feature(hit.layer, hit.feature) else { continue };
            let target = self.text(tokens.top_token)?;
            let key = target.to_lowercase();
            if target.len() < LEAST_BYTES || key == entity {
                continue;
            }
            let at = match by_target.entry(key) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let is_other = |text: &str, logit: f32| {
                        let key = text.to_lowercase();
                        logit > 0.0 && key != *entry.key() && key != entity && text.len() >= LEAST_BYTES
                    };
                    found.edges.push(Edge {
                        also: self.other_tokens(&tokens, is_other)?,
                        target,
                        gate_score: 0.0,
                        layer: hit.layer,
                        feature: hit.feature,
                        relation: None,
                        source: None,
                        layer_min: hit.layer,
                        layer_max: hit.layer,
                        count: 0,
                    });
                    *entry.insert(found.edges.len() - 1)
                }
            };
            let Some(edge) = found.edges.get_mut(at) else { continue };
            if hit.score > edge.gate_score {
                (edge.gate_score, edge.layer, edge.feature) = (hit.score, hit.layer, hit.feature);
            }
            edge.layer_min = edge.layer_min.min(hit.layer);
            edge.layer_max = edge.layer_max.max(hit.layer);
            edge.count += 1;
        }
        // The sort keeps the order of equal ones, and scores are numbers.
        found.edges.sort_by(|a, b| b.gate_score.total_cmp(&a.gate_score));
        found.edges.truncate(options.limit);
        let labels = self.labels()?;
        for edge in &mut found.edges {
            edge.relation = labels.probe(edge.layer, edge.feature).map(str::to_owned);
            edge.source = edge.relation.is_some().then_some(LabelSource::Probe);
        }
        Ok(found)
    }

    /// The layers of a band that have features.
    pub(super) fn layers_of(&self, band: Band) -> Vec<usize> {
        let (bands, mut layers) = (self.bands(), self.layers());
        let [first, last] = match band {
            Band::All => return layers,
            Band::Syntax => bands.syntax,
            Band::Knowledge => bands.knowledge,
            Band::Output => bands.output,
        };
        layers.retain(|layer| (first..=last).contains(layer));
        layers
    }
}
