//! Which tokens does each feature write? `down_meta.bin`, and `down_meta.jsonl` of version 1.
//!
//! | bytes | |
//! |---|---|
//! | 4 | `TEMD`, in old files `DMET` |
//! | 4 | version, 1 |
//! | 4 | layers |
//! | 4 | k, tokens of a feature at most |
//! | for each layer: 4 | its features, none where it has no record |
//! | for each of them: 4, 4 | the first token, and its score |
//! | k times 4, 4 | tokens and their scores, falling; behind them zeros |
//!
//! Numbers are of 32 bits, little-endian. A feature whose record is all zeros has no tokens. Token 0 with a score of 0
//! cannot be told from what follows the last token, and is left out.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;

use super::{invalid, number, truncated};
use crate::arch::MAX_LAYERS;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;
use crate::weights::MappedFile;
use crate::weights::mmap::Bytes;

/// What files start with, and what some did once.
const MAGIC: [&[u8; 4]; 2] = [b"TEMD", b"DMET"];
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: u64 = 16;
/// Bytes of a token and its score.
const PAIR: usize = 8;

/// The tokens that a feature writes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FeatureTokens {
    /// The token with the largest score.
    pub top_token: TokenId,
    /// Its score: the inner product of its embedding, not scaled, with the feature's down projection.
    pub c_score: f32,
    /// Tokens with the largest scores, falling. Those without text are left out.
    pub tokens: Vec<(TokenId, f32)>,
}

/// What features write, of all layers.
#[derive(Debug)]
pub struct DownMeta {
    top_k: usize,
    records: Records,
}

#[derive(Debug)]
enum Records {
    /// Of a binary file, where they lie.
    Binary { bytes: Bytes, layers: Vec<Range<usize>> },
    /// Of a text, by layer and feature.
    Text(BTreeMap<(u32, u32), FeatureTokens>),
}

impl DownMeta {
    /// Maps a `down_meta.bin`. Reads only how many features each layer has; records are read when asked for.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`] for another magic number or version, and for bytes behind the last layer;
    /// [`ErrorKind::CheckpointTruncated`] when the file ends before a layer does; [`ErrorKind::FileIo`].
    pub fn open(file: &MappedFile) -> Result<Self> {
        let bytes = file.share(0, file.len())?;
        Self::binary(Bytes::Mapped(bytes), file.path())
    }

    /// Reads the bytes of a `down_meta.bin`. The `path` only serves messages.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn parse(bytes: Vec<u8>, path: &Path) -> Result<Self> {
        Self::binary(Bytes::Owned(bytes), path)
    }

    fn binary(bytes: Bytes, path: &Path) -> Result<Self> {
        let (top_k, layers) = layers(&bytes, path)?;
        Ok(Self { top_k, records: Records::Binary { bytes, layers } })
    }

    /// Reads a `down_meta.jsonl`, which vindexes of version 1 have: one JSON object a line, with long names (`layer`,
    /// `feature`, `top_token_id`, `c_score`, `top_k` of `token_id` and `logit`) or with short ones (`l`, `f`, `i`,
    /// `c`, `k` of `i` and `s`). A line with `_header` is passed over; of two records of a feature the last counts.
    /// The `path` only serves messages.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`] with the line's number when it is no such object.
    pub fn parse_lines(text: &[u8], path: &Path) -> Result<Self> {
        let mut records = BTreeMap::new();
        for (i, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let wrong = |e: serde_json::Error| {
                invalid("expected what a feature writes, as a JSON object", path)
                    .with("line", i + 1)
                    .with_source(e)
            };
            if serde_json::from_slice::<Header>(line).map_err(wrong)?.header.is_some() {
                continue;
            }
            let record: Record = serde_json::from_slice(line).map_err(wrong)?;
            let feature = FeatureTokens {
                top_token: TokenId(record.top_token_id),
                c_score: record.c_score,
                tokens: record.top_k.iter().map(|token| (TokenId(token.token_id), token.logit)).collect(),
            };
            records.insert((record.layer, record.feature), feature);
        }
        let top_k = records.values().map(|record| record.tokens.len()).max().unwrap_or(0);
        Ok(Self { top_k, records: Records::Text(records) })
    }

    /// Tokens that a feature has at most.
    pub fn top_k(&self) -> usize {
        self.top_k
    }

    /// Layers, those without features included.
    pub fn num_layers(&self) -> usize {
        match &self.records {
            Records::Binary { layers, .. } => layers.len(),
            Records::Text(records) => records.last_key_value().map_or(0, |((layer, _), _)| after(*layer)),
        }
    }

    /// Features of a layer; 0 where it has no record.
    pub fn num_features(&self, layer: usize) -> usize {
        match &self.records {
            Records::Binary { layers, .. } => {
                layers.get(layer).map_or(0, |layer| layer.len() / record_bytes(self.top_k))
            }
            Records::Text(records) => {
                let of_layer = u32::try_from(layer).ok().map(|layer| (layer, 0)..=(layer, u32::MAX));
                let last = of_layer.and_then(|of_layer| records.range(of_layer).next_back());
                last.map_or(0, |((_, feature), _)| after(*feature))
            }
        }
    }

    /// What a feature writes; `None` where there is no record of it.
    pub fn feature(&self, layer: usize, feature: usize) -> Option<FeatureTokens> {
        match &self.records {
            Records::Binary { bytes, layers } => {
                let of_layer = bytes.get(layers.get(layer)?.clone())?;
                let record = of_layer.chunks_exact(record_bytes(self.top_k)).nth(feature)?;
                let (pairs, _) = record.as_chunks::<PAIR>();
                let mut pairs = pairs.iter().map(pair);
                let (top_token, c_score) = pairs.next()?;
                let is_one = |(token, score): &(TokenId, f32)| token.0 != 0 || *score != 0.0;
                let tokens: Vec<_> = pairs.filter(is_one).collect();
                let any = is_one(&(top_token, c_score)) || !tokens.is_empty();
                any.then_some(FeatureTokens { top_token, c_score, tokens })
            }
            Records::Text(records) => {
                let place = (u32::try_from(layer).ok()?, u32::try_from(feature).ok()?);
                records.get(&place).cloned()
            }
        }
    }
}

