//! In-process, sharded LLM generation.

pub mod arch;
mod bytes;
mod cancel;
pub mod engine;
mod error;
pub mod generate;
mod ids;
mod model;
mod plan;
pub mod tokenizer;
pub mod weights;

pub use bytes::ByteSize;
pub use cancel::CancelToken;
pub use engine::{Activations, Batch, Engine, EngineId, KvType, Precision, Shard};
pub use error::{Detail, Error, ErrorKind, Result, Retry};
pub use generate::{
    Event, Finish, FinishReason, GenerateOptions, Generation, LoadOptions, Model, Output, Prompt, Sampling,
    Session, StageInfo, Timings, Token, TokenLogprob, Usage,
};
pub use ids::{ExpertIdx, LayerIdx, SeqId, TokenId};
pub use model::{EngineOptions, candle_cpu, candle_cuda, candle_metal, engine};
pub use plan::{Placement, Stage};
pub use tokenizer::{Detokenizer, StopMatcher, Tokenizer};
pub use weights::{Checkpoint, DType, MappedFile, Metadata, Region, TensorInfo, open_checkpoint};

/// The guide's snippets, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/rust.md")]
struct RustGuide;
