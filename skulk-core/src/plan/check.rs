//! Is a placement that came from elsewhere sound? Coverage, and budgets.

use std::collections::BTreeMap;

use super::backend::{is_candles, keeps, may_run, own_engine, serves};
use super::cluster::{Cluster, NodeId, Role};
use super::direct::seats;
use super::instance::Instance;
use super::inventory::Inventory;
use super::memory::{scale, shard_footprint, usable_memory};
use super::placement::Placement;
use super::report::Bytes;
use super::stage::{Drafter, Part, invalid};
use super::strictness::Strictness;
use crate::bytes::ByteSize;
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};
use crate::kv_type::KvTypes;

/// Of a card's size, the share that budgets must account for: files hold more than weights, and cards
/// round.
const ACCOUNTED: f64 = 0.95;

const PLAN_AGAIN: &str = "plan for this model, or give the card that the placement was made for";
pub(super) const NEW_CLUSTER: &str = "plan for this cluster, or give the one that the placement was made for";
/// What to do about backends that a card does not list.
pub(super) const LISTED: &str =
    "use a backend that the card lists: a checkpoint's own card has the engines that can run it";
/// The same of candle's.
pub(super) const CANDLE_RUNS_NOT: &str = "use a backend that the card lists: checkpoints' own cards leave candle's engines out where rows are padded to whole blocks, as in some vindexes, or types of numbers are for processors alone";
const FREE: &str = "plan for what the node has free now, or free some of its memory";
const SPOILED: &str = "the placement contradicts itself or its card: plan again";

impl Placement {
    /// Whether every layer and expert of the card's model has its place exactly once, and what each device is
    /// to hold fits there by the placement's own budgets. Placements that came as MLX instances have none, and
    /// budgets may be wrong: [`check_on`](Self::check_on) looks at the nodes.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] naming what is wrong, and on which node or layer.
    pub fn check(&self, card: &ModelCard) -> Result<()> {
        if let Some(own) = self.card.as_deref().filter(|own| own.model_id != card.model_id) {
            let message = format!("expected a placement of {}, found one of {}", card.model_id, own.model_id);
            return Err(invalid(message, PLAN_AGAIN));
        }
        if self.n_layers != card.n_layers {
            let message = format!("expected {} layers, found {}", card.n_layers, self.n_layers);
            return Err(invalid(message, PLAN_AGAIN));
        }
        self.covers(self.n_layers)?;
        if let (Some(tokens), Some(limit)) = (self.context_tokens, self.context_limit)
            && tokens > limit
            && !self.budgets.is_empty()
            && matches!(self.instance, Instance::Direct { .. })
        {
            let message =
                format!("expected a context of at most its limit of {limit} tokens, found {tokens}");
            return Err(invalid(message, SPOILED));
        }
        if let Some(limit) = self.context_limit
            && card.context_length > 0
            && limit > card.context_length as u64
        {
            let message =
                format!("expected a context of at most {} tokens, found {limit}", card.context_length);
            return Err(invalid(message, PLAN_AGAIN));
        }
        for (node, backend) in self.devices() {
            let compatible = &card.placement.compatible_backends;
            if let Some(backend) = backend.as_deref().filter(|backend| !may_run(backend, compatible)) {
                return Err(not_listed(card, node, backend));
            }
        }
        self.budgets_hold(card)
    }

    /// Nodes of all parts, and whether these have attention.
    fn parts(&self) -> impl Iterator<Item = (&NodeId, bool)> {
        let stages = self.stages.iter().map(|stage| (&stage.node, true));
        stages.chain(self.experts.iter().map(|shard| (&shard.node, false)))
    }

    /// Nodes and backends of all parts.
    fn devices(&self) -> impl Iterator<Item = (&NodeId, &Option<String>)> {
        let stages = self.stages.iter().map(|stage| (&stage.node, &stage.backend));
        stages.chain(self.experts.iter().map(|shard| (&shard.node, &shard.backend)))
    }

