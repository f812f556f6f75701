//! How does Swift make vectors of texts? What is behind `EmbeddingModel`.

use std::sync::Arc;

use skulk::embed::EmbeddingModel;
use skulk_contract::EmbeddingFacts;
use skulk_contract::functions::write;
use skulk_contract::options::{EmbedOptions, EmbeddingOptions};

use crate::convert::{float_bytes, id_bytes, token_ids};
use crate::error::{Answer, options};
use crate::handle::Handle;
use crate::work::{RawCancel, run, run_in_turn};

/// What is behind an `EmbeddingModel`.
#[derive(uniffi::Object)]
pub struct RawEmbeddingModel(Handle<Arc<EmbeddingModel>>);

#[uniffi::export]
impl RawEmbeddingModel {
    /// Loads a folder.
    #[uniffi::constructor]
    pub async fn load(path: String, given: String) -> Answer<Arc<Self>> {
        let load = options(&given, EmbeddingOptions::read)?;
        let model = run(move || EmbeddingModel::open(path, &load)).await?;
        Ok(Arc::new(Self(Handle::new("embedding model", Arc::new(model)))))
    }

    /// What does not change, as JSON.
    pub fn facts(&self) -> Answer<String> {
        Ok(write(&EmbeddingFacts::from(&*self.0.get()?))?)
    }

    /// The vectors of texts, as floats behind each other.
    pub async fn embed(&self, texts: Vec<String>, given: String, cancel: Arc<RawCancel>) -> Answer<Vec<u8>> {
        let (model, embed) = (self.0.get()?, options(&given, EmbedOptions::read)?.cancel(cancel.0.clone()));
        run_in_turn(move || Ok(float_bytes(&model.embed_with(&texts, &embed)?.concat()))).await
    }

    /// The tokens of a text.
    pub fn encode(&self, text: String, add_special: bool) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.0.get()?.tokenizer().encode(&text, add_special)?))
    }

    /// The tokens of a text, in which texts of special tokens stay text.
    pub fn encode_text(&self, text: String) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.0.get()?.tokenizer().encode_text(&text)?))
    }

    /// The text of tokens.
    pub fn decode(&self, ids: Vec<u8>, skip_special: bool) -> Answer<String> {
        let ids = token_ids("ids", &ids)?;
        Ok(self.0.get()?.tokenizer().decode(&ids, skip_special))
    }

    /// Lets go of it, once what is being embedded is done.
    pub fn close(&self) {
        self.0.close();
    }
}
