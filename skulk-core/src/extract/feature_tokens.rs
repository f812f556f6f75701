//! Which tokens does a feature write? Those whose embeddings its down projection is nearest to.
//!
//! As LARQL does: inner products with the embeddings, which are not scaled; of the k largest, those of tokens without
//! text are left out afterwards, so that fewer may remain.

use std::io::Write;
use std::ops::Range;

use crate::cancel::CancelToken;
use crate::engine::cpu::Nearest;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::tokenizer::Tokenizer;
use crate::vindex::down_meta::DownMetaWriter;

/// Elements of the down projections that are looked at together.
const BATCH: usize = 1 << 21;

/// Which of the first `vocab` tokens have no text: what they decode to, control tokens left out, is nothing but
/// spaces. Ids beyond the tokenizer's vocabulary have none.
pub(crate) fn empty_tokens(tokenizer: &Tokenizer, vocab: usize) -> Vec<bool> {
    let is_empty = |id: u32| tokenizer.decode(&[TokenId(id)], true).trim().is_empty();
    (0..vocab).map(|id| u32::try_from(id).map_or(true, is_empty)).collect()
}

/// Writes what the features of one layer after the other write.
pub(crate) struct LayerTokens<'a> {
    nearest: &'a Nearest<'a>,
    is_empty: &'a [bool],
    width: usize,
    queries: Vec<f32>,
    found: Vec<(u32, f32)>,
    kept: Vec<(u32, f32)>,
}

impl<'a> LayerTokens<'a> {
    /// `nearest` is of the embeddings `[vocab, width]`; `is_empty` says of which tokens nothing is to be written.
    pub(crate) fn new(nearest: &'a Nearest<'a>, width: usize, is_empty: &'a [bool]) -> Self {
        Self { nearest, is_empty, width, queries: Vec::new(), found: Vec::new(), kept: Vec::new() }
    }

    /// Writes the next layer. `fill` gets a range of features and room for their columns of the down projection,
    /// `[features, width]`; it is called in order, with bounded ranges.
    ///
    /// # Errors
    /// What `fill`, the search or the writer say; of the search with the `layer`.
    pub(crate) fn layer<W: Write>(
        &mut self,
        layer: usize,
        num_features: usize,
        mut fill: impl FnMut(Range<usize>, &mut [f32]) -> Result<()>,
        to: &mut DownMetaWriter<W>,
        cancel: &CancelToken,
    ) -> Result<()> {
        let (k, width) = (to.top_k(), self.width);
        to.layer(num_features)?;
        let batch = (BATCH / width.max(1)).max(1);
        for from in (0..num_features).step_by(batch) {
            let features = from..num_features.min(from + batch);
            self.queries.resize(features.len() * width, 0.0);
            fill(features.clone(), &mut self.queries)?;
            self.nearest
                .top(&self.queries, k, cancel, &mut self.found)
                .map_err(|e| e.with("layer", layer).with("features", format!("{features:?}")))?;
            let k = self.found.len() / features.len().max(1);
            for feature in 0..features.len() {
                let found = self.found.get(feature * k..(feature + 1) * k).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "a search found fewer tokens than it was to")
                })?;
                let has_text =
                    |(token, _): &&(u32, f32)| !self.is_empty.get(*token as usize).unwrap_or(&true);
                self.kept.clear();
                self.kept.extend(found.iter().filter(has_text));
                to.feature(&self.kept)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Precision;
    use crate::engine::cpu::Cpu;
    use crate::extract::source::tests::twins::vindexes;
    use crate::vindex::DownMeta;
    use crate::weights::{Checkpoint, MappedFile, open_checkpoint, quant};

    /// A layer's down projections, of all experts in their order, as columns.
    fn columns(source: &dyn Checkpoint, layer: usize) -> Vec<f32> {
        let of_layer = format!("layers.{layer}.");
        let is_down = |name: &&str| {
            name.contains(&of_layer)
                && (name.ends_with("mlp.down_proj.weight") || name.ends_with("w2.weight"))
        };
        // Their numbers have one digit, so that names are in their order.
        let names: Vec<_> = source.tensors().iter().map(|t| t.name.as_str()).filter(is_down).collect();
        let mut all = Vec::new();
        for name in names {
            let region = source.region(name).unwrap();
            let (rows, width) = (region.rows(), region.row_len());
            let values = quant::to_f32(&region).unwrap();
            all.extend(
                (0..width)
                    .flat_map(|i| (0..rows).map(move |row| (row, i)))
                    .map(|(row, i)| values[row * width + i]),
            );
        }
        all
    }

