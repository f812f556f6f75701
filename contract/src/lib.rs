//! What do all language packages hand over? Plain data. Most of it is the library's own, which serialises; here is what
//! the library computes on demand, as data. What there is in all, `contract/generate` lists.

pub mod by_hand;
pub mod chat;
mod failure;
pub mod folders;
mod form;
pub mod functions;
mod given;
pub mod options;
pub mod price;
pub mod threads;
mod words;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use skulk::arch::ArchSpec;
use skulk::card;
use skulk::embed::{EmbeddingModel, Pooling};
use skulk::plan::{Estimate, Part, PromptEstimate};
use skulk::vindex::{self, VerifiedFile, VindexPart};
use skulk::{ByteSize, Checkpoint, EngineId, KvType, NodeId, TokenId, VindexReader};

pub use failure::{Failure, FailureDetail, Outcome, kinds};
pub use words::keep_names;

/// Data that are made from `$source`: their fields, each with its value.
macro_rules! view {
    (
        $(#[doc = $doc:literal])*
        $name:ident of ($source:ident: &'a $from:ty) {
            $($(#[doc = $field_doc:literal])* $(#[format($format:literal)])? $field:ident: $type:ty = $value:expr,)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(rename_all = "camelCase")]
        pub struct $name<'a> {
            $(
                $(#[doc = $field_doc])*
                $(#[cfg_attr(feature = "schema", schemars(extend("format" = $format)))])?
                pub $field: $type,
            )*
        }

        impl<'a> From<&'a $from> for $name<'a> {
            fn from($source: &'a $from) -> Self {
                Self { $($field: $value,)* }
            }
        }
    };
}

view! {
    /// Facts about a model's architecture.
    Arch of (arch: &'a ArchSpec) {
        /// Family label as the checkpoint spells it, e.g. `llama`.
        family: &'a str = &arch.family,
        /// Number of decoder layers.
        n_layers: usize = arch.n_layers(),
        /// Width of the residual stream.
        hidden_size: usize = arch.hidden_size,
        /// Rows of the embedding table.
        vocab_size: usize = arch.vocab_size,
        /// Positions the model was trained for, in tokens.
        context_length: usize = arch.context_length,
    }
}

view! {
    /// A part of a model on one node: a contiguous range of layers.
    PlacedStage of (stage: &'a skulk::Stage) {
        /// The node that runs it.
        node: &'a NodeId = &stage.node,
        /// The backend that runs it there, as in `skulk-cpu`; `None`: the node chooses.
        backend: Option<&'a str> = stage.backend.as_deref(),
        /// This library's engine of that backend, as in `cpu`; `None` for other software's.
        engine: Option<EngineId> = stage.engine(),
        /// Its layers, by index within the model.
        layers: Range<usize> = stage.layers.clone(),
        /// What of these layers: all, of each tensor a share, or all for one half of guidance.
        part: PartKind = PartKind::of(stage.part),
        /// Which part of guidance, where it is one.
        cfg: Option<CfgPart> = CfgPart::of(stage.part),
    }
}

/// What of its layers a stage has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// All of them.
    Whole,
    /// Of each tensor its share.
    Tensor,
    /// All of them, for one half of guidance.
    Cfg,
}

impl PartKind {
    fn of(part: Part) -> Self {
        match part {
            Part::Tensor => Self::Tensor,
            Part::Cfg { .. } => Self::Cfg,
            _ => Self::Whole,
        }
    }
}

/// Which part of classifier-free guidance a stage has: the layers of one of its two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CfgPart {
    /// The half.
    pub cfg_rank: usize,
    /// Halves.
    pub cfg_world_size: usize,
    /// The stage within the half.
    pub pipeline_rank: usize,
    /// Stages of the half.
    pub pipeline_world_size: usize,
}

impl CfgPart {
    fn of(part: Part) -> Option<Self> {
        match part {
            Part::Cfg { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size } => {
                Some(Self { cfg_rank, cfg_world_size, pipeline_rank, pipeline_world_size })
            }
            _ => None,
        }
    }
}

view! {
    /// What does not change of a tokenizer.
    Vocabulary of (tokenizer: &'a skulk::Tokenizer) {
        /// The token that begins a text.
        bos: Option<TokenId> = tokenizer.bos(),
        /// The tokens that end a generation.
        eos_ids: &'a [TokenId] = tokenizer.eos_ids(),
        /// One past the highest token.
        vocab_size: usize = tokenizer.vocab_size(),
    }
}

view! {
    /// What handles of models answer without more work.
    ModelFacts of (model: &'a skulk::Model) {
        /// Facts about its architecture.
        arch: Arch<'a> = model.arch().into(),
        /// What each stage holds, in the order a token passes them.
        stages: &'a [skulk::StageInfo] = model.stages(),
        /// Which engine runs which layers, in words.
        placement: String = model.placement().to_string(),
        /// Positions a session can hold, in tokens.
        context: usize = model.context(),
        /// How long loading took, in seconds.
        load_seconds: f64 = model.load_time().as_secs_f64(),
        /// What is in memory of feed-forward weights now, where that is bounded.
        ffn_memory: Option<skulk::FfnMemory> = model.ffn_memory(),
        /// What keys and values of all sessions take now.
        kv_memory: skulk::KvMemory = model.kv_memory(),
        /// Its tokenizer.
        vocabulary: Vocabulary<'a> = model.tokenizer().into(),
    }
}

view! {
    /// What handles of embedding models answer without more work.
    EmbeddingFacts of (model: &'a EmbeddingModel) {
        /// Elements of a vector.
        dimensions: usize = model.dimensions(),
        /// Tokens of a text that count.
        max_tokens: usize = model.max_tokens(),
        /// How tokens' vectors become a text's.
        poolings: &'a [Pooling] = model.poolings(),
        /// Whether vectors have length 1.
        is_normalized: bool = model.is_normalized(),
        /// Its tokenizer.
        vocabulary: Vocabulary<'a> = model.tokenizer().into(),
    }
}

view! {
    /// What handles of placements answer without more work.
    PlacementFacts of (placement: &'a skulk::Placement) {
        /// Layers in all.
        n_layers: usize = placement.n_layers(),
        /// What each node runs.
        stages: Vec<PlacedStage<'a>> = placement.stages().iter().map(Into::into).collect(),
        /// What is elsewhere than its layer's attention.
        experts: Vec<ExpertShard<'a>> = placement.experts().iter().map(Into::into).collect(),
        /// Where nodes serve what it has on them.
        addresses: &'a BTreeMap<NodeId, String> = placement.addresses(),
        /// What each device is to hold.
        budgets: &'a [skulk::plan::Budget] = placement.budgets(),
        /// Bytes of feed-forward weights in memory at most, where others stay on disk.
        ffn_budget: Option<u64> = placement.ffn_budget(),
        /// Tokens for which keys and values are reserved.
        context_tokens: Option<u64> = placement.context_tokens(),
        /// Sessions for each of which they are reserved.
        sessions: Option<usize> = placement.sessions(),
        /// What it counts that drafts.
        drafter: Option<&'a skulk::plan::Drafter> = placement.drafter(),
        /// Tokens that the context is limited to.
        context_limit: Option<u64> = placement.context_limit(),
        /// How keys are kept: as a plan was asked for. Where it was not, `f16` stands for two bytes an element, of what engines prefer.
        kv: KvType = placement.kv().keys,
        /// How values are kept.
        kv_values: KvType = placement.kv().values,
        /// Its name.
        instance_id: String = placement.instance_id(),
        /// The placement as text.
        text: String = placement.to_string(),
    }
}

view! {
    /// What a placement costs.
    Price of (priced: &'a (Estimate, PromptEstimate)) {
        /// A token of each session, in the middle of the context.
        estimate: &'a Estimate = &priced.0,
        /// The prompt.
        prompt: &'a PromptEstimate = &priced.1,
    }
}

view! {
    /// Experts of a range of layers on one node, away from the layers' attention. A dense block is expert 0.
    ExpertShard of (shard: &'a skulk::plan::ExpertShard) {
        /// The node that computes them.
        node: &'a NodeId = &shard.node,
        /// The backend that computes them there.
        backend: Option<&'a str> = shard.backend.as_deref(),
        /// This library's engine of that backend; `None` for other software's.
        engine: Option<EngineId> = shard.engine(),
        /// The layers.
        layers: Range<usize> = shard.layers.clone(),
        /// The same experts of each of these layers.
        experts: Range<usize> = shard.experts.clone(),
        /// Experts that each of these layers has in all.
        n_experts: usize = shard.n_experts,
        /// Another node owns them; this one helps.
        replica: bool = shard.replica,
    }
}

/// A tensor as the folder describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TensorInfo<'a> {
    /// Its name, as in Hugging Face checkpoints without `model.` before it.
    pub name: &'a str,
    /// How its elements are stored, e.g. `F16` or `Q4_K`; `Q6_K_Linear` is what LARQL calls Q6_K.
    pub dtype: &'static str,
    /// Its dimensions, outermost first: a matrix is rows and row length.
    pub shape: &'a [usize],
    /// The file that holds it.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "path")))]
    pub file: Cow<'a, str>,
    /// Where it begins in that file, in bytes.
    pub offset: u64,
    /// Its length in bytes, with what rows are padded with.
    pub length: u64,
}

impl<'a> TensorInfo<'a> {
    /// All of a folder.
    pub fn all(reader: &'a VindexReader) -> Vec<Self> {
        let files = reader.files();
        let info = |tensor: &'a skulk::TensorInfo| {
            Some(Self {
                name: &tensor.name,
                dtype: tensor.dtype.label(),
                shape: &tensor.shape,
                file: files.get(tensor.file)?.path().to_string_lossy(),
                offset: tensor.offset,
                length: tensor.len,
            })
        };
        reader.tensors().iter().filter_map(info).collect()
    }
}

