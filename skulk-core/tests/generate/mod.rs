//! Does a generation do what it says? Through `Model`, `Session` and `Generation`, as callers see them.

mod ahead;
mod assistants;
mod budget;
mod cancel;
pub(crate) mod common;
#[cfg(feature = "grammar")]
mod constrained;
mod contention;
mod drafted;
pub(crate) mod eagle;
mod ending;
mod events;
mod failing;
mod features;
mod heads;
mod load;
mod logits;
mod recovery;
mod rewritten;
mod sampling;
mod saved;
mod sessions;
mod together;
mod trees;
mod waking;
mod wrapped;
