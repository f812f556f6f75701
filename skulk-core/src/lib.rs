//! In-process, sharded LLM generation.

mod bytes;
mod cancel;
mod error;
mod ids;
pub mod tokenizer;
pub mod weights;

pub use bytes::ByteSize;
pub use cancel::CancelToken;
pub use error::{Detail, Error, ErrorKind, Result, Retry};
pub use ids::{ExpertIdx, LayerIdx, SeqId, TokenId};
pub use tokenizer::{Detokenizer, StopMatcher, Tokenizer};
pub use weights::{Checkpoint, DType, MappedFile, Metadata, Region, TensorInfo, open_checkpoint};
