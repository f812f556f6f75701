//! Which facts does a model card hold? The card interface as types: names, defaults, closed value sets.

use std::collections::BTreeSet;

use serde::Serialize;

use super::facts::ModelFacts;
use super::rules;
use crate::macros::closed_set;
use crate::strict::{Bounds, Leaf, Reader, Tree, read_fields};

/// A closed set of values that cards spell as strings.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        closed_set! {
            $(#[$doc])*
            #[derive(PartialOrd, Ord)]
            pub enum $name { $($(#[$value_doc])* $value = $text,)* }
        }

        impl Leaf for $name {
            // As the reference does.
            const NAMED_IN_LISTS: bool = false;

            fn read<'a>(tree: &'a Tree, _: Bounds, reader: &mut Reader<'a>) -> Option<Self> {
                reader.name(tree, Self::ALL, Self::as_str)
            }
        }
    };
}

/// A section of cards: its fields, and how they are read. A field is required unless it has a default or is an
/// `Option`; `#[min]` is the least number allowed, `#[length]` of 1 says that a text must not be empty, and `where`
/// names the rules between fields.
macro_rules! section {
    (
        $(#[doc = $doc:literal])*
        #[derive($($derive:ident),*)]
        pub struct $name:ident $(where $rules:path)? {
            $(
                $(#[doc = $field_doc:literal])*
                $(#[min($min:literal)])?
                $(#[length($length:literal)])?
                pub $field:ident: $type:ty $(= $default:expr)?,
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive($($derive),*)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[doc = $field_doc])*
                $(#[cfg_attr(feature = "schema", schemars(range(min = $min)))])?
                $(#[cfg_attr(feature = "schema", schemars(length(min = $length)))])?
                $(#[cfg_attr(feature = "schema", schemars(default, extend("default" = $default)))])?
                pub $field: $type,
            )*
        }

        read_fields! {
            $name $(where $rules)? { $($field: $type $(, min $min)? $(, min $length)? $(, or $default)?;)* }
        }
    };
}

pub(super) use {names, section};

names! {
    /// What a model does.
    ModelTask {
        /// Writes text.
        TextGeneration = "TextGeneration",
        /// Turns text into vectors.
        TextEmbedding = "TextEmbedding",
        /// Draws images from text.
        TextToImage = "TextToImage",
        /// Draws images from images.
        ImageToImage = "ImageToImage",
    }
}

names! {
    /// How a model marks its reasoning.
    ReasoningFormat {
        /// Not at all.
        None = "none",
        /// Between two markers, as `<think>` and `</think>`.
        TokenDelimited = "token_delimited",
        /// On a channel of its own.
        ChannelDelimited = "channel_delimited",
    }
}

names! {
    /// How much a model reasons before it answers.
    ReasoningEffort {
        /// Not at all.
        None = "none",
        /// Hardly.
        Minimal = "minimal",
        /// Little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
        /// As much as it can.
        XHigh = "xhigh",
    }
}

names! {
    /// How a model writes tool calls.
    ToolCallFormat {
        /// As its tokenizer's chat template says.
        Generic = "generic",
        /// Gemma 4's.
        Gemma4 = "gemma4",
        /// Harmony, of gpt-oss.
        GptOss = "gpt_oss",
        /// DeepSeek V3.2's markup.
        Dsml = "dsml",
    }
}

names! {
    /// A tool that a model was trained to use.
    BuiltinTool {
        /// Searches the web.
        WebSearch = "web_search",
        /// Opens a page.
        OpenUrl = "open_url",
        /// Reads a page's text.
        ExtractPage = "extract_page",
    }
}

names! {
    /// What turns messages into a prompt.
    PromptRenderer {
        /// The chat template of the tokenizer.
        Tokenizer = "tokenizer",
        /// Gemma 4's.
        Gemma4 = "gemma4",
        /// DeepSeek V3.2's.
        Dsml = "dsml",
    }
}

names! {
    /// What takes an answer apart.
    OutputParser {
        /// By the thinking format and the tool-call format.
        Generic = "generic",
        /// Gemma 4's.
        Gemma4 = "gemma4",
        /// Harmony, of gpt-oss.
        GptOss = "gpt_oss",
        /// DeepSeek V3.2's.
        DeepseekV32 = "deepseek_v32",
    }
}

names! {
    /// What the norm weights of a multi-token-prediction sidecar are relative to.
    MtpNormConvention {
        /// 1 is to be added.
        ZeroCentered = "zero_centered",
        /// They are the factors themselves.
        ActualScale = "actual_scale",
    }
}

names! {
    /// The order in which a multi-token-prediction head joins its two inputs.
    MtpConcatOrder {
        /// The token's embedding, then the hidden state.
        EmbedFirst = "embed_first",
        /// The hidden state, then the token's embedding.
        HiddenFirst = "hidden_first",
    }
}

names! {
    /// How a served model speculates.
    ServedSpecType {
        /// Not at all.
        None = "none",
        /// With its own multi-token-prediction heads.
        DraftMtp = "draft_mtp",
        /// With an EAGLE-3 draft.
        DraftEagle3 = "draft_eagle3",
        /// With a smaller model.
        DraftSimple = "draft_simple",
        /// With n-grams of the text so far.
        Ngram = "ngram",
    }
}

section! {
    /// A number of bytes, as cards write it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct StorageSize {
        /// Bytes.
        pub in_bytes: u64 = 0,
    }
}

section! {
    /// Facts about one model, declared rather than measured. The only required ones are its identity,
    /// size, layers, width, tasks, and whether its tensors can be split.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct ModelCard {
        /// The model's name, as in `org/name`.
        #[length(1)]
        pub model_id: String,
        /// Bytes of all weights.
        pub storage_size: StorageSize,
        /// Decoder layers; at least 1.
        #[min(1)]
        pub n_layers: usize,
        /// Width of the residual stream; at least 1.
        #[min(1)]
        pub hidden_size: usize,
        /// Its tensors can be split over nodes.
        pub supports_tensor: bool,
        /// Key/value heads. Where they are unknown, keys and values count for nothing in plans.
        #[min(1)]
        pub num_key_value_heads: Option<usize>,
        /// What it does.
        pub tasks: Vec<ModelTask>,
        /// Parts of a model that is made of several.
        pub components: Option<Vec<ComponentInfo>>,
        /// Its family, as in `qwen`.
        pub family: String = String::new(),
        /// How its weights are stored, as in `4bit` or `Q4_K_M`; for people.
        pub quantization: String = String::new(),
        /// What it was made from; for people.
        pub base_model: String = String::new(),
        /// The GGUF file that holds it. Any name but an empty one makes it a GGUF model.
        pub gguf_file: Option<String>,
        /// Free words; `vision`, `thinking` and `thinking_toggle` mean something to profiles.
        pub capabilities: Vec<String> = Vec::<String>::new(),
        /// Positions it was trained for, in tokens; 0 or less: unknown.
        pub context_length: i64 = 0,
        /// It runs twice for each step, for classifier-free guidance.
        pub uses_cfg: bool = false,
        /// Code that comes with the checkpoint may run, in software that runs such code.
        pub trust_remote_code: bool = true,
        /// The card is the user's. Never written to files.
        pub is_custom: bool = false,
        /// How it sees.
        pub vision: Option<VisionCardConfig>,
        /// How it reasons.
        pub reasoning: Option<ReasoningCardConfig>,
        /// What else than text it takes.
        pub modalities: Option<ModalitiesCardConfig>,
        /// How it calls tools.
        pub tooling: Option<ToolingCardConfig>,
        /// How it is run.
        pub runtime: Option<RuntimeCardConfig>,
        /// Where it can run.
        pub placement: PlacementCardConfig = PlacementCardConfig::default(),
        /// What it is made of. Nothing of it is needed; plans are better with it.
        pub facts: Option<ModelFacts>,
    }
}

section! {
    /// A part of a model that is made of several, as of an image generator.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct ComponentInfo {
        /// Its name.
        pub component_name: String,
        /// Its folder in the model's.
        pub component_path: String,
        /// Bytes of its weights.
        pub storage_size: StorageSize,
        /// Its layers, where it has any; at least 1.
        #[min(1)]
        pub n_layers: Option<usize>,
        /// It can be split over nodes.
        pub can_shard: bool,
        /// The name of its index of weight files.
        pub safetensors_index_filename: Option<String>,
    }
}

section! {
    /// How a model sees.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct VisionCardConfig {
        /// The token that stands for an image.
        pub image_token_id: Option<i64>,
        /// The vision tower's kind.
        pub model_type: String = String::new(),
        /// Where its weights are; the card's own `model_id` unless it says otherwise.
        pub weights_repo: String = String::new(),
        /// The text of the image token.
        pub image_token: Option<String>,
        /// Where its image processor is.
        pub processor_repo: Option<String>,
        /// The token that begins an image.
        pub boi_token_id: Option<i64>,
        /// The token that ends an image.
        pub eoi_token_id: Option<i64>,
    }
}

section! {
    /// How a model reasons.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct ReasoningCardConfig {
        /// Requests can turn it on and off.
        pub supports_toggle: Option<bool>,
        /// Requests can bound it.
        pub supports_budget: Option<bool>,
        /// How it is marked.
        pub format: Option<ReasoningFormat>,
        /// How much, unless a request says.
        pub default_effort: Option<ReasoningEffort>,
        /// What turning it off means.
        pub disabled_effort: Option<ReasoningEffort>,
    }
}

section! {
    /// What else than text a model takes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
    pub struct ModalitiesCardConfig {
        /// It hears.
        pub supports_audio_input: Option<bool>,
        /// Its other inputs are part of the model itself.
        pub supports_native_multimodal: Option<bool>,
    }
}

section! {
    /// How a model calls tools.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct ToolingCardConfig {
        /// It does.
        pub supports_tool_calling: Option<bool>,
        /// How it writes calls.
        pub tool_call_format: Option<ToolCallFormat>,
        /// Tools that it was trained with.
        pub builtin_tools: Option<Vec<BuiltinTool>>,
    }
}

