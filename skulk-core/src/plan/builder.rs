//! How is a placement made by hand? Of rules for layers, feed-forward blocks, experts and tensors by their names.

use std::fmt;
use std::ops::Range;

use super::inventory::Inventory;
#[cfg(feature = "generate")]
use super::overrides::Tensors;
use super::placement::Placement;
use super::stage::{ExpertShard, Stage, invalid};
use super::target::Target;
use crate::arch::ArchSpec;
use crate::error::{Error, Result};
use crate::weights::Checkpoint;

/// What a layer has that can be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayerParts {
    /// Experts, or 1 of a dense block; 0: the layer has no feed-forward block.
    pub(super) blocks: usize,
    /// It is in one stage with the layer before.
    pub(super) joined: bool,
}

/// Makes a placement of rules, in any order. Of two that place the same, both must place it alike.
///
/// Feed-forward blocks and experts that no rule names stay with their layer's attention, as do norms, routers and shared
/// experts in any case.
///
/// ```
/// use skulk::{Placement, plan::Inventory};
/// // 32 layers of 8 experts, of which a token takes 2.
/// let model = Inventory::of_experts(32, 1 << 20, 0, (8, 2), 1 << 24, 0);
/// let placement = Placement::builder(&model)
///     .layers(0..32, "wgpu")
///     .feed_forward(0..20, "cpu")
///     .experts(20..32, 4..8, "cpu@shed")
///     .build()?
///     .with_address("shed", "http://192.168.7.4:8080");
/// assert_eq!(placement.stages().len(), 1);
/// // All experts of the first layers, and each half of those of the last.
/// assert_eq!(placement.experts().len(), 3);
/// # Ok::<(), skulk::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct PlacementBuilder {
    parts: Vec<LayerParts>,
    /// Why there can be no such model.
    wrong: Option<String>,
    #[cfg(feature = "generate")]
    tensors: Option<Tensors>,
    rest: Option<Rule>,
    rules: Vec<Rule>,
}

/// Something that is to run somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    what: What,
    pub(super) target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Layers(Range<usize>),
    OtherLayers,
    FeedForward(Range<usize>),
    Experts(Range<usize>, Range<usize>),
    #[cfg(feature = "generate")]
    Tensors(String),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = &self.target;
        match &self.what {
            What::Layers(Range { start, end }) => write!(f, "layers {start}..{end} on {target}"),
            What::OtherLayers => write!(f, "layers that are not named on {target}"),
            What::FeedForward(Range { start, end }) => {
                write!(f, "feed-forward blocks of layers {start}..{end} on {target}")
            }
            What::Experts(layers, experts) => write!(
                f,
                "experts {}..{} of layers {}..{} on {target}",
                experts.start, experts.end, layers.start, layers.end
            ),
            #[cfg(feature = "generate")]
            What::Tensors(pattern) => write!(f, "the pattern `{pattern}` on {target}"),
        }
    }
}

/// Some experts of one layer, and the rule that places them.
pub(super) struct Claim<'a> {
    pub(super) layer: usize,
    pub(super) experts: Range<usize>,
    pub(super) rule: &'a Rule,
}

impl Placement {
    /// What makes a placement by hand, of a model with these parts. [`PlacementBuilder::from_checkpoint`] knows a
    /// checkpoint's, and its tensors by name.
    pub fn builder(inventory: &Inventory) -> PlacementBuilder {
        let parts = inventory.layers.iter().map(|layer| {
            let blocks = if layer.n_experts > 0 { layer.n_experts } else { usize::from(layer.ffn > 0) };
            LayerParts { blocks, joined: layer.joined }
        });
        PlacementBuilder {
            parts: parts.collect(),
            // Without layers there are no stages, which is said.
            wrong: inventory.wrong().filter(|_| !inventory.layers.is_empty()).map(|(_, message)| message),
            #[cfg(feature = "generate")]
            tensors: None,
            rest: None,
            rules: Vec::new(),
        }
    }
}