/// Layers that are thought to do one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VindexBands {
    /// Layers that deal with syntax.
    pub syntax: Range<usize>,
    /// Layers in which facts are found.
    pub knowledge: Range<usize>,
    /// Layers that form the output.
    pub output: Range<usize>,
}

impl From<vindex::VindexBands> for VindexBands {
    fn from(bands: vindex::VindexBands) -> Self {
        let range = |[first, last]: [usize; 2]| first..last.saturating_add(1);
        Self { syntax: range(bands.syntax), knowledge: range(bands.knowledge), output: range(bands.output) }
    }
}

view! {
    /// How far an extraction, a slice or a verification is.
    VindexProgress of (step: &'a vindex::VindexProgress) {
        /// The file that is worked on, by its path in the folder.
        file: &'a str = &step.file,
        /// The part that it belongs to.
        part: Option<VindexPart> = step.part(),
        /// The layer that is written, where an extraction writes one.
        layer: Option<usize> = step.layer,
        /// Bytes that are done, of all files together.
        bytes_done: ByteSize = step.bytes_done,
        /// Bytes that will be.
        bytes_total: ByteSize = step.bytes_total,
    }
}

view! {
    /// What a slice is made of. Its text is a line for each file.
    SliceReport of (report: &'a vindex::SliceReport) {
        /// The slice's folder.
        #[format("path")]
        path: Cow<'a, str> = report.target.to_string_lossy(),
        /// Its files, by name.
        files: &'a [vindex::SlicedFile] = &report.files,
        /// Files of the source that it does not have.
        left_out: &'a [String] = &report.left_out,
        /// Parts that the whole vindex has and the slice lacks.
        lacks: &'a [VindexPart] = &report.lacks,
        /// Bytes of all its files.
        bytes: ByteSize = report.bytes(),
        /// Bytes of files that are neither linked nor cloned.
        written_bytes: ByteSize = report.written(),
        /// The report as text.
        text: String = report.to_string(),
    }
}

