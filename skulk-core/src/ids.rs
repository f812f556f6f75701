//! Which layer, expert, token, sequence or engine is meant? Newtypes for what could be mixed up.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

index!(
    /// Zero-based index of a decoder layer within the whole model, whatever shard holds it.
    LayerIdx(usize)
);
index!(
    /// Zero-based index of an expert within its layer. A dense feed-forward block is expert 0.
    ExpertIdx(usize)
);
index!(
    /// Index of a token in the model's vocabulary.
    TokenId(u32)
);
index!(
    /// One sequence (one conversation's KV cache) inside a shard.
    SeqId(u64)
);

/// Names an engine, e.g. `cpu`. Placements refer to engines by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "String", inline))]
pub struct EngineId(Arc<str>);

impl EngineId {
    /// An id of this spelling.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The id's spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for EngineId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