impl PlacementBuilder {
    /// What makes a placement of a checkpoint's model by hand; only its headers are read.
    ///
    /// # Errors
    /// As [`ArchSpec::from_checkpoint`].
    pub fn from_checkpoint(checkpoint: &dyn Checkpoint) -> Result<Self> {
        let arch = ArchSpec::from_checkpoint(checkpoint)?;
        let parts = arch.layers.iter().enumerate().map(|(at, layer)| {
            let blocks = match layer.ffn.experts {
                Some(experts) => experts.n_experts,
                None => usize::from(!layer.ffn.is_absent()),
            };
            LayerParts { blocks, joined: !arch.can_cut(at) }
        });
        Ok(Self {
            parts: parts.collect(),
            wrong: None,
            #[cfg(feature = "generate")]
            tensors: Some(Tensors::new(checkpoint, &arch)),
            rest: None,
            rules: Vec::new(),
        })
    }

    /// Runs the layers there that no other rule names.
    pub fn engine(mut self, target: impl Into<Target>) -> Self {
        self.rest = Some(Rule { what: What::OtherLayers, target: target.into() });
        self
    }

    /// Runs layers there, as a stage.
    pub fn layers(self, layers: Range<usize>, target: impl Into<Target>) -> Self {
        self.rule(What::Layers(layers), target)
    }

    /// Computes the feed-forward blocks of layers there, all experts included. Layers that have none are passed over.
    pub fn feed_forward(self, layers: Range<usize>, target: impl Into<Target>) -> Self {
        self.rule(What::FeedForward(layers), target)
    }

    /// Computes these experts of each of these layers there. A dense block is expert 0.
    pub fn experts(self, layers: Range<usize>, experts: Range<usize>, target: impl Into<Target>) -> Self {
        self.rule(What::Experts(layers, experts), target)
    }

    /// Computes the feed-forward blocks and experts there whose tensors' names a regular expression matches, as
    /// llama.cpp's `--override-tensor` does. Names are those of the checkpoint, as `blk.3.ffn_up_exps.weight` in GGUF files and
    /// `model.layers.3.mlp.experts.7.up_proj.weight` in folders, and a match may be anywhere within them. It must match all
    /// weights of a block, or of an expert where each has tensors of its own, and none that stays with attention; biases and
    /// scales go with their weights. Syntax is that of the crate [`regex`](https://docs.rs/regex).
    ///
    #[cfg_attr(feature = "generate", doc = "```")]
    #[cfg_attr(not(feature = "generate"), doc = "```ignore")]
    /// use skulk::{open_checkpoint, plan::PlacementBuilder};
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/stories260K");
    /// let checkpoint = open_checkpoint(path)?;
    /// let placement = PlacementBuilder::from_checkpoint(&*checkpoint)?
    ///     .engine("wgpu")
    ///     .override_tensors(r"layers\.[34]\.mlp\.", "CPU")
    ///     .build()?;
    /// assert_eq!(placement.experts()[0].layers, 3..5);
    /// # Ok::<(), skulk::Error>(())
    /// ```
    #[cfg(feature = "generate")]
    pub fn override_tensors(self, pattern: impl Into<String>, target: impl Into<Target>) -> Self {
        self.rule(What::Tensors(pattern.into()), target)
    }

    fn rule(mut self, what: What, target: impl Into<Target>) -> Self {
        self.rules.push(Rule { what, target: target.into() });
        self
    }

    /// The placement.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] for layers without an engine, ranges beyond the model, rules that place the same
    /// differently, patterns that match nothing, part of a block, or what stays with attention;
    /// [`ErrorKind::InvalidArgument`] for patterns that are no regular expressions, or without a checkpoint.
    pub fn build(&self) -> Result<Placement> {
        if let Some(wrong) = &self.wrong {
            return Err(invalid(wrong.clone(), "describe a model that there is, or name a checkpoint"));
        }
        let owners = self.owners()?;
        let stages = self.stages(&owners)?;
        let experts = self.shards(&owners)?;
        Placement::new(stages, self.parts.len())?.with_experts(experts)
    }