    #[test]
    fn tokens_are_those_that_larql_found() {
        let cpu = Cpu::new(2, Precision::Exact).unwrap();
        let cancel = CancelToken::new();
        let (mut features, mut dropped) = (0, 0);
        for (made, source) in vindexes() {
            let path = made.join("down_meta.bin");
            let larql = DownMeta::open(&MappedFile::open(&path).unwrap()).unwrap();
            let source = open_checkpoint(&source).unwrap();
            let tokenizer = Tokenizer::from_checkpoint(&*source).unwrap();
            let embeddings = source.region("model.embed_tokens.weight").unwrap();
            let is_empty = empty_tokens(&tokenizer, embeddings.rows());
            let nearest = Nearest::new(&cpu, &embeddings, &cancel).unwrap();
            let width = embeddings.row_len();
            let mut tokens = LayerTokens::new(&nearest, width, &is_empty);
            let mut writer = DownMetaWriter::new(Vec::new(), larql.num_layers(), larql.top_k()).unwrap();
            for layer in 0..larql.num_layers() {
                let columns = columns(&*source, layer);
                let fill = |features: Range<usize>, room: &mut [f32]| {
                    room.copy_from_slice(&columns[features.start * width..features.end * width]);
                    Ok(())
                };
                tokens.layer(layer, columns.len() / width, fill, &mut writer, &cancel).unwrap();
            }
            let own = DownMeta::parse(writer.finish().unwrap(), &path).unwrap();
            assert_eq!((own.num_layers(), own.top_k()), (larql.num_layers(), larql.top_k()));
            for layer in 0..larql.num_layers() {
                assert_eq!(own.num_features(layer), larql.num_features(layer), "{}", made.display());
                for feature in 0..larql.num_features(layer) {
                    let what = format!("{}: layer {layer}, feature {feature}", made.display());
                    let (own, larql) = (own.feature(layer, feature), larql.feature(layer, feature));
                    let (Some(own), Some(larql)) = (&own, &larql) else {
                        assert_eq!(own, larql, "{what}");
                        continue;
                    };
                    assert_eq!(own.tokens.len(), larql.tokens.len(), "{what}");
                    assert_eq!((own.top_token, own.c_score), own.tokens[0], "{what}");
                    for (own, larql) in own.tokens.iter().zip(&larql.tokens) {
                        // Both are sums in f32, in different orders: of equal products either may come first.
                        let most = if own.0 == larql.0 { 1e-4 } else { 1e-5 };
                        assert!(
                            (own.1 - larql.1).abs() <= most * larql.1.abs(),
                            "{what}: {own:?}, {larql:?}"
                        );
                    }
                    features += 1;
                    dropped += usize::from(own.tokens.len() < 10);
                }
            }
        }
        assert!(features >= 768, "{features} features were compared");
        println!("{features} features, {dropped} with fewer than ten tokens");
    }

    #[test]
    fn features_come_in_bounded_batches() {
        let (cpu, cancel) = (Cpu::new(1, Precision::Exact).unwrap(), CancelToken::new());
        let (_, source) = vindexes().into_iter().next().unwrap();
        let embeddings = open_checkpoint(source).unwrap().region("model.embed_tokens.weight").unwrap();
        let nearest = Nearest::new(&cpu, &embeddings, &cancel).unwrap();
        let width = embeddings.row_len();
        let n = BATCH / width + 5;
        let mut writer = DownMetaWriter::new(Vec::new(), 1, 2).unwrap();
        let mut ranges = Vec::new();
        let fill = |features: Range<usize>, room: &mut [f32]| {
            assert!(room.len() == features.len() * width && room.len() <= BATCH);
            room.fill(0.0);
            // All but the last are nothing but zeros, nearest to the first rows.
            if features.end == n {
                *room.last_mut().unwrap() = f32::NAN;
            }
            ranges.push(features);
            Ok(())
        };
        let error =
            LayerTokens::new(&nearest, width, &[]).layer(3, n, fill, &mut writer, &cancel).unwrap_err();
        assert_eq!(ranges, [0..n - 5, n - 5..n]);
        assert_eq!(error.kind(), ErrorKind::CheckpointInvalid);
        let text = error.to_string();
        assert!(text.contains("layer") && text.contains("query"), "{text}");
    }
}
