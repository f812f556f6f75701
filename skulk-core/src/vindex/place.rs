//! Which layer and which expert is a tensor of? Its name says so.

/// Where in the model a tensor belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// `None`: it is the whole model's.
    pub(super) layer: Option<usize>,
    /// `None`: it is the whole layer's.
    pub(super) expert: Option<usize>,
}

impl Place {
    /// The place that a name of Hugging Face's kind, without `model.` before it, tells.
    pub(super) fn of(name: &str) -> Self {
        let behind = |word: &str| {
            let mut parts = name.split('.').skip_while(|part| *part != word);
            parts.nth(1).and_then(|number| number.parse().ok())
        };
        let layer = if name.starts_with("layers.") { behind("layers") } else { None };
        Self { layer, expert: layer.and_then(|_| behind("experts")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_layer_and_expert() {
        let place = |name| {
            let Place { layer, expert } = Place::of(name);
            (layer, expert)
        };
        assert_eq!(place("norm.weight"), (None, None));
        assert_eq!(place("embed_tokens_per_layer.weight"), (None, None));
        assert_eq!(place("layers.12.mlp.experts.3.up_proj.weight"), (Some(12), Some(3)));
        assert_eq!(place("layers.0.block_sparse_moe.experts.7.w1.weight"), (Some(0), Some(7)));
        assert_eq!(place("layers.1.experts.gate_up_proj"), (Some(1), None));
        assert_eq!(place("layers.1.experts.2.down_proj.weight@64"), (Some(1), Some(2)));
        assert_eq!(place("layers.x.experts.2"), (None, None));
        assert_eq!(place("layers.3.gate_vectors"), (Some(3), None));
    }
}