    /// All rules.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().chain(&self.rest)
    }

    /// Of each layer the experts that rules can name, or 1 of a dense block; 0: it has no block.
    pub(super) fn blocks(&self) -> impl ExactSizeIterator<Item = usize> {
        self.parts.iter().map(|part| part.blocks)
    }

    /// Of each layer the rule that places it; `None`: none names it.
    pub(super) fn named_layers(&self) -> Result<Vec<Option<&Rule>>> {
        if let Some(Rule { target, .. }) = self.rules().find(|rule| !rule.target.is_named()) {
            let message = format!("expected engine or engine@node, found `{target}`");
            return Err(
                Error::argument("target", message).with_hint("name an engine, as in cpu, wgpu or cpu@shed")
            );
        }
        let mut owners: Vec<Option<&Rule>> = vec![None; self.parts.len()];
        for rule in &self.rules {
            let What::Layers(layers) = &rule.what else { continue };
            self.inside(layers, rule)?;
            for layer in layers.clone() {
                match owners[layer] {
                    None => owners[layer] = Some(rule),
                    Some(other) if other.target == rule.target => {}
                    Some(other) => return Err(twice(other, rule, layer)),
                }
            }
        }
        Ok(owners.into_iter().map(|owner| owner.or(self.rest.as_ref())).collect())
    }

    /// What rules name of blocks, by layer and first expert.
    pub(super) fn claims(&self) -> Result<Vec<Claim<'_>>> {
        let mut claims = Vec::new();
        for rule in &self.rules {
            self.claim(rule, &mut claims)?;
        }
        claims.sort_by_key(|claim| (claim.layer, claim.experts.start));
        Ok(claims)
    }

    /// Of each layer the rule that places it.
    fn owners(&self) -> Result<Vec<&Rule>> {
        let named = self.named_layers()?;
        let open = |layer: usize| {
            let open = named[layer..].iter().take_while(|owner| owner.is_none()).count();
            let message =
                format!("expected an engine for each layer, found none for layers {layer}..{}", layer + open);
            invalid(message, "name these layers, or an engine for all that are not named")
                .with("layer", layer)
        };
        named.iter().enumerate().map(|(layer, owner)| owner.ok_or_else(|| open(layer))).collect()
    }

    fn stages(&self, owners: &[&Rule]) -> Result<Vec<Stage>> {
        let mut stages: Vec<Stage> = Vec::new();
        let mut before: Option<&Rule> = None;
        for (layer, rule) in owners.iter().enumerate() {
            match stages.last_mut().filter(|_| before.is_some_and(|before| std::ptr::eq(before, *rule))) {
                Some(stage) => stage.layers.end = layer + 1,
                None if self.parts[layer].joined && layer > 0 => {
                    let message =
                        format!("expected layer {layer} in one stage with the layer before, found a cut");
                    let hint = "it uses what earlier layers keep: cut before or behind all of them";
                    return Err(invalid(message, hint).with("layer", layer));
                }
                None => stages.push(rule.target.stage(layer..layer + 1)),
            }
            before = Some(rule);
        }
        Ok(stages)
    }

    /// Owners of all experts of the layers of which rules name some.
    fn shards(&self, owners: &[&Rule]) -> Result<Vec<ExpertShard>> {
        let claims = self.claims()?;
        let mut shards: Vec<ExpertShard> = Vec::new();
        // The shards of the layer before, which this layer's may continue.
        let mut open = 0..0;
        for claims in claims.chunk_by(|one, other| one.layer == other.layer) {
            let Some(&Claim { layer, .. }) = claims.first() else { continue };
            let attention = &owners[layer].target;
            let own = layer_shards(claims, attention, self.parts[layer].blocks)?;
            let continues = |(before, shard): (&ExpertShard, &ExpertShard)| {
                before.layers.end == layer
                    && ExpertShard { layers: before.layers.clone(), ..shard.clone() } == *before
            };
            if open.len() == own.len() && shards[open.clone()].iter().zip(&own).all(continues) {
                shards[open.clone()].iter_mut().for_each(|shard| shard.layers.end = layer + 1);
            } else {
                open = shards.len()..shards.len() + own.len();
                shards.extend(own);
            }
        }
        Ok(shards)
    }

    /// What a rule names of layers' blocks.
    fn claim<'a>(&self, rule: &'a Rule, claims: &mut Vec<Claim<'a>>) -> Result<()> {
        match &rule.what {
            What::Layers(_) | What::OtherLayers => {}
            What::FeedForward(layers) => {
                self.inside(layers, rule)?;
                let before = claims.len();
                let blocks = layers.clone().map(|layer| (layer, self.parts[layer].blocks));
                let claim = |(layer, blocks)| Claim { layer, experts: 0..blocks, rule };
                claims.extend(blocks.filter(|(_, blocks)| *blocks > 0).map(claim));
                if claims.len() == before {
                    let message = format!("expected layers with feed-forward blocks, found none for {rule}");
                    return Err(invalid(message, "name layers that have some"));
                }
            }
            What::Experts(layers, experts) => {
                self.inside(layers, rule)?;
                for layer in layers.clone() {
                    let blocks = self.parts[layer].blocks;
                    if experts.is_empty() || experts.end > blocks {
                        let message =
                            format!("expected experts within 0..{blocks} of layer {layer}, found {rule}");
                        let hint = "layers differ in their experts, and a dense block is expert 0: name those that each has";
                        return Err(invalid(message, hint).with("layer", layer));
                    }
                    claims.push(Claim { layer, experts: experts.clone(), rule });
                }
            }
            #[cfg(feature = "generate")]
            What::Tensors(pattern) => {
                let Some(tensors) = &self.tensors else {
                    let message =
                        format!("expected a checkpoint, whose tensors `{pattern}` could match, found none");
                    return Err(Error::argument("override_tensors", message).with_hint(
                        "give the checkpoint itself, whose tensors have names, or name layers and experts by ranges",
                    ));
                };
                for (layer, expert) in tensors.matched(pattern)? {
                    let experts = expert.map_or(0..self.parts[layer].blocks, |expert| expert..expert + 1);
                    claims.push(Claim { layer, experts, rule });
                }
            }
        }
        Ok(())
    }

    fn inside(&self, layers: &Range<usize>, rule: &Rule) -> Result<()> {
        let n = self.parts.len();
        if layers.is_empty() || layers.end > n {
            let message = format!("expected at least one layer, within 0..{n}, found {rule}");
            return Err(invalid(message, "count layers from 0; a range ends before its last number"));
        }
        Ok(())
    }
}

