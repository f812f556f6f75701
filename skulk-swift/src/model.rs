//! How does Swift load a model? What is behind `Model` and `Tokenizer`.

use std::sync::Arc;

use skulk::Prompt;
use skulk_contract::functions::write;
use skulk_contract::options::{GenerateOptions, LoadOptions, Spelling};
use skulk_contract::{ModelFacts, Outcome, SpeculationReport};

use crate::chat::{RawChatStream, conversation};
use crate::convert::{RawPrompt, float_bytes, id_bytes, token_ids};
use crate::error::{Answer, options};
use crate::generation::RawGeneration;
use crate::handle::Handle;
use crate::plan::RawPlacement;
use crate::session::RawSession;
use crate::tools::RawToolSteps;
use crate::work::{RawCancel, RawProgress, run};

/// What is behind a `Model`.
#[derive(uniffi::Object)]
pub struct RawModel(pub(crate) Handle<skulk::Model>);

/// How far two models' predictions are apart.
#[derive(uniffi::Record)]
pub struct RawDivergence {
    /// Tokens that were compared.
    pub tokens: u64,
    /// As the library has it.
    pub mean_kl: f64,
    /// As the library has it.
    pub max_kl: f64,
    /// As the library has it.
    pub top1_agreement: f64,
}

#[uniffi::export]
impl RawModel {
    /// Loads a checkpoint.
    #[uniffi::constructor]
    pub async fn load(
        path: String,
        given: String,
        placement: Option<Arc<RawPlacement>>,
        cancel: Arc<RawCancel>,
        progress: Option<Arc<dyn RawProgress>>,
    ) -> Answer<Arc<Self>> {
        let mut load = options(&given, LoadOptions::read)?;
        load.placement = placement.map(|placement| placement.0.clone());
        load.cancel = cancel.0.clone();
        if let Some(progress) = progress {
            load = load.progress(move |layers| {
                progress.step(format!(r#"{{"done":{},"total":{}}}"#, layers.done, layers.total));
            });
        }
        let model = run(move || skulk::Model::open(path, &load)).await?;
        Ok(Arc::new(Self(Handle::new("model", model))))
    }

    /// What does not change, as JSON.
    pub fn facts(&self) -> Answer<String> {
        Ok(write(&ModelFacts::from(&self.0.get()?))?)
    }

    /// What is in memory of feed-forward weights, as JSON.
    pub fn ffn_memory(&self) -> Answer<Option<String>> {
        Ok(self.0.get()?.ffn_memory().map(|memory| write(&memory)).transpose()?)
    }

    /// What keys and values take, as JSON.
    pub fn kv_memory(&self) -> Answer<String> {
        Ok(write(&self.0.get()?.kv_memory())?)
    }

    /// What it holds of memory, as JSON.
    pub fn memory(&self) -> Answer<String> {
        Ok(write(&self.0.get()?.memory())?)
    }

    /// An empty session.
    pub fn session(&self) -> Answer<Arc<RawSession>> {
        Ok(RawSession::new(self.0.get()?.session()?))
    }

    /// A session that was saved.
    pub async fn restore(&self, path: String) -> Answer<Arc<RawSession>> {
        let model = self.0.get()?;
        Ok(RawSession::new(run(move || model.restore(path)).await?))
    }

    /// The same checkpoint, placed otherwise.
    pub async fn replan(&self, placement: Arc<RawPlacement>, cancel: Arc<RawCancel>) -> Answer<Arc<Self>> {
        let (model, placement, cancel) = (self.0.get()?, placement.0.clone(), cancel.0.clone());
        let model = run(move || model.replan_with(placement, cancel)).await?;
        Ok(Arc::new(Self(Handle::new("model", model))))
    }

    /// Generates in a session of its own, begun on another thread.
    pub fn generate(
        &self,
        prompt: RawPrompt,
        given: String,
        cancel: Option<Arc<RawCancel>>,
    ) -> Answer<Arc<RawGeneration>> {
        let model = self.0.get()?;
        let begin = move |prompt: Prompt, options| model.generate(prompt, options);
        Ok(RawGeneration::start(prompt, given, cancel, begin))
    }

    /// Answers a conversation in a session of its own.
    pub fn chat(&self, given: String, cancel: Option<Arc<RawCancel>>) -> Answer<Arc<RawChatStream>> {
        let model = self.0.get()?;
        Ok(RawChatStream::start(given, cancel, move |messages, options| model.chat(messages, options)))
    }

    /// Answers a conversation whose functions are called between its answers.
    pub fn chat_with_tools(&self, given: String, cancel: Arc<RawCancel>) -> Answer<Arc<RawToolSteps>> {
        Ok(RawToolSteps::start(self.0.get()?, given, &cancel))
    }

    /// The prompt that messages become, as JSON.
    pub fn render_chat(&self, given: String) -> Answer<String> {
        Ok(write(&conversation(&given)?.render(&self.0.get()?)?)?)
    }

    /// Generates from many prompts: of each its output or its failure, as JSON.
    pub async fn generate_batch(
        &self,
        prompts: Vec<RawPrompt>,
        given: String,
        cancel: Arc<RawCancel>,
    ) -> Answer<String> {
        let (mut given, append) = options(&given, GenerateOptions::read)?;
        given.cancel = cancel.0.clone();
        let prompt = |prompt: RawPrompt| Ok(skulk_contract::options::prompt(prompt.prompt()?, append)?);
        let prompts = prompts.into_iter().map(prompt).collect::<Answer<Vec<_>>>()?;
        let model = self.0.get()?;
        run(move || write(&Outcome::all(&model.generate_batch(prompts, &given), Spelling::Camel))).await
    }

    /// Which way to compute tokens ahead is the fastest, as JSON.
    pub async fn tune_speculation(
        &self,
        prompts: Vec<RawPrompt>,
        given: String,
        cancel: Arc<RawCancel>,
    ) -> Answer<String> {
        let (mut given, append) = options(&given, GenerateOptions::read)?;
        given.cancel = cancel.0.clone();
        let prompt = |prompt: RawPrompt| Ok(skulk_contract::options::prompt(prompt.prompt()?, append)?);
        let prompts = prompts.into_iter().map(prompt).collect::<Answer<Vec<_>>>()?;
        let model = self.0.get()?;
        run(move || write(&SpeculationReport::from(&model.tune_speculation(prompts, &given)?))).await
    }

    /// Logits behind every token, as floats.
    pub async fn logits(&self, prompt: RawPrompt, cancel: Arc<RawCancel>) -> Answer<Vec<u8>> {
        let (model, prompt) = (self.0.get()?, prompt.prompt()?);
        run(move || Ok(float_bytes(&model.logits(prompt, &cancel.0)?))).await
    }

    /// How far its predictions are from an exact model's.
    pub async fn divergence(
        &self,
        exact: Arc<RawModel>,
        prompt: RawPrompt,
        cancel: Arc<RawCancel>,
    ) -> Answer<RawDivergence> {
        let (model, exact, prompt) = (self.0.get()?, exact.0.get()?, prompt.prompt()?);
        let found = run(move || model.divergence(&exact, prompt, &cancel.0)).await?;
        Ok(RawDivergence {
            tokens: found.tokens as u64,
            mean_kl: found.mean_kl,
            max_kl: found.max_kl,
            top1_agreement: found.top1_agreement,
        })
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

    /// Lets go of it: sessions and generations that there are go on.
    pub fn close(&self) {
        self.0.close();
    }
}