view! {
    /// Something that is wrong with a folder.
    VerifyProblem of (problem: &'a vindex::VerifyProblem) {
        /// The file, by its path in the folder.
        file: &'a str = &problem.file,
        /// The bytes that it concerns; `None`: no certain ones.
        bytes: Option<Range<u64>> = problem.range.clone(),
        /// What kind of damage it is.
        kind: vindex::VerifyKind = problem.kind,
        /// The tensor that it concerns.
        tensor: Option<&'a str> = problem.tensor.as_deref(),
        /// What was expected, and what found.
        message: &'a str = &problem.message,
        /// The problem as text.
        text: String = problem.to_string(),
    }
}

view! {
    /// What a verification found. Its text is a summary and a line for each problem.
    VerifyReport of (report: &'a vindex::VerifyReport) {
        /// The folder.
        #[format("path")]
        path: Cow<'a, str> = report.path.to_string_lossy(),
        /// Its files, those included that are missing.
        files: &'a [VerifiedFile] = &report.files,
        /// What is wrong, by file and place.
        problems: Vec<VerifyProblem<'a>> = report.problems.iter().map(Into::into).collect(),
        /// Bytes that were read for hashes and numbers.
        bytes_read: ByteSize = report.bytes_read,
        /// The report as text.
        text: String = report.to_string(),
    }
}

