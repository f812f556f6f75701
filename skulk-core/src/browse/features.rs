//! What does a feature write? Its tokens as text, and its label.

use serde::Serialize;

use super::{Label, VindexBrowser, get, map_file};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::vindex::down_meta::{DownMeta, FeatureTokens};
use crate::vindex::files::{DOWN_META, DOWN_META_LINES};
use crate::vindex::folder::Folder;
use crate::vindex::parts::found_in;
use crate::vindex::{VindexPart, VindexReader};
use crate::weights::Checkpoint;

/// Tokens that name a feature beside the one that it writes most.
const OTHER_TOKENS: usize = 3;

/// A feature, and what its down column writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Feature {
    /// The layer.
    pub layer: usize,
    /// The feature in its layer.
    pub feature: usize,
    /// The token that it writes most, without spaces around it.
    pub top_token: String,
    /// That token.
    pub top_token_id: TokenId,
    /// That token's logit.
    #[serde(serialize_with = "crate::wire::wide")]
    pub c_score: f32,
    /// The tokens that it writes most, the most first.
    pub tokens: Vec<FeatureToken>,
    /// What it is said to mean, where anything is.
    pub label: Option<Label>,
}

/// A token that a feature writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct FeatureToken {
    /// The token.
    pub id: TokenId,
    /// Its text, without spaces around it.
    pub text: String,
    /// The product of its embedding with the feature's down column.
    #[serde(serialize_with = "crate::wire::wide")]
    pub logit: f32,
}

impl VindexBrowser {
    /// A feature and what it writes; `None` where nothing is written down of it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a layer that the model does not have; [`ErrorKind::FileNotFound`] in a slice
    /// without a `down_meta.bin`, [`ErrorKind::CheckpointInvalid`] and [`ErrorKind::CheckpointTruncated`] when that
    /// file or the labels break their format; then as [`tokenizer`](Self::tokenizer).
    pub fn feature(&self, layer: usize, feature: usize) -> Result<Option<Feature>> {
        self.expect_layer(layer)?;
        let tokens = self.meta()?.feature(layer, feature);
        tokens.map(|tokens| self.spelt(layer, feature, &tokens)).transpose()
    }

    /// The features of a layer of which anything is written down, in order.
    ///
    /// # Errors
    /// As [`feature`](Self::feature), for each of them too.
    pub fn features(&self, layer: usize) -> Result<impl Iterator<Item = Result<Feature>> + '_> {
        self.expect_layer(layer)?;
        let meta = self.meta()?;
        Ok((0..meta.num_features(layer)).filter_map(move |feature| {
            let tokens = meta.feature(layer, feature)?;
            Some(self.spelt(layer, feature, &tokens))
        }))
    }

    fn spelt(&self, layer: usize, feature: usize, tokens: &FeatureTokens) -> Result<Feature> {
        let spell = |&(id, logit): &(TokenId, f32)| Ok(FeatureToken { id, text: self.text(id)?, logit });
        Ok(Feature {
            layer,
            feature,
            top_token: self.text(tokens.top_token)?,
            top_token_id: tokens.top_token,
            c_score: tokens.c_score,
            tokens: tokens.tokens.iter().map(spell).collect::<Result<_>>()?,
            label: self.labels()?.label(layer, feature),
        })
    }

    /// A token as features name it: special ones have no text, and spaces around it are left out.
    pub(super) fn text(&self, token: TokenId) -> Result<String> {
        Ok(self.tokenizer()?.decode(&[token], true).trim().to_owned())
    }

    /// The first few tokens that a feature writes, as text, of those that `is_other` than what names it; it gets a
    /// token's logit too.
    pub(super) fn other_tokens(
        &self,
        tokens: &FeatureTokens,
        is_other: impl Fn(&str, f32) -> bool,
    ) -> Result<Vec<String>> {
        let texts = tokens.tokens.iter().map(|&(token, logit)| Ok((self.text(token)?, logit)));
        let others = texts.filter_map(|found| match found {
            Ok((text, logit)) => is_other(&text, logit).then_some(Ok(text)),
            Err(e) => Some(Err(e)),
        });
        others.take(OTHER_TOKENS).collect()
    }

    pub(super) fn expect_layer(&self, layer: usize) -> Result<()> {
        let layers = self.reader.index().num_layers;
        if layer < layers {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, format!("expected a layer below {layers}, found {layer}"))
            .with("field", "layer")
            .with_hint("layers are counted from 0"))
    }

    /// What features write.
    pub(super) fn meta(&self) -> Result<&DownMeta> {
        get(&self.meta, || read(&self.reader))
    }
}

/// What features write, however the folder stores it.
fn read(reader: &VindexReader) -> Result<DownMeta> {
    let mut folder = Folder::new(reader.path());
    if let Some(at) = folder.open(DOWN_META, DOWN_META)? {
        return DownMeta::open(folder.file(at)?);
    }
    if let Some(text) = map_file(reader.path(), DOWN_META_LINES)? {
        return DownMeta::parse_lines(&text, &reader.path().join(DOWN_META_LINES));
    }
    let index = reader.index();
    let (message, hint) = match index.slice() {
        _ if index.down_top_k == 0 => (
            format!("expected a {DOWN_META}, but this vindex was made without tokens of features"),
            "extract the model again, with `feature_tokens`".to_owned(),
        ),
        Some(slice) => (
            format!("expected a {DOWN_META}, but this {} slice lacks that part", slice.preset),
            format!("it is part of {}", found_in(VindexPart::DownMeta, index)),
        ),
        None => (
            format!("expected a {DOWN_META}, but this folder lacks that file"),
            format!(
                "the folder is incomplete, or a slice: it is part of {}",
                found_in(VindexPart::DownMeta, index)
            ),
        ),
    };
    Err(Error::new(ErrorKind::FileNotFound, message)
        .with("file", reader.path().join(DOWN_META).display())
        .with("part", VindexPart::DownMeta.as_str())
        .with_hint(hint))
}
