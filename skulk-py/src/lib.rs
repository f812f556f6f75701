//! How does Python reach the library? The native module `skulk._skulk`: handles, conversions and
//! exceptions; everything that decides anything is in `skulk-core`.

mod cancel;
mod card;
mod convert;
mod error;
mod extract;
mod generation;
mod given;
mod handle;
mod json;
mod model;
mod plan;
mod planning;
mod progress;
mod session;
mod tokenizer;
mod verify;
mod vindex;
mod wait;
mod waking;

use pyo3::prelude::*;

/// Native part of `skulk`. Import `skulk` instead.
#[pymodule(gil_used = false)]
mod _skulk {
    use super::*;

    #[pymodule_export]
    use super::{
        cancel::CancelToken,
        card::{
            Library, card_file_name, card_from_checkpoint, card_open, card_read, card_save, card_schema,
            card_text, is_gemma4_family, profile_permissive, profile_reasoning, profile_resolve,
        },
        error::error_kinds,
        extract::extract,
        generation::Generation,
        model::{Model, devices},
        plan::{
            Placement, PlanReport, cluster_json, inventory_from_card, inventory_from_checkpoint,
            inventory_of_experts, node_local, plan,
        },
        planning::{
            GgufFile, PrefillChunks, accelerator_memory, admit_max_tokens, allocate_layers, config_facts,
            divide, engine_of, footprint_exceeds, gguf_facts, has_gpu_offload, is_multi_node, is_vpn_address,
            kv_bytes, kv_bytes_per_token, leaves, prefill_chunks, resolve_backend, rings, scale, select_gguf,
            serves, shard_footprint, usable_memory, usable_vram,
        },
        session::Session,
        tokenizer::Tokenizer,
        verify::verify_vindex,
        vindex::{Region, Vindex},
        waking::stop_waking,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        error::add_classes(module)?;
        planning::add_constants(module)?;
        // What is public, the package `skulk` says.
        module.delattr("__all__")
    }
}
