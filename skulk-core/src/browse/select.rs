//! Which features write a token, mean a relation, or write anything most clearly? A list in order.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Serialize;

use super::VindexBrowser;
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::ids::TokenId;
use crate::macros::{closed_set, setters};

/// Features that are looked at between two looks at whether to stop.
const STRIDE: usize = 4096;

/// Which features [`VindexBrowser::select`] lists.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SelectOptions {
    /// Part of the token that a feature writes most, regardless of case.
    pub entity: Option<String>,
    /// Part of the label that a probe confirmed, regardless of case.
    pub relation: Option<String>,
    /// The layer; `None`: all.
    pub layer: Option<usize>,
    /// Scores below this do not count.
    pub min_score: Option<f32>,
    /// What the list is ordered by.
    pub order: SelectOrder,
    /// The smallest first.
    pub ascending: bool,
    /// Features at most.
    pub limit: usize,
    /// Ends the search.
    pub cancel: CancelToken,
}

closed_set! {
    /// What a list of features is ordered by; equal ones are in order of layer and feature.
    #[derive(Default)]
    pub enum SelectOrder {
        /// How much a feature writes its token: `c_score`.
        #[default]
        Score = "score",
        /// The layer.
        Layer = "layer",
    }
}

impl Default for SelectOptions {
    /// The twenty features of highest score.
    fn default() -> Self {
        Self {
            entity: None,
            relation: None,
            layer: None,
            min_score: None,
            order: SelectOrder::Score,
            ascending: false,
            limit: 20,
            cancel: CancelToken::new(),
        }
    }
}

setters!(SelectOptions {
    /// Lists features that write a token with this in it.
    entity: impl Into<String> => Some(entity.into());
    /// Lists features with this in their label.
    relation: impl Into<String> => Some(relation.into());
    /// Lists features of this layer.
    layer: usize => Some(layer);
    /// Leaves out scores below this.
    min_score: f32 => Some(min_score);
    /// Orders the list by this.
    order: SelectOrder;
    /// Lists the smallest first, or the largest.
    ascending: bool;
    /// Lists so many features at most.
    limit: usize;
    /// Ends when the token is cancelled.
    cancel: CancelToken;
});

/// Features, as [`VindexBrowser::select`] found them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Selection {
    /// The first of them.
    pub features: Vec<Selected>,
    /// How many there are.
    pub total: usize,
}

/// A feature of a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Selected {
    /// The layer.
    pub layer: usize,
    /// The feature in its layer.
    pub feature: usize,
    /// The token that it writes most, without spaces around it.
    pub target: String,
    /// That token's logit.
    #[serde(serialize_with = "crate::wire::wide")]
    pub c_score: f32,
    /// Its label, where a probe confirmed one.
    pub relation: Option<String>,
}

struct Found {
    layer: usize,
    feature: usize,
    token: TokenId,
    score: f32,
}

impl VindexBrowser {
    /// Features of which anything is written down, in the order that the options say; scores that are no numbers come
    /// last.
    ///
    /// # Errors
    /// As [`feature`](Self::feature), [`Cancelled`](crate::ErrorKind::Cancelled), and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a `min_score` that is no number.
    pub fn select(&self, options: &SelectOptions) -> Result<Selection> {
        options.min_score.map_or(Ok(()), Self::expect_bound)?;
        let layers = match options.layer {
            Some(layer) => self.expect_layer(layer).map(|()| vec![layer])?,
            None => self.layers(),
        };
        let (meta, labels) = (self.meta()?, self.labels()?);
        let entity = options.entity.as_ref().map(|text| text.to_lowercase());
        let relation = options.relation.as_ref().map(|text| text.to_lowercase());
        // Many features write the same tokens.
        let mut matching: HashMap<TokenId, bool> = HashMap::new();
        let mut found = Vec::new();
        for layer in layers {
            for feature in 0..meta.num_features(layer) {
                if feature % STRIDE == 0 {
                    options.cancel.check()?;
                }
                if let Some(relation) = &relation
                    && !labels
                        .probe(layer, feature)
                        .is_some_and(|label| label.to_lowercase().contains(relation))
                {
                    continue;
                }
                let Some(tokens) = meta.feature(layer, feature) else { continue };
                let (token, score) = (tokens.top_token, tokens.c_score);
                if options.min_score.is_some_and(|least| score < least) {
                    continue;
                }
                if let Some(entity) = &entity {
                    let matches = match matching.get(&token) {
                        Some(&matches) => matches,
                        None => {
                            let matches = self.text(token)?.to_lowercase().contains(entity);
                            matching.insert(token, matches);
                            matches
                        }
                    };
                    if !matches {
                        continue;
                    }
                }
                found.push(Found { layer, feature, token, score });
            }
        }
        // The sort keeps the order of equal ones.
        found.sort_by(|a, b| options.compare(a, b));
        let features = found.iter().take(options.limit).map(|found| {
            Ok(Selected {
                layer: found.layer,
                feature: found.feature,
                target: self.text(found.token)?,
                c_score: found.score,
                relation: labels.probe(found.layer, found.feature).map(str::to_owned),
            })
        });
        Ok(Selection { features: features.collect::<Result<_>>()?, total: found.len() })
    }
}

impl SelectOptions {
    fn compare(&self, a: &Found, b: &Found) -> Ordering {
        let directed = |order: Ordering| if self.ascending { order } else { order.reverse() };
        match self.order {
            SelectOrder::Layer => directed(a.layer.cmp(&b.layer)),
            SelectOrder::Score => (a.score.is_nan().cmp(&b.score.is_nan()))
                .then_with(|| directed(a.score.partial_cmp(&b.score).unwrap_or(Ordering::Equal))),
        }
    }
}
