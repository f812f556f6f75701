//! How much do a shard's layers keep of a sequence? Groups of layers that see equally far, and their bytes.

use super::pages::GroupSpec;
use crate::arch::{Mixer, STATES_HELD, Window, kept_positions};
use crate::engine::ShardSpec;
use crate::engine::backend::{PAGE, PageSpec};

/// A shard's layers by how far they see.
pub(super) struct Groups {
    list: Vec<GroupSpec>,
    /// By layer of the shard, as are those whose keys and values layers use: mostly their own.
    of_layer: Vec<usize>,
    sources: Vec<usize>,
}

impl Groups {
    pub(super) fn of(spec: &ShardSpec) -> Self {
        let (mut list, mut of_layer): (Vec<GroupSpec>, _) = (Vec::new(), Vec::new());
        let mut sources = Vec::new();
        for (at, layer) in spec.arch.layers[spec.layers.clone()].iter().enumerate() {
            let attention = match &layer.mixer {
                Mixer::Attention(attention) => attention,
                Mixer::Nothing => {
                    sources.push(at);
                    of_layer.push(group(&mut list, None, false, 0));
                    continue;
                }
                Mixer::Recurrent(state) => {
                    sources.push(at);
                    of_layer.push(group(&mut list, None, true, state.state_bytes()));
                    continue;
                }
            };
            let window = attention.window;
            let source = attention.kv_of.and_then(|source| source.checked_sub(spec.layers.start));
            sources.push(source.unwrap_or(at));
            let own = source.is_none();
            let bytes = if own { PageSpec::new(attention, spec.kv).bytes() } else { 0 };
            of_layer.push(group(&mut list, window, false, bytes));
        }
        for group in &mut list {
            let pages = match group.state {
                true => STATES_HELD,
                false => most_pages(group.window, spec.context, spec.max_rows),
            };
            group.full = pages.saturating_mul(group.page_bytes);
        }
        Self { list, of_layer, sources }
    }

    pub(super) fn list(&self) -> &[GroupSpec] {
        &self.list
    }

    /// The group of a layer, by its index within the shard.
    pub(super) fn of_layer(&self, layer: usize) -> usize {
        self.of_layer[layer]
    }

    /// The layer whose keys and values a layer uses, both by index within the shard.
    pub(super) fn source(&self, layer: usize) -> usize {
        self.sources[layer]
    }

    /// Whether a layer has keys and values of its own, by its index within the shard.
    pub(super) fn has_own(&self, layer: usize) -> bool {
        self.sources[layer] == layer
    }

    /// The layers of a group that have keys and values, by index within the shard.
    pub(super) fn layers(&self, group: usize) -> impl Iterator<Item = usize> {
        let of_group = move |layer: &usize| self.of_layer[*layer] == group && self.has_own(*layer);
        (0..self.of_layer.len()).filter(of_group)
    }

    /// Pages of a layer, by its index within the shard, where all layers together take so many bytes.
    pub(super) fn pages_within(&self, layer: usize, bytes: u64) -> usize {
        let (group, all) = (&self.list[self.of_layer[layer]], self.full_length());
        let own = u128::from(bytes) * u128::from(group.full) / u128::from(all.max(1));
        usize::try_from(own.div_ceil(u128::from(group.page_bytes.max(1)))).unwrap_or(usize::MAX)
    }

    /// Bytes of the pages that one sequence of full length has at most.
    pub(super) fn full_length(&self) -> u64 {
        self.list.iter().fold(0, |sum, group| sum.saturating_add(group.full))
    }
}

/// The group of a layer that keeps as much beside others of its kind.
fn group(list: &mut Vec<GroupSpec>, window: Option<Window>, state: bool, bytes: u64) -> usize {
    let known = list.iter().position(|group| (group.window, group.state) == (window, state));
    let group = known.unwrap_or_else(|| {
        list.push(GroupSpec { window, state, page_bytes: 0, full: 0 });
        list.len() - 1
    });
    list[group].page_bytes = list[group].page_bytes.saturating_add(bytes);
    group
}

/// Pages of a group that one sequence of `context` positions has at most, in steps of up to `max_rows` rows.
fn most_pages(window: Option<Window>, context: usize, max_rows: usize) -> u64 {
    let window = window.map(|window| window.size() as u64);
    kept_positions(window, context as u64, max_rows as u64) / PAGE as u64
}
