//! What does a model's layer of facts write about? The words that most of its features write.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::Serialize;

use super::words::is_word;
use super::{Band, VindexBrowser};
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::ids::TokenId;
use crate::macros::setters;

/// Features that are looked at between two looks at whether to stop.
const STRIDE: usize = 4096;

/// What [`VindexBrowser::relations`] lists.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RelationsOptions {
    /// Words at most.
    pub limit: usize,
    /// Features that write their token less than this do not count.
    pub min_score: f32,
    /// Ends the search.
    pub cancel: CancelToken,
}

impl Default for RelationsOptions {
    /// Fifty words that features write with a score of 0.2 or more.
    fn default() -> Self {
        Self { limit: 50, min_score: 0.2, cancel: CancelToken::new() }
    }
}

setters!(RelationsOptions {
    /// Lists so many words at most.
    limit: usize;
    /// Leaves out features of scores below this.
    min_score: f32;
    /// Ends when the token is cancelled.
    cancel: CancelToken;
});

/// What a model's layers of facts write about.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Relations {
    /// Words that features write most, by how many do; of equal ones the one that was found in an earlier layer first.
    pub relations: Vec<Relation>,
    /// How many words there are.
    pub total: usize,
    /// Labels that probes confirmed, by how many features have them; of equal ones the one of an earlier layer first.
    pub probes: Vec<Probe>,
    /// Features with such labels.
    pub probe_count: usize,
}

/// A word that features write.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Relation {
    /// The word, as the first of the features spells it.
    pub name: String,
    /// Features that write it most.
    pub count: usize,
    /// The largest of their scores.
    #[serde(serialize_with = "crate::wire::wide")]
    pub max_score: f32,
    /// The first layer with such a feature.
    pub min_layer: usize,
    /// The last.
    pub max_layer: usize,
    /// Up to three other words that the first of the features writes.
    pub examples: Vec<String>,
}

/// A label that probes confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Probe {
    /// The label.
    pub name: String,
    /// Features that have it.
    pub count: usize,
}

impl VindexBrowser {
    /// The words that features of the layers of facts write most, put together regardless of case, and the labels that
    /// probes confirmed. Words are tokens of 3 to 25 characters, most of them Latin letters, that say more than
    /// "the" and the like.
    ///
    /// # Errors
    /// As [`feature`](Self::feature), [`Cancelled`](crate::ErrorKind::Cancelled), and
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a `min_score` that is no number.
    pub fn relations(&self, options: &RelationsOptions) -> Result<Relations> {
        Self::expect_bound(options.min_score)?;
        let meta = self.meta()?;
        let mut relations: Vec<Relation> = Vec::new();
        let mut by_word: HashMap<String, usize> = HashMap::new();
        // The relation of a token: many features write the same. `None` for those that are no words.
        let mut known: HashMap<TokenId, Option<usize>> = HashMap::new();
        for layer in self.layers_of(Band::Knowledge) {
            for feature in 0..meta.num_features(layer) {
                if feature % STRIDE == 0 {
                    options.cancel.check()?;
                }
                let Some(tokens) = meta.feature(layer, feature) else { continue };
                let (token, score) = (tokens.top_token, tokens.c_score);
                if score < options.min_score {
                    continue;
                }
                let at = match known.get(&token) {
                    Some(&at) => at,
                    None => {
                        let name = self.text(token)?;
                        let at = match is_word(&name).then(|| by_word.entry(name.to_lowercase())) {
                            None => None,
                            Some(Entry::Occupied(entry)) => Some(*entry.get()),
                            Some(Entry::Vacant(entry)) => {
                                let is_other = |text: &str, _: f32| text != name && is_word(text);
                                let examples = self.other_tokens(&tokens, is_other)?;
                                let (min_layer, max_layer) = (layer, layer);
                                relations.push(Relation {
                                    name,
                                    count: 0,
                                    max_score: 0.0,
                                    min_layer,
                                    max_layer,
                                    examples,
                                });
                                Some(*entry.insert(relations.len() - 1))
                            }
                        };
                        known.insert(token, at);
                        at
                    }
                };
                if let Some(relation) = at.and_then(|at| relations.get_mut(at)) {
                    relation.count += 1;
                    relation.max_score = relation.max_score.max(score);
                    // Layers come in order.
                    relation.max_layer = layer;
                }
            }
        }
        let total = relations.len();
        relations.sort_by_key(|relation| std::cmp::Reverse(relation.count));
        relations.truncate(options.limit);
        let (probes, probe_count) = self.probes()?;
        Ok(Relations { relations, total, probes, probe_count })
    }

    /// Labels that probes confirmed, and how many features have one.
    fn probes(&self) -> Result<(Vec<Probe>, usize)> {
        let all = self.labels()?.probes();
        let count = all.len();
        let mut probes: Vec<Probe> = Vec::new();
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for name in all {
            let at = *by_name.entry(name).or_insert_with(|| {
                probes.push(Probe { name: name.to_owned(), count: 0 });
                probes.len() - 1
            });
            if let Some(probe) = probes.get_mut(at) {
                probe.count += 1;
            }
        }
        probes.sort_by_key(|probe| std::cmp::Reverse(probe.count));
        Ok((probes, count))
    }
}
