//! How does Python load a model? `skulk.Model`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use skulk::engine::Progress;
use skulk::{Error, ErrorKind, Prompt};
use skulk_contract::options::{GenerateOptions, LoadOptions};
use skulk_contract::{Arch, SpeculationReport};

use crate::cancel::CancelToken;
use crate::chat::{ChatStream, conversation};
use crate::convert;
use crate::error::{exception, raise};
use crate::floats::Floats;
use crate::given;
use crate::handle::Handle;
use crate::json::CONTRACT;
use crate::plan::Placement;
use crate::progress;
use crate::session::{self, Session, prompt_of, prompts_of};
use crate::tokenizer::{Owner, Tokenizer};
use crate::tools::ToolSteps;
use crate::wait::run;

/// A model ready to generate: its weights, split into stages. Made by `Model.load`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Model(pub(crate) Handle<skulk::Model>);

#[pymethods]
impl Model {
    /// Loads the checkpoint at `path`: a GGUF file or a Hugging Face folder of safetensors.
    ///
    /// `options` are those of `skulk.options.LoadOptions`. `placement` gives engines their numbers of layers, in order,
    /// as in `[("wgpu", 20), ("cpu", 12)]`, or is what `skulk.plan` made, instead of the options `engine` and `stages`.
    /// `progress` is called with the layers loaded so far and their total. `cancel` and Ctrl-C end loading within one
    /// layer.
    #[staticmethod]
    #[pyo3(signature = (path, *, placement=None, progress=None, cancel=None, **options), text_signature = "(path, *, stages=1, engine=None, placement=None, node='local', ffn_at=(), addresses=None, peer_key=None, peer_roots=None, peer_identity=None, peer_wire='f32', peer_rows_q8k=False, peer_timeout=30.0, ffn_on_cpu=False, ffn_budget=None, ffn_top_features=None, device_memory=None, threads=None, context=None, prefill_chunk=256, kv=None, kv_values=None, sessions=16, kv_memory=None, when_full='wait', precision='fast', memory='auto', screen_head=False, card=None, chat_template=None, draft_model=None, mtp=None, progress=None, cancel=None)")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        placement: Option<&Bound<'_, PyAny>>,
        progress: Option<Bound<'_, PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut options = given::options(options, LoadOptions::read)?;
        options.placement = placement.map(placement_of).transpose()?;
        let progress = progress::callback(progress, "loading", "layer")?;
        let load = |cancel, layers: Sender<_>| {
            options.cancel = cancel;
            // Nobody listens any more once the wait has ended with an exception.
            let options = options.progress(move |done| {
                let _ = layers.send(done);
            });
            skulk::Model::open(path, &options)
        };
        let report = |layers: Progress| match &progress {
            Some(progress) => progress.call1((layers.done, layers.total)).map(drop),
            None => Ok(()),
        };
        run(py, cancel, load, report).map(Handle::new).map(Self)
    }

    /// Which engine runs which layers, in words.
    #[getter]
    fn placement(&self) -> PyResult<String> {
        Ok(self.0.get()?.placement().to_string())
    }

    /// What each stage holds, in the order a token passes them.
    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        CONTRACT.many(py, "Stage", self.0.get()?.stages())
    }

    /// Facts about the architecture.
    #[getter]
    fn arch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "Arch", &Arch::from(self.0.get()?.arch()))
    }

    /// Positions a session can hold, in tokens.
    #[getter]
    fn context(&self) -> PyResult<usize> {
        Ok(self.0.get()?.context())
    }

    /// How long loading took, in seconds.
    #[getter]
    fn load_seconds(&self) -> PyResult<f64> {
        Ok(self.0.get()?.load_time().as_secs_f64())
    }

    /// The model's tokenizer.
    #[getter]
    fn tokenizer(&self) -> PyResult<Tokenizer> {
        Ok(Tokenizer(Owner::Model(self.0.get()?)))
    }

    /// What is in memory of feed-forward weights, where `ffn_budget` bounds that.
    #[getter]
    fn ffn_memory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.get()?.ffn_memory().map(|memory| CONTRACT.one(py, "FfnMemory", &memory)).transpose()
    }

    /// What keys and values of all sessions take now, and what is kept for those to come.
    #[getter]
    fn kv_memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "KvMemory", &self.0.get()?.kv_memory())
    }

    /// What the model holds of memory at present, and what its plan counted.
    #[getter]
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "ModelMemory", &self.0.get()?.memory())
    }

    /// How far this model's predictions are from an `exact` one's, behind every token of a text or of
    /// token ids: what `ffn_top_features` or quantised weights cost. `cancel` and Ctrl-C end it within one layer.
    #[pyo3(signature = (exact, text, *, cancel=None))]
    fn divergence<'py>(
        &self,
        py: Python<'py>,
        exact: &Bound<'_, Self>,
        text: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (model, exact, text) = (self.0.get()?, exact.get().0.get()?, prompt_of(text)?);
        let compare = |cancel, _silent: Sender<()>| model.divergence(&exact, text, &cancel);
        convert::divergence(py, &run(py, cancel, compare, |()| Ok(()))?)
    }

    /// Measures on these prompts which way to compute tokens ahead is the fastest, with options as in `generate`. `cancel`
    /// and Ctrl-C end it within one layer.
    #[pyo3(signature = (prompts, *, cancel=None, **options), text_signature = "($self, prompts, *, append=False, max_tokens=128, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, speculate='auto', draft_tokens=None, draft_tree=None, draft_texts=(), stop=(), json_schema=None, regex=None, grammar=None, response_format=None, ignore_eos=False, logprobs=None, priority=0, cancel=None)")]
    fn tune_speculation<'py>(
        &self,
        py: Python<'py>,
        prompts: &Bound<'py, PyAny>,
        cancel: Option<&Bound<'py, CancelToken>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let prompts = match prompts_of(prompts)? {
            Some(prompts) => prompts,
            None => vec![prompt_of(prompts)?],
        };
        let (mut options, append) = given::options(options, GenerateOptions::read)?;
        let prompts = prompts.into_iter().map(|prompt| skulk_contract::options::prompt(prompt, append));
        let prompts = prompts.collect::<skulk::Result<Vec<_>>>().map_err(raise)?;
        let model = self.0.get()?;
        let tune = |cancel, _silent: Sender<()>| {
            options.cancel = cancel;
            model.tune_speculation(prompts, &options)
        };
        let report = run(py, cancel, tune, |()| Ok(()))?;
        CONTRACT.one(py, "SpeculationReport", &SpeculationReport::from(&report))
    }

    /// Logits of the next token behind every token of a text or of token ids: an array of float32, `[tokens, vocab_size]`.
    /// `cancel` and Ctrl-C end it within one layer.
    #[pyo3(signature = (text, *, cancel=None))]
    fn logits<'py>(
        &self,
        py: Python<'py>,
        text: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arrays = py.import("skulk._arrays")?;
        arrays.call_method0("numpy")?;
        let (model, text) = (self.0.get()?, prompt_of(text)?);
        let compute = |cancel, _silent: Sender<()>| model.logits(text, &cancel);
        let logits = Floats::from(run(py, cancel, compute, |()| Ok(()))?);
        arrays.call_method1("floats", (logits,))?.call_method1("reshape", (-1, model.arch().vocab_size))
    }

    /// An empty session, which takes no memory yet. Any number may exist and generate at the same time.
    fn session(&self, py: Python<'_>) -> PyResult<Session> {
        let model = self.0.get()?;
        let session = py.detach(|| model.session()).map_err(raise)?;
        Ok(Session(Handle::new(Arc::new(session))))
    }

    /// A session as `Session.save` wrote it, to be gone on with. The file is not needed afterwards.
    fn restore(&self, py: Python<'_>, path: PathBuf) -> PyResult<Session> {
        let model = self.0.get()?;
        let session = py.detach(|| model.restore(path)).map_err(raise)?;
        Ok(Session(Handle::new(Arc::new(session))))
    }

    /// The same checkpoint, loaded with the same options but for the placement, which is as in `load`: what this model
    /// computed on machines that are lost is elsewhere there. Both exist while both are used. `cancel` and Ctrl-C end it within one layer.
    #[pyo3(signature = (placement, *, cancel=None))]
    fn replan(
        &self,
        py: Python<'_>,
        placement: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Self> {
        let (model, placement) = (self.0.get()?, placement_of(placement)?);
        let replan = |cancel, _silent: Sender<()>| model.replan_with(placement, cancel);
        run(py, cancel, replan, |()| Ok(())).map(Handle::new).map(Self)
    }

    /// Generates from a prompt in a session of its own. Arguments as in `Session.generate`, but for `append`.
    ///
    /// Of a list of prompts, each a text or token ids, it waits for all and returns a list of their outputs, in the order
    /// of the prompts; they share the steps. One that fails does not end the others. If `return_exceptions` is False (the
    /// default), the first exception is raised once all have ended. If it is True, exceptions are treated the same as
    /// outputs, and are in the list. `cancel` and Ctrl-C end all within one layer.
    #[pyo3(signature = (prompt, *, return_exceptions=false, cancel=None, **options), text_signature = "($self, prompt, *, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, speculate='auto', draft_tokens=None, draft_tree=None, draft_texts=(), stop=(), json_schema=None, regex=None, grammar=None, response_format=None, ignore_eos=False, logprobs=None, priority=0, return_exceptions=False, cancel=None)")]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        return_exceptions: bool,
        cancel: Option<&Bound<'py, CancelToken>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(prompts) = prompts_of(prompt)? {
            return self.generate_batch(py, prompts, return_exceptions, cancel, options);
        }
        if return_exceptions {
            let error =
                Error::new(ErrorKind::InvalidArgument, "expected a list of prompts, found one prompt")
                    .with("field", "return_exceptions")
                    .with_hint("one prompt's exceptions are raised where its events are read");
            return Err(raise(error));
        }
        let model = self.0.get()?;
        let begin = |prompt, options| model.generate(prompt, options);
        let generation = session::begin(py, prompt, cancel, options, begin)?;
        Ok(Bound::new(py, generation)?.into_any())
    }

    /// Answers a conversation in a session of its own: the model's profile says how messages become its prompt and what
    /// its answer consists of. Arguments as in `Session.chat`.
    #[pyo3(signature = (messages, *, cancel=None, **options), text_signature = "($self, messages, *, tools=(), reasoning=None, documents=(), variables=None, template=None, now=None, trust_messages=False, reasoning_budget=None, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, speculate='auto', draft_tokens=None, draft_tree=None, draft_texts=(), stop=(), json_schema=None, regex=None, grammar=None, response_format=None, ignore_eos=False, priority=0, cancel=None)")]
    fn chat(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        cancel: Option<&Bound<'_, CancelToken>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<ChatStream> {
        self.session(py)?.chat(py, messages, cancel, options)
    }

    /// Answers a conversation, and calls these functions, until the model calls none any more.
    ///
    /// `tools` are functions, whose signatures and docstrings the model is told, or pairs of what it is told and a
    /// function. There are `max_rounds` answers at most; calls of the last one get no results. A function that fails is
    /// told to the model; with `on_tool_failure='end'` the conversation ends with `ToolFailedError`. Functions run on the
    /// thread that reads. Everything else is as in `chat`.
    #[pyo3(signature = (messages, *, cancel=None, **options), text_signature = "($self, messages, *, tools=(), max_rounds=8, on_tool_failure='tell', reasoning=None, documents=(), variables=None, template=None, now=None, trust_messages=False, reasoning_budget=None, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, speculate='auto', draft_tokens=None, draft_tree=None, draft_texts=(), stop=(), json_schema=None, regex=None, grammar=None, response_format=None, ignore_eos=False, priority=0, cancel=None)")]
    fn chat_with_tools<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        cancel: Option<&Bound<'py, CancelToken>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let chat = py.import("skulk._chat")?;
        let (options, functions): (Bound<'_, PyDict>, Bound<'_, PyAny>) =
            chat.call_method1("toolbox", (options,))?.extract()?;
        let conversation = conversation(messages, Some(&options))?;
        let (model, cancel) = (self.0.get()?, CancelToken::child(cancel));
        let steps = py.detach(|| conversation.tools(&model, cancel.clone())).map_err(raise)?;
        chat.call_method1("ToolChat", (ToolSteps::new(steps, cancel), functions))
    }

    /// The prompt that messages become, with its tokens. Arguments as in `chat`.
    #[pyo3(signature = (messages, **options), text_signature = "($self, messages, *, tools=(), reasoning=None, documents=(), variables=None, template=None, now=None, trust_messages=False)")]
    fn render_chat<'py>(
        &self,
        py: Python<'py>,
        messages: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (conversation, model) = (conversation(messages, options)?, self.0.get()?);
        CONTRACT.one(py, "ChatPrompt", &py.detach(|| conversation.render(&model)).map_err(raise)?)
    }

    /// Lets go of the model; used afterwards, it raises `InvalidArgumentError`. Its sessions, and what they generate, go on.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.0.close(py);
    }

    fn __repr__(&self) -> String {
        let Ok(model) = self.0.get() else { return "<skulk.Model: closed>".into() };
        let (arch, context, stages) = (model.arch(), model.context(), model.stages().len());
        format!(
            "<skulk.Model {}: {} layers in {stages} stages, context {context}>",
            arch.family,
            arch.n_layers()
        )
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("skulk._notebook")?.call_method1("table", (slf,))
    }
}

