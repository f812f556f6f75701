//! Which feed-forward blocks and experts does a pattern over tensor names mean? Whole ones, or it is refused.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::stage::invalid;
use crate::arch::{ArchSpec, TensorRole};
use crate::error::{Error, Result};
use crate::weights::{Checkpoint, beside};

/// A layer's block, with all its experts; or one of them, where each has tensors of its own.
type Block = (usize, Option<usize>);

/// A checkpoint's tensors by what can be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensors {
    /// Weights of blocks, by name.
    blocks: BTreeMap<String, Block>,
    /// How many each block has.
    sizes: BTreeMap<Block, usize>,
    /// What the model has beside.
    others: BTreeSet<String>,
    /// What goes with a block's weights, and what is not loaded.
    silent: BTreeSet<String>,
}

impl Tensors {
    pub(super) fn new(checkpoint: &dyn Checkpoint, arch: &ArchSpec) -> Self {
        let names = &arch.names;
        let (mut blocks, mut sizes) = (BTreeMap::new(), BTreeMap::new());
        let mut silent = BTreeSet::new();
        for (layer, spec) in arch.layers.iter().enumerate() {
            for name in names.feed_forward(layer, spec) {
                let expert = match names.role(&name) {
                    Some(TensorRole::Layer { expert, .. }) => expert.map(|expert| expert.0),
                    _ => None,
                };
                *sizes.entry((layer, expert)).or_insert(0) += 1;
                silent.insert(match name.strip_suffix("weight") {
                    Some(stem) => format!("{stem}bias"),
                    None => format!("{name}_bias"),
                });
                silent.extend(checkpoint.tensor(&name).map(beside).into_iter().flatten());
                blocks.insert(name, (layer, expert));
            }
        }
        let is_loaded = |name: &str| match names.role(name) {
            Some(TensorRole::Layer { layer, .. }) => layer < arch.n_layers(),
            role => role.is_some(),
        };
        let rest = checkpoint.tensors().iter().map(|tensor| &tensor.name);
        let rest = rest.filter(|name| !blocks.contains_key(*name) && !silent.contains(*name)).cloned();
        let (others, unused): (BTreeSet<_>, BTreeSet<_>) = rest.partition(|name| is_loaded(name));
        silent.extend(unused);
        Self { blocks, sizes, others, silent }
    }

    /// The blocks whose weights a pattern matches, in order.
    pub(super) fn matched(&self, pattern: &str) -> Result<Vec<Block>> {
        let regex = Regex::new(pattern).map_err(|e| {
            Error::argument("override_tensors", format!("expected a regular expression, found `{pattern}`"))
                .with_hint("look-around and back references are not supported")
                .with_source(e)
        })?;
        let refused = |message: String, hint| Err(invalid(message, hint).with("pattern", pattern));
        let mut others = self.others.iter().filter(|name| regex.is_match(name));
        if let Some(first) = others.next() {
            let more = match others.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            return refused(
                format!(
                    "expected `{pattern}` to match feed-forward blocks and routed experts alone, found `{first}`{more}"
                ),
                "attention, norms, routers, shared experts, embedding and head stay where their layer is: narrow the pattern",
            );
        }
        let mut found: BTreeMap<Block, (usize, &str)> = BTreeMap::new();
        for (name, block) in self.blocks.iter().filter(|(name, _)| regex.is_match(name)) {
            found.entry(*block).or_insert((0, name)).0 += 1;
        }
        if found.is_empty() {
            if let Some(silent) = self.silent.iter().find(|name| regex.is_match(name)) {
                return refused(
                    format!("expected `{pattern}` to match weights of blocks, found `{silent}` alone"),
                    "biases and scales go with their weights, and what is not loaded has no place: match weights",
                );
            }
            let such = self.blocks.keys().next().map_or(String::new(), |name| format!(" such as `{name}`"));
            return refused(
                format!("expected `{pattern}` to match tensors of blocks{such}, found none"),
                "names are those of the checkpoint; give each pattern by itself",
            );
        }
        for (block, (n, matched)) in &found {
            if self.sizes.get(block) == Some(n) {
                continue;
            }
            let mut missed = self.blocks.iter().filter(|(name, of)| *of == block && !regex.is_match(name));
            let missed = missed.next().map_or("", |(name, _)| name.as_str());
            let what = match block {
                (layer, Some(expert)) => format!("expert {expert} of layer {layer}"),
                (layer, None) => format!("the block of layer {layer}"),
            };
            return refused(
                format!("expected `{pattern}` to match all of {what}, found `{matched}` and not `{missed}`"),
                "a block or expert is computed in one place: match all its projections, or none",
            );
        }
        Ok(found.into_keys().collect())
    }
}
