//! How does Node.js search cards? What is behind `CardLibrary`.

use napi_derive::napi;
use skulk::CardLibrary;
use skulk_contract::folders::ask_library;

use crate::arguments_of;
use crate::error::raise;

/// Cards by their model's id.
#[napi]
pub struct Library(CardLibrary);

#[napi]
impl Library {
    /// The built-in cards or none, and folders over them.
    #[napi(constructor, catch_unwind)]
    pub fn new(builtin: bool, folders: Vec<String>) -> Self {
        let first = if builtin { CardLibrary::builtin() } else { CardLibrary::empty() };
        Self(folders.into_iter().fold(first, CardLibrary::with_folder))
    }

    /// Answers a question of the contract.
    #[napi(catch_unwind)]
    pub fn ask(&mut self, name: String, arguments: String) -> napi::Result<String> {
        arguments_of(&arguments)
            .and_then(|mut arguments| ask_library(&mut self.0, &name, &mut arguments))
            .map_err(raise)
    }
}
