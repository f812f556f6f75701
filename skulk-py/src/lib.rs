//! How does Python reach the library? The native module `skulk._skulk`: handles, conversions and
//! exceptions; everything that decides anything is in `skulk-core`.

mod call;
mod cancel;
mod card;
mod chat;
mod convert;
mod embed;
mod error;
mod extract;
mod floats;
mod generation;
mod given;
mod handle;
mod here;
mod json;
mod model;
mod plan;
mod progress;
mod running;
mod serve;
mod session;
mod tokenizer;
mod tools;
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
        call::{call, gguf_facts},
        cancel::CancelToken,
        card::{Library, card_from_checkpoint, card_open, card_save, is_gemma4_family},
        chat::ChatStream,
        embed::EmbeddingModel,
        error::{error_kinds, invalid},
        extract::extract,
        floats::Floats,
        generation::Generation,
        model::{Model, devices},
        plan::{
            Placement, inventory_from_checkpoint, inventory_from_draft_model, measure_disk, measure_link,
            plan, price,
        },
        serve::{Server, serve},
        session::Session,
        tokenizer::Tokenizer,
        tools::ToolSteps,
        verify::verify_vindex,
        vindex::{Region, Vindex},
        waking::stop_waking,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // What is public, the package `skulk` says.
        module.delattr("__all__")
    }
}
