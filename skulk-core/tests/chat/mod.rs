//! Are conversations rendered as other people's software renders them, and can nobody forge a turn?

mod forging;
mod hostile;
mod renderers;
mod templates;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skulk::chat::{ChatTemplate, Json, Message};
use skulk::{TokenId, Tokenizer, open_checkpoint};

/// The suites of this name: the one in `tests/suites`, and that in the folder of `SKULK_EXTRA_SUITES` where it has one.
fn suites(name: &str) -> Vec<Json> {
    let own = crate::fixtures::root().join("tests/suites").join(name);
    let extra = std::env::var_os("SKULK_EXTRA_SUITES").map(|folder| PathBuf::from(folder).join(name));
    let files = [own].into_iter().chain(extra.filter(|file| file.exists()));
    files.map(|file| serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()).collect()
}

fn fields(json: &Json) -> &[(String, Json)] {
    let Json::Object(fields) = json else { panic!("no object: {json:?}") };
    fields
}

fn items(json: &Json) -> &[Json] {
    let Json::Array(items) = json else { panic!("no array: {json:?}") };
    items
}

fn messages(json: &Json) -> skulk::Result<Vec<Message>> {
    items(json).iter().map(|message| Message::try_from(message.clone())).collect()
}

/// When the suite's templates were rendered: 2026-11-22 09:30:15.
fn then() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_339_815)
}

fn tokenizer(folder: &Path) -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_checkpoint(&*open_checkpoint(folder).unwrap()).unwrap())
}

fn template(folder: &Path) -> Option<ChatTemplate> {
    ChatTemplate::from_checkpoint(&*open_checkpoint(folder).unwrap()).unwrap()
}

/// The special ones among tokens.
fn special(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Vec<TokenId> {
    tokens.iter().copied().filter(|&token| tokenizer.is_special(token)).collect()
}
