//! How does Node.js read, browse and slice vindex folders? What is behind `VindexReader`.

use std::sync::Arc;

use napi_derive::napi;
use skulk_contract::folders::{self, Folder};

use crate::arguments_of;
use crate::error::{open, raise};
use crate::job::{self, Answer, CancelToken, Tell};
use crate::model::{decode, encode, encode_text, vocabulary};

/// An open folder.
#[napi]
pub struct Vindex(Option<Arc<Folder>>);

/// Opens a folder.
#[napi(catch_unwind)]
pub fn open_vindex(arguments: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
    job::start(&tell, token, move |_| {
        let mut given = arguments_of(&arguments)?;
        Folder::open(given.take("path")?, given.take("threads")?).map(Answer::Vindex)
    })
}

impl Vindex {
    pub(crate) fn new(folder: Folder) -> Self {
        Self(Some(Arc::new(folder)))
    }

    fn get(&self) -> napi::Result<&Arc<Folder>> {
        open(&self.0, "vindex folder")
    }
}

#[napi]
impl Vindex {
    /// What was read when it was opened, as JSON.
    #[napi(catch_unwind)]
    pub fn facts(&self) -> napi::Result<String> {
        self.get()?.facts().map_err(raise)
    }

    /// Answers a question of the contract.
    #[napi(catch_unwind)]
    pub fn ask(
        &self,
        name: String,
        arguments: String,
        token: &CancelToken,
        tell: Tell<'_>,
    ) -> napi::Result<()> {
        let folder = Arc::clone(self.get()?);
        job::start(&tell, token, move |work| {
            Ok(match folder.ask(&name, &mut arguments_of(&arguments)?, &work)? {
                folders::Answer::Json(text) => Answer::Json(text),
                folders::Answer::Floats(values) => Answer::Floats(values),
                folders::Answer::Bytes(bytes) => Answer::Bytes(bytes),
            })
        })
    }

    /// The tokens of a text.
    #[napi(catch_unwind)]
    pub fn encode(&self, text: String, add_special: bool) -> napi::Result<Vec<u32>> {
        let browser = self.get()?.browser().map_err(raise)?;
        encode(browser.tokenizer().map_err(raise)?, &text, add_special)
    }

    /// The tokens of a text, in which texts of special tokens stay text.
    #[napi(catch_unwind)]
    pub fn encode_text(&self, text: String) -> napi::Result<Vec<u32>> {
        let browser = self.get()?.browser().map_err(raise)?;
        encode_text(browser.tokenizer().map_err(raise)?, &text)
    }

    /// The text of tokens.
    #[napi(catch_unwind)]
    pub fn decode(&self, ids: Vec<u32>, skip_special: bool) -> napi::Result<String> {
        let browser = self.get()?.browser().map_err(raise)?;
        Ok(decode(browser.tokenizer().map_err(raise)?, ids, skip_special))
    }

    /// What its tokenizer has, as JSON.
    #[napi(catch_unwind)]
    pub fn vocabulary(&self) -> napi::Result<String> {
        let browser = self.get()?.browser().map_err(raise)?;
        vocabulary(browser.tokenizer().map_err(raise)?)
    }

    /// Lets go of the folder.
    #[napi(catch_unwind)]
    pub fn close(&mut self) {
        self.0 = None;
    }
}