/// Where the records of a `down_meta.bin` lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DownMetaLayout {
    /// Bytes of a record.
    pub(super) record: u64,
    /// Bytes of each layer's records; before them, 4 say how many there are.
    pub(super) layers: Vec<Range<u64>>,
}

impl DownMetaLayout {
    /// Bytes before the first layer.
    pub(super) const HEADER: u64 = HEADER;

    /// Reads how many features each layer has, and nothing else.
    ///
    /// # Errors
    /// As of [`DownMeta::open`].
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = MappedFile::open(path)?;
        let (top_k, layers) = layers(&file.share(0, file.len())?, path)?;
        let layers = layers.into_iter().map(|layer| layer.start as u64..layer.end as u64).collect();
        Ok(Self { record: record_bytes(top_k) as u64, layers })
    }

    /// Features of a layer.
    pub(super) fn features(&self, layer: usize) -> u64 {
        self.layers.get(layer).map_or(0, |layer| (layer.end - layer.start) / self.record)
    }
}

/// Bytes of a record; a file that has one is as long, so that this fits.
fn record_bytes(top_k: usize) -> usize {
    PAIR.saturating_mul(top_k).saturating_add(PAIR)
}

/// The number of things up to that of this number.
fn after(number: u32) -> usize {
    (number as usize).saturating_add(1)
}

fn pair(bytes: &[u8; PAIR]) -> (TokenId, f32) {
    (TokenId(number(bytes, 0)), f32::from_bits(number(bytes, 4)))
}

