//! Does a GPU compute what its operations promise, and fail as it should? On the software adapter.

use super::*;
use crate::engine::conformance::{Rounds, conformance};

impl Rounds for Gpu {}

/// The software adapter, which every machine can have: on Debian mesa-vulkan-drivers and libvulkan1.
fn software(limits: Limits) -> Gpu {
    let adapter = Adapter::all().into_iter().find(Adapter::is_software);
    Gpu::open(&adapter.expect("no software adapter: install Mesa's Vulkan drivers"), limits).unwrap()
}

mod as_it_is {
    use super::*;
    conformance!(software(Limits::default()));
}

/// Bindings hold a few rows: weights are split.
mod split {
    use super::*;
    conformance!(software(Limits { buffer: Some(1 << 20), ..Limits::default() }));
}

/// Sums by subgroups, however narrow.
mod subgroups {
    use super::*;
    conformance!(software(Limits { subgroups: Some(true), ..Limits::default() }));
}
