//! What do files of EAGLE-3 heads say?

use super::super::ahead::Eagle;
use super::super::{TakenNorm, unsupported};
use super::keys::Keys;
use super::llama;
use crate::error::Result;
use crate::weights::Checkpoint;

/// The architecture of such files.
pub(super) const EAGLE3: &str = "eagle3";

/// The keys that name layers by what they take, as converters write them and once did.
const TARGET_LAYERS: [&str; 2] = ["eagle3.target_layers", "eagle3.extract_layers"];

pub(super) fn eagle(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<Eagle> {
    let n_layers = keys.usize("block_count")?;
    if n_layers != 1 {
        return Err(unsupported("an EAGLE head's number of layers", &n_layers.to_string(), "1")
            .with("file", keys.metadata.file().display())
            .with("field", format!("{EAGLE3}.block_count")));
    }
    let mut spec = llama::llama(keys, checkpoint)?;
    // Where it has no output head, it uses the model's.
    spec.tied_embeddings = false;
    spec.names = spec.names.of_gguf_eagle();
    let (field, borders) = borders(keys)?;
    let head = checkpoint.tensor(&spec.names.head()).and_then(|head| head.shape.first());
    Ok(Eagle {
        hidden_size: keys.usize("target_hidden_size")?,
        vocab_size: head.copied().unwrap_or(spec.vocab_size),
        borders: Some(borders),
        field,
        taken_norm: keys.bool_or("norm_before_fc", false)?.then_some(TakenNorm::Whole),
        goes_on_normed: false,
        normed: keys.bool_or("norm_before_residual", false)?,
        spec,
    })
}

/// Behind how many layers hidden states are taken, and the field that says so.
fn borders(keys: &Keys<'_>) -> Result<(&'static str, [usize; 3])> {
    let found = TARGET_LAYERS.into_iter().find(|key| keys.metadata.get(key).is_some());
    let key = found.unwrap_or(TARGET_LAYERS[0]);
    let array = keys.metadata.array(key)?;
    let own: Option<Vec<_>> = array.i64s()?.map(|layer| usize::try_from(layer).ok()).collect();
    let error = || {
        let own = key.trim_start_matches("eagle3.");
        keys.error(own, format!("expected the numbers of three layers, found {array:?}"))
    };
    Ok((key, own.and_then(|own| own.try_into().ok()).ok_or_else(error)?))
}
