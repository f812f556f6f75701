//! What drafts for the model, and what does a draft read?

use crate::plan::inventory::Inventory;
use crate::plan::request::Request;

/// What drafts, as a request says.
pub(super) struct Drafts {
    pub(super) inventory: Inventory,
}

impl Drafts {
    /// The checkpoint's own head, or the draft model of a request, for a model whose keys and values are in half precision.
    pub(super) fn of(request: &Request, model: &Inventory) -> Option<Self> {
        let inventory = match &request.draft_model {
            Some(drafts) => (**drafts).clone(),
            None if request.mtp => model.mtp_head()?,
            None => return None,
        };
        Some(Self { inventory: inventory.keeping(request.kv) })
    }

    /// Bytes of the output head that it uses.
    pub(super) fn output_head(&self, model: &Inventory) -> u64 {
        let models = if self.inventory.shares_head { model.output_head() } else { 0 };
        self.inventory.output_head().saturating_add(models)
    }

    /// Bytes of weights that a draft reads: its layers, of experts those that it takes, and the output head.
    pub(super) fn read(&self, model: &Inventory) -> u64 {
        self.inventory.read_by_a_token().saturating_add(self.output_head(model))
    }
}