/// How many tokens features have, and where each layer's records lie.
fn layers(bytes: &[u8], path: &Path) -> Result<(usize, Vec<Range<usize>>)> {
    let size = bytes.len() as u64;
    if size < HEADER {
        return Err(truncated(0, HEADER, size, path));
    }
    if !MAGIC.iter().any(|magic| bytes.starts_with(*magic)) {
        return Err(invalid(format!("expected the magic bytes TEMD, found {:02x?}", &bytes[..4]), path)
            .with("offset", 0));
    }
    let version = number(bytes, 4);
    if version != VERSION {
        return Err(invalid(format!("expected version {VERSION}, found {version}"), path).with("offset", 4));
    }
    let (n, top_k) = (u64::from(number(bytes, 8)), u64::from(number(bytes, 12)));
    // Of each layer there is at least its number of features.
    if size - HEADER < 4 * n {
        return Err(truncated(HEADER, 4 * n, size, path).with("field", "layers"));
    }
    if n > MAX_LAYERS as u64 {
        return Err(
            invalid(format!("expected at most {MAX_LAYERS} layers, found {n}"), path).with("offset", 8)
        );
    }
    let record = PAIR as u64 * (top_k + 1);
    let mut layers = Vec::with_capacity(n as usize);
    let mut at = HEADER;
    for layer in 0..n {
        if size - at < 4 {
            return Err(truncated(at, 4, size, path).with("layer", layer));
        }
        let features = u64::from(number(bytes, at as usize));
        let len = features.saturating_mul(record);
        at += 4;
        if size - at < len {
            return Err(truncated(at, len, size, path).with("layer", layer));
        }
        layers.push(at as usize..(at + len) as usize);
        at += len;
    }
    if at < size {
        return Err(invalid(format!("expected the file's end, found {} bytes more", size - at), path)
            .with("offset", at));
    }
    Ok((top_k as usize, layers))
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "_header")]
    header: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Record {
    #[serde(alias = "l")]
    layer: u32,
    #[serde(alias = "f")]
    feature: u32,
    #[serde(alias = "i", default)]
    top_token_id: u32,
    #[serde(alias = "c", default)]
    c_score: f32,
    #[serde(alias = "k", default)]
    top_k: Vec<Scored>,
}

#[derive(Deserialize)]
struct Scored {
    #[serde(alias = "i")]
    token_id: u32,
    #[serde(alias = "s")]
    logit: f32,
}

/// Writes a `down_meta.bin`, a feature at a time in their order.
#[derive(Debug)]
pub(crate) struct DownMetaWriter<W> {
    to: W,
    top_k: usize,
    /// Layers and features of a layer that are yet to come.
    layers: u32,
    features: u32,
    record: Vec<u8>,
}

impl<W: Write> DownMetaWriter<W> {
    /// Writes the header. Features will have at most `top_k` tokens.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for numbers beyond 32 bits; [`ErrorKind::FileIo`], as below.
    pub(crate) fn new(mut to: W, num_layers: usize, top_k: usize) -> Result<Self> {
        let (layers, k) = (count(num_layers, "layers")?, count(top_k, "top_k")?);
        let header = [*MAGIC[0], VERSION.to_le_bytes(), layers.to_le_bytes(), k.to_le_bytes()];
        to.write_all(header.as_flattened()).map_err(failed)?;
        Ok(Self { to, top_k, layers, features: 0, record: Vec::new() })
    }

    /// Tokens of a feature, at most.
    pub(crate) fn top_k(&self) -> usize {
        self.top_k
    }

    /// Begins the next layer. One without features counts as absent.
    pub(crate) fn layer(&mut self, num_features: usize) -> Result<()> {
        if self.features > 0 || self.layers == 0 {
            return Err(out_of_order());
        }
        self.features = count(num_features, "features")?;
        self.layers -= 1;
        self.to.write_all(&self.features.to_le_bytes()).map_err(failed)
    }

    /// Writes the next feature's tokens and their scores, falling; none where it has no tokens.
    pub(crate) fn feature(&mut self, tokens: &[(u32, f32)]) -> Result<()> {
        if self.features == 0 || tokens.len() > self.top_k {
            return Err(out_of_order());
        }
        self.features -= 1;
        self.record.clear();
        for (token, score) in tokens.first().into_iter().chain(tokens) {
            self.record.extend(token.to_le_bytes());
            self.record.extend(score.to_le_bytes());
        }
        self.record.resize(record_bytes(self.top_k), 0);
        self.to.write_all(&self.record).map_err(failed)
    }

    /// Ends the file, all of whose layers have been written; they may still be in the writer's buffer.
    pub(crate) fn finish(self) -> Result<W> {
        if self.features > 0 || self.layers > 0 {
            return Err(out_of_order());
        }
        Ok(self.to)
    }
}

fn count(n: usize, field: &'static str) -> Result<u32> {
    u32::try_from(n).map_err(|e| {
        Error::new(ErrorKind::InvalidArgument, format!("expected a number of 32 bits, found {n}"))
            .with("field", field)
            .with_source(e)
    })
}

fn failed(error: std::io::Error) -> Error {
    Error::new(ErrorKind::FileIo, "cannot write what features write")
        .with_source(error)
        .with_hint("check the disk's space")
}

