//! How does Node.js make vectors of texts? What is behind `EmbeddingModel`.

use std::path::PathBuf;
use std::sync::Arc;

use napi_derive::napi;
use skulk::embed;
use skulk_contract::EmbeddingFacts;
use skulk_contract::functions::write;
use skulk_contract::options::{EmbedOptions, EmbeddingOptions};

use crate::arguments_of;
use crate::error::{open, raise};
use crate::job::{self, Answer, CancelToken, Tell};
use crate::model::{decode, encode, encode_text, vocabulary};

/// A model that makes vectors of texts.
#[napi]
pub struct EmbeddingModel(Option<Arc<embed::EmbeddingModel>>);

/// Loads a folder.
#[napi(catch_unwind)]
pub fn load_embedding_model(arguments: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
    job::start(&tell, token, move |_| {
        let mut given = arguments_of(&arguments)?;
        let path: PathBuf = given.take("path")?;
        let (options, spelling) = given.options()?;
        let model = embed::EmbeddingModel::open(path, &EmbeddingOptions::read(options, spelling)?)?;
        Ok(Answer::Embedding(Arc::new(model)))
    })
}

impl EmbeddingModel {
    pub(crate) fn new(model: Arc<embed::EmbeddingModel>) -> Self {
        Self(Some(model))
    }

    fn get(&self) -> napi::Result<&Arc<embed::EmbeddingModel>> {
        open(&self.0, "embedding model")
    }
}

#[napi]
impl EmbeddingModel {
    /// All facts about it, as JSON.
    #[napi(catch_unwind)]
    pub fn facts(&self) -> napi::Result<String> {
        write(&EmbeddingFacts::from(&**self.get()?)).map_err(raise)
    }

    /// The vectors of texts, behind each other.
    #[napi(catch_unwind)]
    pub fn embed(
        &self,
        texts: Vec<String>,
        arguments: String,
        token: &CancelToken,
        tell: Tell<'_>,
    ) -> napi::Result<()> {
        let model = Arc::clone(self.get()?);
        job::in_turn(&tell, token, move |work| {
            let (options, spelling) = arguments_of(&arguments)?.options()?;
            let options = EmbedOptions::read(options, spelling)?.cancel(work.cancel);
            Ok(Answer::Floats(model.embed_with(&texts, &options)?.concat()))
        })
    }

    /// The tokens of a text.
    #[napi(catch_unwind)]
    pub fn encode(&self, text: String, add_special: bool) -> napi::Result<Vec<u32>> {
        encode(self.get()?.tokenizer(), &text, add_special)
    }

    /// The tokens of a text, in which texts of special tokens stay text.
    #[napi(catch_unwind)]
    pub fn encode_text(&self, text: String) -> napi::Result<Vec<u32>> {
        encode_text(self.get()?.tokenizer(), &text)
    }

    /// The text of tokens.
    #[napi(catch_unwind)]
    pub fn decode(&self, ids: Vec<u32>, skip_special: bool) -> napi::Result<String> {
        Ok(decode(self.get()?.tokenizer(), ids, skip_special))
    }

    /// What its tokenizer has, as JSON.
    #[napi(catch_unwind)]
    pub fn vocabulary(&self) -> napi::Result<String> {
        vocabulary(self.get()?.tokenizer())
    }

    /// Lets go of the model, once what is being embedded is done.
    #[napi(catch_unwind)]
    pub fn close(&mut self) {
        self.0 = None;
    }
}
