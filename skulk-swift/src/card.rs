//! How does Swift read and write cards, and what do they resolve to? What is behind `ModelCard`, `CardLibrary` and
//! `Profile`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use skulk::card::{self, Profile, ReasoningEffort, ReasoningRequest};
use skulk::{CardLibrary, ModelCard};
use skulk_contract::options::ProfileOptions;

use crate::convert::json;
use crate::error::{Answer, RawError, options, read};

/// The card that a text in JSON is.
pub(crate) fn card(text: &str) -> Answer<ModelCard> {
    Ok(ModelCard::from_json(text)?)
}

fn optional(text: Option<String>) -> Answer<Option<ModelCard>> {
    text.map(|text| card(&text)).transpose()
}

/// The card that a text in TOML or JSON is, as JSON.
#[uniffi::export]
pub fn raw_card_read(text: String, toml: bool) -> Answer<String> {
    let card = if toml { ModelCard::from_toml(&text) } else { ModelCard::from_json(&text) };
    Ok(card?.to_json())
}

/// The card in a file, as JSON.
#[uniffi::export]
pub fn raw_card_open(path: String) -> Answer<String> {
    Ok(ModelCard::open(path)?.to_json())
}

/// The card of a local checkpoint, as JSON.
#[uniffi::export]
pub fn raw_card_from_checkpoint(path: String) -> Answer<String> {
    Ok(ModelCard::from_checkpoint(path)?.to_json())
}

/// The canonical text of a card.
#[uniffi::export]
pub fn raw_card_text(of: String, toml: bool) -> Answer<String> {
    let card = card(&of)?;
    if toml { Ok(card.to_toml()?) } else { Ok(card.to_json()) }
}

/// Writes a card to a file.
#[uniffi::export]
pub fn raw_card_save(of: String, path: String) -> Answer<()> {
    Ok(card(&of)?.save(path)?)
}

/// The name of a card's file.
#[uniffi::export]
pub fn raw_card_file_name(of: String) -> Answer<String> {
    Ok(card(&of)?.file_name()?)
}

/// The JSON Schema of cards.
#[uniffi::export]
pub fn raw_card_schema() -> String {
    ModelCard::schema().to_owned()
}

/// What a card and an id resolve to, as JSON.
#[uniffi::export]
pub fn raw_profile_resolve(model_id: String, by: Option<String>, given: String) -> Answer<String> {
    let hints = options(&given, ProfileOptions::read)?;
    json(&Profile::resolve(&model_id, optional(by)?.as_ref(), &hints))
}

/// The profile to read requests by while nothing is known of the model, as JSON.
#[uniffi::export]
pub fn raw_profile_permissive() -> Answer<String> {
    json(&Profile::permissive())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
    supports_thinking: bool,
    supports_thinking_toggle: bool,
    default_reasoning_effort: String,
    disabled_reasoning_effort: String,
}

/// What a request for reasoning means, as JSON: by a profile.
#[uniffi::export]
pub fn raw_profile_reasoning(
    by: String,
    effort: Option<String>,
    enable_thinking: Option<bool>,
) -> Answer<String> {
    let by: Asked = read("profile", &by)?;
    let named = |field: &'static str, name: &str| -> Answer<ReasoningEffort> {
        name.parse().map_err(|e: skulk::Error| RawError::from(e.with("field", field)))
    };
    let mut profile = Profile::default();
    profile.supports_thinking = by.supports_thinking;
    profile.supports_thinking_toggle = by.supports_thinking_toggle;
    profile.default_reasoning_effort = named("defaultReasoningEffort", &by.default_reasoning_effort)?;
    profile.disabled_reasoning_effort = named("disabledReasoningEffort", &by.disabled_reasoning_effort)?;
    let mut request = ReasoningRequest::default();
    request.effort = effort.map(|effort| named("effort", &effort)).transpose()?;
    request.enable_thinking = enable_thinking;
    json(&profile.reasoning(request))
}

/// Whether a model is to be run as Gemma 4.
#[uniffi::export]
pub fn raw_is_gemma4_family(model_id: String, by: Option<String>) -> Answer<bool> {
    Ok(card::is_gemma4_family(&model_id, optional(by)?.as_ref()))
}

/// What is behind a `CardLibrary`.
#[derive(uniffi::Object)]
pub struct RawLibrary(Mutex<CardLibrary>);

impl RawLibrary {
    fn lock(&self) -> MutexGuard<'_, CardLibrary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[uniffi::export]
impl RawLibrary {
    /// One with the built-in cards or without, and those of folders.
    #[uniffi::constructor]
    pub fn new(builtin: bool, folders: Vec<String>) -> Arc<Self> {
        let first = if builtin { CardLibrary::builtin() } else { CardLibrary::empty() };
        Arc::new(Self(Mutex::new(folders.into_iter().fold(first, CardLibrary::with_folder))))
    }

    /// The ids of all cards, in order.
    pub fn ids(&self) -> Vec<String> {
        self.lock().iter().map(|card| card.model_id.clone()).collect()
    }

    /// The card of a model, as JSON.
    pub fn get(&self, model_id: String) -> Option<String> {
        self.lock().get(&model_id).map(ModelCard::to_json)
    }

    /// The file of a model's card.
    pub fn file(&self, model_id: String) -> Option<String> {
        self.lock().file(&model_id).map(|path| path.display().to_string())
    }

    /// The user's folders.
    pub fn folders(&self) -> Vec<String> {
        self.lock().folders().map(|path| path.display().to_string()).collect()
    }

    /// Why files are not among the cards: errors as JSON.
    pub fn problems(&self) -> Answer<String> {
        json(&self.lock().problems().iter().map(skulk_contract::Failure::from).collect::<Vec<_>>())
    }

    /// Searches the folders again.
    pub fn reload(&self) {
        self.lock().reload();
    }

    /// Searches one more folder.
    pub fn add_folder(&self, path: String) {
        self.lock().add_folder(path);
    }

    /// Writes a card into one of the folders.
    pub fn save(&self, folder: String, of: String) -> Answer<String> {
        Ok(self.lock().save(folder, &card(&of)?)?.display().to_string())
    }

    /// Deletes the file of a user's card.
    pub fn remove(&self, model_id: String) -> Answer<bool> {
        Ok(self.lock().remove(&model_id)?)
    }
}
