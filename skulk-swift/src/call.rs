//! How does Swift call the contract's functions, and ask libraries of cards? By name, with JSON both ways.

use std::sync::{Arc, Mutex, PoisonError};

use skulk::CardLibrary;
use skulk::card::GgufFacts;
use skulk_contract::folders::ask_library;
use skulk_contract::functions::{self, Arguments, Work, write};
use skulk_contract::options::Spelling;

use crate::error::Answer;
use crate::work::{RawCancel, RawProgress, run, work};

/// Arguments as Swift writes them.
pub(crate) fn arguments(text: &str) -> skulk::Result<Arguments> {
    Arguments::new(text, Spelling::Camel)
}

/// The library's version.
#[uniffi::export]
pub fn raw_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// What the start of a GGUF file says that a card needs, as JSON.
#[uniffi::export]
pub fn raw_gguf_facts(start: Vec<u8>) -> Answer<String> {
    Ok(write(&GgufFacts::read(&start)?)?)
}

/// Calls a function.
#[uniffi::export]
pub fn raw_call(name: String, given: String) -> Answer<String> {
    Ok(functions::call(&name, &mut arguments(&given)?, &Work::default())?)
}

/// The same on a thread of its own.
#[uniffi::export]
pub async fn raw_start(
    name: String,
    given: String,
    cancel: Arc<RawCancel>,
    progress: Option<Arc<dyn RawProgress>>,
) -> Answer<String> {
    let work = work(&cancel, progress);
    run(move || functions::call(&name, &mut arguments(&given)?, &work)).await
}

/// What is behind a `CardLibrary`.
#[derive(uniffi::Object)]
pub struct RawLibrary(Mutex<CardLibrary>);

#[uniffi::export]
impl RawLibrary {
    /// One with the built-in cards or without, and those of folders.
    #[uniffi::constructor]
    pub fn new(builtin: bool, folders: Vec<String>) -> Arc<Self> {
        let first = if builtin { CardLibrary::builtin() } else { CardLibrary::empty() };
        Arc::new(Self(Mutex::new(folders.into_iter().fold(first, CardLibrary::with_folder))))
    }

    /// Answers a question.
    pub fn ask(&self, name: String, given: String) -> Answer<String> {
        let mut library = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ask_library(&mut library, &name, &mut arguments(&given)?)?)
    }
}