view! {
    /// What computing tokens ahead gains, by what proposes them and how many there are. Its text is a line for each way.
    SpeculationReport of (report: &'a skulk::SpeculationReport) {
        /// Prompts that were tried.
        prompts: usize = report.prompts,
        /// By way; the first one is `off`.
        ways: &'a [skulk::SpeculationWay] = &report.ways,
        /// The fastest way.
        best: Option<&'a skulk::SpeculationWay> = report.best(),
        /// The report as text.
        text: String = report.to_string(),
    }
}

view! {
    /// What a Hugging Face configuration says that a card needs.
    ConfigFacts of (facts: &'a card::ConfigFacts) {
        /// Decoder layers, as the configuration says; a card needs at least 1.
        n_layers: i64 = facts.n_layers,
        /// Width of the residual stream.
        hidden_size: Option<u64> = facts.hidden_size,
        /// Key/value heads; at least 1.
        num_key_value_heads: Option<u64> = facts.num_key_value_heads,
        /// Positions it was trained for, in tokens.
        max_position_embeddings: Option<i64> = facts.max_position_embeddings,
        /// Skulk 1.3 can split the model's tensors over nodes.
        supports_tensor: bool = facts.supports_tensor(),
        /// Classes that implement the model.
        architectures: &'a [String] = &facts.architectures,
        /// What it is called: `model_type`.
        model_type: &'a str = &facts.model_type,
        /// How it sees, where the configuration has both a vision tower and an image token.
        vision: Option<Vision<'a>> = facts.vision.as_ref().map(Vision),
    }
}

/// A section of a card, in camelCase as all of this.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transparent, inline))]
pub struct Vision<'a>(&'a card::VisionCardConfig);

impl Serialize for Vision<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let card::VisionCardConfig { image_token_id, model_type, weights_repo, image_token, .. } = self.0;
        let mut fields = serializer.serialize_map(Some(7))?;
        fields.serialize_entry("imageTokenId", image_token_id)?;
        fields.serialize_entry("modelType", model_type)?;
        fields.serialize_entry("weightsRepo", weights_repo)?;
        fields.serialize_entry("imageToken", image_token)?;
        fields.serialize_entry("processorRepo", &self.0.processor_repo)?;
        fields.serialize_entry("boiTokenId", &self.0.boi_token_id)?;
        fields.serialize_entry("eoiTokenId", &self.0.eoi_token_id)?;
        fields.end()
    }
}