    /// [`check`](Self::check), and whether each part fits into what its node has now, with the margins of
    /// [`Strictness::Safe`]: what the budgets say that a device is to hold, and without budgets what the
    /// reference estimates for a node's share of the card's size with a context of `context_tokens`.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`]; [`ErrorKind::PlanPending`] where a node has not reported its memory.
    pub fn check_on(&self, card: &ModelCard, cluster: &Cluster, context_tokens: u64) -> Result<()> {
        self.check(card)?;
        let find = |id: &NodeId| {
            cluster.nodes.iter().find(|node| node.id == *id).ok_or_else(|| {
                invalid("expected nodes of the cluster, found another", NEW_CLUSTER).with("node", id)
            })
        };
        for (id, has_attention) in self.parts() {
            match find(id)?.role {
                Role::Full => {}
                Role::FfnOnly if !has_attention => {}
                role => {
                    let message =
                        format!("expected a node in another role for this part, found one in {role}");
                    return Err(invalid(message, NEW_CLUSTER).with("node", id));
                }
            }
        }
        let listed = &card.placement.compatible_backends;
        let by_hand = self.budgets.is_empty() && listed.iter().any(|tag| own_engine(tag).is_some());
        for (id, backend) in self.devices().filter(|_| by_hand) {
            let Some(tag) = backend.as_deref().filter(|tag| own_engine(tag).is_some()) else { continue };
            let node = find(id)?;
            let devices = seats::devices(0, node, card, self.kv(), Strictness::Safe);
            let is_it = |own: &str| own == tag || serves(own, tag);
            match devices.iter().any(|device| device.backend.as_deref().is_none_or(is_it)) {
                true => {}
                false if node.memory.is_none() => return Err(pending(id)),
                false => return Err(no_device(card, id, Some(tag), self.kv())),
            }
        }
        // Devices may reach the same memory, which then holds what all of them are to hold.
        let mut held: BTreeMap<(&NodeId, Option<usize>), (u64, u64)> = BTreeMap::new();
        for budget in &self.budgets {
            let node = find(&budget.node)?;
            let devices = seats::devices(0, node, card, self.kv(), Strictness::Safe);
            let device = match devices.iter().find(|device| device.backend == budget.backend) {
                Some(device) => device,
                None if node.memory.is_none() => return Err(pending(&budget.node)),
                None => return Err(no_device(card, &budget.node, budget.backend.as_deref(), self.kv())),
            };
            let (needed, usable) = held.entry((&budget.node, device.memory)).or_default();
            *needed = needed.saturating_add(budget.bytes.total());
            *usable = device.usable.max(*usable);
            for (needed, usable) in [(budget.bytes.total(), device.usable), (*needed, *usable)] {
                if needed > usable {
                    return Err(over(&budget.node, needed, usable, FREE));
                }
            }
        }
        let mut fractions: BTreeMap<&NodeId, f64> = BTreeMap::new();
        let world = self.stages.len() as f64;
        for stage in self.stages.iter().filter(|_| self.budgets.is_empty()) {
            *fractions.entry(&stage.node).or_default() += match stage.part {
                Part::Tensor => 1.0 / world,
                Part::Whole | Part::Cfg { .. } => stage.layers.len() as f64 / self.n_layers as f64,
            };
        }
        for (id, fraction) in fractions {
            let usable = usable_memory(find(id)?, Strictness::Safe).ok_or_else(|| pending(id))?;
            let needed = shard_footprint(card, fraction, context_tokens, Strictness::Safe);
            if needed > usable.bytes {
                return Err(over(id, needed, usable.bytes, FREE));
            }
        }
        Ok(())
    }