/// The owners of a layer's experts, of claims in their order: what nobody claims is attention's.
fn layer_shards(claims: &[Claim<'_>], attention: &Target, blocks: usize) -> Result<Vec<ExpertShard>> {
    let mut owned: Vec<(Range<usize>, &Target)> = Vec::new();
    let mut add = |experts: Range<usize>, target| match owned.last_mut() {
        _ if experts.is_empty() => {}
        Some((before, same)) if *same == target => before.end = before.end.max(experts.end),
        _ => owned.push((experts, target)),
    };
    let Some(&Claim { layer, .. }) = claims.first() else { return Ok(Vec::new()) };
    // The claim that reaches furthest.
    let mut last: Option<&Claim<'_>> = None;
    for claim in claims {
        let (end, rule) = last.map_or((0, claim.rule), |last| (last.experts.end, last.rule));
        let target = &claim.rule.target;
        if claim.experts.start < end && rule.target != *target {
            return Err(twice(rule, claim.rule, layer));
        }
        if !target.serves(attention) {
            let message = format!(
                "expected blocks of layer {layer} on {attention}, which has its attention, on cpu beside it, or on another node, found {}",
                claim.rule
            );
            return Err(invalid(message, "give the layer itself to that engine, or its blocks to cpu")
                .with("layer", layer));
        }
        if claim.experts.start > end {
            add(end..claim.experts.start, attention);
        }
        add(end.max(claim.experts.start)..claim.experts.end, target);
        if claim.experts.end > end || last.is_none() {
            last = Some(claim);
        }
    }
    add(last.map_or(0, |last| last.experts.end)..blocks, attention);
    let shard = |(experts, target): (Range<usize>, &Target)| target.shard(layer..layer + 1, experts, blocks);
    Ok(owned.into_iter().map(shard).collect())
}

pub(super) fn twice(one: &Rule, other: &Rule, layer: usize) -> Error {
    invalid(
        format!("expected one place for each layer and expert, found {one} and {other}"),
        "narrow one of them, or give both the same place",
    )
    .with("layer", layer)
}
