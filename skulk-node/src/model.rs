//! How does Node.js load a model? What is behind `Model`.

use napi::bindgen_prelude::{Either, Function};
use napi_derive::napi;
use serde_json::json;
use skulk::{Prompt, TokenId, Tokenizer};
use skulk_contract::functions::write;
use skulk_contract::options::{self, GenerateOptions, LoadOptions, Spelling};
use skulk_contract::{ModelFacts, Outcome, SpeculationReport, Vocabulary};

use crate::arguments_of;
use crate::chat::conversation;
use crate::error::{open, raise};
use crate::job::{self, Answer, CancelToken, Tell};
use crate::placement::Placement;
use crate::session::Session;
use crate::tools::ToolSteps;

/// A model ready to generate.
#[napi]
pub struct Model(Option<skulk::Model>);

/// A text, or tokens that are used as given.
pub(crate) type Given = Either<String, Vec<u32>>;

/// Loads the checkpoint at a path.
#[napi(catch_unwind)]
pub fn load(
    arguments: String,
    placement: Option<&Placement>,
    token: &CancelToken,
    tell: Tell<'_>,
) -> napi::Result<()> {
    let placement = placement.map(|placement| placement.0.clone());
    job::start(&tell, token, move |work| {
        let mut given = arguments_of(&arguments)?;
        let path: std::path::PathBuf = given.take("path")?;
        let (options, spelling) = given.options()?;
        let mut options = LoadOptions::read(options, spelling)?;
        options.placement = placement;
        options.cancel = work.cancel;
        let options = options.progress(move |layers| {
            (work.progress)(json!({ "done": layers.done, "total": layers.total }).to_string());
        });
        skulk::Model::open(path, &options).map(Answer::Model)
    })
}

impl Model {
    pub(crate) fn new(model: skulk::Model) -> Self {
        Self(Some(model))
    }

    pub(crate) fn get(&self) -> napi::Result<&skulk::Model> {
        open(&self.0, "model")
    }
}

#[napi]
impl Model {
    /// All facts about it, as JSON.
    #[napi(catch_unwind)]
    pub fn facts(&self) -> napi::Result<String> {
        write(&ModelFacts::from(self.get()?)).map_err(raise)
    }

    /// What it holds of memory, as JSON.
    #[napi(catch_unwind)]
    pub fn memory(&self) -> napi::Result<String> {
        write(&self.get()?.memory()).map_err(raise)
    }

    /// An empty session.
    #[napi(catch_unwind)]
    pub fn session(&self) -> napi::Result<Session> {
        self.get()?.session().map(Session::new).map_err(raise)
    }

    /// A session that was saved.
    #[napi(catch_unwind)]
    pub fn restore(&self, path: String, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let model = self.get()?.clone();
        job::start(&tell, token, move |_| model.restore(path).map(Answer::Session))
    }

    /// The same checkpoint, placed otherwise.
    #[napi(catch_unwind)]
    pub fn replan(&self, placement: &Placement, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let (model, placement) = (self.get()?.clone(), placement.0.clone());
        job::start(&tell, token, move |work| model.replan_with(placement, work.cancel).map(Answer::Model))
    }

    /// Generates from many prompts: of each its output or its failure, as JSON.
    #[napi(catch_unwind)]
    pub fn generate_batch(
        &self,
        texts: Vec<Given>,
        arguments: String,
        token: &CancelToken,
        tell: Tell<'_>,
    ) -> napi::Result<()> {
        let model = self.get()?.clone();
        job::start(&tell, token, move |work| {
            let (options, spelling) = arguments_of(&arguments)?.options()?;
            let (mut options, append) = GenerateOptions::read(options, spelling)?;
            options.cancel = work.cancel;
            let prompts = texts.into_iter().map(|text| options::prompt(prompt(text), append));
            let prompts = prompts.collect::<skulk::Result<Vec<_>>>()?;
            write(&Outcome::all(&model.generate_batch(prompts, &options), Spelling::Camel)).map(Answer::Json)
        })
    }

    /// Logits behind every token of a text.
    #[napi(catch_unwind)]
    pub fn logits(&self, text: Given, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let (model, text) = (self.get()?.clone(), prompt(text));
        job::start(&tell, token, move |work| model.logits(text, &work.cancel).map(Answer::Floats))
    }