section! {
    /// How a model is run.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct RuntimeCardConfig where rules::runtime {
        /// What turns messages into a prompt.
        pub prompt_renderer: Option<PromptRenderer>,
        /// What takes an answer apart.
        pub output_parser: Option<OutputParser>,
        /// Whether MLX waits for the GPU by polling.
        pub metal_fast_synch: Option<bool>,
        /// It has multi-token-prediction heads, in a sidecar.
        pub mtp_heads: Option<bool>,
        /// Tokens that these heads, or the assistant, draft at most.
        pub mtp_max_depth: Option<i64>,
        /// Where the sidecar is.
        pub mtp_sidecar_repo: Option<String>,
        /// What the sidecar's norm weights are relative to.
        pub mtp_norm_convention: Option<MtpNormConvention>,
        /// How the heads join their inputs.
        pub mtp_concat_order: Option<MtpConcatOrder>,
        /// Speculation pays over several nodes, too.
        pub speculative_multi_node: Option<bool>,
        /// Where a model that drafts for this one is.
        pub assistant_model_repo: Option<String>,
        /// How it speculates where a server runs it.
        pub served_spec_type: Option<ServedSpecType>,
        /// Tokens that the server drafts at most; at least 1.
        #[min(1)]
        pub served_spec_n_max: Option<usize>,
        /// Where the server's draft is.
        pub served_spec_draft_repo: Option<String>,
        /// The file of that draft; must be given with the repository.
        pub served_spec_draft_file: Option<String>,
    }
}

