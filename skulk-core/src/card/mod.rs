//! What is known about a model without opening it? Model cards, and the profiles they resolve to.

mod checkpoint;
mod families;
mod folder;
mod library;
mod profile;
mod read;
mod reasoning;
mod rules;
mod schema;
mod write;

pub use checkpoint::{ConfigFacts, GgufChoice, GgufFacts, GgufFile, select_gguf};
pub use families::is_gemma4_family;
pub use library::CardLibrary;
pub use profile::{Profile, ProfileHints, RequestHints};
pub use reasoning::ReasoningRequest;
pub use schema::{
    BuiltinTool, ComponentInfo, ModalitiesCardConfig, ModelCard, ModelTask, MtpConcatOrder,
    MtpNormConvention, OutputParser, PlacementCardConfig, PromptRenderer, ReasoningCardConfig,
    ReasoningEffort, ReasoningFormat, RuntimeCardConfig, ServedSpecType, StorageSize, ToolCallFormat,
    ToolingCardConfig, VisionCardConfig,
};