impl Model {
    fn generate_batch<'py>(
        &self,
        py: Python<'py>,
        prompts: Vec<Prompt>,
        return_exceptions: bool,
        cancel: Option<&Bound<'py, CancelToken>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (mut options, append) = given::options(options, GenerateOptions::read)?;
        let prompts = prompts.into_iter().map(|prompt| skulk_contract::options::prompt(prompt, append));
        let prompts = prompts.collect::<skulk::Result<Vec<_>>>().map_err(raise)?;
        let model = self.0.get()?;
        let generate = |cancel, _silent: Sender<()>| {
            options.cancel = cancel;
            Ok(model.generate_batch(prompts, &options))
        };
        let outputs = run(py, cancel, generate, |()| Ok(()))?.into_iter().map(|output| match output {
            Ok(output) => CONTRACT.one(py, "Output", &output),
            Err(error) if return_exceptions => exception(py, &error),
            Err(error) => Err(raise(error)),
        });
        Ok(PyList::new(py, outputs.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }
}

pub(crate) fn placement_of(placement: &Bound<'_, PyAny>) -> PyResult<skulk::Placement> {
    match placement.cast::<Placement>() {
        Ok(placement) => Ok(placement.get().0.clone()),
        Err(_) => Placement::by_counts(placement).map(|placement| placement.0),
    }
}

/// The devices of this machine that engines run on: the CPU, and every GPU by every backend that
/// reaches it.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    CONTRACT.many(py, "Device", py.detach(skulk::engines::devices))
}
