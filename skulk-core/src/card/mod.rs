//! What is known about a model without opening it? Model cards, and the profiles they resolve to.

mod checkpoint;
mod facts;
mod families;
mod findings;
mod folder;
mod library;
mod parameters;
mod profile;
mod read;
mod reasoning;
mod rules;
mod schema;
mod write;

pub use checkpoint::{ConfigFacts, GgufChoice, GgufFacts, GgufFile, select_gguf};
pub use facts::{
    AttentionFacts, ExpertFacts, IndexFacts, LatentFacts, LayerKind, ModelFacts, RecurrentFacts, WindowFacts,
};
pub use families::is_gemma4_family;
pub(crate) use findings::MOST_EXPERTS;
pub use library::CardLibrary;
pub(crate) use parameters::{INDEX_ALIGNMENT, LayerParameters, Parameters, bits_in, parameters};
pub use profile::{Profile, ProfileHints, RequestHints};
pub use reasoning::ReasoningRequest;
pub use schema::{
    BuiltinTool, ComponentInfo, ModalitiesCardConfig, ModelCard, ModelTask, MtpConcatOrder,
    MtpNormConvention, OutputParser, PlacementCardConfig, PromptRenderer, ReasoningCardConfig,
    ReasoningEffort, ReasoningFormat, RuntimeCardConfig, ServedSpecType, StorageSize, ToolCallFormat,
    ToolingCardConfig, VisionCardConfig,
};
