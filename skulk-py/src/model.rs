//! How does Python load a model? `skulk.Model`.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skulk::engine::Progress;
use skulk::{ByteSize, EngineId, KvType, LoadOptions, Memory, NodeId, Precision};
use skulk_contract::Arch;

use crate::cancel::CancelToken;
use crate::convert::{self, choice, optional, unsigned};
use crate::error::raise;
use crate::json::CONTRACT;
use crate::plan::Placement;
use crate::session::{Session, prompt_of};
use crate::tokenizer::{Owner, Tokenizer};
use crate::wait::run;

/// A model ready to generate: its weights, split into stages. Made by `Model.load`.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Model(skulk::Model);

#[pymethods]
impl Model {
    /// Loads the checkpoint at `path`: a GGUF file or a Hugging Face folder of safetensors.
    ///
    /// `stages` splits the layers evenly on one `engine`: "cpu" (the default), "wgpu" (the best GPU), an engine of
    /// `devices()`, "candle-cpu", "candle-cuda" or "candle-metal". `placement` instead gives engines their numbers of
    /// layers, in order, as in `[("wgpu", 20), ("cpu", 12)]`, or is what `skulk.plan` made of it; `node` is the name
    /// that such a placement has for this machine. `ffn_on_cpu` leaves feed-forward blocks and experts to the CPU where
    /// an engine would copy them to its device. Of feed-forward weights that are used where they are stored,
    /// `ffn_budget` keeps at most so many bytes in memory at a time, with the same results; `ffn_top_features` computes
    /// only so many features of each dense block, which changes results. `device_memory` is how many bytes "wgpu" may
    /// reserve there. `threads` are those of computing on the CPU (all by default); `context` is how many tokens a
    /// session can hold: by default what a placement was planned for, else 4096 or less where the model has less;
    /// `prefill_chunk` how many prompt tokens pass through the layers together; `kv` keeps keys and values as "f16" or
    /// "f32"; `precision` "exact" multiplies what rounding activations to 8 bits leaves over, too, and "bf16" rounds
    /// them to BF16 where weights are of that type, for faster prompts; `memory` leaves weights "mapped", reads them
    /// ("resident"), or does what free memory suggests ("auto"); `screen_head` keeps a compact copy of the head, so
    /// that most of it need not be read, with the same results. `progress` is called with the layers loaded so far and
    /// their total. `cancel` and Ctrl-C end loading within one layer.
    #[staticmethod]
    #[pyo3(signature = (path, *, stages=1, engine=None, placement=None, node="local", ffn_on_cpu=false, ffn_budget=None, ffn_top_features=None, device_memory=None, threads=None, context=None, prefill_chunk=256, kv="f16", precision="fast", memory="auto", screen_head=false, progress=None, cancel=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        stages: i128,
        engine: Option<&str>,
        placement: Option<&Bound<'_, PyAny>>,
        node: &str,
        ffn_on_cpu: bool,
        ffn_budget: Option<i128>,
        ffn_top_features: Option<i128>,
        device_memory: Option<i128>,
        threads: Option<i128>,
        context: Option<i128>,
        prefill_chunk: i128,
        kv: &str,
        precision: &str,
        memory: &str,
        screen_head: bool,
        progress: Option<Bound<'_, PyAny>>,
        cancel: Option<&Bound<'_, CancelToken>>,
    ) -> PyResult<Self> {
        let mut options = LoadOptions::default();
        options.stages = unsigned("stages", stages)?;
        options.engine_name = engine.map(EngineId::new);
        options.placement = placement.map(placement_of).transpose()?;
        options.node = NodeId::new(node);
        let engines = &mut options.engine_options;
        engines.ffn_on_cpu = ffn_on_cpu;
        engines.ffn_budget = optional("ffn_budget", ffn_budget)?.map(ByteSize);
        engines.ffn_top_features = optional("ffn_top_features", ffn_top_features)?;
        engines.device_memory = optional("device_memory", device_memory)?.map(ByteSize);
        engines.threads = optional("threads", threads)?.unwrap_or(engines.threads);
        engines.precision = choice("precision", precision, Precision::ALL)?;
        engines.memory = choice("memory", memory, Memory::ALL)?;
        engines.screen_head = screen_head;
        options.context = optional("context", context)?;
        options.prefill_chunk = unsigned("prefill_chunk", prefill_chunk)?;
        options.kv = choice("kv", kv, KvType::ALL)?;
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
        run(py, cancel, load, report).map(Self)
    }

    /// Which engine runs which layers, in words.
    #[getter]
    fn placement(&self) -> String {
        self.0.placement().to_string()
    }

    /// What each stage holds, in the order a token passes them.
    #[getter]
    fn stages<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        CONTRACT.many(py, "Stage", self.0.stages())
    }

    /// Facts about the architecture.
    #[getter]
    fn arch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        CONTRACT.one(py, "Arch", &Arch::from(self.0.arch()))
    }

    /// Positions a session can hold, in tokens.
    #[getter]
    fn context(&self) -> usize {
        self.0.context()
    }

    /// How long loading took, in seconds.
    #[getter]
    fn load_seconds(&self) -> f64 {
        self.0.load_time().as_secs_f64()
    }

    /// The model's tokenizer.
    #[getter]
    fn tokenizer(&self) -> Tokenizer {
        Tokenizer(Owner::Model(self.0.clone()))
    }

    /// What is in memory of feed-forward weights, where `ffn_budget` bounds that.
    #[getter]
    fn ffn_memory<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.ffn_memory().map(|memory| CONTRACT.one(py, "FfnMemory", &memory)).transpose()
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
        let (exact, text) = (&exact.get().0, prompt_of(text)?);
        let compare = |cancel, _silent: Sender<()>| self.0.divergence(exact, text, &cancel);
        convert::divergence(py, &run(py, cancel, compare, |()| Ok(()))?)
    }

    /// An empty session. Any number may exist and generate at the same time.
    fn session(&self, py: Python<'_>) -> PyResult<Session> {
        py.detach(|| self.0.session()).map(Session).map_err(raise)
    }

    /// Generates from a prompt in a session of its own. Arguments as in `Session.generate`.
    #[pyo3(signature = (prompt, **options), text_signature = "($self, prompt, *, max_tokens=None, temperature=0.0, top_k=None, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0, penalty_window=64, logit_bias=None, seed=None, stop=(), ignore_eos=False, logprobs=None, cancel=None)")]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Bound::new(py, self.session(py)?)?.call_method("generate", (prompt,), options)
    }

    fn __repr__(&self) -> String {
        let (arch, context) = (self.0.arch(), self.0.context());
        format!(
            "<skulk.Model {}: {} layers in {} stages, context {context}>",
            arch.family,
            arch.n_layers(),
            self.0.stages().len()
        )
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("skulk._notebook")?.call_method1("table", (slf,))
    }
}

fn placement_of(placement: &Bound<'_, PyAny>) -> PyResult<skulk::Placement> {
    match placement.cast::<Placement>() {
        Ok(placement) => Ok(placement.get().0.clone()),
        Err(_) => Placement::by_counts(placement.extract()?).map(|placement| placement.0),
    }
}

/// The devices of this machine that engines run on: the CPU, and every GPU by every backend that
/// reaches it.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    CONTRACT.many(py, "Device", py.detach(skulk::engines::devices))
}
