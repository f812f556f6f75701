//! What do files of EAGLE-3 heads say?

use super::super::ahead::Eagle;
use super::super::unsupported;
use super::keys::Keys;
use super::llama;
use crate::error::Result;
use crate::weights::Checkpoint;

/// The architecture of such files.
pub(super) const EAGLE3: &str = "eagle3";

/// The keys that name layers by what they take, as converters write them and once did.
const TARGET_LAYERS: [&str; 2] = ["eagle3.target_layers", "eagle3.extract_layers"];

pub(super) fn eagle(keys: &Keys<'_>, checkpoint: &dyn Checkpoint) -> Result<Eagle> {
    only(keys, "block_count", keys.usize("block_count")?, 1)?;
    only(keys, "norm_before_fc", keys.bool_or("norm_before_fc", false)?, false)?;
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
        normed: keys.bool_or("norm_before_residual", false)?,
        spec,
    })
}

/// Behind how many layers hidden states are taken, and the field that says so.
fn borders(keys: &Keys<'_>) -> Result<(&'static str, [usize; 3])> {
    let found = TARGET_LAYERS.into_iter().find(|key| keys.metadata.get(key).is_some());
    let key = found.unwrap_or(TARGET_LAYERS[0]);
    let layers: Vec<_> = keys.metadata.array(key)?.i64s()?.collect();
    let own: Option<Vec<_>> = layers.iter().map(|layer| usize::try_from(*layer).ok()).collect();
    let error = || {
        let own = key.trim_start_matches("eagle3.");
        keys.error(own, format!("expected three layers, found {layers:?}"))
    };
    Ok((key, own.and_then(|own| own.try_into().ok()).ok_or_else(error)?))
}

/// `Ok` for what is known.
fn only<T: PartialEq + std::fmt::Debug>(keys: &Keys<'_>, key: &str, found: T, known: T) -> Result<()> {
    if found == known {
        return Ok(());
    }
    Err(unsupported("the variant", &format!("{key}: {found:?}"), &format!("{known:?}"))
        .with("file", keys.metadata.file().display())
        .with("field", format!("{EAGLE3}.{key}")))
}
