//! What is known about a model without opening it? Model cards, and the profiles they resolve to.

mod builtin;
mod folder;
mod library;
mod read;
mod reader;
mod rules;
mod schema;
mod tree;
mod write;

pub use library::CardLibrary;
pub use read::{CardFault, FaultKind};
pub use schema::{
    BuiltinTool, ComponentInfo, ModalitiesCardConfig, ModelCard, ModelTask, MtpConcatOrder,
    MtpNormConvention, OutputParser, PlacementCardConfig, PromptRenderer, ReasoningCardConfig,
    ReasoningEffort, ReasoningFormat, RuntimeCardConfig, ServedSpecType, StorageSize, ToolCallFormat,
    ToolingCardConfig, VisionCardConfig,
};
