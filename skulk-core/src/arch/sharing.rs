//! Which layers use what others have: keys and values, or a choice of positions?

use super::{ArchSpec, AttentionSpec, LayerSpec, invalid};
use crate::error::Result;

impl ArchSpec {
    /// Whether stages can be cut before this layer: where no layer from there on uses keys and values of one before, or its
    /// choice of positions.
    ///
    /// At layer 0 and behind the last one, where nothing is cut, they can.
    pub fn can_cut(&self, layer: usize) -> bool {
        let later = self.layers.iter().skip(layer);
        later.filter_map(|spec| spec.attention()?.source()).all(|source| source >= layer)
    }

    /// Lets the last `n` layers use keys and values of the last one before all of them that has the same window, or none
    /// either. `Err` says what was expected.
    pub(super) fn share_kv(&mut self, n: usize) -> std::result::Result<(), String> {
        let n_layers = self.layers.len();
        let first = n_layers.checked_sub(n).filter(|first| *first > 0);
        let first = first.ok_or_else(|| format!("expected fewer than the {n_layers} layers, found {n}"))?;
        let (before, behind) = self.layers.split_at_mut(first);
        for layer in behind {
            if let Some(attention) = layer.attention_mut() {
                let like = |other: &AttentionSpec| other.window == attention.window;
                let source = before.iter().rposition(|other| other.attention().is_some_and(like));
                let none = || "expected a layer of each kind before those that share".to_owned();
                attention.kv_of = Some(source.ok_or_else(none)?);
            }
        }
        Ok(())
    }

    /// Checks that layers which use others' keys and values can; those of another model are looked at with it.
    pub(super) fn check_shared(&self) -> Result<()> {
        if self.is_assistant() {
            return Ok(());
        }
        for (at, layer) in self.layers.iter().enumerate() {
            let latent = layer.attention().and_then(|attention| attention.latent);
            let index = latent.and_then(|latent| latent.index);
            let Some((index, source)) = index.and_then(|index| Some((index, index.of?))) else { continue };
            // A step has the choice of the nearest layer before that has one.
            let own = |layer: &LayerSpec| layer.attention().and_then(AttentionSpec::own_index);
            let nearest = self.layers[..at].iter().rposition(|other| own(other).is_some());
            let most = |layer: usize| own(&self.layers[layer]).map(|index| index.most);
            if nearest != Some(source) || most(source) != Some(index.most) {
                let message = format!(
                    "expected the nearest layer before {at} that chooses {} positions itself, found layer {source}",
                    index.most
                );
                return Err(invalid("layer whose choice of positions is used", message));
            }
        }
        for (at, layer) in self.layers.iter().enumerate() {
            let Some((own, source)) = layer.attention().and_then(|own| Some((own, own.kv_of?))) else {
                continue;
            };
            let like = |other: &AttentionSpec| {
                let sizes = (other.n_kv_heads, other.head_dim) == (own.n_kv_heads, own.head_dim);
                sizes && other.window == own.window && other.rope == own.rope && other.has_kv()
            };
            if !self.layers[..at].get(source).and_then(LayerSpec::attention).is_some_and(like) {
                let message = format!(
                    "expected an earlier layer with keys and values of its own, such as layer {at} needs, found layer {source}"
                );
                return Err(invalid("layer whose keys and values are used", message));
            }
        }
        Ok(())
    }
}
