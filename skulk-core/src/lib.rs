//! In-process, sharded LLM generation.
//!
//! A [`Model`] is loaded from a checkpoint in stages, each on an [`Engine`]; a [`Session`] is one
//! conversation with it, a [`Generation`] its running answer. Everything that can go wrong is an
//! [`Error`] with a kind, the places it concerns and what to do.
//!
#![cfg_attr(feature = "generate", doc = "```")]
#![cfg_attr(not(feature = "generate"), doc = "```ignore")]
//! use skulk::{GenerateOptions, LoadOptions, Model, Sampling};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
//! let model = Model::open(path, &LoadOptions::default().stages(2))?;
//! println!("{}", model.placement());
//!
//! let sampling = Sampling::default().temperature(0.8).top_p(0.95).seed(7);
//! let options = GenerateOptions::default().max_tokens(32).sampling(sampling);
//! for event in model.generate("Once upon a time", options)? {
//!     let event = event?;
//!     print!("{}", event.text);
//!     if let Some(finish) = event.finish {
//!         println!("\n{} tokens: {}", finish.usage.completion_tokens, finish.reason);
//!     }
//! }
//! # Ok::<(), skulk::Error>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(any(feature = "candle", feature = "wgpu")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "rooms below also serve those above, and other engines"
    )
)]
// Tests compare with the platform's functions.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod arch;
#[cfg(feature = "generate")]
pub mod browse;
mod bytes;
mod cancel;
pub mod card;
#[cfg(feature = "generate")]
pub mod chat;
#[cfg(feature = "embeddings")]
pub mod embed;
#[cfg(feature = "generate")]
pub mod engine;
#[cfg(feature = "generate")]
pub mod engines;
mod error;
#[cfg(feature = "generate")]
pub mod extract;
#[cfg(feature = "generate")]
pub mod generate;
#[cfg(feature = "generate")]
mod grammar;
mod ids;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod internals;
mod kv_type;
mod macros;
mod math;
#[cfg(feature = "generate")]
mod model;
pub mod plan;
#[cfg(feature = "net")]
pub mod remote;
mod strict;
#[cfg(feature = "generate")]
pub mod tokenizer;
pub mod vindex;
pub mod weights;
mod wire;
mod workers;

pub use bytes::ByteSize;
pub use cancel::{CancelToken, OnCancel};
pub use card::{CardLibrary, ModelCard, Profile};
pub use error::{ContextDetail, Error, ErrorKind, Result, Retry, ShapeDetail};
pub use ids::{EngineId, ExpertIdx, LayerIdx, SeqId, TokenId};
pub use kv_type::{KvType, KvTypes};
pub use plan::{Cluster, Inventory, Node, NodeId, Placement, PlanReport, Planner, Request, Stage};
#[cfg(feature = "net")]
pub use remote::{ServeOptions, Server, serve};
pub use strict::{Fault, FaultKind};
pub use vindex::VindexReader;
pub use weights::{Checkpoint, DType, MappedFile, Memory, Metadata, Region, TensorInfo, open_checkpoint};
#[cfg(feature = "generate")]
pub use {
    browse::VindexBrowser,
    engine::{
        Activations, Batch, DeviceInfo, DeviceSpeed, Engine, FfnMemory, KvMemory, Precision, Reply, Shard,
    },
    extract::{ExtractOptions, VindexStorage, VindexWriter},
    generate::{
        ChatAnswer, ChatCall, ChatEvent, ChatFinish, ChatFinishReason, ChatOptions, ChatRequest, ChatStream,
        ChatUsage, Divergence, Event, Finish, FinishReason, GenerateOptions, Generation, LoadOptions, Model,
        ModelMemory, OnToolFailure, Output, Prompt, Sampling, SavedSession, Session, Speculate,
        SpeculationReport, SpeculationWay, StageInfo, Timings, Token, TokenLogprob, ToolChat, ToolEvent,
        ToolResult, ToolRounds, Toolbox, Usage, WhenFull,
    },
    grammar::Constraint,
    model::EngineOptions,
    tokenizer::{Detokenizer, StopMatcher, Tokenizer},
};

/// The guide's snippets, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/profiles.md")]
#[doc = include_str!("../../docs/guide/cards.md")]
#[doc = include_str!("../../docs/guide/adding-a-family.md")]
struct Guide;

/// Likewise.
#[cfg(all(doctest, feature = "embeddings"))]
#[doc = include_str!("../../docs/guide/embeddings.md")]
struct EmbeddingsGuide;

/// Likewise.
#[cfg(all(doctest, feature = "generate"))]
#[doc = include_str!("../../docs/guide/chat.md")]
#[doc = include_str!("../../docs/guide/rust.md")]
#[doc = include_str!("../../docs/guide/placement.md")]
#[doc = include_str!("../../docs/guide/planning.md")]
#[doc = include_str!("../../docs/guide/sessions.md")]
#[doc = include_str!("../../docs/guide/speculation.md")]
#[doc = include_str!("../../docs/guide/chat-output.md")]
#[doc = include_str!("../../docs/guide/vindex.md")]
struct GenerationGuide;

/// Likewise.
#[cfg(all(doctest, feature = "net"))]
#[doc = include_str!("../../docs/guide/other-machines.md")]
struct NetGuide;

/// Likewise.
#[cfg(all(doctest, feature = "grammar"))]
#[doc = include_str!("../../docs/guide/structured-output.md")]
struct GrammarGuide;
