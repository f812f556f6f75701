//! How much do a shard's layers keep of a sequence? Groups of layers that see equally far, and their bytes.

use super::pages::GroupSpec;
use crate::engine::ShardSpec;
use crate::engine::backend::{PAGE, PageSpec};

/// A shard's layers by how far they see.
pub(super) struct Groups {
    list: Vec<GroupSpec>,
    /// By layer of the shard.
    of_layer: Vec<usize>,
}

impl Groups {
    pub(super) fn of(spec: &ShardSpec) -> Self {
        let (mut list, mut of_layer): (Vec<GroupSpec>, _) = (Vec::new(), Vec::new());
        for layer in &spec.arch.layers[spec.layers.clone()] {
            let window = layer.attention.window;
            let bytes = PageSpec::new(&layer.attention, spec.kv).bytes();
            let known = list.iter().position(|group| group.window == window);
            let group = known.unwrap_or_else(|| {
                list.push(GroupSpec { window, page_bytes: 0, full: 0 });
                list.len() - 1
            });
            list[group].page_bytes = list[group].page_bytes.saturating_add(bytes);
            of_layer.push(group);
        }
        for group in &mut list {
            let pages = most_pages(group.window, spec.context, spec.max_rows);
            group.full = pages.saturating_mul(group.page_bytes);
        }
        Self { list, of_layer }
    }

    pub(super) fn list(&self) -> &[GroupSpec] {
        &self.list
    }

    /// The group of a layer, by its index within the shard.
    pub(super) fn of_layer(&self, layer: usize) -> usize {
        self.of_layer[layer]
    }

    /// The layers of a group, by index within the shard.
    pub(super) fn layers(&self, group: usize) -> impl Iterator<Item = usize> {
        self.of_layer.iter().enumerate().filter(move |(_, of)| **of == group).map(|(layer, _)| layer)
    }

    /// Bytes of the pages that one sequence of full length has at most.
    pub(super) fn full_length(&self) -> u64 {
        self.list.iter().fold(0, |sum, group| sum.saturating_add(group.full))
    }
}

/// Pages of a group that one sequence of `context` positions has at most, in steps of up to `max_rows` rows.
fn most_pages(window: Option<usize>, context: usize, max_rows: usize) -> u64 {
    let all = context.div_ceil(PAGE);
    // The first row of a step still sees `window - 1` positions before it, from some place in a page on.
    let seen = |window: usize| (window - 1).saturating_add(max_rows).div_ceil(PAGE) + 1;
    window.map_or(all, |window| seen(window).min(all)) as u64
}
