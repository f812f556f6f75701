//! Which facts of a card does a GGUF header hold? Read as the reference reads it: from as little of the file as
//! tells them.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::weights::gguf::{GgufMetadata, GgufValue, HeaderScan};

const ARCHITECTURE: &str = "general.architecture";
const LAYERS: &str = "block_count";
const WIDTH: &str = "embedding_length";
const KV_HEADS: &str = "attention.head_count_kv";
const CONTEXT: &str = "context_length";

/// What the first key-values of a GGUF file say that a card needs.
///
/// As `read_gguf_structural_fields` of Skulk 1.3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GgufFacts {
    /// The family as the file spells it.
    pub architecture: String,
    /// Decoder layers; at least 1.
    pub n_layers: usize,
    /// Width of the residual stream; at least 1.
    pub hidden_size: usize,
    /// Key/value heads; `None` where the file gives none, or one for each layer.
    pub num_key_value_heads: Option<usize>,
    /// Positions it was trained for, in tokens; 0: unknown.
    pub context_length: i64,
}

impl GgufFacts {
    /// Reads the start of a GGUF file: all of it, or as much as was fetched. Stops where everything is known; at the
    /// tokenizer's part, which comes last and is large, what is still missing is taken for absent.
    ///
    /// # Errors
    /// [`ErrorKind::CheckpointInvalid`] when it is no GGUF file of version 2 or 3 or has values of unknown types,
    /// [`ErrorKind::CheckpointTruncated`] when the bytes end too early, [`ErrorKind::ConfigInvalid`] when the header
    /// does not tell family, layers and width.
    pub fn read(start: &[u8]) -> Result<Self> {
        let mut scan = HeaderScan::new(start, Path::new(""))?;
        let mut seen = Seen::default();
        while let Some(key) = scan.key()? {
            if key.starts_with("tokenizer.") && seen.has(&[LAYERS, WIDTH]) {
                break;
            }
            match scan.value()? {
                Some(GgufValue::Str(text)) if key == ARCHITECTURE => seen.architecture = Some(text),
                value => seen.numbers.extend(value.and_then(whole).map(|number| (key, number))),
            }
            if seen.has(&[LAYERS, WIDTH, KV_HEADS, CONTEXT]) {
                break;
            }
        }
        Self::new(seen.architecture, |key| seen.numbers.get(key).copied())
    }

    /// The same from a header that was read whole.
    ///
    /// # Errors
    /// [`ErrorKind::ConfigInvalid`] when it does not tell family, layers and width.
    pub fn from_metadata(metadata: &GgufMetadata) -> Result<Self> {
        let architecture = match metadata.get(ARCHITECTURE) {
            Some(GgufValue::Str(text)) => Some(text),
            _ => None,
        };
        Self::new(architecture, |key| whole(metadata.get(key)?))
            .map_err(|e| e.with("file", metadata.file().display()))
    }

    fn new(architecture: Option<&str>, number: impl Fn(&str) -> Option<i128>) -> Result<Self> {
        let architecture = architecture
            .ok_or_else(|| invalid(ARCHITECTURE, "expected the model's family, found none".to_owned()))?;
        // Zero says as little as silence.
        let number = |key: &str| number(&format!("{architecture}.{key}")).filter(|&n| n != 0);
        let size = |key: &str| {
            let fits = |n: i128| {
                usize::try_from(n).map_err(|_| {
                    invalid(&format!("{architecture}.{key}"), format!("expected at least 1, found {n}"))
                })
            };
            number(key).map(fits).transpose()
        };
        let required = |key: &str| {
            let field = format!("{architecture}.{key}");
            size(key)?
                .ok_or_else(|| invalid(&field, "expected a number of at least 1, found none".to_owned()))
        };
        Ok(Self {
            n_layers: required(LAYERS)?,
            hidden_size: required(WIDTH)?,
            num_key_value_heads: size(KV_HEADS)?,
            context_length: number(CONTEXT).map_or(0, |n| i64::try_from(n).unwrap_or(i64::MAX)),
            architecture: architecture.to_owned(),
        })
    }
}

/// An integer; floats and booleans count for nothing, and lists neither.
fn whole(value: GgufValue<'_>) -> Option<i128> {
    match value {
        GgufValue::U64(number) => Some(number.into()),
        GgufValue::I64(number) => Some(number.into()),
        _ => None,
    }
}

/// What a scan has come across.
#[derive(Default)]
struct Seen<'a> {
    architecture: Option<&'a str>,
    numbers: BTreeMap<&'a str, i128>,
}

impl Seen<'_> {
    fn has(&self, keys: &[&str]) -> bool {
        let of_family = |architecture: &str, key: &&str| {
            self.numbers.contains_key(format!("{architecture}.{key}").as_str())
        };
        self.architecture.is_some_and(|architecture| keys.iter().all(|key| of_family(architecture, key)))
    }
}

fn invalid(field: &str, message: String) -> Error {
    Error::new(ErrorKind::ConfigInvalid, message)
        .with("field", field)
        .with_hint("convert the model again with a current tool")
}
