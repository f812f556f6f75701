//! What makes tokens of words?

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::ser::Error;
use serde::{Serialize, Serializer};
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::{
    DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Result, Token, TokenizerImpl,
};

use super::bpe::Bpe;

/// The crate's tokenizer with one of these.
pub(super) type Inner =
    TokenizerImpl<Vocabulary, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

/// A model, as the `tokenizers` crate calls it. `bpe/json.rs` reads it from a `tokenizer.json`.
pub(super) enum Vocabulary {
    Crate(ModelWrapper),
    Bpe(Bpe),
}

impl Vocabulary {
    /// Whether characters may become nothing: there is no unknown token for those that are no tokens and whose bytes are none.
    pub(super) fn drops(&self) -> bool {
        match self {
            Self::Crate(ModelWrapper::BPE(model)) => model.unk_token.is_none(),
            Self::Crate(_) => false,
            Self::Bpe(bpe) => bpe.options.unk_token.is_none(),
        }
    }

    /// One past the highest id.
    pub(super) fn size(&self) -> usize {
        match self {
            // Ids may have holes.
            Self::Crate(model) => model.get_vocab().values().max().map_or(0, |&id| id as usize + 1),
            Self::Bpe(bpe) => bpe.texts.count(),
        }
    }
}

impl Model for Vocabulary {
    // Nothing is trained.
    type Trainer = BpeTrainer;

    fn tokenize(&self, word: &str) -> Result<Vec<Token>> {
        match self {
            Self::Crate(model) => model.tokenize(word),
            Self::Bpe(bpe) => bpe.tokenize(word),
        }
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        match self {
            Self::Crate(model) => model.token_to_id(token),
            Self::Bpe(bpe) => bpe.texts.get(token),
        }
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        match self {
            Self::Crate(model) => model.id_to_token(id),
            Self::Bpe(bpe) => {
                let text = bpe.texts.text(id).filter(|_| !bpe.texts.duplicates.contains_key(&id));
                text.map(str::to_owned)
            }
        }
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        match self {
            Self::Crate(model) => model.get_vocab(),
            Self::Bpe(bpe) => bpe.texts.iter().map(|(id, text)| (text.to_owned(), id)).collect(),
        }
    }

    fn get_vocab_size(&self) -> usize {
        match self {
            Self::Crate(model) => model.get_vocab_size(),
            Self::Bpe(bpe) => bpe.texts.len(),
        }
    }

    fn save(&self, folder: &Path, name: Option<&str>) -> Result<Vec<PathBuf>> {
        match self {
            Self::Crate(model) => model.save(folder, name),
            Self::Bpe(bpe) => bpe.whole()?.save(folder, name),
        }
    }

    fn get_trainer(&self) -> BpeTrainer {
        BpeTrainer::default()
    }
}

impl Serialize for Vocabulary {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Crate(model) => model.serialize(serializer),
            Self::Bpe(bpe) => bpe.whole().map_err(S::Error::custom)?.serialize(serializer),
        }
    }
}

impl<M: Into<ModelWrapper>> From<M> for Vocabulary {
    fn from(model: M) -> Self {
        Self::Crate(model.into())
    }
}