section! {
    /// Where a model can run.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct PlacementCardConfig {
        /// Tags of backends that can run it: `<engine>-<compute>`, as in `mlx-metal`, or an engine alone.
        pub compatible_backends: BTreeSet<String> = BTreeSet::from(["mlx".to_owned()]),
        /// Accelerator memory that a node must have, in GiB.
        #[min(0)]
        pub min_vram_gib: Option<f64>,
        /// Tokens that its context is limited to, whatever it was trained for.
        #[min(1)]
        pub max_context_tokens: Option<u64>,
        /// The backends by preference, best first.
        pub backend_preference: Vec<String> = Vec::<String>::new(),
    }
}

impl Default for PlacementCardConfig {
    fn default() -> Self {
        Self {
            compatible_backends: BTreeSet::from(["mlx".to_owned()]),
            min_vram_gib: None,
            max_context_tokens: None,
            backend_preference: Vec::new(),
        }
    }
}

impl StorageSize {
    /// So many bytes.
    pub const fn new(in_bytes: u64) -> Self {
        Self { in_bytes }
    }
}

impl ComponentInfo {
    /// A part of this name in this folder, of so many bytes; nothing else is known of it.
    pub fn new(name: impl Into<String>, path: impl Into<String>, bytes: u64) -> Self {
        Self {
            component_name: name.into(),
            component_path: path.into(),
            storage_size: StorageSize::new(bytes),
            n_layers: None,
            can_shard: false,
            safetensors_index_filename: None,
        }
    }
}

impl ModelCard {
    /// The card of a model that writes text, of so many bytes. All that is not said has its default; its tensors
    /// cannot be split.
    ///
    /// ```
    /// let mut card = skulk::ModelCard::new("acme/small", 100 << 20, 12, 768);
    /// card.context_length = 2048;
    /// card.check()?;
    /// # Ok::<(), skulk::Error>(())
    /// ```
    pub fn new(model_id: impl Into<String>, bytes: u64, n_layers: usize, hidden_size: usize) -> Self {
        Self {
            model_id: model_id.into(),
            storage_size: StorageSize::new(bytes),
            n_layers,
            hidden_size,
            supports_tensor: false,
            num_key_value_heads: None,
            tasks: vec![ModelTask::TextGeneration],
            components: None,
            family: String::new(),
            quantization: String::new(),
            base_model: String::new(),
            gguf_file: None,
            capabilities: Vec::new(),
            context_length: 0,
            uses_cfg: false,
            trust_remote_code: true,
            is_custom: false,
            vision: None,
            reasoning: None,
            modalities: None,
            tooling: None,
            runtime: None,
            placement: PlacementCardConfig::default(),
            facts: None,
        }
    }

    /// The JSON Schema (draft 2020-12) of cards in TOML, for editors.
    pub const fn schema() -> &'static str {
        include_str!("schema.json")
    }
}
