//! How does Swift open vindex folders, and ask about them? What is behind `VindexReader`.

use std::path::PathBuf;
use std::sync::Arc;

use skulk::Checkpoint;
use skulk_contract::Vocabulary;
use skulk_contract::folders::{self, Folder};
use skulk_contract::functions::write;

use crate::call::arguments;
use crate::convert::{float_bytes, id_bytes, token_ids, unsigned};
use crate::error::Answer;
use crate::handle::Handle;
use crate::work::{RawCancel, RawProgress, run, work};

/// What is behind a `VindexReader`.
#[derive(uniffi::Object)]
pub struct RawVindex(Handle<Arc<Folder>>);

/// What is found.
#[derive(uniffi::Enum)]
pub enum RawFound {
    /// Data, as JSON.
    Json {
        /// The text.
        text: String,
    },
    /// Numbers, as floats, or bytes as they are stored.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
    },
}

#[uniffi::export]
impl RawVindex {
    /// Opens a folder.
    #[uniffi::constructor]
    pub fn open(path: String, threads: Option<i64>) -> Answer<Arc<Self>> {
        let threads = threads.map(|n| unsigned("threads", n)).transpose()?;
        let folder = Folder::open(PathBuf::from(path), threads)?;
        Ok(Arc::new(Self(Handle::new("vindex folder", Arc::new(folder)))))
    }

    /// What was read when it was opened, as JSON.
    pub fn facts(&self) -> Answer<String> {
        Ok(self.0.get()?.facts()?)
    }

    /// Where it is.
    pub fn path(&self) -> Answer<String> {
        Ok(self.0.get()?.reader().path().display().to_string())
    }

    /// Answers a question, on a thread of its own.
    pub async fn ask(
        &self,
        name: String,
        given: String,
        cancel: Arc<RawCancel>,
        progress: Option<Arc<dyn RawProgress>>,
    ) -> Answer<RawFound> {
        let (folder, work) = (self.0.get()?, work(&cancel, progress));
        let found = run(move || folder.ask(&name, &mut arguments(&given)?, &work)).await?;
        Ok(match found {
            folders::Answer::Json(text) => RawFound::Json { text },
            folders::Answer::Floats(floats) => RawFound::Bytes { bytes: float_bytes(&floats) },
            folders::Answer::Bytes(bytes) => RawFound::Bytes { bytes },
        })
    }

    /// What does not change of the folder's tokenizer, as JSON.
    pub fn tokenizer(&self) -> Answer<String> {
        Ok(write(&Vocabulary::from(self.0.get()?.browser()?.tokenizer()?))?)
    }

    /// The tokens of a text.
    pub fn encode(&self, text: String, add_special: bool) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.0.get()?.browser()?.tokenizer()?.encode(&text, add_special)?))
    }

    /// The tokens of a text, in which texts of special tokens stay text.
    pub fn encode_text(&self, text: String) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.0.get()?.browser()?.tokenizer()?.encode_text(&text)?))
    }

    /// The text of tokens.
    pub fn decode(&self, ids: Vec<u8>, skip_special: bool) -> Answer<String> {
        let ids = token_ids("ids", &ids)?;
        Ok(self.0.get()?.browser()?.tokenizer()?.decode(&ids, skip_special))
    }

    /// Lets go of it.
    pub fn close(&self) {
        self.0.close();
    }
}
