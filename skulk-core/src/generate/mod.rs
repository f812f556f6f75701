//! How does a model write text? Loaded models, sessions, running generations and sampling.

mod channel;
mod chat;
mod divergence;
mod draft;
mod event;
mod fingerprint;
mod generation;
mod load;
mod load_options;
mod logits;
mod memory;
mod model;
mod options;
#[cfg(feature = "net")]
mod peers;
mod recovery;
mod sampler;
mod saved;
mod scheduler;
mod services;
mod session;
mod stages;
mod tuning;
mod writing;

pub use chat::{
    ChatAnswer, ChatCall, ChatEvent, ChatFinish, ChatFinishReason, ChatOptions, ChatRequest, ChatStream,
    ChatUsage, OnToolFailure, ToolChat, ToolEvent, ToolResult, ToolRounds, Toolbox,
};
pub use divergence::Divergence;
pub use event::{Event, Finish, FinishReason, Timings, Token, TokenLogprob, Usage};
pub use generation::{Generation, Output};
pub use load_options::{LoadOptions, WhenFull};
pub use memory::ModelMemory;
pub use model::{Model, StageInfo};
pub use options::{GenerateOptions, Prompt, Speculate};
pub use sampler::Sampling;
pub use saved::SavedSession;
pub use session::Session;
pub use tuning::{SpeculationReport, SpeculationWay};
