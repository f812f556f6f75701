//! How does Node.js reach the library? The native module behind `lib/`: handles, jobs and functions that take and give
//! JSON; everything that decides anything is in `skulk-core`.

pub mod chat;
pub mod embed;
pub mod error;
pub mod generation;
pub mod job;
pub mod library;
pub mod model;
pub mod placement;
mod running;
pub mod server;
pub mod session;
pub mod tools;
pub mod vindex;

use napi_derive::napi;
use skulk_contract::functions::{self, Arguments, Work};
use skulk_contract::options::{self, Spelling};

use crate::error::raise;
use crate::job::{Answer, CancelToken, Tell};

/// The library's version.
#[napi(catch_unwind)]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// What is wrong, as JSON, where an option was given that is none of these.
#[napi(catch_unwind)]
pub fn misnamed(given: Vec<String>, names: Vec<String>) -> Option<String> {
    options::expect_among(given.iter(), &names).err().map(|error| functions::failure(&error))
}

/// Calls a function of the contract with arguments as JSON, and gives JSON.
#[napi(catch_unwind)]
pub fn call(name: String, arguments: String) -> napi::Result<String> {
    arguments_of(&arguments)
        .and_then(|mut arguments| functions::call(&name, &mut arguments, &Work::default()))
        .map_err(raise)
}

/// The same on a thread of its own.
#[napi(catch_unwind)]
pub fn start(name: String, arguments: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
    job::start(&tell, token, move |work| {
        functions::call(&name, &mut arguments_of(&arguments)?, &work).map(Answer::Json)
    })
}

fn arguments_of(text: &str) -> skulk::Result<Arguments> {
    Arguments::new(text, Spelling::Camel)
}
