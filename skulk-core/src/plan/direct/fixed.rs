//! What is fixed by hand? Layers and blocks on devices, which a plan leaves there and completes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::cost::Owner;
use super::seats::Seat;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::backend::{own_engine, serves, tag_of};
use crate::plan::builder::{PlacementBuilder, Rule, twice};
use crate::plan::cluster::Node;
use crate::plan::inventory::LayerBytes;

/// Names that a hint lists at most.
const LISTED: usize = 8;

/// Parts that rules of a request fix.
#[derive(Default)]
pub(super) struct Fixed {
    /// Devices with the layers whose attention they have, in order of layers: each has one run of them.
    pub(super) stages: Vec<(usize, Range<usize>)>,
    /// Blocks and experts, by layer and first expert; none twice.
    pub(super) owners: Vec<Owner>,
    /// The devices of both.
    pub(super) seats: BTreeSet<usize>,
}

impl Fixed {
    /// What rules mean on these devices of a cluster's nodes, for a model of such layers.
    ///
    /// # Errors
    /// Those of rules, and [`ErrorKind::InvalidArgument`] for rules of another model, places that the cluster lacks or that
    /// cannot run the model's parts, and devices with several runs of layers; [`ErrorKind::PlanPending`] for nodes that
    /// have not reported their memory.
    pub(super) fn new(
        rules: &PlacementBuilder,
        nodes: &[&Node],
        seats: &[Seat],
        layers: &[LayerBytes],
    ) -> Result<Self> {
        let (found, expected) = (rules.blocks().len(), layers.len());
        if found != expected {
            let message = format!("expected rules for a model of {expected} layers, found some for {found}");
            return Err(Error::argument("fixed", message)
                .with_hint("make the rules of the checkpoint or inventory that is planned"));
        }
        let key = |rule: &Rule| (rule.target.node.clone(), rule.target.engine.clone());
        let places = rules.rules().map(|rule| Ok((key(rule), place(rule, nodes, seats)?)));
        let places: BTreeMap<_, usize> = places.collect::<Result<_>>()?;
        let seat = |rule: &Rule| places.get(&key(rule)).copied().unwrap_or_default();

        let mut stages: Vec<(usize, Range<usize>, &Rule)> = Vec::new();
        let mut homes: Vec<Option<(usize, &Rule)>> = vec![None; layers.len()];
        for (layer, rule) in rules.named_layers()?.into_iter().enumerate() {
            let Some(rule) = rule else { continue };
            let at = seat(rule);
            if !seats[at].attention {
                let message = format!("expected layers on a node in role full, found {rule}");
                return Err(Error::argument("fixed", message)
                    .with("node", &rule.target.node)
                    .with_hint("fix feed-forward blocks and experts there, and layers on another node"));
            }
            homes[layer] = Some((at, rule));
            // What is in one stage with it, too.
            let start = (0..=layer).rev().find(|&it| !layers[it].joined).unwrap_or(0);
            let more = layers[layer + 1..].iter().take_while(|it| it.joined).count();
            match stages.iter_mut().find(|(known, ..)| *known == at) {
                Some((_, run, _)) => run.end = layer + 1 + more,
                None => stages.push((at, start..layer + 1 + more, rule)),
            }
        }
        stages.sort_by_key(|(_, run, _)| run.start);
        if let Some(pair) = stages.windows(2).find(|pair| pair[0].1.end > pair[1].1.start) {
            let message =
                format!("expected one run of layers on each device, found {} and {}", pair[0].2, pair[1].2);
            return Err(Error::argument("fixed", message).with_hint(
                "what lies between two layers of a device is its, too, and layers that share keys and values are on one: \
                 fix neighbours together",
            ));
        }
        let stages: Vec<_> = stages.into_iter().map(|(seat, run, _)| (seat, run)).collect();

        let mut owners: Vec<Owner> = Vec::new();
        let mut before: Option<&Rule> = None;
        for claim in rules.claims()? {
            let (layer, rule) = (claim.layer, claim.rule);
            let n = layers[layer].blocks().0;
            if claim.experts.end > n {
                let message = format!("expected experts within 0..{n} of layer {layer}, found {rule}");
                return Err(Error::argument("fixed", message)
                    .with_hint("plan with the inventory of the checkpoint whose experts the rules name"));
            }
            let owner = Owner { seat: seat(rule), layer, experts: claim.experts };
            if let Some((home, attention)) = homes[layer]
                && !may_serve(&seats[home], &seats[owner.seat])
            {
                let message = format!(
                    "expected blocks where {attention} is, on cpu beside it, or on another node, found {rule}"
                );
                return Err(Error::argument("fixed", message)
                    .with("layer", layer)
                    .with_hint("fix the layer itself on that engine, or its blocks on cpu"));
            }
            match owners.last_mut().filter(|last| last.layer == layer) {
                Some(last) if last.seat == owner.seat && owner.experts.start <= last.experts.end => {
                    last.experts.end = last.experts.end.max(owner.experts.end);
                }
                Some(last) if owner.experts.start < last.experts.end => {
                    return Err(twice(before.unwrap_or(rule), rule, layer));
                }
                _ => owners.push(owner),
            }
            before = Some(rule);
        }
        let seats =
            stages.iter().map(|(seat, _)| *seat).chain(owners.iter().map(|owner| owner.seat)).collect();
        Ok(Self { stages, owners, seats })
    }

