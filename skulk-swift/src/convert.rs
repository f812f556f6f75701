//! How do numbers cross? Tokens and floats as little-endian bytes.

use skulk::{Prompt, TokenId};

use crate::error::{Answer, invalid};

/// A text, or tokens that are used as given.
#[derive(uniffi::Enum)]
pub enum RawPrompt {
    /// A text.
    Text {
        /// The text.
        text: String,
    },
    /// Tokens.
    Tokens {
        /// Their ids, 64 bits each.
        ids: Vec<u8>,
    },
}

impl RawPrompt {
    pub(crate) fn prompt(self) -> Answer<Prompt> {
        match self {
            Self::Text { text } => Ok(Prompt::Text(text)),
            Self::Tokens { ids } => token_ids("prompt", &ids).map(Prompt::Tokens),
        }
    }
}

/// Token ids of 64 bits each, as Swift's whole numbers have.
pub(crate) fn token_ids(field: &'static str, bytes: &[u8]) -> Answer<Vec<TokenId>> {
    let id = |value: i64| {
        let id = u32::try_from(value);
        id.map(TokenId).map_err(|_| {
            invalid(field, format!("expected a whole number from 0 to {}, found {value}", u32::MAX))
        })
    };
    bytes.as_chunks().0.iter().map(|bytes| id(i64::from_le_bytes(*bytes))).collect()
}

/// Token ids as bytes, 64 bits each.
pub(crate) fn id_bytes(ids: &[TokenId]) -> Vec<u8> {
    ids.iter().flat_map(|id| i64::from(id.0).to_le_bytes()).collect()
}

/// Floats as bytes.
pub(crate) fn float_bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    for (bytes, value) in bytes.chunks_exact_mut(size_of::<f32>()).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// A number that the library takes as an unsigned one; Swift's may be negative.
pub(crate) fn unsigned<T: TryFrom<i64>>(field: &'static str, value: i64) -> Answer<T> {
    T::try_from(value).map_err(|_| invalid(field, format!("expected 0 or more, found {value}")))
}
