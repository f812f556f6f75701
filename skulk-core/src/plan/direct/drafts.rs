//! What drafts for the model, and what does a draft read?

use super::seats::Seat;
use crate::arch::shortlisted;
use crate::plan::backend::own_engine;
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
        Some(Self { inventory: inventory.keeping(request.kept()) })
    }

    /// Tokens of its context, where the model's has so many: as in loading no more than it was trained for.
    pub(super) fn tokens(&self, tokens: u64) -> u64 {
        match self.inventory.context {
            0 => tokens,
            most => tokens.min(most),
        }
    }

    /// Bytes that a draft reads of the output head that it uses, on a device: on processors those of a shortlist.
    pub(super) fn output_head(&self, model: &Inventory, device: &Seat) -> u64 {
        let own = &self.inventory;
        let [head, tokens] = match own.shares_head {
            true => [model.output_head(), model.vocabulary],
            false => [own.output_head(), own.vocabulary],
        };
        let tag = device.backend.as_deref();
        let shortens = tag.and_then(own_engine).is_some_and(|engine| engine.as_str() == "cpu") && tokens > 0;
        let listed = if shortens { shortlisted(tokens as usize) as u64 } else { tokens };
        if listed < tokens {
            (u128::from(head) * u128::from(listed) / u128::from(tokens)) as u64
        } else {
            head
        }
    }

    /// Bytes of weights that a draft reads there: its layers, of experts those that it takes, and of the output head.
    pub(super) fn read(&self, model: &Inventory, device: &Seat) -> u64 {
        self.inventory.read_by_a_token().saturating_add(self.output_head(model, device))
    }
}
