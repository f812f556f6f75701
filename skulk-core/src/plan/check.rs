//! Is a placement that came from elsewhere sound? Coverage, and budgets.

use std::collections::BTreeMap;

use super::backend::keeps;
use super::cluster::{Cluster, NodeId};
use super::direct::seats;
use super::inventory::Inventory;
use super::memory::{shard_footprint, usable_memory};
use super::placement::Placement;
use super::report::Bytes;
use super::stage::{Drafter, Part, invalid};
use super::strictness::Strictness;
use crate::bytes::ByteSize;
use crate::card::ModelCard;
use crate::error::{Error, ErrorKind, Result};

/// Of a card's size, the percentage that budgets must account for: files hold more than weights, and cards
/// round.
const ACCOUNTED: u128 = 95;

impl Placement {
    /// Whether every layer and expert of the card's model has its place exactly once, and what each device is
    /// to hold fits there by the placement's own budgets. Placements that came as MLX instances have none, and
    /// budgets may be wrong: [`check_on`](Self::check_on) looks at the nodes.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`] naming what is wrong, and on which node or layer.
    pub fn check(&self, card: &ModelCard) -> Result<()> {
        if let Some(own) = self.card.as_deref().filter(|own| own.model_id != card.model_id) {
            return Err(invalid(format!(
                "expected a placement of {}, found one of {}",
                card.model_id, own.model_id
            )));
        }
        if self.n_layers != card.n_layers {
            return Err(invalid(format!("expected {} layers, found {}", card.n_layers, self.n_layers)));
        }
        self.covers(self.n_layers)?;
        if let Some(limit) = self.context_limit
            && card.context_length > 0
            && limit > card.context_length as u64
        {
            return Err(invalid(format!(
                "expected a context of at most {} tokens, found {limit}",
                card.context_length
            )));
        }
        self.budgets_hold(card)
    }

    /// [`check`](Self::check), and whether each part fits into what its node has now, with the margins of
    /// [`Strictness::Safe`]: what the budgets say that a device is to hold, and without budgets what the
    /// reference estimates for a node's share of the card's size.
    ///
    /// # Errors
    /// [`ErrorKind::PlacementInvalid`]; [`ErrorKind::PlanPending`] where a node has not reported its memory.
    pub fn check_on(&self, card: &ModelCard, cluster: &Cluster, context_tokens: u64) -> Result<()> {
        self.check(card)?;
        let find = |id: &NodeId| {
            cluster.nodes.iter().find(|node| node.id == *id).ok_or_else(|| {
                invalid("the placement names a node that the cluster lacks".to_owned()).with("node", id)
            })
        };
        let pending = |id: &NodeId| {
            Error::new(ErrorKind::PlanPending, "the node has not reported its memory yet").with("node", id)
        };
        // Devices may reach the same memory, which then holds what all of them are to hold.
        let mut held: BTreeMap<(&NodeId, Option<usize>), (u64, u64)> = BTreeMap::new();
        for budget in &self.budgets {
            let node = find(&budget.node)?;
            let devices = seats::devices(0, node, card, self.kv, Strictness::Safe);
            let device = match devices.iter().find(|device| device.backend == budget.backend) {
                Some(device) => device,
                None if node.memory.is_none() => return Err(pending(&budget.node)),
                None => {
                    let backend = budget.backend.as_deref().unwrap_or("none");
                    let mut message =
                        format!("expected a device with backend {backend} on the node, found none");
                    if !keeps(backend, self.kv) {
                        message += &format!(" that keeps keys and values in {}", self.kv);
                    }
                    return Err(invalid(message).with("node", &budget.node));
                }
            };
            let (needed, usable) = held.entry((&budget.node, device.memory)).or_default();
            *needed = needed.saturating_add(budget.bytes.total());
            *usable = device.usable.max(*usable);
            for (needed, usable) in [(budget.bytes.total(), device.usable), (*needed, *usable)] {
                if needed > usable {
                    return Err(over(&budget.node, needed, usable));
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
                return Err(over(id, needed, usable.bytes));
            }
        }
        Ok(())
    }

    fn budgets_hold(&self, card: &ModelCard) -> Result<()> {
        if self.budgets.is_empty() {
            return Ok(());
        }
        let devices = self.stages.iter().map(|stage| (&stage.node, &stage.backend));
        let devices = devices.chain(self.experts.iter().map(|shard| (&shard.node, &shard.backend)));
        for (node, backend) in devices {
            if !self.budgets.iter().any(|budget| budget.node == *node && budget.backend == *backend) {
                return Err(
                    invalid("expected a budget for each device, found none".to_owned()).with("node", node)
                );
            }
        }
        let mut weights = 0u128;
        let last = self.stages.last();
        for budget in &self.budgets {
            let total = budget.bytes.total();
            if total > budget.usable {
                return Err(over(&budget.node, total, budget.usable));
            }
            weights += weights_of(&budget.bytes);
            let Some(Drafter { bytes, .. }) = budget.drafter else { continue };
            let is_last = last.is_some_and(|it| it.node == budget.node && it.backend == budget.backend);
            if !(is_last && budget.bytes.hold(&bytes)) {
                let message =
                    "expected what drafts among the bytes of the last stage's device, found it elsewhere";
                return Err(invalid(message.to_owned()).with("node", &budget.node));
            }
            weights -= weights_of(&bytes);
        }
        // The others stay on disk.
        if self.ffn_budget.is_some() {
            return Ok(());
        }
        let beside = Inventory::from_card(card).beside();
        let decoder = card.storage_size.in_bytes.saturating_sub(beside);
        let expected = u128::from(decoder);
        if weights * 100 < expected * ACCOUNTED {
            let found = ByteSize(u64::try_from(weights).unwrap_or(u64::MAX));
            return Err(invalid(format!(
                "expected budgets for {} of weights, found {found}",
                ByteSize(decoder)
            )));
        }
        Ok(())
    }
}

fn weights_of(bytes: &Bytes) -> u128 {
    u128::from(bytes.attention) + u128::from(bytes.feed_forward)
}

fn over(node: &NodeId, needed: u64, usable: u64) -> Error {
    invalid(format!("expected at most {} on the node, found {}", ByteSize(usable), ByteSize(needed)))
        .with("node", node)
}
