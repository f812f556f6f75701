//! Which engine runs which layers?

mod placement;

pub use placement::{Placement, Stage};