    /// What is fixed of a layer's blocks.
    pub(super) fn of_layer(&self, layer: usize) -> &[Owner] {
        of_layer(&self.owners, layer)
    }

    /// How many of a layer's blocks and experts are.
    pub(super) fn count(&self, layer: usize) -> usize {
        self.of_layer(layer).iter().map(|owner| owner.experts.len()).sum()
    }

    /// Owners of blocks: those that are fixed, and of the rest these `owners`, sorted by layer. What none of them has is
    /// with its layer's attention, on the device that `homes` has for the layer.
    pub(super) fn complete(&self, owners: Vec<Owner>, layers: &[LayerBytes], homes: &[usize]) -> Vec<Owner> {
        if self.owners.is_empty() {
            return owners;
        }
        let mut all = Vec::new();
        for (layer, bytes) in layers.iter().enumerate() {
            let (fixed, open) = (self.of_layer(layer), of_layer(&owners, layer));
            let whole = [Owner { seat: homes[layer], layer, experts: 0..bytes.blocks().0 }];
            let open: &[Owner] = if open.is_empty() && !fixed.is_empty() { &whole } else { open };
            let starts = std::iter::once(0).chain(fixed.iter().map(|owner| owner.experts.end));
            let ends = fixed.iter().map(|owner| owner.experts.start).chain([usize::MAX]);
            let gaps: Vec<Range<usize>> = starts.zip(ends).map(|(start, end)| start..end).collect();
            let rest = open.iter().flat_map(|owner| {
                gaps.iter().map(|gap| Owner {
                    experts: owner.experts.start.max(gap.start)..owner.experts.end.min(gap.end),
                    ..owner.clone()
                })
            });
            let first = all.len();
            all.extend(fixed.iter().cloned().chain(rest.filter(|owner| !owner.experts.is_empty())));
            all[first..].sort_by_key(|owner| owner.experts.start);
        }
        all
    }
}

/// Whether a device can compute blocks of a layer whose attention `home` has: itself, a processor beside an accelerator,
/// or another node.
pub(super) fn may_serve(home: &Seat, owner: &Seat) -> bool {
    home == owner || home.node != owner.node || home.beside && !owner.beside
}

fn of_layer(owners: &[Owner], layer: usize) -> &[Owner] {
    let start = owners.partition_point(|owner| owner.layer < layer);
    let end = owners.partition_point(|owner| owner.layer <= layer);
    &owners[start..end]
}

/// The device that a rule names.
fn place(rule: &Rule, nodes: &[&Node], seats: &[Seat]) -> Result<usize> {
    let target = &rule.target;
    let refused = |message: String, hint: String| {
        Err(Error::argument("fixed", message).with("node", &target.node).with_hint(hint))
    };
    let Some(node) = nodes.iter().position(|node| node.id == target.node) else {
        let known: Vec<&str> = nodes.iter().take(LISTED).map(|node| node.id.as_str()).collect();
        let message = format!("expected a node of the cluster, found {rule}");
        return refused(message, format!("name one as engine@node; nodes are {}", known.join(", ")));
    };
    if nodes[node].memory.is_none() {
        let message = format!("the node has not reported its memory yet, which {rule} needs");
        return Err(Error::new(ErrorKind::PlanPending, message)
            .with("node", &target.node)
            .with_hint("ask again shortly"));
    }
    let own = || (0..seats.len()).filter(|&at| seats[at].node == node);
    let tag = tag_of(&target.engine);
    let backend = |at: usize| seats[at].backend.as_deref().unwrap_or_default();
    if let Some(exact) = own().find(|&at| backend(at) == tag) {
        return Ok(exact);
    }
    let found: Vec<usize> = own().filter(|&at| serves(backend(at), &tag)).collect();
    let engines = |seats: &mut dyn Iterator<Item = usize>| {
        let named = |at| own_engine(backend(at)).map(|engine| format!("{engine}@{}", target.node));
        seats.filter_map(named).take(LISTED).collect::<Vec<_>>().join(", ")
    };
    match found[..] {
        [one] => Ok(one),
        [] => {
            let message = format!("expected a device that runs this model, found {rule}");
            let hint = match engines(&mut own()) {
                none if none.is_empty() => {
                    "the node has none: it is excluded, or none of its backends is on the card".to_owned()
                }
                some => format!("the node's are {some}; of devices that share their memory plans use one"),
            };
            refused(message, hint)
        }
        _ => refused(
            format!("expected one device, found {rule}, which are {}", found.len()),
            format!("name one of {}", engines(&mut found.iter().copied())),
        ),
    }
}