fn out_of_order() -> Error {
    Error::new(ErrorKind::Internal, "layers or features were not written as they were announced")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Vec<u8> {
        let mut writer = DownMetaWriter::new(Vec::new(), 3, 2).unwrap();
        writer.layer(2).unwrap();
        writer.feature(&[(7, 2.5), (3, -1.0)]).unwrap();
        writer.feature(&[]).unwrap();
        writer.layer(0).unwrap();
        writer.layer(1).unwrap();
        writer.feature(&[(0, 0.5)]).unwrap();
        writer.finish().unwrap()
    }

    fn tokens(tokens: &[(u32, f32)]) -> FeatureTokens {
        FeatureTokens {
            top_token: TokenId(tokens[0].0),
            c_score: tokens[0].1,
            tokens: tokens.iter().map(|(token, score)| (TokenId(*token), *score)).collect(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = file();
        assert_eq!(bytes.len(), 16 + 3 * 4 + 3 * (8 + 2 * 8));
        assert_eq!(&bytes[..4], b"TEMD");
        let mut old = bytes.clone();
        old[..4].copy_from_slice(b"DMET");
        for bytes in [bytes, old] {
            let meta = DownMeta::parse(bytes, Path::new("down_meta.bin")).unwrap();
            assert_eq!((meta.top_k(), meta.num_layers()), (2, 3));
            assert_eq!([0, 1, 2, 3].map(|layer| meta.num_features(layer)), [2, 0, 1, 0]);
            assert_eq!(meta.feature(0, 0), Some(tokens(&[(7, 2.5), (3, -1.0)])));
            assert_eq!(meta.feature(2, 0), Some(tokens(&[(0, 0.5)])));
            for (layer, feature) in [(0, 1), (0, 2), (1, 0), (2, 1), (3, 0), (usize::MAX, usize::MAX)] {
                assert_eq!(meta.feature(layer, feature), None);
            }
        }
    }

    #[test]
    fn no_token_with_a_score_of_zero_is_one() {
        let mut writer = DownMetaWriter::new(Vec::new(), 1, 3).unwrap();
        writer.layer(1).unwrap();
        writer.feature(&[(5, 1.0), (0, 0.0), (2, -1.0)]).unwrap();
        let meta = DownMeta::parse(writer.finish().unwrap(), Path::new("down_meta.bin")).unwrap();
        assert_eq!(meta.feature(0, 0), Some(tokens(&[(5, 1.0), (2, -1.0)])));
    }

    #[test]
    fn layers_and_features_are_as_announced() {
        let mut writer = DownMetaWriter::new(Vec::new(), 2, 1).unwrap();
        assert_eq!(writer.feature(&[]).unwrap_err().kind(), ErrorKind::Internal);
        writer.layer(1).unwrap();
        assert_eq!(writer.layer(1).unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(writer.feature(&[(1, 1.0); 2]).unwrap_err().kind(), ErrorKind::Internal);
        writer.feature(&[(1, 1.0)]).unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Internal);
    }

    #[test]
    fn lines_are_read_in_both_spellings() {
        let text = br#"{"_header": true, "dimension": 4}

{"layer": 1, "feature": 2, "top_token": "a", "top_token_id": 7, "c_score": 2.5, "top_k": [{"token": "a", "token_id": 7, "logit": 2.5}, {"token": "b", "token_id": 3, "logit": -1}]}
{"l": 3, "f": 0, "t": "c", "i": 4, "c": 0.5, "k": [{"t": "c", "i": 4, "s": 0.5}]}
"#;
        let meta = DownMeta::parse_lines(text, Path::new("down_meta.jsonl")).unwrap();
        assert_eq!((meta.top_k(), meta.num_layers()), (2, 4));
        assert_eq!([0, 1, 2, 3].map(|layer| meta.num_features(layer)), [0, 3, 0, 1]);
        assert_eq!(meta.feature(1, 2), Some(tokens(&[(7, 2.5), (3, -1.0)])));
        assert_eq!(meta.feature(3, 0), Some(tokens(&[(4, 0.5)])));
        assert_eq!(meta.feature(1, 1), None);
        for wrong in
            ["{", "[]", "{\"layer\": 1}", "{\"l\": -1, \"f\": 0}", "{\"l\": 0, \"f\": 0, \"i\": 4294967296}"]
        {
            let error = DownMeta::parse_lines(wrong.as_bytes(), Path::new("down_meta.jsonl")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CheckpointInvalid, "{wrong}");
            assert!(error.to_string().contains("down_meta.jsonl"), "{error}");
        }
    }
}
