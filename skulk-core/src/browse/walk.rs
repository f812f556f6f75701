//! Which features does a prompt's last token wake, layer by layer?

use serde::Serialize;

use super::VindexBrowser;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, Result};
use crate::macros::setters;

/// What [`VindexBrowser::walk`] looks for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WalkOptions {
    /// Hits in each layer.
    pub top: usize,
    /// The layers, in the order in which they are to be walked; `None`: all.
    pub layers: Option<Vec<usize>>,
    /// Ends the walk before the next layer.
    pub cancel: CancelToken,
}

impl Default for WalkOptions {
    /// Five hits in each layer.
    fn default() -> Self {
        Self { top: 5, layers: None, cancel: CancelToken::new() }
    }
}

setters!(WalkOptions {
    /// Looks for so many hits in each layer.
    top: usize;
    /// Walks these layers only.
    layers: impl IntoIterator<Item = usize> => Some(layers.into_iter().collect());
    /// Ends when the token is cancelled.
    cancel: CancelToken;
});

/// A feature that a prompt wakes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WalkHit {
    /// The layer.
    pub layer: usize,
    /// The feature in its layer.
    pub feature: usize,
    /// The product of its gate row with the query.
    #[serde(serialize_with = "crate::wire::wide")]
    pub gate_score: f32,
    /// The token that it writes most, without spaces around it; empty where nothing else is left of it.
    pub target: String,
    /// Its label, where probes have confirmed one.
    pub relation: Option<String>,
}

impl VindexBrowser {
    /// The features that the embedding of a prompt's last token wakes, scaled as it enters the first layer, special
    /// tokens being added as the tokenizer says: of each layer those of [largest product](Self::nearest) that write
    /// anything.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a prompt without tokens of its own; then as [`nearest_in`](Self::nearest_in),
    /// [`embed`](Self::embed), [`feature`](Self::feature) and [`tokenizer`](Self::tokenizer).
    pub fn walk(&self, prompt: &str, options: &WalkOptions) -> Result<Vec<WalkHit>> {
        let tokenizer = self.tokenizer()?;
        // What a beginning alone would wake says nothing of a prompt.
        let is_empty = tokenizer.encode(prompt, false)?.is_empty();
        let tokens = tokenizer.encode(prompt, true)?;
        let Some(&last) = tokens.last().filter(|_| !is_empty) else {
            return Err(Error::new(ErrorKind::InvalidArgument, "expected a prompt, found an empty one")
                .with("field", "prompt")
                .with_hint("give a text of at least one token"));
        };
        let layers = match &options.layers {
            Some(layers) => layers.clone(),
            None => self.layers(),
        };
        let (meta, labels) = (self.meta()?, self.labels()?);
        let mut hits = Vec::new();
        for hit in self.nearest_in(layers, &self.embed(last)?, options.top, &options.cancel)? {
            let Some(tokens) = meta.feature(hit.layer, hit.feature) else { continue };
            hits.push(WalkHit {
                layer: hit.layer,
                feature: hit.feature,
                gate_score: hit.score,
                target: self.text(tokens.top_token)?,
                relation: labels.probe(hit.layer, hit.feature).map(str::to_owned),
            });
        }
        Ok(hits)
    }
}
