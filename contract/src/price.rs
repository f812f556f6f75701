//! What does a host ask of a price? What of a request counts for a placement that there is.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use skulk::plan::{Estimate, Inventory, PromptEstimate};
use skulk::{Cluster, KvType, ModelCard, Placement, Planner, Request};

use crate::given::{Given, Spelling};
use crate::options::options;

/// What is asked of a price.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PriceRequest(pub Request);

impl PriceRequest {
    /// Prices a placement of a card's model.
    ///
    /// # Errors
    /// As [`Planner::price`].
    pub fn price(
        &self,
        card: &ModelCard,
        cluster: &Cluster,
        placement: &Placement,
    ) -> skulk::Result<(Estimate, PromptEstimate)> {
        Planner::price(card, cluster, &self.0, placement)
    }

    /// Prices a placement of a checkpoint's model, whose tensors are counted.
    ///
    /// # Errors
    /// As [`ModelCard::from_checkpoint`], [`Inventory::from_checkpoint`] and [`Planner::price`].
    pub fn price_checkpoint(
        mut self,
        path: PathBuf,
        cluster: &Cluster,
        placement: &Placement,
    ) -> skulk::Result<(Estimate, PromptEstimate)> {
        let card = ModelCard::from_checkpoint(&path)?;
        if self.0.inventory.is_none() {
            let counted = Inventory::from_checkpoint(&*skulk::open_checkpoint(path)?)?;
            self.0.inventory = Some(Arc::new(counted));
        }
        self.price(&card, cluster, placement)
    }
}

options! {
    /// Options of a price.
    PriceOptions of (asked: PriceRequest) {
        /// Tokens of each session's context, in the middle of which a token is priced; 8192 by default, and no more than the
        /// model was trained for and its card allows.
        context_tokens: u64 => asked.0.context_tokens = context_tokens,
        /// Tokens of the prompt that is priced; 512 by default, and no more than the context has.
        prompt_tokens: u64 => asked.0.prompt_tokens = prompt_tokens,
        /// Sessions that generate at once; 1 by default.
        sessions: usize => asked.0.sessions = sessions,
        /// How keys and values are kept; by default in two bytes an element.
        kv: KvType => asked.0.kv = Some(kv.into()),
        /// How values are kept, where that is otherwise than keys.
        kv_values: KvType => asked.0.kv.get_or_insert_default().values = kv_values,
        /// What each part of the model weighs; by default a checkpoint's tensors are counted, and a card's size is divided.
        inventory: Inventory => asked.0.inventory = Some(Arc::new(inventory)),
        /// The head for tokens ahead (MTP) that the checkpoint has drafts.
        mtp: bool => asked.0.mtp = mtp,
        /// What drafts instead: the inventory of a `draft_model` of loading.
        draft_model: Inventory => asked.0.draft_model = Some(Arc::new(draft_model)),
    }
}