    fn budgets_hold(&self, card: &ModelCard) -> Result<()> {
        if self.budgets.is_empty() && self.weights.is_none() {
            return Ok(());
        }
        for (node, backend) in self.devices() {
            let own = self.budgets.iter().filter(|budget| budget.node == *node && budget.backend == *backend);
            let found = own.count();
            if found != 1 {
                let message = format!("expected one budget for each device, found {found} for one");
                return Err(invalid(message, SPOILED).with("node", node));
            }
        }
        let mut weights = 0u128;
        let last = self.stages.last();
        for budget in &self.budgets {
            let total = budget.bytes.total();
            if total > budget.usable {
                return Err(over(&budget.node, total, budget.usable, SPOILED));
            }
            weights += weights_of(&budget.bytes);
            let Some(Drafter { bytes, .. }) = budget.drafter else { continue };
            let is_last = last.is_some_and(|it| it.node == budget.node && it.backend == budget.backend);
            if !(is_last && budget.bytes.hold(&bytes)) {
                let message =
                    "expected what drafts among the bytes of the last stage's device, found it elsewhere";
                return Err(invalid(message, SPOILED).with("node", &budget.node));
            }
            weights -= weights_of(&bytes);
        }
        // The others stay on disk.
        if self.ffn_budget.is_some() {
            return Ok(());
        }
        let (expected, least, hint) = self.planned_weights(card);
        if weights < u128::from(least) {
            let found = ByteSize(u64::try_from(weights).unwrap_or(u64::MAX));
            let message = format!("expected budgets for {} of weights, found {found}", ByteSize(expected));
            return Err(invalid(message, hint));
        }
        Ok(())
    }

    /// Bytes of weights that budgets are for, and the fewest that they may say: what the plan counted for this card, or what
    /// follows from the card's size. And what to do where they say less.
    fn planned_weights(&self, card: &ModelCard) -> (u64, u64, &'static str) {
        let is_same = self.card.as_deref().is_some_and(|own| own.storage_size == card.storage_size);
        if let Some(counted) = self.weights.filter(|_| is_same) {
            return (counted, counted, SPOILED);
        }
        let decoder = card.storage_size.in_bytes.saturating_sub(Inventory::from_card(card).beside());
        (decoder, scale(decoder, ACCOUNTED), PLAN_AGAIN)
    }
}

fn weights_of(bytes: &Bytes) -> u128 {
    u128::from(bytes.attention) + u128::from(bytes.feed_forward)
}

fn over(node: &NodeId, needed: u64, usable: u64, hint: &'static str) -> Error {
    let message = format!("expected at most {} on the node, found {}", ByteSize(usable), ByteSize(needed));
    invalid(message, hint).with("node", node)
}

/// A node's memory is not known.
pub(super) fn pending(node: &NodeId) -> Error {
    Error::new(ErrorKind::PlanPending, "the node has not reported its memory yet")
        .with("node", node)
        .with_hint("ask again shortly")
}

/// A device runs a backend that the card, which lists others of this library's, does not.
pub(super) fn not_listed(card: &ModelCard, node: &NodeId, backend: &str) -> Error {
    let listed: Vec<&str> = card.placement.compatible_backends.iter().map(String::as_str).collect();
    let message = format!("expected one of the card's backends ({}), found {backend}", listed.join(", "));
    let hint = if is_candles(backend) { CANDLE_RUNS_NOT } else { LISTED };
    invalid(message, hint).with("node", node)
}

/// No device of a node runs a backend.
pub(super) fn no_device(card: &ModelCard, node: &NodeId, backend: Option<&str>, kv: KvTypes) -> Error {
    let backend = backend.unwrap_or("none");
    let mut message = format!("expected a device with backend {backend} on the node, found none");
    if !keeps(backend, kv) {
        message += &format!(" that keeps keys and values in {kv}");
    }
    let listed = &card.placement.compatible_backends;
    let hint = if listed.iter().any(|tag| serves(backend, tag)) { NEW_CLUSTER } else { LISTED };
    invalid(message, hint).with("node", node)
}
