//! Does the decoder compute what other people's software computes, however it is cut up?
//!
//! Every suite runs on engine `cpu`, with the feature `candle` on the oracle, and with `wgpu` on that engine
//! with its software adapter, or the GPU that `SKULK_GPU` names.
#![allow(clippy::duplicate_mod, reason = "once for each engine")]

macro_rules! on {
    ($name:ident, $engine:literal) => {
        #[path = "."]
        pub(crate) mod $name {
            const ENGINE: &str = $engine;

            /// A GPU that is software, which takes seconds for what others take milliseconds for.
            fn is_emulated() -> bool {
                ENGINE == "wgpu" && std::env::var_os("SKULK_GPU").is_none()
            }

            #[path = "ahead.rs"]
            mod ahead;
            #[path = "assistant.rs"]
            mod assistant;
            #[path = "converted.rs"]
            mod converted;
            #[path = "eagle.rs"]
            mod eagle;
            #[path = "experts.rs"]
            mod experts;
            #[path = "gemma.rs"]
            mod gemma;
            #[path = "reference.rs"]
            mod reference;
            #[path = "splits.rs"]
            pub(super) mod splits;
            #[path = "stages.rs"]
            pub(crate) mod stages;
            #[path = "steps.rs"]
            mod steps;
        }
    };
}

on!(cpu, "cpu");
#[cfg(feature = "candle")]
on!(candle_cpu, "candle-cpu");
#[cfg(feature = "wgpu")]
on!(wgpu, "wgpu");
#[cfg(feature = "candle")]
mod beside;
#[cfg(feature = "wgpu")]
mod mixed;
