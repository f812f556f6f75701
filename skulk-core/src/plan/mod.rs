//! Which node runs which layers and experts? A pure function of card, cluster and request.

mod admission;
pub mod backend;
mod builder;
pub mod ceiling;
mod check;
mod cluster;
mod coverage;
mod described;
mod devices;
mod direct;
mod instance;
mod inventory;
mod json;
mod links;
pub mod memory;
mod named;
#[cfg(feature = "generate")]
mod overrides;
mod placement;
mod planner;
mod render;
mod report;
mod request;
mod ring;
pub mod split;
mod stage;
mod strictness;
mod target;

pub use admission::{DEFAULT_MAX_TOKENS, admit_max_tokens, prefill_chunks};
pub use builder::PlacementBuilder;
pub use cluster::{
    Accelerator, Cluster, InterfaceType, Link, LinkKind, LinkSpeed, NetworkInterface, Node, NodeId,
    NodeMemory, Role, Vendor,
};
#[cfg(feature = "generate")]
pub(crate) use direct::BETWEEN;
pub use instance::{Host, Instance};
pub use inventory::{Inventory, LayerBytes};
pub use placement::Placement;
pub use planner::Planner;
pub use report::{
    Bytes, Candidate, ContextCeiling, ContextLimit, Estimate, NodeReport, PlanReport, PromptEstimate,
    Refusal, Rejection, Rule, RuleReport, Speculation,
};
pub use request::{Request, Sharding, Transport};
pub use ring::{is_vpn_address, leaves, rings};
pub use stage::{Budget, Drafter, ExpertShard, Part, Stage};
pub use strictness::Strictness;
pub use target::Target;