    /// How far its predictions are from another's, as JSON in which what is infinite is text.
    #[napi(catch_unwind)]
    pub fn divergence(
        &self,
        exact: &Model,
        text: Given,
        token: &CancelToken,
        tell: Tell<'_>,
    ) -> napi::Result<()> {
        let (model, exact, text) = (self.get()?.clone(), exact.get()?.clone(), prompt(text));
        job::start(&tell, token, move |work| {
            let found = model.divergence(&exact, text, &work.cancel)?;
            let [mean, max] = [found.mean_kl, found.max_kl].map(|kl| kl.to_string());
            let facts = json!({ "tokens": found.tokens, "meanKl": mean, "maxKl": max, "top1Agreement": found.top1_agreement });
            write(&facts).map(Answer::Json)
        })
    }

    /// Which way to compute tokens ahead is the fastest, as JSON.
    #[napi(catch_unwind)]
    pub fn tune_speculation(
        &self,
        texts: Vec<Given>,
        arguments: String,
        token: &CancelToken,
        tell: Tell<'_>,
    ) -> napi::Result<()> {
        let model = self.get()?.clone();
        job::start(&tell, token, move |work| {
            let (options, spelling) = arguments_of(&arguments)?.options()?;
            let (mut options, append) = GenerateOptions::read(options, spelling)?;
            options.cancel = work.cancel;
            let prompts = texts.into_iter().map(|text| options::prompt(prompt(text), append));
            let prompts = prompts.collect::<skulk::Result<Vec<_>>>()?;
            let report = model.tune_speculation(prompts, &options)?;
            write(&SpeculationReport::from(&report)).map(Answer::Json)
        })
    }

    /// Answers a conversation, and calls functions of JavaScript's.
    #[napi(catch_unwind)]
    pub fn chat_with_tools(
        &self,
        arguments: String,
        token: &CancelToken,
        wake: Function<'_, (), ()>,
    ) -> napi::Result<ToolSteps> {
        let (conversation, model) = (conversation(&arguments)?, self.get()?);
        ToolSteps::start(&wake, token.child(), |cancel| conversation.tools(model, cancel))
    }

    /// The prompt that messages become, as JSON.
    #[napi(catch_unwind)]
    pub fn render_chat(&self, arguments: String) -> napi::Result<String> {
        let (conversation, model) = (conversation(&arguments)?, self.get()?);
        conversation.render(model).and_then(|prompt| write(&prompt)).map_err(raise)
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

    /// Lets go of the model. What it was made of is freed with the last of its sessions and generations.
    #[napi(catch_unwind)]
    pub fn close(&mut self) {
        self.0 = None;
    }

    /// The same beside JavaScript: the result is there once all is freed that nothing else holds.
    #[napi(catch_unwind)]
    pub fn free(&mut self, token: &CancelToken, tell: Tell<'_>) -> napi::Result<()> {
        let model = self.0.take();
        job::start(&tell, token, move |_| {
            drop(model);
            Ok(Answer::Json("null".into()))
        })
    }
}

pub(crate) fn prompt(text: Given) -> Prompt {
    match text {
        Either::A(text) => Prompt::Text(text),
        Either::B(ids) => Prompt::Tokens(ids.into_iter().map(TokenId).collect()),
    }
}

pub(crate) fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

pub(crate) fn encode(tokenizer: &Tokenizer, text: &str, add_special: bool) -> napi::Result<Vec<u32>> {
    tokenizer.encode(text, add_special).map(|ids| numbers(&ids)).map_err(raise)
}

pub(crate) fn encode_text(tokenizer: &Tokenizer, text: &str) -> napi::Result<Vec<u32>> {
    tokenizer.encode_text(text).map(|ids| numbers(&ids)).map_err(raise)
}

pub(crate) fn decode(tokenizer: &Tokenizer, ids: Vec<u32>, skip_special: bool) -> String {
    let ids: Vec<_> = ids.into_iter().map(TokenId).collect();
    tokenizer.decode(&ids, skip_special)
}

pub(crate) fn vocabulary(tokenizer: &Tokenizer) -> napi::Result<String> {
    write(&Vocabulary::from(tokenizer)).map_err(raise)
}
