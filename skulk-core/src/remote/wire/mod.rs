//! How do rows cross between machines? LARQL's binary frames, requests and replies, both ways and byte for byte.
//!
//! All numbers are little-endian. A frame is decoded where it was received: what a decoder returns borrows the bytes,
//! every count in them is checked against the bytes that are there, and nothing is reserved by it. Values are copied
//! into the caller's buffers, and refused where they are not finite. Encoders append to the caller's buffer, which
//! can be used again.
//!
//! | frame | request | reply |
//! |---|---|---|
//! | rows through dense blocks | [`WalkRequest`] | [`WalkReply`] |
//! | the same, rounded to integers | [`Q8kRequest`] | [`Q8kReply`] |
//! | single experts | [`ExpertRequest`] | [`ExpertReply`] |
//! | weighted experts of a layer | [`LayerRequest`] | [`LayerReply`] |
//! | weighted experts of layers | [`MultiRequest`] | [`MultiReply`] |
//! | tokens into rows | [`EmbedRequest`] | [`EmbedReply`] |
//! | single experts, over gRPC | [`grpc::BatchRequest`] | [`grpc::BatchReply`] |
//! | weighted experts of a layer, over gRPC | [`grpc::LayerInput`] | [`grpc::LayerOutput`] |

mod bytes;
mod embed;
mod expert;
pub mod grpc;
mod layer;
mod multi;
mod q8k;
mod values;
mod walk;

pub use self::bytes::Words;
pub use self::embed::{EmbedReply, EmbedRequest};
pub use self::expert::{ExpertReply, ExpertRequest, ExpertRow};
pub use self::layer::{LayerReply, LayerRequest, Weighted};
pub use self::multi::{MultiReply, MultiRequest, MultiTask};
pub use self::q8k::{Blocks, BlocksBuf, Q8kReply, Q8kRequest};
pub use self::values::{Rows, WireType};
pub use self::walk::{WalkLayers, WalkReply, WalkRequest};

/// Content types of the frames.
pub mod content {
    /// Requests of [`WalkRequest`](super::WalkRequest) and [`EmbedRequest`](super::EmbedRequest), and replies in f32.
    pub const FFN: &str = "application/x-larql-ffn";
    /// Replies of the same in f16.
    pub const FFN_F16: &str = "application/x-larql-ffn-f16";
    /// Replies of the same in i8.
    pub const FFN_I8: &str = "application/x-larql-ffn-i8";
    /// [`Q8kRequest`](super::Q8kRequest) and its reply.
    pub const FFN_Q8K: &str = "application/x-larql-ffn-q8k-batch";
    /// [`ExpertRequest`](super::ExpertRequest) and its reply.
    pub const EXPERT: &str = "application/x-larql-expert";
    /// [`LayerRequest`](super::LayerRequest) and its reply, in f32.
    pub const LAYER: &str = "application/x-larql-experts-layer";
    /// The same in f16.
    pub const LAYER_F16: &str = "application/x-larql-experts-layer-f16";
    /// [`MultiRequest`](super::MultiRequest), and its reply whatever the request's values are.
    pub const MULTI: &str = "application/x-larql-experts-multi-layer";
    /// [`MultiRequest`](super::MultiRequest) of values rounded to integers.
    pub const MULTI_Q8K: &str = "application/x-larql-experts-multi-layer-q8k";
}
